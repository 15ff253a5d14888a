/* A send or recv on its way from the API to the engine. It uses no sequence number of the
 * communicator's: which message it is among the trace's operations is its number there. */
#include "collectives/comm/comm.h"
#include "collectives/engine/engine.h"
#include "collectives/trace/trace.h"

static void trace_message(struct tutti_comm *comm, struct task_spec *spec, const tutti_call *call)
{
	const struct call_args *args = &spec->args;
	unsigned flags = comm_waits(call) ? 0 : TRACE_IS_ASYNC;
	uint64_t number = atomic_load_explicit(&comm->calls.trace->issued, memory_order_relaxed);

	if (args->is_grouped)
		flags |= TRACE_IS_GROUPED;
	spec->trace =
		trace_note(comm->calls.trace,
			   trace_what(number, spec->p2p.side == P2P_SEND ? TRACE_SEND : TRACE_RECV,
				      (unsigned)args->dtype, TRACE_BY_MESSAGE, flags),
			   trace_size(args->count, spec->p2p.peer));
}

tutti_status comm_call_message(struct tutti_comm *comm, struct task_spec *spec,
			       const tutti_call *call)
{
	TRY(comm_enter(comm, spec->name));
	tutti_status status = engine_status(comm->engine);
	if (status == TUTTI_OK) {
		trace_message(comm, spec, call);
		if (comm_waits(call)) {
			comm_begin_wait(comm);
			status = engine_run(comm->engine, spec);
		} else {
			status = comm_submit(comm, spec, call);
		}
	}
	comm_leave(comm);
	return status == TUTTI_OK ? status : comm_explain(comm, status);
}
