/* One call's way from the API to the engine: sequence and fingerprint, algorithm, cached plan, and
 * the choice between waiting here and handing out a handle. */
#include "collectives/comm/plan_cache.h"
#include "collectives/engine/engine.h"
#include "collectives/trace/recorder.h"

#include "memory/ops.h"

#include <assert.h>
#include <sched.h>
#include <stdlib.h>

static tutti_status add_plan(struct tutti_comm *comm, const struct algorithm *a,
			     struct job_spec *spec)
{
	struct plan_key key = {.rank = comm->rank,
			       .size = comm->size,
			       .root = collective_has_root(a->collective) ? spec->args.root : 0,
			       .in_place = spec->args.send == spec->args.recv,
			       .nodes = comm->select.nodes};
	key.options.staged = !(comm->reach.kinds_in_place & 1u << spec->memory->id);
	key.options.scaled = op_scalar(spec->args.op) != NULL;
	spec->layout = layout_of(&spec->args, comm->size, algorithm_split(a, comm->size));
	spec->width = algorithm_width(a, comm->size, key.options);
	spec->checks_counts = spec->args.collective == COLL_ALL_TO_ALLV;
	return plan_cache_find(comm, a, &key, &spec->plan);
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

/* Here the call becomes the communicator's next. Of a split's rounds the first alone is noted. */
static void take_number(struct tutti_comm *comm, const struct call_args *args,
			const struct noted *noted)
{
	if (call_is_later_round(args))
		return;
	recorder_note(comm->calls.recorder, args->sequence, noted);
	comm->calls.fingerprint = noted->fingerprint;
	atomic_store_explicit(&comm->calls.sequence, args->sequence + 1, memory_order_relaxed);
}

static int timeout_of(const struct tutti_comm *comm, const tutti_call *call)
{
	return call && call->timeout_ms ? call->timeout_ms : comm->settings.timeout_ms;
}

/* What serves a call. */
struct way {
	const struct algorithm *algorithm; /* NULL: of a mem_alloc; it may be the window's     */
	bool is_window;
	const struct memory_kind *memory;
};

static tutti_status find_way(const struct tutti_comm *comm, const struct call_args *args,
			     struct way *way)
{
	tutti_status status = engine_status(comm->engine);

	if (__builtin_expect(status != TUTTI_OK, 0))
		return fail(status, "%s", engine_error(comm->engine));
	*way = (struct way){.is_window = select_is_window(&comm->select)};
	if (args->collective == COLL_MEM_ALLOC) {
		way->is_window = false;
	} else if (!way->is_window) {
		TRY(select_algorithm(&comm->select, args, &way->algorithm));
		way->is_window = !way->algorithm->build;
	}
	TRY(find_memory(args, &way->memory));
	if (way->memory->id != TUTTI_MEMORY_HOST && op_user(args->op))
		return fail(TUTTI_ERR_INVALID, "%s: %s works on host memory only, not on %s memory",
			    collective_name(args->collective), op_name(args->op),
			    way->memory->name);
	return TUTTI_OK;
}

tutti_status comm_check_call(const struct tutti_comm *comm, const struct call_args *args)
{
	struct way way;

	return find_way(comm, args, &way);
}

/* All that the engine wants to know of a call. */
static tutti_status describe_job(struct tutti_comm *comm, const struct call_args *args,
				 const struct way *way, const tutti_call *call,
				 struct job_spec *spec)
{
	bool has_plan = way->algorithm && way->algorithm->build;

	*spec = (struct job_spec){.kind = has_plan ? &plan_jobs : &window_jobs,
				  .args = *args,
				  .memory = way->memory,
				  .name = collective_name(args->collective),
				  .algorithm = way->algorithm ? way->algorithm->name : "window",
				  .timeout_ms = timeout_of(comm, call)};
	if (call) {
		spec->done = call->done;
		spec->done_arg = call->done_arg;
	}
	spec->send_bytes = layout_extent(args, comm->rank, comm->size, SEND_SIDE);
	spec->recv_bytes = layout_extent(args, comm->rank, comm->size, RECV_SIDE);
	if (has_plan)
		TRY(add_plan(comm, way->algorithm, spec));
	spec->trace =
		trace_call(comm->calls.trace, args,
			   has_plan ? (unsigned)plan_cache_index(way->algorithm) : TRACE_BY_WINDOW,
			   (waits_here(call) ? 0 : TRACE_IS_ASYNC) |
				   (args->is_grouped ? TRACE_IS_GROUPED : 0));
	return TUTTI_OK;
}

tutti_status comm_start_job(struct tutti_comm *comm, const struct job_spec *spec,
			    const tutti_call *call)
{
	struct tutti_work *work;
	tutti_status status;

	trace_began(&spec->trace);
	if (waits_here(call)) {
		atomic_store_explicit(&comm->calls.is_issuing, 2, memory_order_relaxed);
		status = engine_run(comm->engine, spec);
	} else {
		status = engine_submit(comm->engine, spec, &work);
		if (status == TUTTI_OK && call->work)
			*call->work = work;
		else if (status == TUTTI_OK)
			work_release(work);
	}
	if (status != TUTTI_OK)
		trace_ended_late(&spec->trace, true);
	return status;
}

tutti_status comm_explain(const struct tutti_comm *comm, tutti_status status)
{
	if (engine_status(comm->engine) == TUTTI_OK)
		return status;
	engine_show_failure(comm->engine);
	return fail(status, "%s", engine_error(comm->engine));
}

/* An invalid call uses no sequence number: args were checked before, and what can still be refused
 * is refused before take_number. */
tutti_status comm_call(struct tutti_comm *comm, struct call_args *args, const tutti_call *call)
{
	struct way way;
	struct job_spec spec;
	tutti_status status;

	TRY(find_way(comm, args, &way));
	args->sequence = atomic_load_explicit(&comm->calls.sequence, memory_order_relaxed);
	if (call_is_later_round(args))
		args->sequence--; /* its first round's */
	struct noted noted = noted_of(args, comm->size, comm->calls.fingerprint);
	args->fingerprint = noted.fingerprint;
	if (way.is_window && waits_here(call) && way.memory->id == TUTTI_MEMORY_HOST) {
		take_number(comm, args, &noted);
		atomic_store_explicit(&comm->calls.is_issuing, 2, memory_order_relaxed);
		status = engine_run_window(comm->engine, args, timeout_of(comm, call));
	} else {
		status = describe_job(comm, args, &way, call, &spec);
		if (status == TUTTI_OK) {
			take_number(comm, args, &noted);
			status = comm_start_job(comm, &spec, call);
		}
	}
	return __builtin_expect(status != TUTTI_OK, 0) ? comm_explain(comm, status) : status;
}

/* A callback may run before the call that it belongs to has returned to its thread: it waits for
 * that. */
static bool comes_after(struct tutti_comm *comm)
{
	int state = 0;
	while (engine_in_callback() && state != 2) {
		state = 0;
		if (atomic_compare_exchange_weak_explicit(&comm->calls.is_issuing, &state, 1,
							  memory_order_acquire,
							  memory_order_relaxed))
			return true;
		sched_yield();
	}
	return false;
}

tutti_status comm_enter_slowly(struct tutti_comm *comm, const char *name)
{
	if (comes_after(comm))
		return TUTTI_OK;
	return fail(TUTTI_ERR_INVALID,
		    "%s: another thread is in a call of this communicator on rank %d: one thread "
		    "at a time issues calls",
		    name, comm->rank);
}

void comm_lacks_memory(struct tutti_comm *comm)
{
	if (engine_status(comm->engine) == TUTTI_OK)
		engine_fail(comm->engine, TUTTI_ERR_MEMORY, last_error());
}
