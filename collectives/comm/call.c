/* One call's way from the API to the engine: sequence and fingerprint, algorithm, cached plan, and
 * the choice between waiting here and handing out a handle. */
#include "collectives/comm/comm.h"
#include "collectives/api/group.h"

#include "memory/ops.h"

#include <assert.h>
#include <sched.h>
#include <stdlib.h>

static int index_of(const struct algorithm *a)
{
	return (int)(a - algorithm_at(0));
}

/* One plan serves every size, pointer and dtype. */
static tutti_status find_plan(struct tutti_comm *comm, const struct algorithm *a,
			      const struct plan_key *key, const struct plan **plan)
{
	struct cached_plan **list = &comm->plans[index_of(a)], *c;

	assert(index_of(a) < COMM_ALGORITHMS_MAX);
	for (c = *list; c; c = c->next)
		if (c->root == key->root && c->in_place == key->in_place &&
		    c->options.staged == key->options.staged &&
		    c->options.scaled == key->options.scaled) {
			*plan = c->plan;
			return TUTTI_OK;
		}
	c = malloc(sizeof *c);
	struct plan *made = algorithm_plan(a, key);
	if (!c || !made) {
		free(c);
		plan_free(made);
		return fail(TUTTI_ERR_MEMORY, "rank %d: no memory for the plan of %s %s",
			    comm->rank, collective_name(a->collective), a->name);
	}
	*c = (struct cached_plan){*list, made, key->root, key->in_place, key->options};
	*list = c;
	*plan = made;
	return TUTTI_OK;
}

static tutti_status add_plan(struct tutti_comm *comm, const struct algorithm *a,
			     struct job_spec *spec)
{
	struct plan_key key = {.rank = comm->rank,
			       .size = comm->size,
			       .root = collective_has_root(a->collective) ? spec->args.root : 0,
			       .in_place = spec->args.send == spec->args.recv,
			       .nodes = comm->select.nodes};
	key.options.staged = !(comm->kinds_in_place & 1u << spec->memory->id);
	key.options.scaled = op_scalar(spec->args.op) != NULL;
	spec->layout = layout_of(&spec->args, comm->size, algorithm_split(a, comm->size));
	spec->width = algorithm_width(a, comm->size, key.options);
	spec->checks_counts = spec->args.collective == COLL_ALL_TO_ALLV;
	return find_plan(comm, a, &key, &spec->plan);
}

/* The kind of memory of the call's buffers; a rank that has none of them here says host. */
static tutti_status find_memory(const struct call_args *a, const struct memory_kind **memory)
{
	*memory = memory_of(a->recv ? a->recv : a->send);
	if (a->send && a->recv && a->send != a->recv && memory_of(a->send) != *memory)
		return fail(TUTTI_ERR_INVALID, "%s: send is %s memory and recv is %s memory",
			    collective_name(a->collective), memory_of(a->send)->name,
			    (*memory)->name);
	return TUTTI_OK;
}

static bool waits_here(const tutti_call *call)
{
	return !call || (!call->work && !call->done);
}

tutti_status comm_start_job(struct tutti_comm *comm, const struct job_spec *spec,
			    const tutti_call *call)
{
	struct tutti_work *work;
	if (waits_here(call)) {
		atomic_store_explicit(&comm->is_issuing, 2, memory_order_relaxed);
		return engine_run(comm->engine, spec);
	}
	TRY(engine_submit(comm->engine, spec, &work));
	if (call->work)
		*call->work = work;
	else
		work_release(work);
	return TUTTI_OK;
}

/* Here the call becomes the communicator's next. Of a split's rounds the first alone is noted. */
static void take_number(struct tutti_comm *comm, const struct call_args *args,
			const struct noted *noted)
{
	if (call_is_later_round(args))
		return;
	recorder_note(comm->recorder, args->sequence, noted);
	comm->fingerprint = noted->fingerprint;
	atomic_store_explicit(&comm->sequence, args->sequence + 1, memory_order_relaxed);
}

static int timeout_of(const struct tutti_comm *comm, const tutti_call *call)
{
	return call && call->timeout_ms ? call->timeout_ms : comm->timeout_ms;
}

/* A job of its own, with all that the engine may want to know of it. */
static tutti_status issue_job(struct tutti_comm *comm, const struct call_args *args,
			      const struct algorithm *a, const struct noted *noted,
			      const tutti_call *call)
{
	struct job_spec spec = {.kind = a && a->build ? &plan_jobs : &window_jobs,
				.args = *args,
				.memory = memory_of(args->recv ? args->recv : args->send),
				.name = collective_name(args->collective),
				.algorithm = a ? a->name : "window",
				.timeout_ms = timeout_of(comm, call)};
	if (call) {
		spec.done = call->done;
		spec.done_arg = call->done_arg;
	}
	spec.send_bytes = layout_extent(args, comm->rank, comm->size, SEND_SIDE);
	spec.recv_bytes = layout_extent(args, comm->rank, comm->size, RECV_SIDE);
	if (a && a->build)
		TRY(add_plan(comm, a, &spec));
	take_number(comm, args, noted);
	spec.trace = trace_call(comm->trace, args,
				a && a->build ? (unsigned)index_of(a) : TRACE_BY_WINDOW,
				(waits_here(call) ? 0 : TRACE_IS_ASYNC) |
					(args->is_grouped ? TRACE_IS_GROUPED : 0));
	trace_began(&spec.trace);
	tutti_status status = comm_start_job(comm, &spec, call);
	if (status != TUTTI_OK)
		trace_ended_late(&spec.trace, true);
	return status;
}

/* Under the rule that an invalid call uses no sequence number: args were checked before. */
tutti_status comm_issue(struct tutti_comm *comm, struct call_args *args, const tutti_call *call)
{
	const struct algorithm *a = NULL; /* the window, or none */
	bool is_window = select_is_window(&comm->select);
	tutti_status status = engine_status(comm->engine);
	if (__builtin_expect(status != TUTTI_OK, 0))
		return fail(status, "%s", engine_error(comm->engine));
	if (args->collective == COLL_MEM_ALLOC) {
		is_window = false;
	} else if (!is_window) {
		TRY(select_algorithm(&comm->select, args, &a));
		is_window = !a->build;
	}
	const struct memory_kind *memory;
	TRY(find_memory(args, &memory));
	if (memory->id != TUTTI_MEMORY_HOST && op_user(args->op))
		return fail(TUTTI_ERR_INVALID, "%s: %s works on host memory only, not on %s memory",
			    collective_name(args->collective), op_name(args->op), memory->name);
	if (group_is_open())
		return group_add_call(comm, args, call);
	args->sequence = atomic_load_explicit(&comm->sequence, memory_order_relaxed);
	if (call_is_later_round(args))
		args->sequence--; /* its first round's */
	struct noted noted = noted_of(args, comm->size, comm->fingerprint);
	args->fingerprint = noted.fingerprint;
	if (is_window && waits_here(call) && memory->id == TUTTI_MEMORY_HOST) {
		take_number(comm, args, &noted);
		atomic_store_explicit(&comm->is_issuing, 2, memory_order_relaxed);
		status = engine_run_window(comm->engine, args, timeout_of(comm, call));
	} else {
		status = issue_job(comm, args, a, &noted, call);
	}
	if (__builtin_expect(status != TUTTI_OK && engine_status(comm->engine) != TUTTI_OK, 0)) {
		engine_show_failure(comm->engine);
		return fail(status, "%s", engine_error(comm->engine));
	}
	return status;
}

/* A callback may run before the call that it belongs to has returned to its thread: it waits for
 * that. */
static bool comes_after(struct tutti_comm *comm)
{
	int state = 0;
	while (engine_in_callback() && state != 2) {
		state = 0;
		if (atomic_compare_exchange_weak_explicit(&comm->is_issuing, &state, 1,
							  memory_order_acquire,
							  memory_order_relaxed))
			return true;
		sched_yield();
	}
	return false;
}

static bool enter_freely(struct tutti_comm *comm)
{
	int free = 0;
	return atomic_compare_exchange_strong_explicit(&comm->is_issuing, &free, 1,
						       memory_order_acquire, memory_order_relaxed);
}

tutti_status comm_enter(struct tutti_comm *comm, const char *name)
{
	if (enter_freely(comm) || comes_after(comm))
		return TUTTI_OK;
	return fail(TUTTI_ERR_INVALID,
		    "%s: another thread is in a call of this communicator on rank %d: one thread "
		    "at a time issues calls",
		    name, comm->rank);
}

void comm_leave(struct tutti_comm *comm)
{
	atomic_store_explicit(&comm->is_issuing, 0, memory_order_release);
}

void comm_lacks_memory(struct tutti_comm *comm)
{
	if (!group_is_open() && engine_status(comm->engine) == TUTTI_OK)
		engine_fail(comm->engine, TUTTI_ERR_MEMORY, last_error());
}

tutti_status comm_call(struct tutti_comm *comm, struct call_args *args, const tutti_call *call)
{
	if (__builtin_expect(!enter_freely(comm), 0))
		TRY(comm_enter(comm, collective_name(args->collective)));
	tutti_status status = comm_issue(comm, args, call);
	if (__builtin_expect(status == TUTTI_ERR_MEMORY, 0))
		comm_lacks_memory(comm);
	comm_leave(comm);
	return status;
}
