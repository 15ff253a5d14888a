/* Buffers of cuMemAlloc, by turns: a rank offers the allocation to its leader, which opens the IPC
 * handle when it next submits a call, and says so in its page. From then on the rank posts where
 * its buffer lies, and stages no more. Nobody waits for that.
 *
 * An allocation is known by its CU_POINTER_ATTRIBUTE_BUFFER_ID, which no later one has. Each call
 * looks at one offer more, and takes back that of memory which has been freed; the leader closes
 * it. An offer is changed only when no call that has used it is still to end. */
#include "cuda/turns.h"

#include "core/log.h"
#include "core/status.h"

#include <stdatomic.h>
#include <string.h>

static uint64_t turn_exports_look(const uint64_t *word)
{
	return atomic_load((_Atomic uint64_t *)(uintptr_t)word);
}

static void turn_exports_set(uint64_t *word, uint64_t value)
{
	atomic_store((_Atomic uint64_t *)word, value);
}

/* ---- the rank whose buffer it is ---- */

/* With several GPUs others than the leader of this one read, too: there buffers are staged. */
static bool turn_exports_may_offer(const struct cuda_channels *c)
{
	const struct cuda_turns *turns = c->turns;

	return c->opens_buffers && c->is_one_gpu && !turns->is_here[turns->leader];
}

static bool turn_exports_is_used(const struct cuda_channels *c, const struct cuda_offer *o)
{
	const struct turn_page *own = c->segment->page.page;
	uint32_t finished = atomic_load((_Atomic uint32_t *)(uintptr_t)&own->finished);

	return o->base && (int32_t)(finished - o->last) < 0;
}

static uint64_t turn_exports_buffer_id(CUdeviceptr pointer)
{
	const struct cuda_driver *cuda = cuda_driver();
	unsigned long long id = 0;

	return cuda->pointer_get_attribute(&id, CU_POINTER_ATTRIBUTE_BUFFER_ID, pointer) ==
			       CUDA_SUCCESS
		       ? id
		       : 0;
}

/* Odd while the words are written: a leader that sees that, or another number afterwards, comes
 * again; every access is sequentially consistent. handle NULL: there is nothing any more. */
static void turn_exports_publish(struct turn_page *own, int slot, const CUipcMemHandle *handle)
{
	struct turn_offer *offer = &own->offers[slot];
	uint64_t number = turn_exports_look(&offer->number) + 1;
	uint64_t words[TURN_OFFER_WORDS] = {0};

	if (handle)
		memcpy(words, handle->reserved, sizeof words);
	turn_exports_set(&offer->number, number);
	for (int i = 0; i < TURN_OFFER_WORDS; i++)
		turn_exports_set(&offer->handle[i], words[i]);
	turn_exports_set(&offer->is_there, handle != NULL);
	turn_exports_set(&offer->number, number + 1);
	turn_exports_set(&own->offers_made, turn_exports_look(&own->offers_made) + 1);
}

static void turn_exports_look_at_one_more(struct cuda_channels *c)
{
	struct cuda_turns *turns = c->turns;
	int slot = (int)(turns->looked++ % TURN_OFFERS);
	struct cuda_offer *o = &turns->offers[slot];

	if (!o->base || turn_exports_is_used(c, o) || turn_exports_buffer_id(o->base) == o->id)
		return;
	turn_exports_publish(c->segment->page.page, slot, NULL);
	o->base = 0;
}

static struct cuda_offer *turn_exports_find(struct cuda_turns *turns, CUdeviceptr base, uint64_t id)
{
	for (int i = 0; i < TURN_OFFERS; i++)
		if (turns->offers[i].base == base && turns->offers[i].id == id)
			return &turns->offers[i];
	return NULL;
}

/* A slot that is free, or has not been used for the longest time; NULL: all are in use. */
static struct cuda_offer *turn_exports_choose(struct cuda_channels *c)
{
	struct cuda_offer *best = NULL;

	for (int i = 0; i < TURN_OFFERS; i++) {
		struct cuda_offer *o = &c->turns->offers[i];
		if (turn_exports_is_used(c, o))
			continue;
		if (!best || !o->base || (best->base && (int32_t)(o->last - best->last) < 0))
			best = o;
	}
	return best;
}

static void turn_exports_offer(struct cuda_channels *c, CUdeviceptr base, uint64_t id)
{
	const struct cuda_driver *cuda = cuda_driver();
	struct cuda_offer *o = turn_exports_choose(c);
	CUipcMemHandle handle;

	if (!o || cuda->ipc_get_mem_handle(&handle, base) != CUDA_SUCCESS)
		return;
	*o = (struct cuda_offer){.base = base, .id = id, .last = c->turns->last_turn};
	turn_exports_publish(c->segment->page.page, (int)(o - c->turns->offers), &handle);
}

static bool turn_exports_is_opened(const struct cuda_channels *c, int slot)
{
	const struct turn_page *leader = c->turns->views[c->turns->leader];

	return turn_exports_look(&leader->taken[c->rank][slot]) ==
	       turn_exports_look(&c->segment->page.page->offers[slot].number);
}

uint64_t cuda_turn_offer(struct cuda_channels *c, const void *ptr)
{
	CUdeviceptr pointer = (CUdeviceptr)(uintptr_t)ptr, base;
	uint64_t id;
	size_t bytes;

	if (!turn_exports_may_offer(c) || !cuda_has_ipc_handle(pointer) ||
	    cuda_driver()->mem_get_address_range(&base, &bytes, pointer) != CUDA_SUCCESS ||
	    !(id = turn_exports_buffer_id(base)))
		return CHANNEL_NOWHERE;
	turn_exports_look_at_one_more(c);
	struct cuda_offer *o = turn_exports_find(c->turns, base, id);
	if (!o) {
		turn_exports_offer(c, base, id);
		return CHANNEL_NOWHERE;
	}
	int slot = (int)(o - c->turns->offers);
	if (!turn_exports_is_opened(c, slot))
		return CHANNEL_NOWHERE;
	o->last = c->turns->last_turn;
	return channel_place(0, c->turns->views[c->turns->leader]->opened[c->rank][slot] +
					(pointer - base));
}

/* ---- the leader ---- */

static void turn_exports_close_one(uint64_t *opened)
{
	if (*opened)
		cuda_driver()->ipc_close_mem_handle(*opened);
	*opened = 0;
}

static void turn_exports_open_one(struct cuda_channels *c, int r, int slot)
{
	const struct turn_offer *offer = &c->turns->views[r]->offers[slot];
	struct turn_page *own = c->segment->page.page;
	uint64_t number = turn_exports_look(&offer->number);
	uint64_t words[TURN_OFFER_WORDS];
	CUdeviceptr address = 0;
	CUipcMemHandle handle;

	if (number % 2 != 0 || number == turn_exports_look(&own->taken[r][slot]))
		return;
	bool is_there = turn_exports_look(&offer->is_there);
	for (int i = 0; i < TURN_OFFER_WORDS; i++)
		words[i] = turn_exports_look(&offer->handle[i]);
	memcpy(handle.reserved, words, sizeof words);
	if (turn_exports_look(&offer->number) != number)
		return;
	turn_exports_close_one(&own->opened[r][slot]);
	if (is_there && cuda_driver()->ipc_open_mem_handle(&address, handle,
							   CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS) !=
				CUDA_SUCCESS) {
		log_info("rank %d: a buffer of rank %d of those on this host cannot be mapped: it "
			 "is staged",
			 c->named, r);
		return;
	}
	own->opened[r][slot] = address;
	turn_exports_set(&own->taken[r][slot], number);
}

void cuda_turn_offers_take(struct cuda_channels *c)
{
	struct cuda_turns *turns = c->turns;

	for (int r = 0; r < c->size && c->opens_buffers; r++) {
		uint64_t made = turn_exports_look(&turns->views[r]->offers_made);
		if (turns->is_here[r] || made == turns->offers_seen[r])
			continue;
		for (int slot = 0; slot < TURN_OFFERS; slot++)
			turn_exports_open_one(c, r, slot);
		turns->offers_seen[r] = made;
	}
}

void cuda_turn_offers_close(struct turn_page *own)
{
	for (int r = 0; r < CHANNEL_RANKS; r++)
		for (int slot = 0; slot < TURN_OFFERS; slot++)
			turn_exports_close_one(&own->opened[r][slot]);
}
