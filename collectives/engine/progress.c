/* Progress: one pass over everything that is in flight, and sleeping until there is news. Also how
 * the engine's lock is released, where the first thread after a failure cleans up. */
#include "collectives/engine/engine_internal.h"
#include "collectives/engine/run.h"
#include "core/clock.h"
#include "core/log.h"
#include "core/status.h"
#include "transport/guarded.h"

#include <poll.h>
#include <stdlib.h>

void engine_lock_is_ours(const struct engine *e)
{
	log_line("rank %d: this thread already holds the communicator's lock: a callback has "
		 "called Tutti, or was left by longjmp; a reduction function must not call Tutti "
		 "with its communicator. Aborting.",
		 e->config.rank);
	abort();
}

bool engine_is_in_callback(const struct engine *e)
{
	return engine_holds_lock(e);
}

/* After this the engine touches no buffer of the caller. */
void engine_clean_up(struct engine *e)
{
	if (e->failure.is_clean)
		return;
	e->failure.is_clean = true;
	atomic_store(&e->help.is_dirty, 0);
	engine_disconnect(e);
	if (e->config.device.fail)
		e->config.device.fail(e->config.device.arg);
	for (int i = 0; i < TUTTI_MEMORY_KINDS; i++)
		if (e->links.queues[i])
			e->links.queues[i]->kind->cancel(e->links.queues[i]);
	tutti_done_init(&e->links.done);
	e->runs.dirty = NULL;
	e->runs.dirty_tail = &e->runs.dirty;
	e->works.window_head = NULL;
	e->works.window_tail = &e->works.window_head;
	e->works.ended = NULL;
	e->works.ended_tail = &e->works.ended;
	for (int s = 0; s < 2; s++)
		for (int i = 0; i < 2 * e->config.size; i++)
			e->links.streams[s][i] =
				(struct stream){NULL, &e->links.streams[s][i].head};
	while (e->works.newest) {
		e->works.newest->own_status = TUTTI_OK;
		work_finish(e, e->works.newest, engine_status(e));
	}
}

/* Partner: engine_set_failure sets stop, then engine_try_clean tries the lock. One of the two
 * threads sees the failure and cleans up, so the other ranks hear of it even if no call follows
 * here. */
void engine_unlock(struct engine *e)
{
	for (;;) {
		if (e->works.alone && (e->failure.report_state || e->failure.stop))
			engine_enlist(e);
		if (e->failure.report_state && !e->failure.stop)
			engine_act_on_failure(e);
		if (e->failure.stop)
			engine_clean_up(e);
		bool is_clean = e->failure.is_clean;
		engine_release_lock(e);
		if (is_clean || (!e->failure.stop && e->failure.report_state != REPORT_NEW) ||
		    !engine_trylock(e))
			return;
	}
}

void engine_try_clean(struct engine *e)
{
	if (engine_trylock(e))
		engine_unlock(e);
}

void engine_fail(struct engine *e, tutti_status status, const char *message)
{
	engine_set_failure(e, status, FAILURE_NO_RANK, message);
	engine_try_clean(e);
}

void engine_settle_failure(struct engine *e)
{
	engine_lock(e);
	engine_unlock(e); /* cleans up */
}

void engine_finish_ended(struct engine *e)
{
	while (e->works.ended) {
		struct tutti_work *work = e->works.ended;
		if (!(e->works.ended = work->next_ended))
			e->works.ended_tail = &e->works.ended;
		work_finish(e, work, work->own_status);
	}
}

/* Completions first, then one lane at a time. No endpoint is asked. */
bool engine_settle(struct engine *e)
{
	bool moved = false;
	struct tutti_io *done;

	while (!e->failure.stop) {
		if ((done = tutti_done_pop(&e->links.done))) {
			struct engine_io *io = (struct engine_io *)done;
			(done->status == TUTTI_OK ? io->owner->done : io->owner->failed)(e, io);
		} else if (!run_issue(e)) {
			break;
		}
		moved = true;
	}
	engine_finish_ended(e);
	return moved;
}

/* Asking an endpoint is a system call. While nothing in flight needs one, that is done rarely: a
 * peer's message may need room. */
static bool progress_needs_endpoints(const struct engine *e)
{
	return e->works.by_message || e->loose ||
	       (e->works.newest && !e->watch.moved && (e->watch.passes + 1) % 32 == 0);
}

static bool progress_endpoints(struct engine *e)
{
	bool moved = false;

	for (int i = 0; i < e->config.endpoint_count; i++)
		moved |= transport_progress(e->config.endpoints[i], &e->links.done) > 0;
	return moved;
}

void engine_poll_endpoints(struct engine *e)
{
	progress_endpoints(e);
	engine_settle(e);
}

bool engine_pass(struct engine *e, bool is_eager)
{
	bool moved = engine_has_started(e);

	if (moved)
		e->captured.tasks->start(e);
	if (progress_needs_endpoints(e))
		moved |= progress_endpoints(e);
	for (int i = 1; i < TUTTI_MEMORY_KINDS; i++)
		if (e->links.queues[i])
			moved |= e->links.queues[i]->kind->progress(e->links.queues[i],
								    &e->links.done) > 0;
	moved |= engine_settle(e);
	while (!e->failure.stop && window_task_advance(e, is_eager)) {
		moved = true;
		engine_settle(e);
	}
	e->watch.moved = moved;
	if (e->works.newest && (e->config.now_ns || ++e->watch.passes % (moved ? 256 : 32) == 0))
		engine_watch(e);
	if (e->failure.stop)
		engine_clean_up(e);
	return moved;
}

bool engine_progress(struct engine *e)
{
	engine_lock(e);
	bool moved = engine_pass(e, false);
	engine_unlock(e);
	if (e->config.now_ns)
		while (engine_call_back(e))
			moved = true;
	return moved;
}

void engine_sleep(struct engine *e)
{
	struct pollfd fds[8];
	int n = 0;
	if (engine_trylock(e)) { /* else another thread makes progress */
		n = e->failure.stop ? -1 : engine_arm(e, fds, 8);
		engine_unlock(e);
	}
	if (n >= 0)
		poll(fds, (nfds_t)n, 1);
	if (engine_trylock(e)) {
		engine_disarm(e);
		e->watch.passes |= 31; /* after a sleep the next pass may read the clock */
		engine_unlock(e);
	}
}
