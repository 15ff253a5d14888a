/* Turns: whether the ranks of a communicator take them, who leads, and where the others' pages and
 * staging are; then the turns of a call, in a stream: it posts, waits, and where this rank leads
 * its kernel moves what those on its GPU get. cuda/kernels/channel.h says why that is in order. */
#include "cuda/turns.h"

#include "core/clock.h"
#include "core/log.h"
#include "core/machine.h"
#include "core/status.h"

#include <assert.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Turns of a communicator: whether it takes them, who leads, and where the others' pages and
 * staging are. */

/* Of staging, so many times what a window has: a turn costs the time slices of all processes. */
#define STAGING_FACTOR 16
#define ENDING_MS      500 /* of a process that is ending: a guess */

static bool turns_is_same(const uint8_t *a, const uint8_t *b)
{
	return memcmp(a, b, 16) == 0;
}

bool cuda_turns_are_needed(const struct cuda_part *parts, int size)
{
	for (int r = 0; r < size; r++)
		for (int k = 0; k < r; k++)
			if (turns_is_same(parts[k].gpu, parts[r].gpu) &&
			    !turns_is_same(parts[k].process, parts[r].process))
				return true;
	return false;
}

/* A flag is a word of 64 bits. */
static bool turns_streams_await_flags(const struct cuda_channels *c)
{
	const struct cuda_driver *cuda = cuda_driver();
	CUdevice number;
	int can = 0;

	if (cuda->device_get(&number, c->device->ordinal) == CUDA_SUCCESS &&
	    cuda->device_get_attribute(&can, CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS,
				       number) == CUDA_SUCCESS &&
	    can)
		return true;
	log_info("CUDA device %d: streams do not wait for words of 64 bits, and so take no turns "
		 "with other processes",
		 c->device->ordinal);
	return false;
}

void cuda_turns_describe(const struct cuda_channels *c, struct cuda_part *part)
{
	const struct cuda_turn_page *own = &c->segment->page;

	part->pid = (uint32_t)getpid();
	if (!own->page || !turns_streams_await_flags(c))
		return;
	part->page = (uint64_t)(uintptr_t)own->page;
	part->page_token = own->page->token;
	part->page_fd = own->fd;
	part->page_slot = own->slot;
}

static tutti_status turns_find_page(struct cuda_channels *c, const struct cuda_part *parts, int r)
{
	struct cuda_turns *turns = c->turns;
	bool is_here = turns_is_same(parts[r].process, parts[c->rank].process);

	if (!parts[r].page)
		return fail(TUTTI_ERR_UNSUPPORTED,
			    "rank %d has no flags for which streams of other processes wait", r);
	turns->is_here[r] = is_here;
	turns->pids[r] = parts[r].pid;
	turns->views[r] = (struct turn_page *)(uintptr_t)parts[r].page;
	if (!is_here)
		TRY(cuda_turn_page_open(&turns->views[r], parts[r].pid, parts[r].page_fd,
					parts[r].page_slot, parts[r].page_token));
	if (r != c->rank)
		c->segment->readers[r] = (struct cuda_reader){turns->views[r], parts[r].page_token};
	return cuda_turn_page_pin(turns->views[r], &turns->pages[r]);
}

/* The first rank on r's GPU. */
static int turns_leader_of(const struct cuda_part *parts, int r)
{
	int leader = 0;

	while (!turns_is_same(parts[leader].gpu, parts[r].gpu))
		leader++;
	return leader;
}

static void turns_find_leaders(struct cuda_channels *c, const struct cuda_part *parts)
{
	struct cuda_turns *turns = c->turns;

	turns->leader = turns_leader_of(parts, c->rank);
	for (int r = 0; r < c->size; r++) {
		int leader = turns_leader_of(parts, r);
		if (leader == r)
			turns->leaders |= 1u << r;
		if (leader == c->rank)
			turns->locals |= 1u << r;
	}
}

/* Bytes of staging of a rank. */
static size_t cuda_turns_staging(const struct cuda_channels *c)
{
	size_t bytes = c->staging_config * STAGING_FACTOR / CHANNEL_ALIGN * CHANNEL_ALIGN;

	return bytes > TURN_STAGING_LEAST ? bytes : TURN_STAGING_LEAST;
}

/* The leaders map it when they need it: then all ranks have come this far. */
static tutti_status turns_publish_staging(struct cuda_channels *c)
{
	struct turn_page *own = c->segment->page.page;

	TRY(cuda_segment_stage(c->segment, cuda_turns_staging(c)));
	memcpy(own->handle, c->segment->staging_handle.reserved, sizeof own->handle);
	own->staging = c->segment->staging;
	return TUTTI_OK;
}

static tutti_status turns_connect(struct cuda_channels *c, const struct cuda_part *parts)
{
	for (int r = 0; r < c->size; r++)
		TRY(turns_find_page(c, parts, r));
	turns_find_leaders(c, parts);
	TRY(turns_publish_staging(c));
	c->turns->staging[c->rank] = c->segment->staging;
	return TUTTI_OK;
}

tutti_status cuda_turns_connect(struct cuda_channels *c, const struct cuda_part *parts)
{
	if (!(c->turns = calloc(1, sizeof *c->turns)))
		return fail(TUTTI_ERR_MEMORY, "rank %d: no memory for its turns", c->named);
	tutti_status status = turns_connect(c, parts);
	if (status != TUTTI_OK) {
		free(c->turns);
		c->turns = NULL;
	}
	return status;
}

/* ---- the staging of others ---- */

static tutti_status turns_map_staging(struct cuda_turns *turns, int r)
{
	const struct cuda_driver *cuda = cuda_driver();
	const struct turn_page *page = turns->views[r];
	CUipcMemHandle handle;

	turns->staging[r] = page->staging;
	if (turns->is_here[r])
		return TUTTI_OK;
	memcpy(handle.reserved, page->handle, sizeof handle.reserved);
	CUDA_TRY(ipc_open_mem_handle, &turns->staging[r], handle,
		 CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
	turns->is_mapped[r] = true;
	return TUTTI_OK;
}

/* The driver gives back what a process has while that ends. */
static bool turns_ends_now(int pid)
{
	uint64_t deadline_ns = deadline_after_ms(ENDING_MS);

	while (!process_has_ended(pid)) {
		if (clock_now_ns() > deadline_ns)
			return false;
		poll(NULL, 0, 1);
	}
	return true;
}

/* A process that has died has no memory to map: the call then waits for it, until the failure is
 * known. One that lives would wait for this rank until a deadline. */
static tutti_status turns_cut(const struct cuda_channels *c, int r, tutti_status status)
{
	struct cuda_turns *turns = c->turns;
	char before[120];

	if (turns_ends_now((int)turns->pids[r])) {
		turns->is_cut[r] = true;
		log_notice("rank %d cannot map the staging of rank %d, which has ended: %s",
			   c->named, r, last_error());
		last_error_clear(); /* of no call */
		return TUTTI_OK;
	}
	snprintf(before, sizeof before,
		 "the staging of process %u, rank %d of those on this host, cannot be mapped: ",
		 turns->pids[r], r);
	return fail_before(status, before);
}

/* Maps the staging of all ranks, where this one leads: at the first call. */
static tutti_status cuda_turns_map(struct cuda_channels *c)
{
	struct cuda_turns *turns = c->turns;

	for (int r = 0; r < c->size && turns->locals && !turns->is_complete; r++) {
		tutti_status status = turns_map_staging(turns, r);
		if (status != TUTTI_OK)
			TRY(turns_cut(c, r, status));
	}
	turns->is_complete = true;
	return TUTTI_OK;
}

void cuda_turns_close(struct cuda_channels *c, bool unmaps)
{
	const struct cuda_driver *cuda = cuda_driver();
	struct cuda_turns *turns = c->turns;

	for (int r = 0; turns && unmaps && r < CHANNEL_RANKS; r++)
		if (turns->is_mapped[r])
			cuda->ipc_close_mem_handle(turns->staging[r]);
	if (turns && unmaps)
		cuda_turn_offers_close(c->segment->page.page);
	free(turns);
	c->turns = NULL;
}

/* Turns of a call: a driver's queue of a stream holds about a thousand operations, and when it is
 * full the CPU waits. */
#define TURNS_MOST 64

/* ---- operations on words, which a stream does in their order: a write has a fence before it ----
 */

struct batch {
	CUstreamBatchMemOpParams ops[2 * CHANNEL_RANKS + 1];
	unsigned count;
};

static void turns_add_write(struct batch *batch, CUdeviceptr address, uint32_t value)
{
	CUstreamBatchMemOpParams *op = &batch->ops[batch->count++];

	*op = (CUstreamBatchMemOpParams){.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32};
	op->writeValue.address = address;
	op->writeValue.value = value;
	op->writeValue.flags = CU_STREAM_WRITE_VALUE_DEFAULT;
}

static void turns_add_wait(struct batch *batch, CUdeviceptr address, uint64_t bits)
{
	CUstreamBatchMemOpParams *op = &batch->ops[batch->count++];

	*op = (CUstreamBatchMemOpParams){.operation = CU_STREAM_MEM_OP_WAIT_VALUE_64};
	op->waitValue.address = address;
	op->waitValue.value64 = bits;
	op->waitValue.flags = CU_STREAM_WAIT_VALUE_AND;
}

static tutti_status turns_put(struct batch *batch, CUstream stream)
{
	const struct cuda_driver *cuda = cuda_driver();
	unsigned count = batch->count;

	batch->count = 0;
	if (count)
		CUDA_TRY(stream_batch_mem_op, stream, count, batch->ops, 0);
	return TUTTI_OK;
}

/* In r's page. */
static CUdeviceptr turns_posted_of(const struct cuda_channels *c, int r, int by)
{
	return c->turns->pages[r] + offsetof(struct turn_page, posted) +
	       (size_t)by * sizeof(struct turn_flag);
}

static CUdeviceptr turns_done_of(const struct cuda_channels *c, int r, int by)
{
	return c->turns->pages[r] + offsetof(struct turn_page, done) +
	       (size_t)by * sizeof(struct turn_flag);
}

static bool turns_leads(const struct cuda_turns *turns, int r)
{
	return turns->leaders >> r & 1u;
}

static void turns_post(const struct cuda_channels *c, struct batch *batch, uint32_t turn)
{
	for (int r = 0; r < c->size; r++)
		if (turns_leads(c->turns, r))
			turns_add_write(batch, turns_posted_of(c, r, c->rank), turn_mark(turn));
}

/* A rank whose process has ended posts no more. */
static void turns_await_ranks(const struct cuda_channels *c, struct batch *batch, uint32_t turn)
{
	for (int r = 0; r < c->size; r++)
		if (r != c->rank)
			turns_add_wait(batch, turns_posted_of(c, c->rank, r),
				       c->turns->is_cut[r] ? TURN_RELEASED : turn_awaited(turn));
}

static void turns_await_leaders(const struct cuda_channels *c, struct batch *batch, uint32_t turn)
{
	for (int r = 0; r < c->size; r++)
		if (turns_leads(c->turns, r))
			turns_add_wait(batch, turns_done_of(c, c->rank, r), turn_awaited(turn));
}

static void turns_say_finished(const struct cuda_channels *c, struct batch *batch, uint32_t turn)
{
	turns_add_write(batch, c->turns->pages[c->rank] + offsetof(struct turn_page, finished),
			turn_mark(turn));
}

/* ---- the posting of a call ---- */

static bool turns_leaders_are_here(const struct cuda_channels *c)
{
	return c->is_one_gpu && c->turns->is_here[c->turns->leader];
}

/* All leaders read send, and the one of this GPU writes recv. Sums of several GPUs in place are
 * staged: one leader would write where another one still reads. */
static void turns_place_buffers(struct cuda_channels *c, struct lines_args *a)
{
	const struct cuda_turns *turns = c->turns;

	if (a->send_place == CHANNEL_NOWHERE && !a->is_scaled)
		a->send_place = turns_leaders_are_here(c) ? channel_place(0, (uintptr_t)a->send)
							  : cuda_turn_offer(c, a->send);
	if (a->recv_place == CHANNEL_NOWHERE)
		a->recv_place = turns->is_here[turns->leader] ? channel_place(0, (uintptr_t)a->recv)
							      : cuda_turn_offer(c, a->recv);
	if (a->move == CHANNEL_REDUCE_SLICES && a->send == a->recv && !c->is_one_gpu)
		a->send_place = CHANNEL_NOWHERE;
}

/* Words that kernels of the leaders read, when they have seen that this call is posted. */
static void turns_fill_posting(const struct cuda_channels *c, const struct lines_args *a,
			       struct turn_posting *posting)
{
	posting->send = a->send_place;
	posting->recv = a->recv_place;
	posting->fingerprint = a->channel.fingerprint;
	for (int r = 0; r < c->size; r++)
		posting->peers[r] =
			(struct turn_peer){a->send_offset[r], a->recv_offset[r], a->recv_bytes[r]};
}

static uint32_t turns_finished_of(const struct cuda_channels *c)
{
	return atomic_load((_Atomic uint32_t *)&c->segment->page.page->finished);
}

/* The engine has no more calls in flight than there are slots. */
static uint32_t turns_take_slot(struct cuda_channels *c)
{
	struct cuda_turns *turns = c->turns;
	uint32_t slot = turns->calls++ % TURN_CALLS;

	assert((int32_t)(turns_finished_of(c) - turns->last[slot]) >= 0 ||
	       turns->calls <= TURN_CALLS);
	return slot;
}

static size_t turns_round_up(size_t bytes, size_t unit)
{
	return (bytes + unit - 1) / unit * unit;
}

static uint32_t turns_count_chunks(const struct turn_args *a, size_t share)
{
	size_t piece = turn_piece_bytes(&a->lines);

	return share <= piece ? 1 : (uint32_t)((share + piece - 1) / piece);
}

/* Returns how many turns the call takes. */
static uint32_t turns_fill_in(struct cuda_channels *c, const struct cuda_channels_launch *l,
			      struct turn_args *a)
{
	struct cuda_turns *turns = c->turns;
	size_t share = turns_round_up(l->most, (size_t)l->blocks * CHANNEL_ALIGN) / l->blocks;

	a->lines.channel.staging_bytes =
		c->segment->staging_bytes / l->blocks / CHANNEL_ALIGN * CHANNEL_ALIGN;
	for (int r = 0; r < c->size; r++) {
		a->pages[r] = (struct turn_page *)(uintptr_t)turns->pages[r];
		a->staging[r] = (void *)(uintptr_t)turns->staging[r];
	}
	a->slot = turns_take_slot(c);
	a->locals = turns->locals;
	a->copiers = turn_copiers(share);
	uint32_t chunks = turns_count_chunks(a, share);
	turns->last_turn = turns->last[a->slot] = turn_mark(turns->turn + chunks - 1);
	turns_place_buffers(c, &a->lines);
	turns_fill_posting(c, &a->lines, &c->segment->page.page->postings[a->slot]);
	return chunks;
}

/* ---- calls ---- */

static tutti_status turns_launch_phase(const struct cuda_channels *c, struct turn_args *a,
				       const struct cuda_channels_launch *l, CUstream stream,
				       enum turn_phase phase)
{
	a->phase = phase;
	return cuda_launch(c->device, CUDA_KERNEL_turn, l->blocks, stream, a);
}

static tutti_status turns_take_turn(const struct cuda_channels *c, struct turn_args *a,
				    const struct cuda_channels_launch *l, CUstream stream,
				    bool is_last)
{
	struct batch batch = {.count = 0};

	if (a->lines.send_place == CHANNEL_NOWHERE)
		TRY(turns_launch_phase(c, a, l, stream, TURN_STAGE));
	turns_post(c, &batch, a->turn);
	if (turns_leads(c->turns, c->rank)) {
		turns_await_ranks(c, &batch, a->turn);
		TRY(turns_put(&batch, stream));
		TRY(turns_launch_phase(c, a, l, stream, TURN_MOVE));
	}
	turns_await_leaders(c, &batch, a->turn);
	if (a->lines.recv_place == CHANNEL_NOWHERE) {
		TRY(turns_put(&batch, stream));
		TRY(turns_launch_phase(c, a, l, stream, TURN_TAKE));
	}
	if (is_last)
		turns_say_finished(c, &batch, a->turn);
	return turns_put(&batch, stream);
}

tutti_status cuda_turns_launch(struct cuda_channels *c, const struct cuda_channels_launch *l,
			       CUstream stream)
{
	struct cuda_turns *turns = c->turns;
	struct turn_args *a = l->args;

	TRY(cuda_turns_map(c));
	if (turns->locals)
		cuda_turn_offers_take(c);
	uint32_t chunks = turns_fill_in(c, l, a);
	for (a->chunk = 0; a->chunk < chunks; a->chunk++) {
		a->turn = turns->turn++;
		TRY(turns_take_turn(c, a, l, stream, a->chunk + 1 == chunks));
	}
	return TUTTI_OK;
}

size_t cuda_channels_most(const struct cuda_channels *c)
{
	return TURNS_MOST * cuda_turns_staging(c);
}

bool cuda_channels_take_turns(const struct cuda_channels *c)
{
	return c->turns != NULL;
}

bool cuda_turns_are_running(const struct cuda_channels *c, uint64_t *ended)
{
	const struct cuda_turns *turns = c->turns;
	struct turn_page *page = turns->views[turns->leader];

	*ended = turns_finished_of(c);
	return *ended != atomic_load((_Atomic uint32_t *)&page->posted[c->rank].turn);
}

bool cuda_turns_use_buffers(const struct cuda_channels *c)
{
	bool any = false;

	for (int r = 0; c->turns && r < c->size; r++)
		any |= atomic_load((_Atomic uint32_t *)&c->turns->views[r]->moves) != 0;
	return any;
}

/* Partner: the streams, and leaders' kernels, which tell nobody then. The abort word is set before,
 * so this rank's kernels do nothing. */
void cuda_turns_release(const struct cuda_channels *c)
{
	struct turn_page *own = c->segment->page.page;

	atomic_store((_Atomic uint64_t *)&own->has_failed, 1);
	for (int r = 0; r < c->size; r++) {
		atomic_store((_Atomic uint32_t *)&own->posted[r].released, 1);
		atomic_store((_Atomic uint32_t *)&own->done[r].released, 1);
	}
}
