/* One collective's way from the API to the engine: what serves it, its number, and the choice
 * between waiting here and handing out a handle. */
#include "collectives/comm/comm.h"
#include "collectives/engine/engine.h"
#include "collectives/trace/trace.h"

#include "memory/ops.h"

/* What serves a call. */
struct way {
	const struct algorithm *algorithm; /* NULL: of a mem_alloc; it may be the window's     */
	bool is_window;
	const struct memory_kind *memory;
};

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

/* Here the call becomes the communicator's next. Of a split's rounds only the first is recorded. */
static void take_number(struct tutti_comm *comm, const struct call_args *args,
			const struct call_record *record)
{
	if (call_is_later_round(args))
		return;
	recorder_add(comm->calls.recorder, args->sequence, record);
	comm->calls.fingerprint = record->fingerprint;
	atomic_store_explicit(&comm->calls.sequence, args->sequence + 1, memory_order_relaxed);
}

/* An invalid call uses no sequence number: args were checked before, and what can still be refused
 * is refused before take_number. */
tutti_status comm_call(struct tutti_comm *comm, struct call_args *args, const tutti_call *call)
{
	struct way way;
	struct task_spec spec;
	tutti_status status = TUTTI_OK;

	TRY(find_way(comm, args, &way));
	args->sequence = atomic_load_explicit(&comm->calls.sequence, memory_order_relaxed);
	if (call_is_later_round(args))
		args->sequence--; /* its first round's */
	struct call_record record = call_record_of(args, comm->size, comm->calls.fingerprint);
	args->fingerprint = record.fingerprint;
	bool waits = comm_waits(call);
	bool is_direct = waits && way.is_window && way.memory->id == TUTTI_MEMORY_HOST;
	if (!is_direct)
		status = comm_describe_task(comm, args, way.algorithm, way.memory, call, &spec);
	if (status == TUTTI_OK) {
		take_number(comm, args, &record);
		if (waits)
			comm_begin_wait(comm);
		status = is_direct ? engine_run_window(comm->engine, args,
						       comm_timeout_ms(comm, call))
			 : waits   ? engine_run(comm->engine, &spec)
				   : comm_submit(comm, &spec, call);
	}
	return __builtin_expect(status != TUTTI_OK, 0) ? comm_explain(comm, status) : status;
}
