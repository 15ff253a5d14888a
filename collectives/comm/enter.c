/* How a thread enters a communicator to issue a call, and what it is told of a call that failed. */
#include "collectives/comm/comm.h"
#include "collectives/engine/engine.h"

#include <sched.h>

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

tutti_status comm_explain(const struct tutti_comm *comm, tutti_status status)
{
	if (engine_status(comm->engine) == TUTTI_OK)
		return status;
	engine_show_failure(comm->engine);
	return fail(status, "%s", engine_error(comm->engine));
}
