/* Calls that are captured into graphs and that the engine serves: those of several nodes, of
 * processes that share a GPU, of GPUs that do not reach each other. In the graph such a call is a
 * host function and a wait at a gate. The function shuts the gate, says here that a replay has come
 * to the call, and wakes the helper; that starts the call as if it were submitted then, and the
 * gate opens when it has ended, well or not.
 *
 * Eager calls are in order of submission, and replays in that of the graphs' launches, which ranks
 * see at different moments. So replays have connections and a history of fingerprints of their own,
 * and meet only each other. */
#include "collectives/engine/helper.h"

#include "core/memory/ops.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CAPTURED_MAX 16384

struct captured_call {
	struct captured_call *next, *next_started;
	struct engine *engine; /* NULL: it is gone. Under the door's lock, as is_started      */
	bool is_started;       /* from its host function on until its gate is open            */
	struct cuda_gate gate;
	int left; /* works of the replay, and one while they are started: engine's lock */
	uint32_t replays;
	size_t count;
	struct task_spec specs[]; /* one collective, or messages; then tables                 */
};

/* Between host functions, which may take no lock under which the driver is called, and the engines.
 * After a failure graphs may still run when their communicator is gone: such calls stay. */
static struct {
	pthread_mutex_t lock;
	struct captured_call *gone;
} door = {.lock = PTHREAD_MUTEX_INITIALIZER};

tutti_status engine_check_capture(struct engine *e)
{
	engine_lock(e);
	int count = e->captured.count;
	engine_unlock(e);
	if (count < CAPTURED_MAX)
		return TUTTI_OK;
	return fail(
		TUTTI_ERR_INVALID,
		"rank %d has captured %d calls of this communicator, which are the most: graphs "
		"that are destroyed count, too; make another communicator",
		e->config.rank, count);
}

/* The host function: it may not call the driver, and the stream waits for its end. */
static void captured_replay_comes(void *arg)
{
	struct captured_call *c = arg;

	pthread_mutex_lock(&door.lock);
	struct engine *e = c->engine;
	if (e) {
		/* Partner: the stream, which looks at the gate when this has returned. */
		atomic_store_explicit(c->gate.word, c->gate.open - 1, memory_order_release);
		if (c->is_started) {
			e->captured.overlapped = c;
		} else {
			c->is_started = true;
			c->next_started = NULL;
			*e->captured.started_tail = c;
			e->captured.started_tail = &c->next_started;
		}
		atomic_store(&e->captured.has_started, true);
		helper_call_for(e, true);
	}
	pthread_mutex_unlock(&door.lock);
}

/* After this the same call may come again. */
static void captured_open_gate(struct captured_call *c)
{
	pthread_mutex_lock(&door.lock);
	c->is_started = false;
	/* Partner: the stream. What the host has seen as done comes before it. */
	atomic_store_explicit(c->gate.word, c->gate.open, memory_order_release);
	pthread_mutex_unlock(&door.lock);
}

/* Ranks whose replays differ never have a fingerprint in common again. */
static void captured_take_fingerprint(struct engine *e, struct task_spec *spec)
{
	uint64_t h = (uint64_t)e->captured.fingerprint << 32 | spec->args.fingerprint;

	spec->args.sequence = NO_CALL;
	if (spec->p2p.side != P2P_NONE)
		return;
	h = (h ^ h >> 31) * 0xbf58476d1ce4e5b9u;
	h = (h ^ h >> 29) * 0x94d049bb133111ebu;
	e->captured.fingerprint = spec->args.fingerprint = (uint32_t)(h >> 32) | 1;
}

static void captured_part_ended(struct captured_call *c)
{
	if (--c->left == 0)
		captured_open_gate(c);
}

/* A failure has the same way: works that have begun end with it. */
static void captured_start(struct engine *e, struct captured_call *c)
{
	c->left = 1;
	c->replays++;
	e->works.groups++; /* nothing here waits for room */
	for (size_t i = 0; i < c->count && !e->failure.stop; i++) {
		struct task_spec spec = c->specs[i];
		spec.replay = c->replays;
		captured_take_fingerprint(e, &spec);
		if (engine_submit_replay(e, &spec) != TUTTI_OK)
			break;
	}
	e->works.groups--;
	captured_part_ended(c);
}

static struct captured_call *captured_take_started(struct engine *e,
						   struct captured_call **overlapped)
{
	pthread_mutex_lock(&door.lock);
	struct captured_call *first = e->captured.started;
	*overlapped = e->captured.overlapped;
	e->captured.started = e->captured.overlapped = NULL;
	e->captured.started_tail = &e->captured.started;
	atomic_store(&e->captured.has_started, false);
	pthread_mutex_unlock(&door.lock);
	return first;
}

static void captured_fail_overlap(struct engine *e, const struct captured_call *c)
{
	char text[ERROR_BYTES];

	snprintf(text, sizeof text,
		 "rank %d: a captured %s: its graph was launched again in another stream before it "
		 "had ended; launches of a graph with calls come after each other",
		 e->config.rank, c->specs[0].name);
	engine_set_failure(e, TUTTI_ERR_INVALID, FAILURE_NO_RANK, text);
}

static void captured_start_all(struct engine *e)
{
	struct captured_call *overlapped, *c = captured_take_started(e, &overlapped);

	if (overlapped)
		captured_fail_overlap(e, overlapped);
	while (c) {
		struct captured_call *next = c->next_started; /* its gate may let it come again */
		captured_start(e, c);
		c = next;
	}
}

static void captured_work_began(const struct tutti_work *work)
{
	work->spec.captured->left++;
}

/* Nobody asks a replay's work how it ended: its error is the communicator's. */
static void captured_work_ended(struct engine *e, const struct tutti_work *work)
{
	char text[ERROR_BYTES];

	if (work->status != TUTTI_OK && !e->failure.stop)
		engine_set_failure(e, work->status, FAILURE_NO_RANK, work_error(work, text));
	captured_part_ended(work->spec.captured);
}

static const struct replay_tasks replay_tasks = {
	.start = captured_start_all, .began = captured_work_began, .ended = captured_work_ended};

/* The spec that a replay submits: in no stream's order, and nobody waits for its work. */
static void captured_fill(struct task_spec *to, const struct task_spec *from,
			  struct captured_call *c)
{
	*to = *from;
	to->captured = c;
	to->is_ordered = false;
	to->stream = NULL;
	to->is_in_stream = false;
	to->messages = NULL;
	to->message_count = 0;
	to->p2p.source = NULL; /* the caller's, which a replay does not know to be there */
	to->trace = (struct trace_mark){0};
	to->done = NULL;
	op_hold(to->args.op);
}

static struct captured_call *captured_describe(const struct engine *e, const struct task_spec *spec)
{
	size_t n = (size_t)e->config.size, count = spec->message_count ? spec->message_count : 1;
	size_t tables = spec->args.counts[SEND_SIDE] ? 4 * n : 0;
	struct captured_call *c =
		calloc(1, sizeof *c + count * sizeof *c->specs + tables * sizeof(size_t));

	if (!c)
		return NULL;
	c->count = count;
	for (size_t i = 0; i < count; i++)
		captured_fill(&c->specs[i], spec->message_count ? spec->messages[i] : spec, c);
	if (spec->message_count == 0)
		c->specs[0].kind = spec->replays_as;
	if (tables)
		task_move_tables(&c->specs[0], (size_t *)(void *)&c->specs[count], n);
	return c;
}

/* Where the last steps fail the graph may have the function already: the call stays. */
static tutti_status captured_capture(struct engine *e, const struct task_spec *spec)
{
	struct captured_call *c = captured_describe(e, spec);

	if (!c)
		return fail(TUTTI_ERR_MEMORY, "no memory for a captured call");
	c->next = e->captured.newest;
	e->captured.newest = c;
	e->captured.count++;
	e->captured.tasks = &replay_tasks;
	TRY(cuda_gate_take(&c->gate));
	atomic_store_explicit(c->gate.word, c->gate.open, memory_order_release);
	c->engine = e;
	return cuda_gate_capture(&c->gate, spec->stream, captured_replay_comes, c,
				 &e->captured.latest);
}

static const char *captured_words(const struct tutti_work *work, char *text, size_t text_bytes)
{
	snprintf(text, text_bytes, "captured %s", work->spec.name);
	return text;
}

static tutti_status captured_begin(struct engine *e, struct tutti_work *work)
{
	tutti_status status = captured_capture(e, &work->spec);
	char before[120];

	if (status != TUTTI_OK) {
		snprintf(before, sizeof before, "rank %d: captured %s: ", e->config.rank,
			 work->spec.name);
		return fail_before(status, before);
	}
	engine_work_ended(e, work);
	return TUTTI_OK;
}

const struct task_kind captured_tasks = {.begin = captured_begin, .words = captured_words};

static void captured_release_ops(const struct captured_call *c)
{
	for (; c; c = c->next)
		for (size_t i = 0; i < c->count; i++)
			op_release(c->specs[i].args.op);
}

/* No function tells e of a replay any more. Of a graph that is over there is none; after a failure
 * it may still run, and its calls stay. */
static void captured_leave(struct engine *e)
{
	struct captured_call *last = NULL;

	pthread_mutex_lock(&door.lock);
	for (struct captured_call *c = e->captured.newest; c; c = c->next) {
		c->engine = NULL;
		last = c;
	}
	if (last && engine_status(e) != TUTTI_OK) {
		last->next = door.gone;
		door.gone = e->captured.newest;
		e->captured.newest = NULL;
	}
	pthread_mutex_unlock(&door.lock);
}

void captured_free_all(struct engine *e)
{
	struct captured_call *overlapped, *c;

	captured_release_ops(e->captured.newest);
	captured_leave(e);
	for (c = captured_take_started(e, &overlapped); c; c = c->next_started)
		captured_open_gate(c);
	while ((c = e->captured.newest)) {
		e->captured.newest = c->next;
		if (c->gate.word)
			cuda_gate_open(&c->gate);
		free(c);
	}
	if (e->captured.latest.event)
		cuda_captured_free(&e->captured.latest);
}
