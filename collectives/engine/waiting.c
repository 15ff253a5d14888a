/* Waiting for a work. A thread that waits makes the progress: a pass under the engine's lock, then
 * looks without it. Where all that is in flight waits for one word of the window's memory it
 * looks at that word alone. The helper thread keeps away meanwhile. A stream waits at a gate that
 * work_finish opens. */
#include "collectives/engine/engine_internal.h"
#include "collectives/engine/helper.h"
#include "core/callback.h"
#include "core/status.h"

#include <assert.h>
#include <stdio.h>

#define LOOKS_PER_PASS 64u

static bool waiting_work_is_done(struct tutti_work *work)
{
	return atomic_load_explicit(&work->is_done, memory_order_acquire);
}

/* The engines that work, or a part of it, is on. */
struct engines {
	struct engine **engine;
	size_t count;
};

static struct engines engines_of(struct tutti_work *work)
{
	if (work->parts)
		return (struct engines){work->parts->engine, work->parts->engine_count};
	return (struct engines){&work->engine, 1};
}

/* The result of a pass. */
struct found {
	bool moved, has_word; /* has_word: no more than awaited can move the work */
	struct window_awaited awaited;
};

/* If another thread holds a lock, that thread makes the progress. has_slept: clocks are due. */
static struct found waiting_make_progress(struct tutti_work *work, bool has_slept)
{
	struct engines on = engines_of(work);
	struct found found = {0};

	for (size_t i = 0; i < on.count && !waiting_work_is_done(work); i++) {
		struct engine *e = on.engine[i];
		if (!engine_trylock(e))
			continue;
		if (has_slept)
			e->watch.passes |= 31; /* as after engine_sleep */
		found.moved |= engine_pass(e, true);
		if (!found.moved && on.count == 1)
			found.has_word = window_task_awaits(e, &found.awaited);
		engine_unlock(e);
	}
	return found;
}

/* Wakes up at an event of one engine with unfinished parts, and for the others after 1 ms. */
static void waiting_sleep_for(struct tutti_work *work)
{
	struct engine *e = work->engine;
	for (size_t i = 0; work->parts && i < work->parts->count; i++)
		if (!waiting_work_is_done(work->parts->part[i])) {
			e = work->parts->part[i]->engine;
			break;
		}
	engine_sleep(e);
}

/* Returns when a pass may find something, or has to look at clocks; true: it has slept. */
static bool waiting_look_at_memory(struct tutti_work *work, const struct window_awaited *awaited,
				   struct wait *w)
{
	for (unsigned looks = 0; looks < LOOKS_PER_PASS; looks++) {
		if (window_has_come(awaited) || waiting_work_is_done(work))
			return false;
		if (!wait_again_for(w, awaited->is_near)) {
			window_sleep(awaited);
			return true;
		}
		if (awaited->is_near) /* the others may have gone on, or to other CPUs */
			return false;
	}
	return false;
}

/* IN_PROGRESS: the deadline has passed. */
static tutti_status waiting_wait_in_turns(struct tutti_work *work, uint64_t deadline_ns)
{
	struct wait w;
	bool has_slept = false;

	wait_begin(&w, work->engine->config.policy);
	while (!waiting_work_is_done(work)) {
		struct found found = waiting_make_progress(work, has_slept);
		has_slept = false;
		if (found.moved) {
			wait_begin(&w, w.policy);
			continue;
		}
		if (deadline_ns != DEADLINE_NONE && clock_now_ns() >= deadline_ns)
			return waiting_work_is_done(work) ? TUTTI_OK : TUTTI_IN_PROGRESS;
		if (found.has_word)
			has_slept = waiting_look_at_memory(work, &found.awaited, &w);
		else if (!wait_again(&w))
			waiting_sleep_for(work);
	}
	return TUTTI_OK;
}

static tutti_status waiting_wait_long(struct tutti_work *work, int timeout_ms)
{
	struct engines on = engines_of(work);
	uint64_t deadline = timeout_ms > 0 ? deadline_after_ms(timeout_ms) : DEADLINE_NONE;

	for (size_t i = 0; i < on.count; i++)
		atomic_fetch_add(&on.engine[i]->help.waiters, 1);
	tutti_status status = waiting_wait_in_turns(work, deadline);
	for (size_t i = 0; i < on.count; i++) {
		/* Partner: the helper's is_busy. Then it helps what is left. */
		if (atomic_fetch_sub(&on.engine[i]->help.waiters, 1) == 1 &&
		    helper_has_works(on.engine[i]))
			helper_call_for(on.engine[i], false);
	}
	return status;
}

static void waiting_note_wait(struct tutti_work *work)
{
	struct engines on = engines_of(work);

	for (size_t i = 0; i < on.count; i++)
		helper_note_wait(work, on.engine[i]);
}

/* Returns at its end, however it ends. */
static void waiting_work_await(struct tutti_work *work)
{
	if (!waiting_work_is_done(work))
		waiting_wait_long(work, 0);
}

tutti_status work_wait(struct tutti_work **held, int timeout_ms)
{
	struct tutti_work *work = *held;

	if (!waiting_work_is_done(work)) {
		waiting_note_wait(work);
		if (window_call_end(work)) {
			*held = NULL;
			return TUTTI_OK;
		}
		waiting_make_progress(work, false);
		if (!waiting_work_is_done(work))
			TRY(waiting_wait_long(work, timeout_ms));
	}
	tutti_status status = work_result(work);
	*held = NULL;
	work_release(work);
	return status;
}

/* A caller that tests again and again lets others run as a thread that waits does. */
static void waiting_give_way(struct tutti_work *work)
{
	static _Thread_local struct wait between;

	if (!wait_again(&between))
		wait_begin(&between, work->engine->config.policy);
}

tutti_status work_test(struct tutti_work *work, bool *done)
{
	if (!(*done = waiting_work_is_done(work))) {
		struct found found = waiting_make_progress(work, false);
		*done = waiting_work_is_done(work);
		if (!*done && !found.moved)
			waiting_give_way(work);
	}
	return *done ? work_result(work) : TUTTI_OK;
}

tutti_status work_cancel(struct tutti_work *work)
{
	struct engine *e = work->engine;
	bool is_cancelled = false;

	if (work->parts)
		return fail(TUTTI_ERR_INVALID,
			    "tutti_work_cancel: work is a group's: its calls cannot be cancelled");
	engine_lock(e);
	const char *name = work->spec.name;
	bool never = !work->spec.kind->cancel;
	if (!never && !waiting_work_is_done(work) && !e->failure.stop && work->stage == WORK_RUNS)
		is_cancelled = work->spec.kind->cancel(e, work);
	if (is_cancelled) {
		engine_work_failed(e, work, TUTTI_ERR_ABORTED);
		engine_settle(e);
	}
	engine_unlock(e);
	if (is_cancelled)
		return TUTTI_OK;
	if (never)
		return fail(TUTTI_ERR_INVALID,
			    "tutti_work_cancel: work is of %s: only a recv can be cancelled", name);
	return fail(TUTTI_ERR_INVALID,
		    "tutti_work_cancel: work is a %s: only a recv that has met no message can be "
		    "cancelled",
		    name);
}

/* Whether the stream waits for a kernel's end, and for nothing that the host does. */
static bool waiting_ends_in_stream(const struct tutti_work *work)
{
	return work->spec.kind->end_of && work->spec.memory->id == TUTTI_MEMORY_CUDA;
}

/* On a GPU, or NULL. */
static const void *waiting_work_stream_buffer(const struct tutti_work *work)
{
	const struct call_args *args = &work->spec.args;

	if (work->spec.memory->id != TUTTI_MEMORY_CUDA)
		return NULL;
	return args->recv ? args->recv : args->send;
}

/* Whether the stream is one in which a program's copy would keep the engine from its work. In a
 * callback nothing waits. */
static bool waiting_waits_here(const struct tutti_work *work, void *stream)
{
	return !waiting_ends_in_stream(work) && !callback_in_done &&
	       cuda_stream_blocks_others(stream, waiting_work_stream_buffer(work));
}

/* A failure opens the gate, too: no stream waits for what cannot come. */
static tutti_status waiting_wait_at_gate(struct tutti_work *work, void *stream)
{
	const void *near = waiting_work_stream_buffer(work);

	if (waiting_work_is_done(work))
		return TUTTI_OK;
	if (waiting_ends_in_stream(work))
		return cuda_stream_join(work->spec.kind->end_of(work), stream, near);
	if (!work->gate.word)
		TRY(cuda_gate_take(&work->gate));
	return cuda_gate_wait(&work->gate, stream, near);
}

static tutti_status waiting_work_wait_stream_one(struct tutti_work *work, void *stream)
{
	struct engine *e = work->engine;

	/* Partner: work_end. Its engine may be gone. */
	if (waiting_work_is_done(work))
		return TUTTI_OK;
	engine_lock(e); /* a work that is alone has no spec before */
	engine_unlock(e);
	if (waiting_waits_here(work, stream)) {
		waiting_work_await(work);
		return TUTTI_OK;
	}
	engine_lock(e);
	tutti_status status = waiting_wait_at_gate(work, stream);
	engine_unlock(e);
	return status;
}

tutti_status work_wait_stream(struct tutti_work *work, void *stream)
{
	if (!work->parts)
		return waiting_work_wait_stream_one(work, stream);
	for (size_t i = 0; i < work->parts->count; i++)
		TRY(waiting_work_wait_stream_one(work->parts->part[i], stream));
	return TUTTI_OK;
}

void engine_fail_stream(struct engine *e, tutti_status status, const char *name)
{
	char text[ERROR_BYTES];

	snprintf(text, sizeof text, "rank %d: %s: its stream cannot be made to wait: %.380s",
		 e->config.rank, name, last_error());
	engine_fail(e, status, text);
}
