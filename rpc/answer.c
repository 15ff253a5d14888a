/* Messages to a caller: the REPLY, and before it those that move a long payload out and a long
 * answer in. And how calls end: with an answer, at their deadline, cancelled, or with their rank.
 */
#include "core/clock.h"
#include "rpc/rpc_internal.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

/* ---- ends ---- */

static void answer_give_back(struct rpc_slot *slot)
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
	answer_give_back(slot);
	rpc->slots_used -= !slot->is_own;
	if (rpc->peers[slot->rank].slots_waiting || rpc->leaving.is_leaving)
		pthread_cond_broadcast(&rpc->changed);
}

/* The slot of the call that m is about; NULL: it is over. */
static struct rpc_slot *rpc_slot_of(tutti_rpc *rpc, int rank, const struct rpc_message *m)
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

static void answer_unlist(struct tutti_rpc_future *call)
{
	if (!call->at)
		return;
	*call->at = call->next;
	if (call->next)
		call->next->at = call->at;
	call->at = NULL;
}

/* The slot stays behind if its REPLY has not come. */
static void answer_leave_slot(struct tutti_rpc_future *call)
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

/* The same; its message, if status is not OK, is there. */
static void rpc_call_over(struct tutti_rpc_future *call, tutti_status status)
{
	tutti_rpc *rpc = call->rpc;

	if (call->owns_block)
		free(call->block);
	call->block = NULL;
	call->owns_block = false;
	call->status = status;
	call->is_over = true;
	answer_leave_slot(call);
	if (call->done) {
		struct tutti_rpc_future **at = &rpc->ended;
		answer_unlist(call);
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
static const char *answer_place_of(const struct tutti_rpc_future *call)
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
			     call->timeout_ms, answer_place_of(call));
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

/* ---- the answer ---- */

/* Room for a long answer, or for the message of an error. Else refusal and error say why. */
static tutti_status answer_find_room(struct tutti_rpc_future *call, const struct rpc_message *m)
{
	tutti_rpc_answer *answer = m->status == TUTTI_OK ? call->answer : NULL;

	if (m->status == TUTTI_OK && !answer)
		return TUTTI_ERR_INVALID; /* nobody wants it, and nobody sees this */
	if (answer && answer->data) {
		if (m->bytes > answer->bytes)
			return fail_invalid("the answer has %llu bytes, and there is room for %zu",
					    (unsigned long long)m->bytes, answer->bytes);
		call->block = answer->data;
		call->owns_block = false;
		return TUTTI_OK;
	}
	if (m->status != TUTTI_OK && m->bytes > RPC_ERROR_BYTES)
		return fail(TUTTI_ERR_INTERNAL, "its error has %llu bytes",
			    (unsigned long long)m->bytes);
	if (!rpc_memory_has(m->bytes) || !(call->block = malloc(m->bytes)))
		return fail_no_memory("its answer, %llu bytes", (unsigned long long)m->bytes);
	call->owns_block = true;
	return TUTTI_OK;
}

/* Afterwards call->block is the room, or NULL, and then refusal and error say why, or the answer is
 * not wanted. */
static void answer_make_room(struct tutti_rpc_future *call, const struct rpc_message *m)
{
	if (call->owns_block)
		free(call->block);
	call->block = NULL;
	call->owns_block = false;
	call->refusal = answer_find_room(call, m);
	if (call->refusal != TUTTI_OK && m->status == TUTTI_OK && !call->answer)
		call->refusal = TUTTI_OK;
	else if (call->refusal != TUTTI_OK)
		snprintf(call->error, sizeof call->error, "rank %d, '%s': %s", call->rank,
			 call->name, tutti_comm_error(NULL));
}

static void answer_end_with_text(struct tutti_rpc_future *call, tutti_status status,
				 const void *text, size_t bytes)
{
	rpc_call_end(call, status, "%.*s", (int)(bytes < RPC_ERROR_BYTES ? bytes : RPC_ERROR_BYTES),
		     (const char *)text);
}

static void answer_end_short(struct tutti_rpc_future *call, const struct rpc_message *m)
{
	tutti_rpc_answer *answer = call->answer;
	struct rpc_message as_long = *m;

	if (answer && m->bytes) {
		if (answer_find_room(call, &as_long) != TUTTI_OK) {
			tutti_status status = answer->data ? TUTTI_ERR_INVALID : TUTTI_ERR_MEMORY;
			rpc_call_end(call, status, "%s", tutti_comm_error(NULL));
			return;
		}
		memcpy(call->block, m->data, m->bytes);
	}
	if (answer) {
		answer->data = m->bytes ? call->block : answer->data;
		answer->bytes = m->bytes;
		call->owns_block = false;
	}
	rpc_call_over(call, TUTTI_OK);
}

/* An answer that came along is kept by the callee until the slot's next call, since it is not long.
 */
static void answer_forget(const struct tutti_rpc_future *call, const struct rpc_message *m)
{
	if (!m->comes_along)
		rpc_post_note(call->rpc, RPC_DROP, m, call->rank);
}

static void answer_end_long(struct tutti_rpc_future *call, const struct rpc_message *m)
{
	if (m->status != TUTTI_OK) {
		answer_forget(call, m);
		answer_end_with_text(call, m->status, call->block, m->bytes);
		return;
	}
	call->answer->data = call->block;
	call->answer->bytes = m->bytes;
	call->owns_block = false;
	answer_forget(call, m);
	rpc_call_over(call, TUTTI_OK);
}

/* The callee has forgotten the answer, because it was not wanted here. */
static void answer_end_dropped(struct tutti_rpc_future *call, const struct rpc_message *m)
{
	if (call->refusal != TUTTI_OK) {
		rpc_call_over(call, call->refusal);
		return;
	}
	if (m->status == TUTTI_OK && call->answer) {
		rpc_call_end(call, TUTTI_ERR_INTERNAL, "its answer is lost");
		return;
	}
	if (m->status == TUTTI_OK)
		rpc_call_over(call, TUTTI_OK);
	else
		rpc_call_end(call, m->status, "%s", tutti_status_string(m->status));
}

/* The reply was ended after CANCEL had arrived: it is no answer, whatever the function passed. */
static void answer_end_cancelled(struct tutti_rpc_future *call, enum rpc_cancelled when)
{
	tutti_status status = call->is_expiring ? TUTTI_ERR_TIMEOUT : TUTTI_ERR_ABORTED;

	if (when == RPC_BEFORE_IT_RAN)
		rpc_call_end(call, status,
			     "%s while it waited there for a thread, or for its payload",
			     call->is_expiring ? "its time was over" : "it was cancelled");
	else if (call->is_expiring)
		rpc_call_end(call, status,
			     "no answer within %d ms: its function ran there, and has ended since",
			     call->timeout_ms);
	else
		rpc_call_end(call, status, "it was cancelled");
}

static void answer_end_with_reply(struct tutti_rpc_future *call, const struct rpc_message *m)
{
	if (m->cancelled)
		answer_end_cancelled(call, m->cancelled);
	else if (m->is_dropped || (m->num_pieces && !call->block))
		answer_end_dropped(call, m);
	else if (m->num_pieces)
		answer_end_long(call, m);
	else if (m->status == TUTTI_OK)
		answer_end_short(call, m);
	else
		answer_end_with_text(call, m->status, m->data, m->bytes);
}

bool rpc_reply_comes_along(const struct rpc_slot *slot)
{
	const struct rpc_message *m = &slot->reply;

	return rpc_message_is_sound(m) && m->kind == RPC_REPLY && m->id == slot->id &&
	       m->comes_along;
}

/* An answer that has no room, or is not wanted, is received nevertheless. */
void *rpc_room_along(struct rpc_slot *slot)
{
	struct tutti_rpc_future *call = slot->call;

	if (!call || call->leaving)
		return slot->rpc->scratch;
	answer_make_room(call, &slot->reply);
	return call->block ? call->block : slot->rpc->scratch;
}

/* The answer is discarded: makes the callee take back the references that it has shared for it. The
 * message is sent before the slot's next REQUEST. */
static void answer_leave_answer(struct rpc_slot *slot)
{
	struct rpc_message m = {
		.kind = RPC_DROP, .slot = slot->number, .id = slot->id, .is_dropped = 1};

	if (slot->reply.shares)
		rpc_post(slot->rpc, &m, slot->rank, RPC_TAG_NOTES);
}

void rpc_on_reply(struct rpc_slot *slot)
{
	struct tutti_rpc_future *call = slot->call;
	const struct rpc_message *m = &slot->reply;
	bool is_sound = rpc_message_is_sound(m) && m->kind == RPC_REPLY && m->id == slot->id;

	if (!call) { /* nobody waits for it */
		answer_leave_answer(slot);
		rpc_slot_free(slot);
		return;
	}
	call->is_replied = true;
	if (call->is_sending || call->is_receiving)
		return; /* again when that is over */
	if (call->leaving) {
		answer_leave_answer(slot);
		rpc_call_left(call);
		return;
	}
	if (is_sound && m->num_pieces && !m->is_dropped && !m->comes_along)
		is_sound = call->block && (m->status != TUTTI_OK || call->answer);
	if (is_sound)
		answer_end_with_reply(call, m);
	else
		rpc_call_end(call, TUTTI_ERR_INTERNAL, "it has answered what makes no sense");
	if (!is_sound || call->status != TUTTI_OK || !call->answer)
		answer_leave_answer(slot);
}

/* ---- long payloads and answers ---- */

static void answer_transfer_over(struct tutti_rpc_future *call, bool *of, tutti_status status)
{
	tutti_rpc *rpc = call->rpc;

	rpc_issued_over(rpc, true);
	*of = false;
	if (status != TUTTI_OK && tutti_comm_status(rpc->comm) != TUTTI_OK) {
		rpc_note_failure(rpc);
		call->is_replied = false; /* all is asked for again */
	} else if (status != TUTTI_OK && call->leaving == TUTTI_OK) {
		call->leaving = TUTTI_ERR_INTERNAL;
	}
	if (call->is_replied && !call->is_sending && !call->is_receiving)
		rpc_on_reply(call->slot);
	else
		rpc_call_left(call);
	pthread_cond_broadcast(&rpc->changed);
}

static void answer_on_sent(void *arg, tutti_status status)
{
	struct tutti_rpc_future *call = arg;
	tutti_rpc *rpc = call->rpc;

	rpc_in_callback++;
	rpc_lock(rpc);
	answer_transfer_over(call, &call->is_sending, status);
	rpc_unlock(rpc);
	rpc_in_callback--;
}

static void answer_on_received(void *arg, tutti_status status)
{
	struct tutti_rpc_future *call = arg;
	tutti_rpc *rpc = call->rpc;

	rpc_in_callback++;
	rpc_lock(rpc);
	answer_transfer_over(call, &call->is_receiving, status);
	rpc_unlock(rpc);
	rpc_in_callback--;
}

void rpc_on_pull(tutti_rpc *rpc, int rank, const struct rpc_message *m)
{
	struct rpc_slot *slot = rpc_slot_of(rpc, rank, m);
	struct tutti_rpc_future *call = slot ? slot->call : NULL;

	/* After CANCEL the callee waits for no payload. */
	if (!call || call->leaving || call->is_expiring || call->is_sending ||
	    !slot->request.num_pieces)
		return;
	struct rpc_io io = {.sends = true,
			    .rank = rank,
			    .tag = RPC_TAG_PAYLOAD + (int)slot->number,
			    .pieces = call->pieces,
			    .num_pieces = call->num_pieces,
			    .done = answer_on_sent,
			    .done_arg = call};
	if (rpc_issue(rpc, &io) != TUTTI_OK)
		return; /* the keeper asks for all again, or the call ends at its deadline */
	call->is_sending = true;
	rpc_post_note(rpc, RPC_COMING, m, rank);
}

void rpc_on_have(tutti_rpc *rpc, int rank, const struct rpc_message *m)
{
	struct rpc_slot *slot = rpc_slot_of(rpc, rank, m);

	if (!slot || !slot->call)
		return;
	slot->call->has_landed = true;
	pthread_cond_broadcast(&rpc->changed);
}

void rpc_on_state(tutti_rpc *rpc, int rank, const struct rpc_message *m)
{
	struct rpc_slot *slot = rpc_slot_of(rpc, rank, m);

	if (!slot)
		return;
	slot->is_running = true;
	slot->is_held = m->is_held;
}

static tutti_status answer_take(struct tutti_rpc_future *call, const struct rpc_message *m)
{
	tutti_rpc_piece pieces[TUTTI_RPC_PIECES];
	uint8_t *at = call->block;
	struct rpc_io io = {.rank = call->rank,
			    .tag = RPC_TAG_ANSWER + (int)m->slot,
			    .pieces = pieces,
			    .num_pieces = m->num_pieces,
			    .done = answer_on_received,
			    .done_arg = call};

	for (int i = 0; i < m->num_pieces; i++) {
		pieces[i] = (tutti_rpc_piece){at, rpc_message_piece(m, i)};
		at += pieces[i].bytes;
	}
	TRY(rpc_issue(call->rpc, &io));
	call->is_receiving = true;
	rpc_post_note(call->rpc, RPC_TAKE, m, call->rank);
	return TUTTI_OK;
}

void rpc_on_offer(tutti_rpc *rpc, int rank, const struct rpc_message *m)
{
	struct rpc_slot *slot = rpc_slot_of(rpc, rank, m);
	struct tutti_rpc_future *call = slot ? slot->call : NULL;

	if (call && call->is_receiving)
		return;
	if (!call || call->leaving) {
		rpc_post_note(rpc, RPC_DROP, m, rank);
		return;
	}
	answer_make_room(call, m);
	if (call->block)
		answer_take(call, m); /* else the rpc recovers */
	else
		rpc_post_note(rpc, RPC_DROP, m, rank);
}
