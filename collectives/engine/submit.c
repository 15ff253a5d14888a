/* A call becomes a work, and its task begins. */
#include "collectives/engine/helper.h"

#include "core/memory/ops.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static tutti_status submit_open_queue(struct engine *e, const struct memory_kind *kind)
{
	return e->links.queues[kind->id] ? TUTTI_OK : kind->open(&e->links.queues[kind->id]);
}

static bool submit_is_full(const struct engine *e)
{
	return e->works.count >= engine_works_most(e) && !e->works.groups && !e->failure.stop;
}

/* A full queue gets room by progress, until the deadline of the new call. */
static void submit_make_room(struct engine *e, const struct task_spec *spec)
{
	struct wait w;

	if (__builtin_expect(!submit_is_full(e), 1))
		return;
	wait_begin(&w, e->config.policy);
	e->works.outside = spec;
	e->works.outside_since_ns = engine_now(e);
	uint64_t deadline_ns = e->works.outside_since_ns + (uint64_t)spec->timeout_ms * 1000000u;
	while (submit_is_full(e)) {
		if (engine_now(e) >= deadline_ns) {
			engine_fail_outside(e);
		} else if (!engine_pass(e, false) && !wait_again(&w)) {
			engine_unlock(e);
			engine_sleep(e);
			engine_lock(e);
		}
	}
	e->works.outside = NULL;
}

void task_move_tables(struct task_spec *spec, size_t *to, size_t n)
{
	struct call_args *a = &spec->args;

	for (int side = 0; side < 2; side++, to += 2 * n) {
		memcpy(to, a->counts[side], n * sizeof *to);
		memcpy(to + n, a->offsets[side], n * sizeof *to);
		a->counts[side] = to;
		a->offsets[side] = to + n;
		spec->layout.counts[side] = to;
		if (spec->layout.offsets[side])
			spec->layout.offsets[side] = to + n;
	}
}

/* The caller may change its counts and offsets when an asynchronous call has returned. */
static tutti_status keep_tables(struct engine *e, struct tutti_work *work)
{
	size_t n = (size_t)e->config.size, *to;
	if (!work->spec.args.counts[SEND_SIDE])
		return TUTTI_OK;
	if (work->table_room < 4 * n) {
		if (!(to = realloc(work->tables, 4 * n * sizeof *to)))
			return fail(TUTTI_ERR_MEMORY, "rank %d: %s: no memory for %zu counts",
				    e->config.rank, work->spec.name, 4 * n);
		work->tables = to;
		work->table_room = 4 * n;
	}
	task_move_tables(&work->spec, work->tables, n);
	return TUTTI_OK;
}

static tutti_status copy_send(struct engine *e, struct tutti_work *work)
{
	struct task_spec *spec = &work->spec;

	if (!spec->copies_send || !spec->send_bytes)
		return TUTTI_OK;
	if (!(work->send_copy = malloc(spec->send_bytes)))
		return fail(TUTTI_ERR_MEMORY, "rank %d: %s in place: no memory for %zu bytes",
			    e->config.rank, spec->name, spec->send_bytes);
	memcpy(work->send_copy, spec->args.send, spec->send_bytes);
	spec->args.send = work->send_copy;
	return TUTTI_OK;
}

static tutti_status new_work(struct engine *e, const struct task_spec *spec,
			     struct tutti_work **work)
{
	TRY(submit_open_queue(e, spec->memory));
	if (spec->stream_kind)
		TRY(submit_open_queue(e, spec->stream_kind));
	if (!(*work = work_new(e)))
		return fail(TUTTI_ERR_MEMORY, "rank %d: no memory for a call", e->config.rank);
	return TUTTI_OK;
}

/* The call gets no work. */
static tutti_status submit_refuse(struct engine *e, const struct task_spec *spec,
				  tutti_status status)
{
	engine_fail(e, status, last_error());
	trace_ended_late(&spec->trace, true);
	return status;
}

/* Under the lock; engine_settle is to follow. The call has its sequence number, so if it fails here
 * the communicator fails: the other ranks would wait for it until their deadline. */
static tutti_status submit_task(struct engine *e, const struct task_spec *spec, bool is_async,
				struct tutti_work **out)
{
	struct tutti_work *work;

	trace_began(&spec->trace);
	submit_make_room(e, spec);
	if (e->failure.report_state && !e->failure.stop)
		engine_act_on_failure(e);
	if (e->failure.stop)
		return submit_refuse(e, spec, engine_status(e));
	tutti_status status = new_work(e, spec, &work);
	if (status != TUTTI_OK)
		return submit_refuse(e, spec, status);
	work->spec = *spec;
	op_hold(spec->args.op);
	work_begin_life(e, work, is_async);
	status = keep_tables(e, work);
	if (status == TUTTI_OK)
		status = copy_send(e, work);
	if (status == TUTTI_OK)
		status = spec->kind->begin(e, work);
	if (status != TUTTI_OK) {
		work->spec.done = NULL; /* the caller gets the error from the return value, once */
		engine_fail(e, status, last_error());
		engine_clean_up(e);
		work_release(work);
		return status;
	}
	*out = work;
	return TUTTI_OK;
}

tutti_status engine_submit_replay(struct engine *e, const struct task_spec *spec)
{
	struct tutti_work *work;

	TRY(submit_task(e, spec, true, &work));
	work_release(work);
	return TUTTI_OK;
}

/* In a world of one a call on host memory ends in submit, and needs no thread. */
static bool needs_helper(const struct engine *e, const struct task_spec *spec)
{
	return !e->config.now_ns && !e->help.is_attached &&
	       (e->config.size > 1 || spec->done || spec->p2p.side || spec->stream_kind ||
		spec->memory->id != TUTTI_MEMORY_HOST);
}

tutti_status engine_submit(struct engine *e, const struct task_spec *spec, struct tutti_work **work)
{
	if (needs_helper(e, spec)) {
		tutti_status attached = helper_attach(e);
		if (attached != TUTTI_OK) /* the other ranks wait for this call */
			return submit_refuse(e, spec, attached);
	}
	engine_lock(e);
	tutti_status status = submit_task(e, spec, true, work);
	if (status == TUTTI_OK)
		engine_settle(e);
	engine_unlock(e);
	if (status == TUTTI_OK && !e->config.now_ns)
		helper_call_for(e, spec->done != NULL);
	return status;
}

/* A send that was copied may still be in flight when its call has ended: the helper moves it on. */
static tutti_status drain_loose(struct engine *e)
{
	engine_lock(e);
	if (e->loose && !e->failure.stop)
		engine_pass(e, false);
	bool is_over = !e->loose || e->config.now_ns;
	engine_unlock(e);
	if (is_over)
		return TUTTI_OK;
	tutti_status status = e->help.is_attached ? TUTTI_OK : helper_attach(e);
	if (status == TUTTI_OK)
		helper_call_for(e, true);
	else
		engine_fail(e, status, last_error());
	return status;
}

tutti_status engine_run(struct engine *e, const struct task_spec *spec)
{
	struct tutti_work *work;

	engine_lock(e);
	tutti_status status = submit_task(e, spec, false, &work);
	if (status == TUTTI_OK)
		engine_settle(e);
	engine_unlock(e);
	if (status == TUTTI_OK) {
		spread_wait(&e->spread);
		status = work_wait(&work, 0);
	}
	if (status == TUTTI_OK && spec->p2p.side)
		status = drain_loose(e);
	return status;
}
