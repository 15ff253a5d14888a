/* Waiting for a call: its deadline, and how it ends before its answer. */
#include "rpc/rpc_internal.h"

#include "core/clock.h"

#include <time.h>

uint64_t rpc_now_ns(void)
{
	return clock_now_ns();
}

bool rpc_wait_changed(tutti_rpc *rpc, uint64_t deadline_ns)
{
	struct timespec at = {.tv_sec = (time_t)(deadline_ns / 1000000000u),
			      .tv_nsec = (long)(deadline_ns % 1000000000u)};

	if (!deadline_ns) {
		pthread_cond_wait(&rpc->changed, &rpc->lock);
		return true;
	}
	pthread_cond_timedwait(&rpc->changed, &rpc->lock, &at);
	return rpc_now_ns() < deadline_ns;
}

/* Where the call was when its time was over. */
static const char *place_of(const struct tutti_rpc_future *call)
{
	const struct rpc_slot *slot = call->slot;

	if (call->rpc->state == RPC_RECOVERS)
		return "a rank has died, and the others recover from that";
	if (slot && slot->is_running)
		return "its function runs there";
	if (call->has_landed)
		return "its payload is there";
	if (call->bytes > RPC_INLINE_BYTES)
		return "its payload is not all there, or its function has not answered";
	return "it is not known whether its function runs";
}

void rpc_call_left(struct tutti_rpc_future *call)
{
	if (call->is_over || call->leaving == TUTTI_OK || call->is_sending || call->is_receiving)
		return;
	if (call->leaving == TUTTI_ERR_TIMEOUT)
		rpc_call_end(call, TUTTI_ERR_TIMEOUT, "no answer within %d ms: %s",
			     call->timeout_ms, place_of(call));
	else if (call->leaving == TUTTI_ERR_ABORTED)
		rpc_call_end(call, TUTTI_ERR_ABORTED, "it was cancelled");
	else
		rpc_call_end(call, call->leaving,
			     "its payload, or its answer, has other lengths "
			     "than were said");
}

void rpc_call_leave(struct tutti_rpc_future *call, tutti_status status)
{
	if (call->leaving == TUTTI_OK)
		call->leaving = status;
	rpc_call_left(call);
}

void rpc_call_look_at_clock(struct tutti_rpc_future *call, uint64_t now_ns)
{
	tutti_rpc *rpc = call->rpc;

	if (call->is_over || call->leaving || !call->deadline_ns || now_ns < call->deadline_ns)
		return;
	if (!call->is_expiring && rpc->state == RPC_RUNS) {
		call->is_expiring = true;
		call->deadline_ns = now_ns + MS_TO_NS(RPC_STATE_MS);
		rpc_post_note(rpc, RPC_CANCEL, &call->slot->request, call->rank);
	} else {
		rpc_call_leave(call, TUTTI_ERR_TIMEOUT);
	}
}

static uint64_t sooner(uint64_t a_ns, uint64_t b_ns)
{
	return !a_ns || (b_ns && b_ns < a_ns) ? b_ns : a_ns;
}

static bool is_settled(const struct tutti_rpc_future *call)
{
	return (call->is_over && !call->done) ||
	       (call->is_one_way && call->has_landed && !call->is_sending);
}

tutti_status rpc_await(struct tutti_rpc_future *call, uint64_t deadline_ns)
{
	tutti_rpc *rpc = call->rpc;

	while (!is_settled(call)) {
		uint64_t until = sooner(deadline_ns, call->leaving ? 0 : call->deadline_ns);
		struct rpc_slot *slot = call->slot;
		if (slot && slot->work && !call->is_replied && !call->leaving &&
		    !call->is_one_way && rpc->state == RPC_RUNS)
			rpc_slot_await(slot, until);
		else
			rpc_wait_changed(rpc, until);
		if (is_settled(call))
			break;
		uint64_t now = rpc_now_ns();
		rpc_call_look_at_clock(call, now);
		if (deadline_ns && now >= deadline_ns && !is_settled(call))
			return TUTTI_IN_PROGRESS;
	}
	return TUTTI_OK;
}
