/* How calls come to the engine: a call becomes a work, and its task begins; a group of calls gets a
 * work of its own. Short calls of the window need less: window_calls.c. */
#include "collectives/control/control.h"
#include "collectives/engine/helper.h"
#include "core/memory/ops.h"
#include "core/ticks.h"

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
static tutti_status submit_keep_tables(struct engine *e, struct tutti_work *work)
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

static tutti_status submit_copy_send(struct engine *e, struct tutti_work *work)
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

static tutti_status submit_new_work(struct engine *e, const struct task_spec *spec,
				    struct tutti_work **work)
{
	TRY(submit_open_queue(e, spec->memory));
	if (spec->is_ordered)
		TRY(submit_open_queue(e, memory_kind(TUTTI_MEMORY_CUDA)));
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
	tutti_status status = submit_new_work(e, spec, &work);
	if (status != TUTTI_OK)
		return submit_refuse(e, spec, status);
	work->spec = *spec;
	op_hold(spec->args.op);
	work_begin_life(e, work, is_async);
	status = submit_keep_tables(e, work);
	if (status == TUTTI_OK)
		status = submit_copy_send(e, work);
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
static bool submit_needs_helper(const struct engine *e, const struct task_spec *spec)
{
	return !e->config.now_ns && !e->help.is_attached &&
	       (e->config.size > 1 || spec->done || spec->p2p.side || spec->is_ordered ||
		spec->memory->id != TUTTI_MEMORY_HOST);
}

tutti_status engine_submit(struct engine *e, const struct task_spec *spec, struct tutti_work **work)
{
	if (submit_needs_helper(e, spec)) {
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
static tutti_status submit_drain_loose(struct engine *e)
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

/* Messages that need no work make no pass. So the endpoints are asked now and then: other ranks may
 * want a connection, or have failed. */
static bool submit_poll_and_check(struct engine *e)
{
	enum { TRIES = 64 };

	if (++e->watch.tries % TRIES == 0)
		engine_poll_endpoints(e);
	return !e->failure.stop && !e->failure.report_state && !engine_has_started(e);
}

/* The wait for a message that may come. */
struct look {
	struct wait wait;
	unsigned looks;
	uint64_t begun_ns;
};

static bool submit_looks_again(struct engine *e, struct look *l)
{
	enum { MOST_NS = 1000000, LOOKS = 16 };

	if (l->looks == 0)
		spread_wait(&e->spread);
	if (++l->looks % LOOKS == 0) {
		uint64_t now = engine_now(e);
		if (!l->begun_ns)
			l->begun_ns = now;
		if (now - l->begun_ns > MOST_NS)
			return false;
	}
	return wait_again(&l->wait);
}

size_t engine_at_once(struct engine *e, engine_try_fn *try_it,
		      const struct send_recv *const *messages, size_t n, uint64_t *since)
{
	struct look look = {.looks = 0};
	size_t over = 0;

	wait_begin(&look.wait, e->config.policy);
	for (;;) {
		bool may_come = false;
		size_t before = over;
		if (!engine_trylock(e))
			return over;
		while (over < n && submit_poll_and_check(e) && try_it(e, messages[over], &may_come))
			over++;
		engine_unlock(e);
		if (over == n || !may_come)
			return over;
		if (over > before)
			wait_begin(&look.wait, e->config.policy);
		if (!since[over])
			since[over] = ticks_now(trace_clock);
		if (!submit_looks_again(e, &look))
			return over;
	}
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
		status = submit_drain_loose(e);
	return status;
}

/* The work of a group: works of one or several engines that end as one. It is on the list of no
 * engine; its parts count it down (work.c). It and the list of its parts are one block of memory,
 * which work.c frees. */
struct whole {
	struct tutti_work work;
	struct work_parts parts;
	void *tables[];
};

tutti_status work_new_whole(struct tutti_work **out, struct engine *e, size_t count,
			    const tutti_call *call)
{
	struct whole *block = calloc(1, sizeof *block + 2 * count * sizeof block->tables[0]);
	if (!block)
		return fail(TUTTI_ERR_MEMORY, "rank %d: no memory for a group of %zu calls",
			    e->config.rank, count);
	tutti_status status = TUTTI_OK;
	if (call->done && !e->config.now_ns)
		status = helper_attach(e); /* it calls done */
	if (status != TUTTI_OK) {
		free(block);
		return status;
	}
	struct tutti_work *whole = &block->work;
	block->parts.part = (struct tutti_work **)block->tables;
	block->parts.engine = (struct engine **)(block->tables + count);
	block->parts.left = 1;
	whole->parts = &block->parts;
	whole->engine = e;
	whole->submitted_ns = engine_coarse_now(e);
	atomic_fetch_add_explicit(&e->refs, 1, memory_order_relaxed);
	whole->spec.done = call->done;
	whole->spec.done_arg = call->done_arg;
	whole->refs = 2; /* one for the caller, one until it has ended */
	whole->is_async = call->done != NULL;
	if (whole->is_async)
		atomic_fetch_add(&e->help.async_works, 1);
	*out = whole;
	return TUTTI_OK;
}

static void submit_work_add_engine(struct work_parts *parts, struct engine *e)
{
	for (size_t i = 0; i < parts->engine_count; i++)
		if (parts->engine[i] == e)
			return;
	parts->engine[parts->engine_count++] = e;
}

void work_add_part(struct tutti_work *whole, struct tutti_work *part)
{
	struct engine *e = part->engine;
	whole->parts->part[whole->parts->count++] = part;
	submit_work_add_engine(whole->parts, e);
	atomic_fetch_add_explicit(&whole->parts->left, 1, memory_order_relaxed);
	engine_lock(e);
	if (part->is_done)
		work_part_ended(whole, part);
	else
		part->whole = whole;
	engine_unlock(e);
}

bool work_seal(struct tutti_work *whole)
{
	bool has_parts = whole->parts->count > 0;
	if (!has_parts)
		whole->spec.done = NULL; /* the caller gets the error from the return value */
	work_count_down(whole);
	return has_parts;
}
