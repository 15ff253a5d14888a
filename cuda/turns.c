/* Turns of a call, in a stream: it posts, waits, and where this rank leads its kernel moves what
 * those on its GPU get. cuda/kernels/channel.h says why that is in order. */
#include "cuda/turns.h"

#include "core/status.h"

#include <assert.h>
#include <stdatomic.h>
#include <string.h>

/* Turns of a call: a driver's queue of a stream holds about a thousand operations, and when it is
 * full the CPU waits. */
#define TURNS_MOST 64

/* ---- operations on words, which a stream does in their order: a write has a fence before it ----
 */

struct batch {
	CUstreamBatchMemOpParams ops[2 * CHANNEL_RANKS + 1];
	unsigned count;
};

static void add_write(struct batch *batch, CUdeviceptr address, uint32_t value)
{
	CUstreamBatchMemOpParams *op = &batch->ops[batch->count++];

	*op = (CUstreamBatchMemOpParams){.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32};
	op->writeValue.address = address;
	op->writeValue.value = value;
	op->writeValue.flags = CU_STREAM_WRITE_VALUE_DEFAULT;
}

static void add_wait(struct batch *batch, CUdeviceptr address, uint64_t bits)
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
static CUdeviceptr posted_of(const struct cuda_channels *c, int r, int by)
{
	return c->turns->pages[r] + offsetof(struct turn_page, posted) +
	       (size_t)by * sizeof(struct turn_flag);
}

static CUdeviceptr done_of(const struct cuda_channels *c, int r, int by)
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
			add_write(batch, posted_of(c, r, c->rank), turn_mark(turn));
}

/* A rank whose process has ended posts no more. */
static void await_ranks(const struct cuda_channels *c, struct batch *batch, uint32_t turn)
{
	for (int r = 0; r < c->size; r++)
		if (r != c->rank)
			add_wait(batch, posted_of(c, c->rank, r),
				 c->turns->is_cut[r] ? TURN_RELEASED : turn_awaited(turn));
}

static void await_leaders(const struct cuda_channels *c, struct batch *batch, uint32_t turn)
{
	for (int r = 0; r < c->size; r++)
		if (turns_leads(c->turns, r))
			add_wait(batch, done_of(c, c->rank, r), turn_awaited(turn));
}

static void say_finished(const struct cuda_channels *c, struct batch *batch, uint32_t turn)
{
	add_write(batch, c->turns->pages[c->rank] + offsetof(struct turn_page, finished),
		  turn_mark(turn));
}

/* ---- the posting of a call ---- */

static bool leaders_are_here(const struct cuda_channels *c)
{
	return c->is_one_gpu && c->turns->is_here[c->turns->leader];
}

/* All leaders read send, and the one of this GPU writes recv. Sums of several GPUs in place are
 * staged: one leader would write where another one still reads. */
static void place_buffers(struct cuda_channels *c, struct lines_args *a)
{
	const struct cuda_turns *turns = c->turns;

	if (a->send_place == CHANNEL_NOWHERE && !a->is_scaled)
		a->send_place = leaders_are_here(c) ? channel_place(0, (uintptr_t)a->send)
						    : cuda_turn_offer(c, a->send);
	if (a->recv_place == CHANNEL_NOWHERE)
		a->recv_place = turns->is_here[turns->leader] ? channel_place(0, (uintptr_t)a->recv)
							      : cuda_turn_offer(c, a->recv);
	if (a->move == CHANNEL_REDUCE_SLICES && a->send == a->recv && !c->is_one_gpu)
		a->send_place = CHANNEL_NOWHERE;
}

/* Words that kernels of the leaders read, when they have seen that this call is posted. */
static void fill_posting(const struct cuda_channels *c, const struct lines_args *a,
			 struct turn_posting *posting)
{
	posting->send = a->send_place;
	posting->recv = a->recv_place;
	posting->fingerprint = a->channel.fingerprint;
	for (int r = 0; r < c->size; r++)
		posting->peers[r] =
			(struct turn_peer){a->send_offset[r], a->recv_offset[r], a->recv_bytes[r]};
}

static uint32_t finished_of(const struct cuda_channels *c)
{
	return atomic_load((_Atomic uint32_t *)&c->segment->page.page->finished);
}

/* The engine has no more calls in flight than there are slots. */
static uint32_t turns_take_slot(struct cuda_channels *c)
{
	struct cuda_turns *turns = c->turns;
	uint32_t slot = turns->calls++ % TURN_CALLS;

	assert((int32_t)(finished_of(c) - turns->last[slot]) >= 0 || turns->calls <= TURN_CALLS);
	return slot;
}

static size_t turns_round_up(size_t bytes, size_t unit)
{
	return (bytes + unit - 1) / unit * unit;
}

static uint32_t count_chunks(const struct turn_args *a, size_t share)
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
	uint32_t chunks = count_chunks(a, share);
	turns->last_turn = turns->last[a->slot] = turn_mark(turns->turn + chunks - 1);
	place_buffers(c, &a->lines);
	fill_posting(c, &a->lines, &c->segment->page.page->postings[a->slot]);
	return chunks;
}

/* ---- calls ---- */

static tutti_status launch_phase(const struct cuda_channels *c, struct turn_args *a,
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
		TRY(launch_phase(c, a, l, stream, TURN_STAGE));
	turns_post(c, &batch, a->turn);
	if (turns_leads(c->turns, c->rank)) {
		await_ranks(c, &batch, a->turn);
		TRY(turns_put(&batch, stream));
		TRY(launch_phase(c, a, l, stream, TURN_MOVE));
	}
	await_leaders(c, &batch, a->turn);
	if (a->lines.recv_place == CHANNEL_NOWHERE) {
		TRY(turns_put(&batch, stream));
		TRY(launch_phase(c, a, l, stream, TURN_TAKE));
	}
	if (is_last)
		say_finished(c, &batch, a->turn);
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

	*ended = finished_of(c);
	return *ended != atomic_load((_Atomic uint32_t *)&page->posted[c->rank].turn);
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
