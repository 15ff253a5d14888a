/* Progress: one pass over everything under way, and cleaning up after a failure. Every holder of
 * the engine's lock releases it here. */
#include "collectives/engine/job.h"

#include "collectives/engine/run.h"

#include <poll.h>

/* After this the engine touches no buffer of the caller. */
void engine_clean_up(struct engine *e)
{
	if (e->is_clean)
		return;
	e->is_clean = true;
	atomic_store(&e->is_dirty, 0);
	engine_disconnect(e);
	for (int i = 0; i < TUTTI_MEMORY_KINDS; i++)
		if (e->queues[i])
			e->queues[i]->kind->cancel(e->queues[i]);
	tutti_done_init(&e->done);
	e->dirty = NULL;
	e->dirty_tail = &e->dirty;
	e->window_head = NULL;
	e->window_tail = &e->window_head;
	e->ended = NULL;
	for (int s = 0; s < 2; s++)
		for (int i = 0; i < e->config.size; i++)
			e->streams[s][i] = (struct stream){NULL, &e->streams[s][i].head};
	while (e->works)
		work_finish(e, e->works, engine_status(e));
}

/* Partner: engine_set_failure sets stop, then engine_try_clean tries the lock. One of the two
 * threads sees the failure and cleans up, so the other ranks hear of it even if no call follows
 * here. */
void engine_unlock(struct engine *e)
{
	for (;;) {
		if (e->report_state && !e->stop)
			engine_act_on_failure(e);
		if (e->stop)
			engine_clean_up(e);
		bool is_clean = e->is_clean;
		pthread_mutex_unlock(&e->lock);
		if (is_clean || (!e->stop && e->report_state != REPORT_NEW) ||
		    pthread_mutex_trylock(&e->lock) != 0)
			return;
	}
}

static void finish_ended(struct engine *e)
{
	while (e->ended) {
		struct tutti_work *work = e->ended;
		e->ended = work->next_ended;
		work_finish(e, work, TUTTI_OK);
	}
}

/* Completions first, then one lane at a time. No endpoint is asked. */
static bool pump(struct engine *e)
{
	bool moved = false;
	struct tutti_io *done;

	while (!e->stop) {
		if ((done = tutti_done_pop(&e->done))) {
			struct engine_io *io = (struct engine_io *)done;
			(done->status == TUTTI_OK ? io->owner->done : io->owner->failed)(e, io);
		} else if (!run_issue(e)) {
			break;
		}
		moved = true;
	}
	return moved;
}

void engine_settle(struct engine *e)
{
	pump(e);
	finish_ended(e);
}

bool engine_pass(struct engine *e)
{
	bool moved = false;

	for (int i = 0; i < e->config.endpoint_count && (e->works || e->loose); i++) {
		struct tutti_endpoint *ep = e->config.endpoints[i];
		moved |= ep->transport->progress(ep, &e->done) > 0;
	}
	for (int i = 1; i < TUTTI_MEMORY_KINDS; i++)
		if (e->queues[i])
			moved |= e->queues[i]->kind->progress(e->queues[i], &e->done) > 0;
	moved |= pump(e);
	while (window_job_advance(e) && !e->stop) {
		moved = true;
		pump(e);
	}
	finish_ended(e);
	if (e->works && (e->config.now_ns || ++e->passes % (moved ? 256 : 32) == 0))
		engine_watch(e);
	if (e->stop)
		engine_clean_up(e);
	return moved;
}

bool engine_progress(struct engine *e)
{
	pthread_mutex_lock(&e->lock);
	bool moved = engine_pass(e);
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
	if (pthread_mutex_trylock(&e->lock) == 0) { /* else another thread makes progress */
		n = e->stop ? -1 : engine_arm(e, fds, 8);
		engine_unlock(e);
	}
	if (n >= 0)
		poll(fds, (nfds_t)n, 1);
	if (pthread_mutex_trylock(&e->lock) == 0) {
		engine_disarm(e);
		e->passes |= 31; /* after a sleep the next pass may read the clock */
		engine_unlock(e);
	}
}

void engine_try_clean(struct engine *e)
{
	if (pthread_mutex_trylock(&e->lock) == 0)
		engine_unlock(e);
}

void engine_fail(struct engine *e, tutti_status status, const char *message)
{
	engine_set_failure(e, status, FAILURE_NO_RANK, message);
	engine_try_clean(e);
}

void engine_settle_failure(struct engine *e)
{
	pthread_mutex_lock(&e->lock);
	engine_unlock(e); /* cleans up */
}
