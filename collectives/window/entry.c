/* The beginning of a run: it waits for room, writes this rank's line, and posts that.
 *
 * Every rank posts a line in every operation: also in a barrier, also the root of a broadcast, also
 * for 0 elements. A run waits for the lines of the ranks whose data it needs, and of those that
 * decide which path the call goes: of all ranks, or, with a root, of the root or of none. So the
 * root of short broadcasts runs ahead. A root whose broadcast is long and staged is done when the
 * last piece is in its slots.
 *
 * Room: why no line is overwritten while another rank reads it. A rank has WINDOW_LINES lines, used
 * in turn: line k goes where line k - WINDOW_LINES was. A rank reads the others' lines m only in
 * operation m, and posts its own line m + 1 after that. So before it writes line k, a rank must
 * have seen that every other rank has posted line k - WINDOW_LINES + 1, or a later one. Where it
 * does not know that yet, it waits until the others have come half the way, and so looks once in
 * many calls. An operation that uses more than lines (rows, slots, the callers' memory) begins when
 * every other rank has posted line k - 1, and so has finished the operation before it.
 *
 * No rank waits for ever. Of the ranks that wait take one in the earliest operation: all others
 * have posted the line before that, so it has room; and the ranks that have room post the line that
 * it waits for.
 *
 * Line k holds k or an older number when a rank reads it, since the rank that writes k +
 * WINDOW_LINES waits for the reader; so the reader compares for equality. The search for room may
 * find a newer number. Numbers wrap: "newer" is the sign of the difference. A header of 0 is no
 * line, as no fingerprint is 0. */
#include "collectives/window/window_internal.h"

#include "collectives/window/allocations.h"
#include "collectives/window/blocks.h"
#include "collectives/window/doorbell.h"
#include "collectives/window/staged.h"
#include "core/poison.h"
#include "core/prefetch.h"
#include "core/memory/dtype.h"
#include "core/memory/ops.h"

/* The sizes of the blocks: the same for all ranks, or from the caller's arrays. */
static void entry_measure(struct window *w, struct window_run *run)
{
	const struct call_args *a = &run->args;
	const size_t *counts = a->counts[SEND_SIDE];
	bool has_data = run->pattern != COLL_BARRIER && a->collective != COLL_MEM_ALLOC;

	run->unit = has_data ? dtype_bytes(a->dtype) : 0;
	run->scalar = a->op >= OPS_FIRST ? op_scalar(a->op) : NULL;
	run->own = run->largest = a->count;
	run->total = a->count * (size_t)w->size;
	if (!counts)
		return;
	run->own = counts[w->rank];
	run->largest = run->total = 0;
	for (int rank = 0; rank < w->size; rank++) {
		run->total += counts[rank];
		if (run->largest < counts[rank])
			run->largest = counts[rank];
	}
}

/* A call that is too long for a line: the line says where the buffers are. A rank whose buffers the
 * others cannot reach knows that all ranks will stage. It stages its first piece at once, which
 * saves a wait. */
static void begin_long(struct window *w, struct window_run *run, struct line *line)
{
	struct line_buffers buffers = {0};
	bool stages = true;

	run->path = NULL;
	if (has_counts(run))
		counts_publish(w, run);
	staged_begin(w, run);
	if (run->args.collective == COLL_ALL_TO_ALLV) {
		counts_write(w, run, &buffers);
		stages = buffers.sends == SENDS_MUCH; /* else it may all be in the lines */
	}
	if (reach_publish(w, run, &buffers))
		stages = false;
	if (read_publish(w, run, &buffers))
		stages = false;
	run->is_staged = stages && (run->scalar || reach_lends(run, w->rank));
	run->first_is_staged = stages && staged_first(w, run);
	buffers.is_staged = run->first_is_staged;
	buffers.is_contended = contention_is_noticed(&w->contention);
	memcpy(line->payload, &buffers, sizeof buffers);
}

/* Which lines run needs: for their data or, in a long call, to know its path. */
enum lines_needed { NEEDS_ALL, NEEDS_ROOT, NEEDS_NONE };

static enum lines_needed lines_needed(const struct window *w, const struct window_run *run)
{
	bool is_root = run->args.root == w->rank, knows = run->is_small || run->is_staged;

	switch (run->pattern) {
	case COLL_BROADCAST:
	case COLL_SCATTER:
		return !is_root ? NEEDS_ROOT : knows ? NEEDS_NONE : NEEDS_ALL;
	case COLL_REDUCE:
		return !is_root && (run->is_small || (knows && staged_by_root(run))) ? NEEDS_NONE
										     : NEEDS_ALL;
	case COLL_GATHER:
		return is_root ? NEEDS_ALL : run->is_small ? NEEDS_NONE : NEEDS_ROOT;
	default:
		return NEEDS_ALL;
	}
}

void entry_wait_for_all(const struct window *w, struct window_run *run)
{
	run->sees_all = true;
	run->peer = run->first = w->rank == 0;
	run->peers = w->size;
}

static void set_peers(const struct window *w, struct window_run *run)
{
	enum lines_needed needed = lines_needed(w, run);

	entry_wait_for_all(w, run);
	if (needed == NEEDS_ALL)
		return;
	run->sees_all = false;
	run->first = needed == NEEDS_ROOT ? run->args.root : w->size;
	run->peers = needed == NEEDS_ROOT ? run->first + 1 : w->size;
	run->peer = run->first;
}

/* Data for a line. Most are short and lie in one piece: they go behind the header at once. */
static void write_data(struct window *w, const struct window_run *run, struct line *line)
{
	if (run->payload > LINE_PAYLOAD || has_counts(run) || run->scalar)
		small_write(w, run);
	else if (run->payload && (!is_from_root(run->pattern) || run->args.root == w->rank))
		memcpy(line->payload, run->args.send, run->payload);
}

void entry_post(struct window *w, struct window_run *run)
{
	struct line *line = line_of(w, run->number, w->rank);

	if (run->is_small) {
		write_data(w, run, line);
		run->phase = PHASE_SMALL;
	} else if (run->args.collective == COLL_MEM_ALLOC) {
		memory_begin(w, run);
		run->phase = PHASE_LINES;
	} else {
		begin_long(w, run, line);
		run->phase = PHASE_LINES;
	}
	atomic_store_explicit(&line->header, line_header(run), memory_order_release);
	doorbell_ring(w);
	/* The others have this rank's next line in their caches. It is taken from them now, while
	 * this rank waits, and not when it posts that line. */
	prefetch_to_write(line_of(w, run->number + 1, w->rank));
	if (run->is_small && run->payload > LINE_PAYLOAD && !w->policy.shares_cores)
		small_hand_over(w, run);
	if (run->is_small)
		small_prepare(w, run);
	set_peers(w, run);
	/* An asynchronous call looks at the first line only in its wait. To be fetched now saves
	 * that wait one of the line's two ways between the cores. */
	prefetch_to_read(line_of(w, run->number, run->peer < run->peers ? run->peer : w->rank));
}

void window_begin(struct window *w, struct window_run *run, const struct call_args *args)
{
	poison(run, sizeof *run);
	run->args = *args;
	run->step = run->steps = 0;
	run->pieces = 0;
	run->cut = 0;
	run->is_staged = run->is_shared = false;
	run->memory = NULL;
	run->outcome = TUTTI_OK;
	/* No rank writes to that cache line while all goes well, so the look is free. */
	if (board_has_failed(&w->board))
		failure_keep(w, board_failure(&w->board));
	if (w->failed != TUTTI_OK) {
		run->phase = run->failed_in = PHASE_FAILED;
		run->peer = w->size; /* it waits for no rank */
		return;
	}
	run->number = ++w->number;
	run->pattern = collective_pattern(args->collective);
	entry_measure(w, run);
	count_bytes(&w->traffic.total_bytes,
		    (run->pattern == COLL_ALL_TO_ALL ? run->total : run->own) * run->unit);
	run->is_small = args->collective != COLL_MEM_ALLOC && small_fits(w, run);
	run->room = run->number - (run->is_small ? WINDOW_LINES - 1 : 1);
	if (__builtin_expect((int32_t)(run->room - w->others) <= 0, 1)) {
		entry_post(w, run);
		return;
	}
	run->phase = PHASE_ROOM;
	run->peer = 0;
	if (run->is_small)
		run->room = run->number - WINDOW_LINES / 2;
}

/* The lines that this rank finds there, and did not wait for in their own operation, must agree,
 * too. */
tutti_status entry_see_room(struct window *w, struct window_run *run)
{
	uint64_t mine =
		atomic_load_explicit(&line_of(w, run->room, w->rank)->header, memory_order_relaxed);

	for (; run->peer < w->size; run->peer++) {
		uint64_t got;
		if (progress_lacks_room(w, run, run->peer))
			return TUTTI_IN_PROGRESS;
		got = line_header_of(w, run->room, run->peer);
		if ((uint32_t)got == run->room && got != mine)
			return failure_mismatch(w, run, run->peer);
	}
	w->others = run->room;
	return TUTTI_OK;
}
