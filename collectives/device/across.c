/* A call of several nodes as a task of the engine: kernels of the ranks of a node add up, each rank
 * carries its share across by a plan of two levels, and kernels gather the shares. An all_reduce
 * does all of this, a reduce_scatter the first two, an all_gather the last two.
 *
 * The kernels of a node meet, so all its ranks start them in one order: call after call, as they
 * were submitted, whichever stream or message is ready first. They run in the channels' own stream:
 * in the caller's they might stand behind what waits for this call. Messages have the order of
 * submission, too, so no call waits for a later one. */
#include "collectives/device/device_internal.h"
#include "core/memory/dtype.h"
#include "core/memory/ops.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

/* The kernels of a call across nodes, as arguments of lines or turns. Each rank of a node has a
 * share: of a vector a part, of blocks those of all ranks that have its place in their nodes. Where
 * the blocks of a share do not adjoin, since ranks are numbered node by node or blocks have lengths
 * of their own, it has a piece for each node, and a kernel moves one piece of all shares. */

/* Bytes of a piece of all shares: with fewer the engine is done sooner. */
#define ACROSS_BYTES (64u << 10)
/* Kernels of a phase: by turns each is at least one of those that a call may take. */
#define PIECES_MOST 32
/* The longest block, by the average one: each sum has as much scratch. */
#define SKEW_MOST 4

/* Those that add up come before its messages, and those that gather behind them. */
enum { ACROSS_ADDS = 1, ACROSS_GATHERS = 2 };

/* 0: the engine does all of it. */
static unsigned device_phases(enum collective pattern)
{
	static const unsigned phases[COLL_COUNT] = {
		[COLL_ALL_REDUCE] = ACROSS_ADDS | ACROSS_GATHERS,
		[COLL_REDUCE_SCATTER] = ACROSS_ADDS,
		[COLL_ALL_GATHER] = ACROSS_GATHERS,
	};

	return phases[pattern];
}

static bool across_is_vector(const struct call_args *a)
{
	return a->collective == COLL_ALL_REDUCE;
}

/* Each phase has so many kernels, one for each piece of the shares. */
static int device_pieces(const struct device *d, const struct call_args *a)
{
	bool adjoin = d->nodes->node_step == 1 && !collective_has_counts(a->collective);

	return across_is_vector(a) || adjoin ? 1 : d->nodes->count;
}

/* Elements of the longest block, or of the vector. All ranks know all counts. */
static size_t across_longest_of(const struct device *d, const struct call_args *a)
{
	size_t most = 0;

	if (!collective_has_counts(a->collective))
		return a->count;
	for (int r = 0; r < d->nodes->count * d->nodes->local; r++)
		most = a->counts[SEND_SIDE][r] > most ? a->counts[SEND_SIDE][r] : most;
	return most;
}

/* By turns the shares of a node's ranks and what comes of them are staged, at most one and a half
 * times; and several kernels may each take one turn more than their bytes do. One node does not
 * know whether another one takes turns. */
bool device_serves_across(const struct device *d, const struct call_args *a)
{
	if (!d->nodes || !device_phases(collective_pattern(a->collective)) || op_scalar(a->op))
		return false;
	size_t ranks = across_is_vector(a) ? 1 : (size_t)d->nodes->count * (size_t)d->nodes->local;
	size_t blocks = collective_has_counts(a->collective) ? 1 : ranks;
	size_t bytes = a->count * blocks * dtype_bytes(a->dtype);
	size_t staged = across_longest_of(d, a) * ranks * dtype_bytes(a->dtype);
	size_t pieces = (size_t)device_pieces(d, a);

	return pieces <= PIECES_MOST && bytes / pieces >= ACROSS_BYTES &&
	       staged / SKEW_MOST <= bytes &&
	       staged <= cuda_channels_most(d->channels) / (pieces > 1 ? 4 : 2);
}

/* Elements of a buffer. */
struct extent {
	size_t first, count;
};

/* The last parts may be shorter, or empty. */
static struct extent across_part_of(const struct device *d, const struct task_spec *spec, int local)
{
	size_t each = spec->layout.split / (size_t)d->size * spec->layout.each;
	size_t first = (size_t)local * each, end = first + each, all = spec->args.count;

	first = first < all ? first : all;
	end = end < all ? end : all;
	return (struct extent){first, end - first};
}

/* Where a piece of the share lies that the local-th rank of each node has. */
static struct extent across_extent_of(const struct device *d, const struct task_spec *spec,
				      int piece, int local)
{
	const struct nodes *n = d->nodes;
	const struct call_args *a = &spec->args;
	int rank = piece * n->node_step + local * n->local_step;

	if (across_is_vector(a))
		return across_part_of(d, spec, local);
	if (a->counts[SEND_SIDE]) { /* one side has no offsets but 0 */
		int side = collective_has_blocks(collective_pattern(a->collective), SEND_SIDE)
				   ? SEND_SIDE
				   : RECV_SIDE;
		return (struct extent){a->offsets[side][rank], a->counts[side][rank]};
	}
	return (struct extent){(size_t)rank * a->count,
			       a->count * (size_t)(n->count / device_pieces(d, a))};
}

/* Returns the bytes of all. */
static size_t across_fill_extents(const struct device *d, const struct task_spec *spec, int piece,
				  uint64_t *offset, uint64_t *bytes)
{
	size_t element = dtype_bytes(spec->args.dtype), all = 0;

	for (int r = 0; r < d->size; r++) {
		struct extent e = across_extent_of(d, spec, piece, r);

		offset[r] = e.first * element;
		bytes[r] = e.count * element;
		all += bytes[r];
	}
	return all;
}

/* Each rank sends to every other what that one's share has of it. */
static size_t across_fill_sum(const struct tutti_work *work, int piece, struct lines_args *l)
{
	const struct device *d = work->spec.device;
	const struct call_args *a = &work->spec.args;
	size_t all = across_fill_extents(d, &work->spec, piece, l->send_offset, l->send_bytes);

	l->send = a->send;
	l->recv = across_is_vector(a) ? (char *)a->recv + l->send_offset[d->rank]
				      : run_filled(work, (uint32_t)piece);
	l->move = CHANNEL_REDUCE_MINE;
	return all;
}

/* Each rank sends its own share to all, from where it lies in recv to the same place there. */
static size_t across_fill_gather(const struct tutti_work *work, int piece, struct lines_args *l)
{
	const struct device *d = work->spec.device;
	size_t all = across_fill_extents(d, &work->spec, piece, l->recv_offset, l->recv_bytes);

	for (int r = 0; r < d->size; r++) {
		l->send_offset[r] = l->recv_offset[d->rank];
		l->send_bytes[r] = l->recv_bytes[d->rank];
	}
	l->send = l->recv = work->spec.args.recv;
	l->send_is_same = 1;
	l->move = CHANNEL_PULL;
	return all;
}

static size_t across_most_of(const struct device *d, const uint64_t *bytes)
{
	size_t most = 0;

	for (int r = 0; r < d->size; r++)
		most = bytes[r] > most ? bytes[r] : most;
	return most;
}

/* A kernel that adds up piece of this rank's share, or gathers piece of all shares. */
static tutti_status device_prepare_piece(const struct tutti_work *work, int piece, bool gathers,
					 union device_args *args,
					 struct cuda_channels_launch *launch)
{
	const struct device *d = work->spec.device;
	const struct call_args *a = &work->spec.args;
	bool by_turns = cuda_channels_take_turns(d->channels);
	struct lines_args *l = by_turns ? &args->turn.lines : &args->lines;

	memset(args, 0, sizeof *args);
	size_t all = (gathers ? across_fill_gather : across_fill_sum)(work, piece, l);
	TRY(cuda_channels_place(d->channels, l->send, &l->send_place));
	TRY(cuda_channels_place(d->channels, l->recv, &l->recv_place));
	l->root = -1;
	l->dtype = (int32_t)a->dtype;
	l->op = (int32_t)a->op; /* averages are sums here: the plan divides them */
	l->channel.fingerprint = a->fingerprint;
	launch->args = args;
	launch->near = a->recv ? a->recv : a->send;
	launch->kernel = by_turns ? CUDA_KERNEL_turn : CUDA_KERNEL_lines;
	launch->most = across_most_of(d, gathers ? l->recv_bytes : l->send_bytes);
	launch->blocks = device_line_blocks(d, all);
	return TUTTI_OK;
}

enum across_phase { PREPARES, AWAITS_TURN_TO_ADD, ADDS, CROSSES, AWAITS_TURN_TO_GATHER, GATHERS };

static void across_kernels_ended(struct engine *e, struct engine_io *io);
static const struct io_owner across_owner = {.done = across_kernels_ended, .failed = device_failed};

static unsigned across_phases_of(const struct tutti_work *work)
{
	return device_phases(collective_pattern(work->spec.args.collective));
}

static bool across_awaits_turn(const struct tutti_work *work)
{
	return work_task(work)->across.phase == AWAITS_TURN_TO_ADD ||
	       work_task(work)->across.phase == AWAITS_TURN_TO_GATHER;
}

static tutti_status across_launch(const struct tutti_work *work, void **used)
{
	const struct device *d = work->spec.device;
	struct cuda_channels_launch l = {.stream = cuda_channels_stream(d->channels),
					 .in_stream = true};
	bool gathers = work_task(work)->across.phase == GATHERS;
	union device_args args;
	bool is_captured;

	for (int piece = 0; piece < device_pieces(d, &work->spec.args); piece++) {
		TRY(device_prepare_piece(work, piece, gathers, &args, &l));
		TRY(cuda_channels_launch(d->channels, &l, used, &is_captured));
	}
	return TUTTI_OK;
}

/* The first call in order, if all is there that it needs. */
static void across_start_next(struct engine *e, const struct device *d)
{
	struct tutti_work *work = d->across;
	void *used;

	if (!work || !across_awaits_turn(work))
		return;
	struct across *a = &work_task(work)->across;
	a->phase = a->phase == AWAITS_TURN_TO_ADD ? ADDS : GATHERS;
	tutti_status status = across_launch(work, &used);
	if (status == TUTTI_OK)
		device_await(e, work, used, &across_owner);
	else
		engine_fail_in(e, work, status, last_error());
}

static tutti_status across_begin(struct engine *e, struct tutti_work *work)
{
	struct device *d = work->spec.device;
	struct across *a = &work_task(work)->across;

	a->next = NULL;
	a->phase = PREPARES;
	*d->across_tail = work;
	d->across_tail = &a->next;
	return plan_tasks.begin(e, work);
}

static void across_cross(struct engine *e, struct tutti_work *work)
{
	work_task(work)->across.phase = CROSSES;
	plan_tasks.prepared(e, work);
}

static void across_prepared(struct engine *e, struct tutti_work *work)
{
	if (!(across_phases_of(work) & ACROSS_ADDS)) {
		across_cross(e, work);
		return;
	}
	work_task(work)->across.phase = AWAITS_TURN_TO_ADD;
	across_start_next(e, work->spec.device);
}

static void across_plan_ended(struct engine *e, struct tutti_work *work)
{
	if (!(across_phases_of(work) & ACROSS_GATHERS)) {
		engine_work_ended(e, work);
		return;
	}
	work_task(work)->across.phase = AWAITS_TURN_TO_GATHER;
	across_start_next(e, work->spec.device);
}

/* It has no more kernels to start. */
static void across_leave_turn(struct engine *e, struct tutti_work *work)
{
	struct device *d = work->spec.device;

	assert(d->across == work);
	if (!(d->across = work_task(work)->across.next))
		d->across_tail = &d->across;
	across_start_next(e, d);
}

static void across_kernels_ended(struct engine *e, struct engine_io *io)
{
	struct tutti_work *work = io->work;
	bool gathers = across_phases_of(work) & ACROSS_GATHERS;
	bool crosses = work_task(work)->across.phase == ADDS;

	if (!device_is_well(e, work))
		return;
	if (crosses)
		across_cross(e, work);
	else
		engine_work_ended(e, work);
	if (!crosses || !gathers)
		across_leave_turn(e, work);
}

/* After a failure works end in any order, and none begins any more. */
static void across_finish(struct engine *e, struct tutti_work *work)
{
	struct device *d = work->spec.device;

	if (e->failure.stop) {
		d->across = NULL;
		d->across_tail = &d->across;
	}
	plan_tasks.finish(e, work);
}

static int across_explain(struct engine *e, const struct tutti_work *work, char *text,
			  size_t text_bytes)
{
	static const char *const waits[] = {
		[PREPARES] = "for the earlier work of its stream",
		[AWAITS_TURN_TO_ADD] = "for the call before it",
		[ADDS] = "for the kernels of the other ranks of its node, which add up",
		[AWAITS_TURN_TO_GATHER] = "for the call before it",
		[GATHERS] = "for the kernels of the other ranks of its node, which gather"};

	if (work_task(work)->across.phase == CROSSES)
		return plan_tasks.explain(e, work, text, text_bytes);
	snprintf(text, text_bytes, "%s", waits[work_task(work)->across.phase]);
	return -1;
}

/* The earlier work of a stream may take any time, and so do the calls behind the one that waits for
 * it: their kernels come after its, and their messages after its. */
static bool across_is_held(const struct tutti_work *work)
{
	bool is_behind = work->spec.device->across != work;
	bool crosses = work_task(work)->across.phase == CROSSES;

	return work->bounce.is_held || across_awaits_turn(work) ||
	       (crosses && is_behind && across_phases_of(work) == ACROSS_GATHERS);
}

const struct task_kind device_across_tasks = {.begin = across_begin,
					      .prepared = across_prepared,
					      .plan_ended = across_plan_ended,
					      .finish = across_finish,
					      .explain = across_explain,
					      .words = collective_words,
					      .is_held = across_is_held};
