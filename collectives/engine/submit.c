/* A call becomes a work, and its job begins. */
#include "collectives/engine/job.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WAITS_PER_LOOK 16

static tutti_status open_queue(struct engine *e, const struct memory_kind *kind)
{
	return e->queues[kind->id] ? TUTTI_OK : kind->open(&e->queues[kind->id]);
}

static bool is_full(const struct engine *e)
{
	return e->work_count >= ENGINE_WORKS_MAX && !e->groups && !e->stop;
}

/* A full queue gets room by progress, until the deadline of the new call. */
static void make_room(struct engine *e, const struct job_spec *spec)
{
	struct wait w;

	if (__builtin_expect(!is_full(e), 1))
		return;
	wait_begin(&w, e->config.policy);
	e->outside = spec;
	e->outside_since_ns = engine_now(e);
	uint64_t deadline_ns = e->outside_since_ns + (uint64_t)spec->timeout_ms * 1000000u;
	while (is_full(e)) {
		if (engine_now(e) >= deadline_ns) {
			engine_fail_outside(e);
		} else if (!engine_pass(e) && !wait_again(&w)) {
			engine_unlock(e);
			engine_sleep(e);
			pthread_mutex_lock(&e->lock);
		}
	}
	e->outside = NULL;
}

/* The caller may change its counts and offsets when an asynchronous call has returned. */
static tutti_status keep_tables(struct engine *e, struct tutti_work *work)
{
	struct call_args *a = &work->spec.args;
	size_t n = (size_t)e->config.size, *to;
	if (!a->counts[SEND_SIDE])
		return TUTTI_OK;
	if (work->table_room < 4 * n) {
		if (!(to = realloc(work->tables, 4 * n * sizeof *to)))
			return fail(TUTTI_ERR_MEMORY, "rank %d: %s: no memory for %zu counts",
				    e->config.rank, work->spec.name, 4 * n);
		work->tables = to;
		work->table_room = 4 * n;
	}
	to = work->tables;
	for (int side = 0; side < 2; side++, to += 2 * n) {
		memcpy(to, a->counts[side], n * sizeof *to);
		memcpy(to + n, a->offsets[side], n * sizeof *to);
		a->counts[side] = to;
		a->offsets[side] = to + n;
		work->spec.layout.counts[side] = to;
		if (work->spec.layout.offsets[side])
			work->spec.layout.offsets[side] = to + n;
	}
	return TUTTI_OK;
}

static tutti_status new_work(struct engine *e, const struct job_spec *spec,
			     struct tutti_work **work)
{
	TRY(open_queue(e, spec->memory));
	*work = work_new(e);
	return *work ? TUTTI_OK
		     : fail(TUTTI_ERR_MEMORY, "rank %d: no memory for a call", e->config.rank);
}

/* Under the lock. The call has its sequence number, so if it fails here the communicator fails: the
 * other ranks would wait for it until their deadline. */
static tutti_status submit(struct engine *e, const struct job_spec *spec, bool is_async,
			   struct tutti_work **out)
{
	struct tutti_work *work;
	make_room(e, spec);
	if (e->report_state && !e->stop)
		engine_act_on_failure(e);
	if (e->stop)
		return engine_status(e);
	tutti_status status = new_work(e, spec, &work);
	if (status != TUTTI_OK) {
		engine_fail(e, status, last_error());
		return status;
	}
	work->spec = *spec;
	op_hold(spec->args.op);
	work->is_async = is_async;
	work->deadline_ns = engine_now(e) + (uint64_t)spec->timeout_ms * 1000000u;
	work->next = e->works;
	if (e->works)
		e->works->prev = work;
	e->works = work;
	e->work_count++;
	if (is_async)
		atomic_fetch_add(&e->async_works, 1);
	status = keep_tables(e, work);
	if (status == TUTTI_OK)
		status = spec->kind->begin(e, work);
	if (status != TUTTI_OK) {
		work->spec.done = NULL; /* the caller gets the error from the return value, once */
		engine_fail(e, status, last_error());
		engine_clean_up(e);
		work_release(work);
		return status;
	}
	engine_settle(e);
	*out = work;
	return TUTTI_OK;
}

/* In a world of one a call on host memory ends in submit, and needs no thread. */
static bool needs_helper(const struct engine *e, const struct job_spec *spec)
{
	return !e->config.now_ns && !e->is_helped &&
	       (e->config.size > 1 || spec->done || spec->p2p.side ||
		spec->memory->id != TUTTI_MEMORY_HOST);
}

tutti_status engine_submit(struct engine *e, const struct job_spec *spec, struct tutti_work **work)
{
	if (needs_helper(e, spec)) {
		tutti_status attached = helper_attach(e);
		if (attached != TUTTI_OK) { /* the other ranks wait for this call */
			engine_fail(e, attached, last_error());
			return attached;
		}
	}
	pthread_mutex_lock(&e->lock);
	tutti_status status = submit(e, spec, true, work);
	engine_unlock(e);
	if (status == TUTTI_OK && !e->config.now_ns)
		helper_wake();
	return status;
}

/* A send that was copied may still be under way when its call has ended: the helper moves it on. */
static tutti_status drain_loose(struct engine *e)
{
	pthread_mutex_lock(&e->lock);
	if (e->loose && !e->stop)
		engine_pass(e);
	bool is_over = !e->loose || e->config.now_ns;
	engine_unlock(e);
	if (is_over)
		return TUTTI_OK;
	tutti_status status = e->is_helped ? TUTTI_OK : helper_attach(e);
	if (status == TUTTI_OK)
		helper_wake();
	else
		engine_fail(e, status, last_error());
	return status;
}

tutti_status engine_run(struct engine *e, const struct job_spec *spec)
{
	struct tutti_work *work;

	pthread_mutex_lock(&e->lock);
	tutti_status status = submit(e, spec, false, &work);
	engine_unlock(e);
	if (status == TUTTI_OK && e->config.ranks_near_count &&
	    ++e->spread.waits % WAITS_PER_LOOK == 0)
		engine_spread(e);
	if (status == TUTTI_OK)
		status = work_wait(&work, 0);
	if (status == TUTTI_OK && spec->p2p.side)
		status = drain_loose(e);
	return status;
}
