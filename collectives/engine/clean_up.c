/* Cleaning up after a failure. Every holder of the engine's lock releases it here. */
#include "collectives/engine/engine_internal.h"

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
