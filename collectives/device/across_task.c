/* A call of several nodes as a task of the engine: kernels of the ranks of a node add up, each rank
 * carries its share across by a plan of two levels, and kernels gather the shares. An all_reduce
 * does all of this, a reduce_scatter the first two, an all_gather the last two.
 *
 * The kernels of a node meet, so all its ranks start them in one order: call after call, as they
 * were submitted, whichever stream or message is ready first. They run in the channels' own stream:
 * in the caller's they might stand behind what waits for this call. Messages have the order of
 * submission, too, so no call waits for a later one. */
#include "collectives/device/device_internal.h"

#include <assert.h>
#include <stdio.h>

enum across_phase { PREPARES, AWAITS_TURN_TO_ADD, ADDS, CROSSES, AWAITS_TURN_TO_GATHER, GATHERS };

static void kernels_ended(struct engine *e, struct engine_io *io);
static const struct io_owner across_owner = {.done = kernels_ended, .failed = device_failed};

static unsigned phases_of(const struct tutti_work *work)
{
	return device_phases(collective_pattern(work->spec.args.collective));
}

static bool awaits_turn(const struct tutti_work *work)
{
	return work_task(work)->across.phase == AWAITS_TURN_TO_ADD ||
	       work_task(work)->across.phase == AWAITS_TURN_TO_GATHER;
}

static tutti_status across_task_launch(const struct tutti_work *work, void **used)
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
static void across_task_start_next(struct engine *e, const struct device *d)
{
	struct tutti_work *work = d->across;
	void *used;

	if (!work || !awaits_turn(work))
		return;
	struct across *a = &work_task(work)->across;
	a->phase = a->phase == AWAITS_TURN_TO_ADD ? ADDS : GATHERS;
	tutti_status status = across_task_launch(work, &used);
	if (status == TUTTI_OK)
		device_await(e, work, used, &across_owner);
	else
		engine_fail_in(e, work, status, last_error());
}

static tutti_status across_task_begin(struct engine *e, struct tutti_work *work)
{
	struct device *d = work->spec.device;
	struct across *a = &work_task(work)->across;

	a->next = NULL;
	a->phase = PREPARES;
	*d->across_tail = work;
	d->across_tail = &a->next;
	return plan_tasks.begin(e, work);
}

static void across_task_cross(struct engine *e, struct tutti_work *work)
{
	work_task(work)->across.phase = CROSSES;
	plan_tasks.prepared(e, work);
}

static void across_task_prepared(struct engine *e, struct tutti_work *work)
{
	if (!(phases_of(work) & ACROSS_ADDS)) {
		across_task_cross(e, work);
		return;
	}
	work_task(work)->across.phase = AWAITS_TURN_TO_ADD;
	across_task_start_next(e, work->spec.device);
}

static void across_task_plan_ended(struct engine *e, struct tutti_work *work)
{
	if (!(phases_of(work) & ACROSS_GATHERS)) {
		engine_work_ended(e, work);
		return;
	}
	work_task(work)->across.phase = AWAITS_TURN_TO_GATHER;
	across_task_start_next(e, work->spec.device);
}

/* It has no more kernels to start. */
static void leave_turn(struct engine *e, struct tutti_work *work)
{
	struct device *d = work->spec.device;

	assert(d->across == work);
	if (!(d->across = work_task(work)->across.next))
		d->across_tail = &d->across;
	across_task_start_next(e, d);
}

static void kernels_ended(struct engine *e, struct engine_io *io)
{
	struct tutti_work *work = io->work;
	bool gathers = phases_of(work) & ACROSS_GATHERS;
	bool crosses = work_task(work)->across.phase == ADDS;

	if (!device_is_well(e, work))
		return;
	if (crosses)
		across_task_cross(e, work);
	else
		engine_work_ended(e, work);
	if (!crosses || !gathers)
		leave_turn(e, work);
}

/* After a failure works end in any order, and none begins any more. */
static void across_task_finish(struct engine *e, struct tutti_work *work)
{
	struct device *d = work->spec.device;

	if (e->failure.stop) {
		d->across = NULL;
		d->across_tail = &d->across;
	}
	plan_tasks.finish(e, work);
}

static int across_task_explain(struct engine *e, const struct tutti_work *work, char *text,
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
static bool across_task_is_held(const struct tutti_work *work)
{
	bool is_behind = work->spec.device->across != work;
	bool crosses = work_task(work)->across.phase == CROSSES;

	return work->bounce.is_held || awaits_turn(work) ||
	       (crosses && is_behind && phases_of(work) == ACROSS_GATHERS);
}

const struct task_kind device_across_tasks = {.begin = across_task_begin,
					      .prepared = across_task_prepared,
					      .plan_ended = across_task_plan_ended,
					      .finish = across_task_finish,
					      .explain = across_task_explain,
					      .words = collective_words,
					      .is_held = across_task_is_held};
