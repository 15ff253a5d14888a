/* A call's way out: it takes one of the slots that its caller has for the peer, posts the recv of
 * the REPLY, and sends the REQUEST. */
#include "rpc/rpc_internal.h"

#include "core/clock.h"

#include <stdlib.h>
#include <string.h>

static tutti_status slots_make_slots(tutti_rpc *rpc, int rank)
{
	struct rpc_peer *peer = &rpc->peers[rank];
	size_t n = (size_t)rpc->config.calls;
	struct rpc_slot *slots = aligned_alloc(64, n * sizeof *slots);

	if (!slots)
		return fail_no_memory("%zu calls to rank %d", n, rank);
	memset(slots, 0, n * sizeof *slots);
	peer->slots = slots;
	for (size_t i = n; i-- > 0;) {
		slots[i].rpc = rpc;
		slots[i].rank = rank;
		slots[i].number = (uint32_t)i;
		slots[i].next_free = peer->free;
		peer->free = &slots[i];
	}
	return TUTTI_OK;
}

static tutti_status issue_recv(struct rpc_slot *slot, const tutti_rpc_piece *piece, int tag);

/* The recv for the bytes that come along with the REPLY, which are here already, or nearly. */
static void slots_take_along(struct rpc_slot *slot)
{
	tutti_rpc_piece piece = {rpc_room_along(slot), slot->reply.bytes};

	slot->takes_along = true;
	if (slot->call)
		slot->call->is_receiving = true;
	if (issue_recv(slot, &piece, RPC_TAG_ANSWER + (int)slot->number) == TUTTI_OK) {
		pthread_cond_broadcast(&slot->rpc->changed); /* its thread may not be this one */
		return;
	}
	slot->takes_along = false; /* the keeper sends the request again */
	if (slot->call)
		slot->call->is_receiving = false;
}

static void answered_well(struct rpc_slot *slot)
{
	if (!slot->takes_along && rpc_reply_comes_along(slot)) {
		slots_take_along(slot);
		rpc_slot_look(slot);
		return;
	}
	if (slot->call && slot->takes_along)
		slot->call->is_receiving = false;
	slot->takes_along = false;
	rpc_on_reply(slot);
}

void rpc_slot_answered(struct rpc_slot *slot, tutti_status status)
{
	tutti_rpc *rpc = slot->rpc;

	slot->work = NULL;
	if (status != TUTTI_OK && slot->call && slot->takes_along) {
		slot->call->is_receiving = false;
		rpc_call_left(slot->call);
	}
	if (status == TUTTI_OK) {
		answered_well(slot);
	} else if (tutti_comm_status(rpc->comm) != TUTTI_OK) {
		rpc_note_failure(rpc); /* the keeper sends the request again */
	} else {
		if (slot->call)
			rpc_call_end(slot->call, status, "the answer does not fit: %s",
				     tutti_comm_error(NULL));
		rpc_slot_free(slot);
	}
}

static void on_reply(void *arg, tutti_status status)
{
	struct rpc_slot *slot = arg;
	tutti_rpc *rpc = slot->rpc;

	rpc_in_callback++;
	rpc_lock(rpc);
	rpc_issued_over(rpc, true);
	rpc_slot_answered(slot, status);
	rpc_unlock(rpc);
	rpc_in_callback--;
}

static tutti_status issue_recv(struct rpc_slot *slot, const tutti_rpc_piece *piece, int tag)
{
	struct rpc_io io = {.rank = slot->rank, .tag = tag, .pieces = piece, .num_pieces = 1};

	if (slot->call && slot->call->done) {
		io.done = on_reply;
		io.done_arg = slot;
	} else {
		io.work = &slot->work;
	}
	return rpc_issue(slot->rpc, &io);
}

tutti_status rpc_slot_send(struct rpc_slot *slot)
{
	tutti_rpc *rpc = slot->rpc;
	tutti_rpc_piece piece = {&slot->reply, sizeof slot->reply};

	slot->takes_along = false;
	TRY(rpc_notes_reserve(rpc));
	TRY(issue_recv(slot, &piece, RPC_TAG_REPLY + (int)slot->number));
	if (slot->state == SLOT_IS_LEFT) {
		rpc_post_note(rpc, RPC_CANCEL, &slot->request, slot->rank);
		return TUTTI_OK;
	}
	TRY(rpc_post(rpc, &slot->request, slot->rank, RPC_TAG_NOTES));
	if (slot->parcel)
		rpc_parcel_send(rpc, slot->parcel, slot->rank, RPC_TAG_PAYLOAD + (int)slot->number);
	return TUTTI_OK;
}

void rpc_slot_look(struct rpc_slot *slot)
{
	int is_done = 0;

	if (slot->state == SLOT_IS_FREE || !slot->work)
		return;
	tutti_status status = tutti_work_test(slot->work, &is_done);
	if (!is_done)
		return;
	tutti_work_release(&slot->work);
	rpc_issued_over(slot->rpc, false);
	rpc_slot_answered(slot, status);
}

void rpc_slots_look(tutti_rpc *rpc, int rank)
{
	struct rpc_peer *peer = &rpc->peers[rank];

	for (int i = 0; peer->slots && i < rpc->config.calls; i++)
		rpc_slot_look(&peer->slots[i]);
}

static int ms_until(uint64_t deadline_ns)
{
	uint64_t now = rpc_now_ns();

	if (!deadline_ns)
		return 0;
	if (now >= deadline_ns)
		return 1;
	uint64_t ms = (deadline_ns - now) / 1000000u + 1;
	return ms > INT32_MAX ? INT32_MAX : (int)ms;
}

tutti_status rpc_slot_await(struct rpc_slot *slot, uint64_t deadline_ns)
{
	tutti_rpc *rpc = slot->rpc;
	tutti_work *work = slot->work;

	slot->work = NULL; /* this thread's, meanwhile */
	rpc->inside++;
	rpc_unlock(rpc);
	tutti_status status = tutti_work_wait(&work, ms_until(deadline_ns));
	rpc_lock(rpc);
	if (--rpc->inside == 0 && rpc->state != RPC_RUNS)
		pthread_cond_broadcast(&rpc->changed);
	slot->work = work;
	if (work) {
		pthread_cond_broadcast(&rpc->changed); /* another thread may want it */
		return TUTTI_IN_PROGRESS;
	}
	rpc_issued_over(rpc, false);
	rpc_slot_answered(slot, status);
	return TUTTI_OK;
}

/* A slot for whose REPLY no thread waits; the thread that does then deals with it for the others.
 */
static struct rpc_slot *slot_to_await(const tutti_rpc *rpc, const struct rpc_peer *peer)
{
	for (int i = 0; i < rpc->config.calls; i++)
		if (peer->slots[i].work)
			return &peer->slots[i];
	return NULL;
}

static tutti_status no_slot(const struct tutti_rpc_future *call)
{
	const tutti_rpc *rpc = call->rpc;
	const struct rpc_peer *peer = &rpc->peers[call->rank];
	int left = 0, one_way = 0;

	for (int i = 0; i < rpc->config.calls; i++) {
		left += peer->slots[i].state == SLOT_IS_LEFT;
		one_way += peer->slots[i].state == SLOT_IS_ONE_WAY;
	}
	return fail(rpc_in_callback ? TUTTI_ERR_MEMORY : TUTTI_ERR_TIMEOUT,
		    "rank %d, '%s': not called: all %d calls that rank %d may have in flight "
		    "there are; %d of them are over here, but not answered, and %d are one-way",
		    call->rank, call->name, rpc->config.calls, rpc->rank, left, one_way);
}

static tutti_status slots_check_peer(const struct tutti_rpc_future *call)
{
	tutti_rpc *rpc = call->rpc;

	if (rpc->state == RPC_ENDED)
		return rpc_end_status(rpc);
	if (rpc->is_shut)
		return fail_invalid("the rpc was shut down: it makes no calls any more");
	if (!rpc->peers[call->rank].is_alive)
		return fail(TUTTI_ERR_PEER, "rank %d, '%s': not called: the rank has died, or left",
			    call->rank, call->name);
	return TUTTI_OK;
}

/* Waits for a free slot. Futures that nobody waits for have one, too, until their REPLY is seen. */
static tutti_status await_free_slot(const struct tutti_rpc_future *call)
{
	tutti_rpc *rpc = call->rpc;
	struct rpc_peer *peer = &rpc->peers[call->rank];

	rpc_slots_look(rpc, call->rank);
	while (!peer->free) {
		uint64_t now = rpc_now_ns(), soon = now + MS_TO_NS(1);
		struct rpc_slot *slot = slot_to_await(rpc, peer);
		if (rpc_in_callback || (call->deadline_ns && now >= call->deadline_ns))
			return no_slot(call);
		if (call->deadline_ns && call->deadline_ns < soon)
			soon = call->deadline_ns;
		peer->slots_waiting++;
		if (slot)
			rpc_slot_await(slot, soon);
		else
			rpc_wait_changed(rpc, call->deadline_ns);
		peer->slots_waiting--;
		TRY(slots_check_peer(call));
		rpc_slots_look(rpc, call->rank);
	}
	return TUTTI_OK;
}

static tutti_status slots_take_slot(struct tutti_rpc_future *call)
{
	tutti_rpc *rpc = call->rpc;
	struct rpc_peer *peer = &rpc->peers[call->rank];
	struct rpc_slot *slot;

	TRY(slots_check_peer(call));
	if (!peer->slots)
		TRY(slots_make_slots(rpc, call->rank));
	if (!peer->free)
		TRY(await_free_slot(call));
	slot = peer->free;
	peer->free = slot->next_free;
	slot->is_own = call->is_own;
	rpc->slots_used += !slot->is_own;
	slot->call = call;
	call->slot = slot;
	return TUTTI_OK;
}

/* Sizes of the bytes that are not in the request. */
static void fill_long(struct rpc_slot *slot, const struct tutti_rpc_future *call)
{
	const tutti_rpc_piece whole = {NULL, call->bytes};

	slot->request.comes_along = slot->parcel != NULL;
	rpc_message_set_pieces(&slot->request, slot->parcel ? &whole : call->pieces,
			       slot->parcel ? 1 : call->num_pieces);
}

static void fill_request(struct rpc_slot *slot, const struct tutti_rpc_future *call)
{
	struct rpc_message *m = &slot->request;
	size_t name_bytes = strlen(call->name), at = 0;

	m->kind = RPC_REQUEST;
	m->slot = slot->number;
	m->id = slot->id;
	m->bytes = call->bytes;
	m->context = rpc_context();
	m->timeout_ms = call->timeout_ms;
	m->num_pieces = 0;
	m->name_bytes = (uint8_t)name_bytes;
	m->is_one_way = call->is_one_way;
	memcpy(m->data + RPC_INLINE_BYTES - name_bytes, call->name, name_bytes);
	m->comes_along = 0;
	if (call->bytes > rpc_room_beside(name_bytes)) {
		fill_long(slot, call);
		return;
	}
	for (int i = 0; i < call->num_pieces; i++) {
		memcpy(m->data + at, call->pieces[i].data, call->pieces[i].bytes);
		at += call->pieces[i].bytes;
	}
}

tutti_status rpc_start(struct tutti_rpc_future *call)
{
	tutti_rpc *rpc = call->rpc;

	TRY(slots_take_slot(call));
	struct rpc_slot *slot = call->slot;
	if (call->bytes > rpc_room_beside(strlen(call->name)) && call->bytes <= RPC_ALONG_BYTES &&
	    !(slot->parcel = rpc_parcel_make(call->pieces, call->num_pieces, call->bytes))) {
		rpc_slot_free(slot);
		return fail_no_memory("a payload of %zu bytes", call->bytes);
	}
	slot->id++;
	slot->state = SLOT_CALLS;
	slot->is_running = slot->is_held = false;
	fill_request(slot, call);
	rpc->issued += !call->is_own;
	/* A short payload has been copied, and nobody waits for the end of a one-way call. */
	if (call->is_one_way && (!slot->request.num_pieces || slot->parcel)) {
		slot->state = SLOT_IS_ONE_WAY;
		slot->call = NULL;
		call->slot = NULL;
	}
	tutti_status status = rpc_slot_send(slot);
	if (status == TUTTI_OK || rpc->state == RPC_RECOVERS)
		return TUTTI_OK;
	rpc_slot_free(slot);
	return status;
}
