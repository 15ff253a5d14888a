/* One call's way from the API to the engine: sequence and fingerprint, algorithm, cached plan, and
 * the choice between waiting here and handing out a handle. */
#include "collectives/comm.h"

#include "memory/dtype.h"
#include "memory/ops.h"

#include <assert.h>
#include <stdlib.h>

static int index_of(const struct algorithm *a)
{
	return (int)(a - algorithm_at(0));
}

/* One plan serves every size, pointer and dtype. */
static tutti_status find_plan(struct tutti_comm *comm, const struct algorithm *a, int root,
			      bool in_place, bool staged, const struct plan **plan)
{
	struct cached_plan **list = &comm->plans[index_of(a)], *c;

	assert(index_of(a) < COMM_ALGORITHMS_MAX);
	for (c = *list; c; c = c->next)
		if (c->root == root && c->in_place == in_place && c->staged == staged) {
			*plan = c->plan;
			return TUTTI_OK;
		}
	c = malloc(sizeof *c);
	struct plan *made = algorithm_plan(a, comm->rank, comm->size, root, in_place, staged);
	if (!c || !made) {
		free(c);
		plan_free(made);
		return fail(TUTTI_ERR_MEMORY, "rank %d: no memory for the plan of %s %s",
			    comm->rank, collective_name(a->collective), a->name);
	}
	*c = (struct cached_plan){*list, made, root, in_place, staged};
	*list = c;
	*plan = made;
	return TUTTI_OK;
}

static struct layout layout_of(const struct tutti_comm *comm, const struct algorithm *a,
			       const struct call_args *args)
{
	size_t n = (size_t)comm->size;
	if (a->collective == COLL_BARRIER)
		return (struct layout){1, 1};
	if (a->in_parts && a->out_parts) {
		size_t each = (args->count + n - 1) / n;
		if (each >= 1024) /* whole cache lines, if the data are aligned */
			each = (each + 63) / 64 * 64;
		return (struct layout){each, args->count};
	}
	return (struct layout){args->count,
			       a->in_parts || a->out_parts ? args->count * n : args->count};
}

static void measure(const struct tutti_comm *comm, struct job_spec *spec)
{
	const struct call_args *a = &spec->args;
	size_t bytes = a->count * dtype_bytes(a->dtype), n = (size_t)comm->size;

	spec->send_bytes = spec->recv_bytes = bytes;
	if (a->collective == COLL_REDUCE_SCATTER)
		spec->send_bytes *= n;
	else if (collective_pattern(a->collective) == COLL_ALL_GATHER)
		spec->recv_bytes *= n;
	else if (a->collective == COLL_BROADCAST && comm->rank != a->root)
		spec->send_bytes = 0;
	else if (a->collective == COLL_BARRIER || a->collective == COLL_MEM_ALLOC)
		spec->send_bytes = spec->recv_bytes = 0;
}

static tutti_status add_plan(struct tutti_comm *comm, const struct algorithm *a,
			     struct job_spec *spec)
{
	bool staged = !(comm->kinds_in_place & 1u << spec->memory->id);
	bool in_place = spec->args.send == spec->args.recv;
	int root = spec->args.collective == COLL_BROADCAST ? spec->args.root : 0;

	spec->layout = layout_of(comm, a, &spec->args);
	spec->width = a->width(comm->size);
	return find_plan(comm, a, root, in_place, staged, &spec->plan);
}

tutti_status comm_start_job(struct tutti_comm *comm, const struct job_spec *spec,
			    const tutti_call *call)
{
	struct tutti_work *work;
	if (!call || (!call->work && !call->done))
		return engine_run(comm->engine, spec);
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

/* Under the rule that an invalid call uses no sequence number: args were checked before. */
tutti_status comm_issue(struct tutti_comm *comm, struct call_args *args, const tutti_call *call)
{
	const struct algorithm *a = NULL;
	tutti_status status = engine_status(comm->engine);
	if (__builtin_expect(status != TUTTI_OK, 0))
		return fail(status, "%s", engine_error(comm->engine));
	if (args->collective != COLL_MEM_ALLOC)
		TRY(select_algorithm(&comm->select, args, &a));
	const struct memory_kind *memory = memory_of(args->recv);
	if (args->send != args->recv && args->send && memory_of(args->send) != memory)
		return fail(TUTTI_ERR_INVALID, "%s: send is %s memory and recv is %s memory",
			    collective_name(args->collective), memory_of(args->send)->name,
			    memory->name);
	if (memory->id != TUTTI_MEMORY_HOST && op_user(args->op))
		return fail(TUTTI_ERR_INVALID, "%s: %s works on host memory only, not on %s memory",
			    collective_name(args->collective), op_name(args->op), memory->name);
	args->sequence = atomic_load_explicit(&comm->sequence, memory_order_relaxed);
	if (call_is_later_round(args))
		args->sequence--; /* its first round's */
	struct noted noted = noted_of(args, comm->size, comm->fingerprint);
	args->fingerprint = noted.fingerprint;
	struct job_spec spec = {.args = *args,
				.memory = memory,
				.name = collective_name(args->collective),
				.algorithm = a ? a->name : "window",
				.timeout_ms = call && call->timeout_ms ? call->timeout_ms
								       : comm->timeout_ms};
	if (call) {
		spec.done = call->done;
		spec.done_arg = call->done_arg;
	}
	measure(comm, &spec);
	if (a && a->build)
		TRY(add_plan(comm, a, &spec));
	take_number(comm, args, &noted);
	status = comm_start_job(comm, &spec, call);
	if (__builtin_expect(status != TUTTI_OK && engine_status(comm->engine) != TUTTI_OK, 0))
		return fail(status, "%s", engine_error(comm->engine));
	return status;
}

tutti_status comm_enter(struct tutti_comm *comm, const char *name)
{
	if (__builtin_expect(!atomic_exchange_explicit(&comm->is_issuing, 1, memory_order_acquire),
			     1))
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

tutti_status comm_call(struct tutti_comm *comm, struct call_args *args, const tutti_call *call)
{
	TRY(comm_enter(comm, collective_name(args->collective)));
	tutti_status status = comm_issue(comm, args, call);
	comm_leave(comm);
	return status;
}
