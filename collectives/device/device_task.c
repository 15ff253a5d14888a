/* A call on the device as a task of the engine: its kernel is started in begin, and the engine
 * looks until it has ended. A call that is captured into a graph is over at once. */
#include "collectives/control/failure.h"
#include "collectives/device/device_internal.h"
#include "collectives/engine/task.h"
#include "core/memory/memory.h"
#include "core/status.h"
#include "cuda/messages.h"

#include <stdio.h>
#include <string.h>

_Static_assert(ENGINE_DEVICE_WORKS_MAX <= TURN_CALLS, "a call by turns has a slot");

static void device_task_kernel_ended(struct engine *e, struct engine_io *io);
static const struct io_owner device_owner = {.done = device_task_kernel_ended,
					     .failed = device_failed};

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

static void device_task_kernel_ended(struct engine *e, struct engine_io *io)
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

/* Sends and receives that are captured: those of one call become one kernel, whenever the graph is
 * launched. Their work is over at once. */

bool device_takes_turns(const struct device *d)
{
	return cuda_channels_take_turns(d->channels);
}

bool device_meets(const struct device *d)
{
	return !d->nodes && !device_takes_turns(d);
}

bool device_captures(const struct device *d, void *stream)
{
	return device_meets(d) && cuda_is_captured(stream);
}

static void *device_message_buffer_of(const struct task_spec *m)
{
	return m->p2p.side == P2P_SEND ? (void *)(uintptr_t)m->args.send : m->args.recv;
}

tutti_status device_check_captured(const struct task_spec *const *messages, size_t n)
{
	if (n > MESSAGES_MOST)
		return fail(TUTTI_ERR_INVALID,
			    "a group that is captured has %zu sends and receives of one "
			    "communicator: %d are the most",
			    n, MESSAGES_MOST);
	for (size_t i = 0; i < n; i++)
		if (messages[i]->p2p.peer == TUTTI_ANY)
			return fail(TUTTI_ERR_INVALID,
				    "recv: call.stream is being captured, and a graph's recv names "
				    "its peer: it cannot be TUTTI_ANY");
	return TUTTI_OK;
}

static tutti_status device_message_check(const struct device *d, const struct task_spec *m)
{
	if (m->args.count == 0)
		return TUTTI_OK;
	if (m->memory->id != TUTTI_MEMORY_CUDA)
		return fail(TUTTI_ERR_INVALID,
			    "%s: call.stream is being captured, and buf is %s memory: a graph's "
			    "is memory of CUDA device %d",
			    m->name, m->memory->name, cuda_channels_ordinal(d->channels));
	return cuda_channels_check_buffer(d->channels, device_message_buffer_of(m));
}

tutti_status device_check_messages(const struct device *d, const struct task_spec *const *messages,
				   size_t n, void *stream)
{
	TRY(device_check_captured(messages, n));
	TRY(cuda_channels_check_stream(d->channels, stream));
	for (size_t i = 0; i < n; i++)
		TRY(device_message_check(d, messages[i]));
	return TUTTI_OK;
}

/* FNV-1a, of what both sides must agree on. */
static uint64_t device_message_fingerprint(const struct task_spec *m)
{
	const uint64_t words[] = {m->args.count, (uint64_t)m->args.dtype, (uint64_t)m->p2p.tag};
	uint64_t hash = UINT64_C(0xcbf29ce484222325);

	for (size_t i = 0; i < 8 * sizeof words / sizeof *words; i++)
		hash = (hash ^ (words[i / 8] >> (i % 8 * 8) & 0xff)) * UINT64_C(0x100000001b3);
	return hash;
}

static tutti_status device_message_launch(const struct task_spec *spec)
{
	struct cuda_message messages[MESSAGES_MOST];
	struct messages_args args;
	void *used;
	bool is_captured;

	memset(&args, 0, sizeof args);
	for (size_t i = 0; i < spec->message_count; i++) {
		const struct task_spec *m = spec->messages[i];
		messages[i] = (struct cuda_message){
			m->p2p.side == P2P_SEND, m->p2p.peer, device_message_buffer_of(m),
			m->send_bytes + m->recv_bytes, device_message_fingerprint(m)};
	}
	struct cuda_channels_launch launch = {.kernel = CUDA_KERNEL_messages,
					      .args = &args,
					      .stream = spec->stream,
					      .in_stream = true};
	/* A message to this rank itself would wait for a block that no account has counted. */
	launch.blocks = cuda_messages_fill(
		&args, messages, (unsigned)spec->message_count,
		spec->device->size == 1 ? 1 : cuda_channels_count(spec->device->channels));
	return cuda_channels_launch(spec->device->channels, &launch, &used, &is_captured);
}

static const char *device_message_words(const struct tutti_work *work, char *text,
					size_t text_bytes)
{
	const struct p2p_args *p2p = &work->spec.p2p;

	snprintf(text, text_bytes, "captured %s %s rank %d", work->spec.name,
		 p2p->side == P2P_SEND ? "to" : "from", p2p->peer);
	return text;
}

static tutti_status device_message_begin(struct engine *e, struct tutti_work *work)
{
	tutti_status status = device_message_launch(&work->spec);
	char call[80], before[120];

	if (status != TUTTI_OK) {
		snprintf(before, sizeof before, "rank %d: %s: ", e->config.rank,
			 device_message_words(work, call, sizeof call));
		return fail_before(status, before);
	}
	engine_expect_replays(e);
	engine_work_ended(e, work);
	return TUTTI_OK;
}

const struct task_kind device_message_tasks = {.begin = device_message_begin,
					       .words = device_message_words};
