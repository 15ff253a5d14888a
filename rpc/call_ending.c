/* How calls end: with an answer, at their deadline, cancelled, or with their rank. */
#include "rpc/rpc_internal.h"

#include "core/clock.h"

#include <stdarg.h>
#include <stdlib.h>

static void call_ending_give_back(struct rpc_slot *slot)
{
	struct rpc_peer *peer = &slot->rpc->peers[slot->rank];

	slot->state = SLOT_IS_FREE;
	slot->call = NULL;
	slot->next_free = peer->free;
	peer->free = slot;
}

void rpc_slot_free(struct rpc_slot *slot)
{
	tutti_rpc *rpc = slot->rpc;

	if (slot->call)
		slot->call->slot = NULL;
	rpc_parcel_let_go(&slot->parcel);
	call_ending_give_back(slot);
	rpc->slots_used -= !slot->is_own;
	if (rpc->peers[slot->rank].slots_waiting || rpc->leaving.is_leaving)
		pthread_cond_broadcast(&rpc->changed);
}

struct rpc_slot *rpc_slot_of(tutti_rpc *rpc, int rank, const struct rpc_message *m)
{
	struct rpc_slot *slots = rpc->peers[rank].slots;

	if (!slots || m->slot >= (uint32_t)rpc->config.calls)
		return NULL;
	return slots[m->slot].state != SLOT_IS_FREE && slots[m->slot].id == m->id ? &slots[m->slot]
										  : NULL;
}

void rpc_call_watch(struct tutti_rpc_future *call)
{
	tutti_rpc *rpc = call->rpc;

	call->next = rpc->with_done;
	if (call->next)
		call->next->at = &call->next;
	call->at = &rpc->with_done;
	rpc->with_done = call;
	if (rpc->keeper.sleeps_ns && call->deadline_ns && call->deadline_ns < rpc->keeper.sleeps_ns)
		pthread_cond_signal(&rpc->keeper.due);
}

static void call_ending_unlist(struct tutti_rpc_future *call)
{
	if (!call->at)
		return;
	*call->at = call->next;
	if (call->next)
		call->next->at = call->at;
	call->at = NULL;
}

/* The slot stays behind if its REPLY has not come. */
static void leave_slot(struct tutti_rpc_future *call)
{
	struct rpc_slot *slot = call->slot;

	if (!slot)
		return;
	call->slot = NULL;
	slot->call = NULL;
	if (call->is_replied) {
		rpc_slot_free(slot);
		return;
	}
	slot->state = SLOT_IS_LEFT;
	rpc_parcel_let_go(&slot->parcel);
}

void rpc_call_over(struct tutti_rpc_future *call, tutti_status status)
{
	tutti_rpc *rpc = call->rpc;

	if (call->owns_block)
		free(call->block);
	call->block = NULL;
	call->owns_block = false;
	call->status = status;
	call->is_over = true;
	leave_slot(call);
	if (call->done) {
		struct tutti_rpc_future **at = &rpc->ended;
		call_ending_unlist(call);
		while (*at)
			at = &(*at)->next;
		call->next = NULL;
		*at = call;
		rpc->calling++;
		call->over_ns = rpc_now_ns();
	}
	pthread_cond_broadcast(&rpc->changed);
}

void rpc_call_end(struct tutti_rpc_future *call, tutti_status status, const char *format, ...)
{
	va_list args;
	int at = snprintf(call->error, sizeof call->error, "rank %d, '%s': ", call->rank,
			  call->name);

	va_start(args, format);
	vsnprintf(call->error + at, sizeof call->error - (size_t)at, format, args);
	va_end(args);
	rpc_call_over(call, status);
}

/* Where the call was when its time was over. */
static const char *call_ending_place_of(const struct tutti_rpc_future *call)
{
	const struct rpc_slot *slot = call->slot;

	if (call->rpc->state == RPC_RECOVERS)
		return "a rank has died, or left, and the others recover from that";
	if (slot && slot->is_held)
		return "its function has returned there, but its reply is held: "
		       "tutti_rpc_reply_end was not called";
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
	if (call->leaving == TUTTI_ERR_TIMEOUT) {
		if (call->told_in != call->rpc->epoch) /* the first was lost with a communicator */
			rpc_call_tell_cancel(call);
		rpc_call_end(call, TUTTI_ERR_TIMEOUT, "no answer within %d ms: %s",
			     call->timeout_ms, call_ending_place_of(call));
	} else if (call->leaving == TUTTI_ERR_ABORTED) {
		rpc_call_end(call, TUTTI_ERR_ABORTED, "it was cancelled");
	} else {
		rpc_call_end(call, call->leaving,
			     "its payload, or its answer, has other lengths "
			     "than were said");
	}
}

void rpc_call_leave(struct tutti_rpc_future *call, tutti_status status)
{
	if (call->leaving == TUTTI_OK)
		call->leaving = status;
	rpc_call_left(call);
}

void rpc_call_tell_cancel(struct tutti_rpc_future *call)
{
	const struct rpc_slot *slot = call->slot;
	struct rpc_message m = {.kind = RPC_CANCEL, .is_coming = call->is_sending};

	call->told_in = call->rpc->epoch;
	if (!slot)
		return;
	m.slot = slot->number;
	m.id = slot->id;
	rpc_post(call->rpc, &m, call->rank, RPC_TAG_NOTES);
}

void rpc_call_look_at_clock(struct tutti_rpc_future *call, uint64_t now_ns)
{
	tutti_rpc *rpc = call->rpc;

	if (call->is_over || call->leaving || !call->deadline_ns || now_ns < call->deadline_ns)
		return;
	if (!call->is_expiring && rpc->state == RPC_RUNS) {
		call->is_expiring = true;
		call->deadline_ns = now_ns + MS_TO_NS(RPC_STATE_MS);
		rpc_call_tell_cancel(call);
	} else {
		rpc_call_leave(call, TUTTI_ERR_TIMEOUT);
	}
}
