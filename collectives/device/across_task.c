/* An all_reduce of several nodes as a task of the engine. The ranks of a node add up in a kernel,
 * each carries its share of the sum across by the plan two_level, and a kernel gathers the shares.
 *
 * The kernels of a node meet, so all its ranks start them in one order: call after call, as they
 * were submitted, whichever stream or message is ready first. They run in the channels' own stream:
 * in the caller's they might stand behind what waits for this call. */
#include "collectives/device/device_internal.h"

#include <assert.h>
#include <stdio.h>

enum across_phase { PREPARES, AWAITS_TURN, REDUCES, CROSSES, GATHERS };

static void kernel_ended(struct engine *e, struct engine_io *io);
static const struct io_owner across_owner = {.done = kernel_ended, .failed = device_failed};

static tutti_status launch(const struct task_spec *spec, bool gathers, void **used)
{
	struct cuda_channels *channels = spec->device->channels;
	struct cuda_channels_launch l = {.stream = cuda_channels_stream(channels),
					 .in_stream = true};
	union device_args args;
	bool is_captured;

	TRY(device_prepare_share(spec->device, spec, gathers, &args, &l));
	return cuda_channels_launch(channels, &l, used, &is_captured);
}

static void start_kernel(struct engine *e, struct tutti_work *work, enum across_phase phase)
{
	void *used;

	work->across.phase = (int)phase;
	tutti_status status = launch(&work->spec, phase == GATHERS, &used);
	if (status == TUTTI_OK)
		device_await(e, work, used, &across_owner);
	else
		engine_fail_in(e, work, status, last_error());
}

/* The first call in order, if all is there that it needs. */
static void start_next(struct engine *e, struct device *d)
{
	if (d->across && d->across->across.phase == AWAITS_TURN)
		start_kernel(e, d->across, REDUCES);
}

static tutti_status begin(struct engine *e, struct tutti_work *work)
{
	struct device *d = work->spec.device;

	work->across.next = NULL;
	work->across.phase = PREPARES;
	*d->across_tail = work;
	d->across_tail = &work->across.next;
	return plan_tasks.begin(e, work);
}

static void prepared(struct engine *e, struct tutti_work *work)
{
	work->across.phase = AWAITS_TURN;
	start_next(e, work->spec.device);
}

static void plan_ended(struct engine *e, struct tutti_work *work)
{
	start_kernel(e, work, GATHERS);
}

static void leave_turn(struct tutti_work *work)
{
	struct device *d = work->spec.device;

	assert(d->across == work);
	if (!(d->across = work->across.next))
		d->across_tail = &d->across;
}

static void kernel_ended(struct engine *e, struct engine_io *io)
{
	struct tutti_work *work = io->work;

	if (!device_is_well(e, work))
		return;
	if (work->across.phase == REDUCES) {
		work->across.phase = CROSSES;
		plan_tasks.prepared(e, work);
		return;
	}
	leave_turn(work);
	engine_work_ended(e, work);
	start_next(e, work->spec.device);
}

/* After a failure works end in any order, and none begins any more. */
static void finish(struct engine *e, struct tutti_work *work)
{
	struct device *d = work->spec.device;

	if (e->failure.stop) {
		d->across = NULL;
		d->across_tail = &d->across;
	}
	plan_tasks.finish(e, work);
}

static int explain(struct engine *e, const struct tutti_work *work, char *text, size_t text_bytes)
{
	static const char *const waits[] = {
		[PREPARES] = "for the earlier work of its stream",
		[AWAITS_TURN] = "for the call before it",
		[REDUCES] = "for the kernels of the other ranks of its node, which add up",
		[GATHERS] = "for the kernels of the other ranks of its node, which gather"};

	if (work->across.phase == CROSSES)
		return plan_tasks.explain(e, work, text, text_bytes);
	snprintf(text, text_bytes, "%s", waits[work->across.phase]);
	return -1;
}

/* The earlier work of a stream may take any time, and so does the call that waits for it. */
static bool is_held(const struct tutti_work *work)
{
	return work->bounce.is_held || work->across.phase == AWAITS_TURN;
}

const struct task_kind device_across_tasks = {.begin = begin,
					      .prepared = prepared,
					      .plan_ended = plan_ended,
					      .finish = finish,
					      .explain = explain,
					      .words = collective_words,
					      .is_held = is_held};
