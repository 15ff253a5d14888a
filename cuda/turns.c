/* Turns of a call, in a stream: a kernel stages, the stream waits for the peers' flags, a kernel
 * moves. cuda/kernels/channel.h says why that is in order. */
#include "cuda/turns.h"

#include "core/clock.h"
#include "core/log.h"
#include "core/machine.h"
#include "core/status.h"

#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Of staging, so many times what a window has: a turn costs the time slices of all processes. */
#define STAGING_FACTOR 16
/* Turns of a call: a driver's queue of a stream holds about a thousand operations, and when it is
 * full the CPU waits. */
#define TURNS_MOST 64
#define ENDING_MS  500 /* of a process that is ending: a guess */

static bool is_same(const uint8_t *a, const uint8_t *b)
{
	return memcmp(a, b, 16) == 0;
}

bool cuda_turns_are_needed(const struct cuda_part *parts, int size)
{
	for (int r = 0; r < size; r++)
		for (int k = 0; k < r; k++)
			if (is_same(parts[k].gpu, parts[r].gpu) &&
			    !is_same(parts[k].process, parts[r].process))
				return true;
	return false;
}

void cuda_turns_describe(const struct cuda_channels *c, struct cuda_part *part)
{
	const struct cuda_turn_page *own = &c->segment->page;

	part->page = (uint64_t)(uintptr_t)own->page;
	part->page_token = own->page ? own->page->token : 0;
	part->page_fd = own->fd;
	part->page_slot = own->slot;
	part->pid = (uint32_t)getpid();
}

static tutti_status find_page(struct cuda_channels *c, const struct cuda_part *parts, int r)
{
	struct cuda_turns *turns = c->turns;
	bool is_here = is_same(parts[r].process, parts[c->rank].process);

	if (!parts[r].page)
		return fail(TUTTI_ERR_UNSUPPORTED, "rank %d has no page of flags", r);
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

static size_t half_of_staging(const struct cuda_channels *c)
{
	return c->staging_config * STAGING_FACTOR / 2 / CHANNEL_ALIGN * CHANNEL_ALIGN;
}

/* The others map it when they need it: then all ranks have come this far. */
static tutti_status publish_staging(struct cuda_channels *c)
{
	struct turn_page *own = c->segment->page.page;

	c->turns->half_bytes = half_of_staging(c);
	TRY(cuda_segment_stage(c->segment, 2 * c->turns->half_bytes));
	memcpy(own->handle, c->segment->staging_handle.reserved, sizeof own->handle);
	own->staging = c->segment->staging;
	return TUTTI_OK;
}

tutti_status cuda_turns_connect(struct cuda_channels *c, const struct cuda_part *parts)
{
	if (!(c->turns = calloc(1, sizeof *c->turns)))
		return fail(TUTTI_ERR_MEMORY, "rank %d: no memory for its turns", c->named);
	for (int r = 0; r < c->size; r++)
		TRY(find_page(c, parts, r));
	return publish_staging(c);
}

/* ---- calls ---- */

static tutti_status map_staging(struct cuda_turns *turns, int r)
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
static bool ends_now(int pid)
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
static tutti_status cut(const struct cuda_channels *c, int r, tutti_status status)
{
	struct cuda_turns *turns = c->turns;
	char before[120];

	if (ends_now((int)turns->pids[r])) {
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

/* At the first call. */
static tutti_status map_all(struct cuda_channels *c)
{
	struct cuda_turns *turns = c->turns;

	for (int r = 0; r < c->size && !turns->is_complete; r++) {
		tutti_status status = map_staging(turns, r);
		if (status != TUTTI_OK)
			TRY(cut(c, r, status));
	}
	turns->is_complete = true;
	return TUTTI_OK;
}

static size_t round_up(size_t bytes, size_t unit)
{
	return (bytes + unit - 1) / unit * unit;
}

static uint32_t count_chunks(const struct turn_args *a, size_t most, unsigned blocks)
{
	size_t share = round_up(most, (size_t)blocks * CHANNEL_ALIGN) / blocks;
	size_t piece = turn_piece_bytes(&a->lines);

	return share <= piece ? 1 : (uint32_t)((share + piece - 1) / piece);
}

static void fill_in(const struct cuda_channels *c, const struct cuda_channels_launch *l,
		    struct turn_args *a)
{
	struct cuda_turns *turns = c->turns;
	size_t unit = (size_t)CHANNEL_ALIGN * (size_t)c->size;

	a->half_bytes = turns->half_bytes;
	a->lines.channel.staging_bytes = turns->half_bytes / l->blocks / unit * unit;
	for (int r = 0; r < c->size; r++) {
		a->pages[r] = (struct turn_page *)(uintptr_t)turns->pages[r];
		a->staging[r] = (void *)(uintptr_t)turns->staging[r];
	}
	a->call = ++turns->calls;
	a->chunks = count_chunks(a, l->most, l->blocks);
}

/* Of all peers, in one operation. */
static tutti_status await_turn(const struct cuda_channels *c, CUstream stream, uint32_t turn)
{
	const struct cuda_driver *cuda = cuda_driver();
	CUstreamBatchMemOpParams ops[CHANNEL_RANKS];
	unsigned count = 0;

	for (int r = 0; r < c->size; r++) {
		CUstreamBatchMemOpParams *op = &ops[count];
		if (r == c->rank)
			continue;
		*op = (CUstreamBatchMemOpParams){.operation = CU_STREAM_MEM_OP_WAIT_VALUE_32};
		op->waitValue.address = c->turns->pages[c->rank] +
					offsetof(struct turn_page, flags) +
					(size_t)r * sizeof(struct turn_flag);
		op->waitValue.value = c->turns->is_cut[r] ? TURN_RELEASED : turn_bits_awaited(turn);
		op->waitValue.flags = CU_STREAM_WAIT_VALUE_AND;
		count++;
	}
	if (count)
		CUDA_TRY(stream_batch_mem_op, stream, count, ops, 0);
	return TUTTI_OK;
}

static tutti_status launch_phase(const struct cuda_channels *c, struct turn_args *a,
				 const struct cuda_channels_launch *l, CUstream stream,
				 enum turn_phase phase)
{
	a->phase = phase;
	return cuda_launch(c->device, CUDA_KERNEL_turn, l->blocks, stream, a);
}

tutti_status cuda_turns_launch(struct cuda_channels *c, const struct cuda_channels_launch *l,
			       CUstream stream)
{
	struct turn_args *a = l->args;

	TRY(map_all(c));
	fill_in(c, l, a);
	for (a->chunk = 0; a->chunk < a->chunks; a->chunk++) {
		a->turn = c->turns->turn++;
		TRY(launch_phase(c, a, l, stream, TURN_STAGE));
		TRY(await_turn(c, stream, a->turn));
		TRY(launch_phase(c, a, l, stream, TURN_MOVE));
	}
	return TUTTI_OK;
}

size_t cuda_channels_most(const struct cuda_channels *c)
{
	return TURNS_MOST * half_of_staging(c);
}

bool cuda_channels_take_turns(const struct cuda_channels *c)
{
	return c->turns != NULL;
}

/* Partner: the streams. The abort word is set before, so their kernels do nothing. */
void cuda_turns_release(const struct cuda_channels *c)
{
	struct turn_page *own = c->segment->page.page;

	for (int r = 0; r < c->size; r++)
		atomic_store((_Atomic uint16_t *)&own->flags[r].released, 1);
}

void cuda_turns_close(struct cuda_turns *turns, bool unmaps)
{
	const struct cuda_driver *cuda = cuda_driver();

	for (int r = 0; turns && unmaps && r < CHANNEL_RANKS; r++)
		if (turns->is_mapped[r])
			cuda->ipc_close_mem_handle(turns->staging[r]);
	free(turns);
}
