/* Calls, for their callers: the functions of rpc.h, and below them slots and requests. */
#include "core/clock.h"
#include "rpc/rpc_internal.h"

#include <stdlib.h>
#include <string.h>

/* Deals with the REPLY, if it has come and no thread waits for it. */
static void rpc_slot_look(struct rpc_slot *slot);

/* ---- slots and requests ---- */

/* A call takes one of the slots that its caller has for the peer, posts the recv of the REPLY, and
 * sends the REQUEST. */

static tutti_status call_make_slots(tutti_rpc *rpc, int rank)
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

static tutti_status rpc_call_issue_recv(struct rpc_slot *slot, const tutti_rpc_piece *piece,
					int tag);

/* The recv for the bytes that come along with the REPLY, which are here already, or nearly. */
static void call_take_along(struct rpc_slot *slot)
{
	tutti_rpc_piece piece = {rpc_room_along(slot), slot->reply.bytes};

	slot->takes_along = true;
	if (slot->call)
		slot->call->is_receiving = true;
	if (rpc_call_issue_recv(slot, &piece, RPC_TAG_ANSWER + (int)slot->number) == TUTTI_OK) {
		pthread_cond_broadcast(&slot->rpc->changed); /* its thread may not be this one */
		return;
	}
	slot->takes_along = false; /* the keeper sends the request again */
	if (slot->call)
		slot->call->is_receiving = false;
}

static void rpc_call_answered_well(struct rpc_slot *slot)
{
	if (!slot->takes_along && rpc_reply_comes_along(slot)) {
		call_take_along(slot);
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
		rpc_call_answered_well(slot);
	} else if (tutti_comm_status(rpc->comm) != TUTTI_OK) {
		rpc_note_failure(rpc); /* the keeper sends the request again */
	} else {
		if (slot->call)
			rpc_call_end(slot->call, status, "the answer does not fit: %s",
				     tutti_comm_error(NULL));
		rpc_slot_free(slot);
	}
}

static void rpc_call_on_reply(void *arg, tutti_status status)
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

static tutti_status rpc_call_issue_recv(struct rpc_slot *slot, const tutti_rpc_piece *piece,
					int tag)
{
	struct rpc_io io = {.rank = slot->rank, .tag = tag, .pieces = piece, .num_pieces = 1};

	if (slot->call && slot->call->done) {
		io.done = rpc_call_on_reply;
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
	TRY(rpc_call_issue_recv(slot, &piece, RPC_TAG_REPLY + (int)slot->number));
	if (slot->state == SLOT_IS_LEFT) {
		rpc_post_note(rpc, RPC_CANCEL, &slot->request, slot->rank);
		return TUTTI_OK;
	}
	TRY(rpc_post(rpc, &slot->request, slot->rank, RPC_TAG_NOTES));
	if (slot->parcel)
		rpc_parcel_send(rpc, slot->parcel, slot->rank, RPC_TAG_PAYLOAD + (int)slot->number);
	return TUTTI_OK;
}

static void rpc_slot_look(struct rpc_slot *slot)
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

static int rpc_call_ms_until(uint64_t deadline_ns)
{
	uint64_t now = rpc_now_ns();

	if (!deadline_ns)
		return 0;
	if (now >= deadline_ns)
		return 1;
	uint64_t ms = (deadline_ns - now) / 1000000u + 1;
	return ms > INT32_MAX ? INT32_MAX : (int)ms;
}

/* Waits for the slot's REPLY, which is dealt with. IN_PROGRESS: it has not come by then. */
static tutti_status rpc_slot_await(struct rpc_slot *slot, uint64_t deadline_ns)
{
	tutti_rpc *rpc = slot->rpc;
	tutti_work *work = slot->work;

	slot->work = NULL; /* this thread's, meanwhile */
	rpc->inside++;
	rpc_unlock(rpc);
	tutti_status status = tutti_work_wait(&work, rpc_call_ms_until(deadline_ns));
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
static struct rpc_slot *rpc_call_slot_to_await(const tutti_rpc *rpc, const struct rpc_peer *peer)
{
	for (int i = 0; i < rpc->config.calls; i++)
		if (peer->slots[i].work)
			return &peer->slots[i];
	return NULL;
}

static tutti_status rpc_call_no_slot(const struct tutti_rpc_future *call)
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

static tutti_status call_check_peer(const struct tutti_rpc_future *call)
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
static tutti_status rpc_call_await_free_slot(const struct tutti_rpc_future *call)
{
	tutti_rpc *rpc = call->rpc;
	struct rpc_peer *peer = &rpc->peers[call->rank];

	rpc_slots_look(rpc, call->rank);
	while (!peer->free) {
		uint64_t now = rpc_now_ns(), soon = now + MS_TO_NS(1);
		struct rpc_slot *slot = rpc_call_slot_to_await(rpc, peer);
		if (rpc_in_callback || (call->deadline_ns && now >= call->deadline_ns))
			return rpc_call_no_slot(call);
		if (call->deadline_ns && call->deadline_ns < soon)
			soon = call->deadline_ns;
		peer->slots_waiting++;
		if (slot)
			rpc_slot_await(slot, soon);
		else
			rpc_wait_changed(rpc, call->deadline_ns);
		peer->slots_waiting--;
		TRY(call_check_peer(call));
		rpc_slots_look(rpc, call->rank);
	}
	return TUTTI_OK;
}

static tutti_status call_take_slot(struct tutti_rpc_future *call)
{
	tutti_rpc *rpc = call->rpc;
	struct rpc_peer *peer = &rpc->peers[call->rank];
	struct rpc_slot *slot;

	TRY(call_check_peer(call));
	if (!peer->slots)
		TRY(call_make_slots(rpc, call->rank));
	if (!peer->free)
		TRY(rpc_call_await_free_slot(call));
	slot = peer->free;
	peer->free = slot->next_free;
	slot->is_own = call->is_own;
	rpc->slots_used += !slot->is_own;
	slot->call = call;
	call->slot = slot;
	return TUTTI_OK;
}

/* Sizes of the bytes that are not in the request. */
static void rpc_call_fill_long(struct rpc_slot *slot, const struct tutti_rpc_future *call)
{
	const tutti_rpc_piece whole = {NULL, call->bytes};

	slot->request.comes_along = slot->parcel != NULL;
	rpc_message_set_pieces(&slot->request, slot->parcel ? &whole : call->pieces,
			       slot->parcel ? 1 : call->num_pieces);
}

static void rpc_call_fill_request(struct rpc_slot *slot, const struct tutti_rpc_future *call)
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
		rpc_call_fill_long(slot, call);
		return;
	}
	for (int i = 0; i < call->num_pieces; i++) {
		memcpy(m->data + at, call->pieces[i].data, call->pieces[i].bytes);
		at += call->pieces[i].bytes;
	}
}

/* Takes a slot, for which it waits if the thread may, and sends the request. If the rpc recovers,
 * the keeper sends it later. */
static tutti_status rpc_start(struct tutti_rpc_future *call)
{
	tutti_rpc *rpc = call->rpc;

	TRY(call_take_slot(call));
	struct rpc_slot *slot = call->slot;
	if (call->bytes > rpc_room_beside(strlen(call->name)) && call->bytes <= RPC_ALONG_BYTES &&
	    !(slot->parcel = rpc_parcel_make(call->pieces, call->num_pieces, call->bytes))) {
		rpc_slot_free(slot);
		return fail_no_memory("a payload of %zu bytes", call->bytes);
	}
	slot->id++;
	slot->state = SLOT_CALLS;
	slot->is_running = slot->is_held = false;
	rpc_call_fill_request(slot, call);
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

/* ---- waiting ---- */

/* A thread that waits for a REPLY cannot be woken: by then it sees that its call was cancelled. */
enum { LOOK_MS = 20 };

/* A done function may run for that long after the end of its call, if the deadline is nearer. */
enum { DONE_MS = 1000 };

static uint64_t call_sooner(uint64_t a_ns, uint64_t b_ns)
{
	return !a_ns || (b_ns && b_ns < a_ns) ? b_ns : a_ns;
}

static bool call_is_settled(const struct tutti_rpc_future *call)
{
	return (call->is_over && !call->done) ||
	       (call->is_one_way && call->has_landed && !call->is_sending);
}

/* Whether this thread waits for the recv of the call's slot. */
static bool rpc_call_may_await(const struct tutti_rpc_future *call)
{
	if (call->rpc->state != RPC_RUNS || call->is_replied || call->is_one_way)
		return false;
	return !call->leaving || call->slot->takes_along; /* which is waited for */
}

/* When a wait for the call ends by itself; 0: not before the call ends. */
static uint64_t call_limit_ns(const struct tutti_rpc_future *call)
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
static bool rpc_call_is_blocked(const struct tutti_rpc_future *call, uint64_t now_ns)
{
	return call->is_over && call_limit_ns(call) && now_ns >= call_limit_ns(call);
}

/* Waits until the call is over and its done function has returned, or it is_one_way and has landed.
 * IN_PROGRESS: deadline_ns, if not 0, has passed. TIMEOUT: the done function has not returned by
 * the call's deadline, or 1 s after the call's end. */
static tutti_status rpc_await(struct tutti_rpc_future *call, uint64_t deadline_ns)
{
	tutti_rpc *rpc = call->rpc;

	while (!call_is_settled(call)) {
		uint64_t until = call_sooner(deadline_ns, call_limit_ns(call));
		struct rpc_slot *slot = call->slot;
		if (slot && slot->work && rpc_call_may_await(call))
			rpc_slot_await(slot, call_sooner(until, rpc_now_ns() + MS_TO_NS(LOOK_MS)));
		else
			rpc_wait_changed(rpc, until);
		if (call_is_settled(call))
			break;
		uint64_t now = rpc_now_ns();
		rpc_call_look_at_clock(call, now);
		if (call_is_settled(call))
			break;
		if (rpc_call_is_blocked(call, now))
			return TUTTI_ERR_TIMEOUT;
		if (deadline_ns && now >= deadline_ns)
			return TUTTI_IN_PROGRESS;
	}
	return TUTTI_OK;
}

/* ---- the functions of rpc.h ---- */

/* The arguments of a call, in their order. */
struct rpc_asked {
	tutti_rpc *rpc;
	int rank;
	const char *name;
	const tutti_rpc_piece *pieces;
	int num_pieces;
	tutti_rpc_answer *answer;
	const tutti_rpc_options *options;
};

static tutti_status call_check(const char *what, const struct rpc_asked *a)
{
	size_t bytes = a->name ? strlen(a->name) : 0;

	if (!a->rpc)
		return fail_invalid("%s: rpc is NULL", what);
	if (a->rank < 0 || a->rank >= a->rpc->size)
		return fail_invalid("%s: rank %d is not in 0..%d", what, a->rank, a->rpc->size - 1);
	if (bytes < 1 || bytes > RPC_NAME_BYTES)
		return fail_invalid("%s: a function's name has 1 to %d bytes, not %zu", what,
				    RPC_NAME_BYTES, bytes);
	return rpc_pieces_check(what, a->pieces, a->num_pieces);
}

/* Writes all that is read later, but the text of the error. */
static void call_fill(struct tutti_rpc_future *call, const struct rpc_asked *a)
{
	memset(call, 0, offsetof(struct tutti_rpc_future, pieces));
	memset(&call->answer, 0,
	       offsetof(struct tutti_rpc_future, name) - offsetof(struct tutti_rpc_future, answer));
	call->rpc = a->rpc;
	call->rank = a->rank;
	call->answer = a->answer;
	call->timeout_ms = rpc_timeout_ms(a->rpc, a->options ? a->options->timeout_ms : 0);
	call->deadline_ns = call->timeout_ms ? deadline_after_ms(call->timeout_ms) : 0;
	call->status = TUTTI_IN_PROGRESS;
	memcpy(call->name, a->name, strlen(a->name) + 1);
	call->error[0] = 0;
	call->next = NULL;
	call->at = NULL;
	for (int i = 0; i < a->num_pieces; i++) {
		if (!a->pieces[i].bytes)
			continue;
		call->pieces[call->num_pieces++] = a->pieces[i];
		call->bytes += a->pieces[i].bytes;
	}
}

static tutti_status call_result(const struct tutti_rpc_future *call)
{
	return call->status == TUTTI_OK ? TUTTI_OK : tutti_set_error(call->status, call->error);
}

tutti_status tutti_rpc_call(tutti_rpc *rpc, int rank, const char *name,
			    const tutti_rpc_piece *pieces, int num_pieces, tutti_rpc_answer *answer,
			    const tutti_rpc_options *options)
{
	const struct rpc_asked args = {rpc, rank, name, pieces, num_pieces, answer, options};
	struct tutti_rpc_future call;

	TRY(rpc_may_wait("tutti_rpc_call"));
	TRY(call_check("tutti_rpc_call", &args));
	call_fill(&call, &args);
	rpc_lock(rpc);
	tutti_status status = rpc_start(&call);
	if (status == TUTTI_OK)
		rpc_await(&call, 0);
	rpc_unlock(rpc);
	return status == TUTTI_OK ? call_result(&call) : status;
}

tutti_status rpc_call_own(tutti_rpc *rpc, int rank, const char *name, const tutti_rpc_piece *pieces,
			  int num_pieces, tutti_rpc_answer *answer,
			  const tutti_rpc_options *options)
{
	const struct rpc_asked args = {rpc, rank, name, pieces, num_pieces, answer, options};
	struct tutti_rpc_future call;

	call_fill(&call, &args);
	call.is_own = true;
	TRY(rpc_start(&call));
	rpc_await(&call, 0);
	return call_result(&call);
}

/* The call is over, or in a slot that nobody waits for. */
static void rpc_call_finish_one_way(struct tutti_rpc_future *call)
{
	struct rpc_slot *slot = call->slot;

	if (!slot)
		return;
	slot->call = NULL;
	if (call->is_replied)
		rpc_slot_free(slot);
	else
		slot->state = SLOT_IS_ONE_WAY;
}

tutti_status tutti_rpc_send(tutti_rpc *rpc, int rank, const char *name,
			    const tutti_rpc_piece *pieces, int num_pieces,
			    const tutti_rpc_options *options)
{
	const struct rpc_asked args = {rpc, rank, name, pieces, num_pieces, NULL, options};
	struct tutti_rpc_future call;

	TRY(tutti_group_refuse("tutti_rpc_send"));
	TRY(call_check("tutti_rpc_send", &args));
	call_fill(&call, &args);
	call.is_one_way = true;
	if (call.bytes > RPC_ALONG_BYTES)
		TRY(rpc_may_wait("tutti_rpc_send of a long payload"));
	rpc_lock(rpc);
	tutti_status status = rpc_start(&call);
	if (status == TUTTI_OK && call.slot) {
		rpc_await(&call, 0);
		if (!call.is_over)
			rpc_call_finish_one_way(&call);
	}
	rpc_unlock(rpc);
	return status == TUTTI_OK && call.is_over ? call_result(&call) : status;
}

tutti_status tutti_rpc_call_async(tutti_rpc *rpc, int rank, const char *name,
				  const tutti_rpc_piece *pieces, int num_pieces,
				  tutti_rpc_answer *answer, const tutti_rpc_options *options,
				  tutti_rpc_future **future)
{
	const struct rpc_asked args = {rpc, rank, name, pieces, num_pieces, answer, options};

	TRY(tutti_group_refuse("tutti_rpc_call_async"));
	TRY(call_check("tutti_rpc_call_async", &args));
	if (!future && !(options && options->done))
		return fail_invalid("tutti_rpc_call_async: future is NULL, and there is no "
				    "options.done");
	struct tutti_rpc_future *call = malloc(sizeof *call);
	if (!call)
		return fail_no_memory("a call of '%s' on rank %d", name, rank);
	call_fill(call, &args);
	call->is_released = !future;
	if (options) {
		call->done = options->done;
		call->done_arg = options->done_arg;
	}
	rpc_lock(rpc);
	tutti_status status = rpc_start(call);
	if (status == TUTTI_OK && call->done)
		rpc_call_watch(call);
	if (status == TUTTI_OK && future) /* before done can be called */
		*future = call;
	rpc_unlock(rpc);
	if (status != TUTTI_OK)
		free(call);
	return status;
}

/* Of a call that is over, whose done function has not returned by its deadline. */
static tutti_status rpc_call_done_blocks(const struct tutti_rpc_future *call)
{
	const struct tutti_rpc_future *due = call->rpc->ended;

	while (due && due != call)
		due = due->next;
	return fail(TUTTI_ERR_TIMEOUT,
		    "rank %d, '%s': the call has ended (%s), but its done function "
		    "(tutti_rpc_options.done) has not %s by its deadline of %d ms",
		    call->rank, call->name, tutti_status_string(call->status),
		    due ? "been called" : "returned", call->timeout_ms);
}

/* The thread that calls done frees the handle. With the lock. */
static tutti_status rpc_call_leave_to_done(struct tutti_rpc_future *call)
{
	tutti_rpc *rpc = call->rpc;
	struct kept_error failure = kept_error_of(rpc_call_done_blocks(call));

	call->is_released = true;
	rpc_unlock(rpc);
	return kept_error_return(&failure);
}

tutti_status tutti_rpc_wait(tutti_rpc_future **future, int timeout_ms)
{
	TRY(rpc_may_wait("tutti_rpc_wait"));
	if (!future)
		return fail_invalid("tutti_rpc_wait: future is NULL");
	struct tutti_rpc_future *call = *future;
	if (!call)
		return TUTTI_OK;
	tutti_rpc *rpc = call->rpc;
	rpc_lock(rpc);
	tutti_status status = rpc_await(call, timeout_ms > 0 ? deadline_after_ms(timeout_ms) : 0);
	if (status == TUTTI_ERR_TIMEOUT) {
		*future = NULL;
		return rpc_call_leave_to_done(call);
	}
	rpc_unlock(rpc);
	if (status == TUTTI_IN_PROGRESS)
		return status;
	status = call_result(call);
	*future = NULL;
	free(call);
	return status;
}

static bool rpc_call_is_finished(const struct tutti_rpc_future *call)
{
	return call->is_over && !call->done;
}

tutti_status tutti_rpc_test(tutti_rpc_future *future, int *is_done)
{
	if (!future || !is_done)
		return fail_invalid("tutti_rpc_test: %s is NULL", future ? "is_done" : "future");
	tutti_rpc *rpc = future->rpc;
	rpc_lock(rpc);
	if (future->slot && !future->done)
		rpc_slot_look(future->slot);
	if (!future->is_over)
		rpc_call_look_at_clock(future, rpc_now_ns());
	*is_done = rpc_call_is_finished(future);
	rpc_unlock(rpc);
	return *is_done ? call_result(future) : TUTTI_OK;
}

static void call_cancel(struct tutti_rpc_future *call)
{
	if (call->is_over || call->leaving)
		return;
	rpc_call_tell_cancel(call);
	rpc_call_leave(call, TUTTI_ERR_ABORTED);
}

void tutti_rpc_cancel(tutti_rpc_future *future)
{
	if (!future)
		return;
	tutti_rpc *rpc = future->rpc;
	rpc_lock(rpc);
	call_cancel(future);
	rpc_unlock(rpc);
}

void tutti_rpc_release(tutti_rpc_future **future)
{
	struct tutti_rpc_future *call = future ? *future : NULL;

	if (!call)
		return;
	tutti_rpc *rpc = call->rpc;
	rpc_lock(rpc);
	if (call->done) { /* the thread that calls it frees the handle */
		call->is_released = true;
		*future = call = NULL;
	} else {
		call_cancel(call);
		if (!rpc_in_callback)
			rpc_await(call, 0);
		if (rpc_call_is_finished(call))
			*future = NULL;
		else
			call = NULL;
	}
	rpc_unlock(rpc);
	if (*future)
		rpc_complain("rank %d: tutti_rpc_release where nothing may wait has cancelled a "
			     "call whose transfers go on: release it in another thread",
			     rpc->rank);
	free(call);
}

void tutti_rpc_free(void *data)
{
	free(data);
}
