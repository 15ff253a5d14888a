/* Waiting for a call. */
#include "rpc/rpc_internal.h"

#include "core/clock.h"

/* A thread that waits for a REPLY cannot be woken: by then it sees that its call was cancelled. */
enum { LOOK_MS = 20 };

/* A done function may run for that long after the end of its call, if the deadline is nearer. */
enum { DONE_MS = 1000 };

static uint64_t call_wait_sooner(uint64_t a_ns, uint64_t b_ns)
{
	return !a_ns || (b_ns && b_ns < a_ns) ? b_ns : a_ns;
}

static bool call_wait_is_settled(const struct tutti_rpc_future *call)
{
	return (call->is_over && !call->done) ||
	       (call->is_one_way && call->has_landed && !call->is_sending);
}

/* Whether this thread waits for the recv of the call's slot. */
static bool may_await(const struct tutti_rpc_future *call)
{
	if (call->rpc->state != RPC_RUNS || call->is_replied || call->is_one_way)
		return false;
	return !call->leaving || call->slot->takes_along; /* which is waited for */
}

/* When a wait for the call ends by itself; 0: not before the call ends. */
static uint64_t call_wait_limit_ns(const struct tutti_rpc_future *call)
{
	if (!call->is_over)
		return call->leaving ? 0 : call->deadline_ns;
	if (!call->timeout_ms)
		return 0;
	uint64_t deadline = call->deadline_ns + MS_TO_NS(RPC_STATE_MS);
	uint64_t done = call->over_ns + MS_TO_NS(DONE_MS);
	return deadline > done ? deadline : done;
}

/* The call is over, but its done function has not returned in time. */
static bool is_blocked(const struct tutti_rpc_future *call, uint64_t now_ns)
{
	return call->is_over && call_wait_limit_ns(call) && now_ns >= call_wait_limit_ns(call);
}

tutti_status rpc_await(struct tutti_rpc_future *call, uint64_t deadline_ns)
{
	tutti_rpc *rpc = call->rpc;

	while (!call_wait_is_settled(call)) {
		uint64_t until = call_wait_sooner(deadline_ns, call_wait_limit_ns(call));
		struct rpc_slot *slot = call->slot;
		if (slot && slot->work && may_await(call))
			rpc_slot_await(slot,
				       call_wait_sooner(until, rpc_now_ns() + MS_TO_NS(LOOK_MS)));
		else
			rpc_wait_changed(rpc, until);
		if (call_wait_is_settled(call))
			break;
		uint64_t now = rpc_now_ns();
		rpc_call_look_at_clock(call, now);
		if (call_wait_is_settled(call))
			break;
		if (is_blocked(call, now))
			return TUTTI_ERR_TIMEOUT;
		if (deadline_ns && now >= deadline_ns)
			return TUTTI_IN_PROGRESS;
	}
	return TUTTI_OK;
}
