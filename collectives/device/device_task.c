/* A call on the device as a task of the engine: its kernel is started in begin, and the engine
 * looks until it has ended. A call that is captured into a graph is over at once. */
#include "collectives/control/failure.h"
#include "collectives/device/device_internal.h"
#include "collectives/engine/task.h"

#include <stdio.h>

_Static_assert(ENGINE_DEVICE_WORKS_MAX <= TURN_CALLS, "a call by turns has a slot");

static void kernel_ended(struct engine *e, struct engine_io *io);
static const struct io_owner device_owner = {.done = kernel_ended, .failed = device_failed};

void device_await(struct engine *e, struct tutti_work *work, void *stream,
		  const struct io_owner *owner)
{
	const struct call_args *a = &work->spec.args;
	struct work_task *task = work_task(work);

	task->io_src = a->recv ? a->recv : a->send;
	/* Across nodes messages are to follow. */
	work_post_io(
		e, work, e->links.queues[TUTTI_MEMORY_CUDA], owner,
		&(struct memory_io){.op = MEMORY_AFTER,
				    .dst = stream,
				    .src = &task->io_src,
				    .is_lazy = owner == &device_owner && work->spec.is_in_stream});
}

static tutti_status device_task_launch(const struct task_spec *spec, void **used, bool *is_captured)
{
	struct cuda_channels_launch launch = {.stream = spec->stream,
					      .in_stream = spec->is_in_stream};
	union device_args args;

	TRY(device_prepare(spec->device, &spec->args, &args, &launch));
	return cuda_channels_launch(spec->device->channels, &launch, used, is_captured);
}

static tutti_status device_task_begin(struct engine *e, struct tutti_work *work)
{
	bool is_captured = false;
	char call[120], before[160];
	void *used;
	tutti_status status = device_task_launch(&work->spec, &used, &is_captured);

	if (status != TUTTI_OK) {
		snprintf(before, sizeof before, "rank %d: %s: ", e->config.rank,
			 collective_words(work, call, sizeof call));
		return fail_before(status, before);
	}
	work->stage = WORK_RUNS;
	if (is_captured) {
		engine_expect_replays(e);
		engine_work_ended(e, work);
	} else {
		device_await(e, work, used, &device_owner);
	}
	return TUTTI_OK;
}

/* Kernels of different calls have met. The records of the calls say more than fingerprints, and may
 * have to come from another rank. */
bool device_is_well(struct engine *e, const struct tutti_work *work)
{
	char how[200];

	if (!device_differs(work->spec.device, how, sizeof how))
		return true;
	engine_lost(e, work, FAILURE_NO_RANK, TUTTI_ERR_MISMATCH, how);
	return false;
}

static void kernel_ended(struct engine *e, struct engine_io *io)
{
	if (device_is_well(e, io->work))
		engine_work_ended(e, io->work);
}

void device_failed(struct engine *e, struct engine_io *io)
{
	engine_fail_in(e, io->work, io->op.io.status, e->links.queues[TUTTI_MEMORY_CUDA]->error);
}

static int device_task_explain(struct engine *e, const struct tutti_work *work, char *text,
			       size_t text_bytes)
{
	(void)e;
	snprintf(text, text_bytes, "for %s",
		 cuda_channels_is_running(work->spec.device->channels, NULL)
			 ? "the kernels of the other ranks"
			 : "the earlier work of its stream");
	return -1;
}

/* Its deadline begins when the stream has come to it. */
static bool device_task_is_held(const struct tutti_work *work)
{
	return !cuda_channels_is_running(work->spec.device->channels, NULL);
}

static const struct memory_io *device_task_end_of(const struct tutti_work *work)
{
	return &work_task(work)->io.op;
}

const struct task_kind device_tasks = {.begin = device_task_begin,
				       .explain = device_task_explain,
				       .words = collective_words,
				       .is_held = device_task_is_held,
				       .end_of = device_task_end_of};
