/* The answer that a function makes, and its way back to the caller. */
#include "rpc/rpc_internal.h"

#include "core/callback.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

/* ---- what the function says; the entry is its own, so there is no lock ---- */

static tutti_status reply_add_piece(tutti_rpc_reply *reply, void *block, size_t bytes)
{
	reply->reply.bytes = bytes;
	reply->block = block;
	reply->pieces[0] = (tutti_rpc_piece){block, bytes};
	reply->num_pieces = 1;
	return TUTTI_OK;
}

static tutti_status reply_check_first(const char *what, const tutti_rpc_reply *reply)
{
	if (reply->reply.bytes == 0)
		return TUTTI_OK;
	return fail_invalid("%s: the answer has %llu bytes already: a function gives it once", what,
			    (unsigned long long)reply->reply.bytes);
}

void *tutti_rpc_reply_room(tutti_rpc_reply *reply, size_t bytes)
{
	void *block;

	if (reply_check_first("tutti_rpc_reply_room", reply) != TUTTI_OK)
		return NULL;
	if (bytes <= RPC_INLINE_BYTES) {
		reply->reply.bytes = bytes;
		return reply->reply.data;
	}
	block = bytes < SIZE_MAX / 2 ? aligned_alloc(64, (bytes + 63) / 64 * 64) : NULL;
	if (!block) {
		fail_no_memory("an answer of %zu bytes", bytes);
		return NULL;
	}
	reply_add_piece(reply, block, bytes);
	return block;
}

tutti_status tutti_rpc_reply_copy(tutti_rpc_reply *reply, const void *data, size_t bytes)
{
	void *room;

	TRY(rpc_pieces_check("tutti_rpc_reply_copy", &(tutti_rpc_piece){data, bytes}, 1));
	TRY(reply_check_first("tutti_rpc_reply_copy", reply));
	if (!(room = tutti_rpc_reply_room(reply, bytes)))
		return TUTTI_ERR_MEMORY;
	if (bytes)
		memcpy(room, data, bytes);
	return TUTTI_OK;
}

/* Those with bytes. Returns how many bytes. */
static size_t reply_keep_pieces(tutti_rpc_reply *reply, const tutti_rpc_piece *pieces,
				int num_pieces)
{
	size_t bytes = 0;

	for (int i = 0; i < num_pieces; i++) {
		if (!pieces[i].bytes)
			continue;
		bytes += pieces[i].bytes;
		reply->pieces[reply->num_pieces++] = pieces[i];
	}
	return bytes;
}

static void reply_copy_short(tutti_rpc_reply *reply)
{
	size_t at = 0;

	for (int i = 0; i < reply->num_pieces; i++) {
		memcpy(reply->reply.data + at, reply->pieces[i].data, reply->pieces[i].bytes);
		at += reply->pieces[i].bytes;
	}
	reply->num_pieces = 0;
}

static void reply_release_now(const tutti_rpc_reply *reply, void (*release)(void *arg), void *arg)
{
	if (!release)
		return;
	const char *before = callback_enter(rpc_release_place);
	callback_call("release", "tutti_rpc_reply_pieces", reply->rpc->rank, release(arg));
	callback_enter(before);
}

tutti_status tutti_rpc_reply_pieces(tutti_rpc_reply *reply, const tutti_rpc_piece *pieces,
				    int num_pieces, void (*release)(void *arg), void *arg)
{
	struct rpc_release *due = NULL;
	tutti_status status = rpc_pieces_check("tutti_rpc_reply_pieces", pieces, num_pieces);

	if (status == TUTTI_OK)
		status = reply_check_first("tutti_rpc_reply_pieces", reply);
	if (status == TUTTI_OK && release && !(due = malloc(sizeof *due)))
		status = fail_no_memory("the release of an answer");
	if (status != TUTTI_OK) {
		struct kept_error failure = kept_error_of(status);
		reply_release_now(reply, release, arg);
		return kept_error_return(&failure);
	}
	reply->reply.bytes = reply_keep_pieces(reply, pieces, num_pieces);
	if (reply->reply.bytes <= RPC_INLINE_BYTES) {
		reply_copy_short(reply);
		free(due);
		reply_release_now(reply, release, arg);
		return TUTTI_OK;
	}
	if (due)
		*due = (struct rpc_release){"release", "tutti_rpc_reply_pieces", release, arg,
					    NULL};
	reply->release = due;
	return TUTTI_OK;
}

int tutti_rpc_reply_is_cancelled(const tutti_rpc_reply *reply)
{
	return __atomic_load_n(&reply->is_cancelled, __ATOMIC_RELAXED);
}

void tutti_rpc_reply_end(tutti_rpc_reply *reply, tutti_status status)
{
	tutti_rpc *rpc = reply->rpc;
	char text[RPC_ERROR_BYTES] = "";

	if (status != TUTTI_OK)
		snprintf(text, sizeof text, "%s", tutti_comm_error(NULL));
	if (status != TUTTI_OK && !text[0])
		snprintf(text, sizeof text, "%s", tutti_status_string(status));
	rpc_lock(rpc);
	/* Short functions of the library's are not counted, but those that threads run are. */
	if (!(reply->function->is_own && reply->function->is_short) && --rpc->running == 0)
		pthread_cond_broadcast(&rpc->changed);
	if (status == TUTTI_OK)
		rpc_reply_send(reply);
	else
		rpc_reply_fail(reply, status == TUTTI_IN_PROGRESS ? TUTTI_ERR_INTERNAL : status,
			       "%s", text);
	rpc_unlock(rpc);
}

/* The call whose function this thread runs. Once the reply has been ended, the entry may hold the
 * next call, with another id, before the function returns. */
static _Thread_local struct running {
	struct tutti_rpc_reply *entry;
	uint64_t id;
} running;

struct tutti_rpc_reply *rpc_reply_running(const tutti_rpc *rpc, int rank)
{
	struct tutti_rpc_reply *entry = running.entry;

	if (!entry || entry->rpc != rpc || entry->rank != rank)
		return NULL;
	return entry->id == running.id && entry->state == ENTRY_RUNS ? entry : NULL;
}

/* The function has returned IN_PROGRESS: marks the reply as held, unless it has been ended. */
static void reply_hold(tutti_rpc *rpc, struct tutti_rpc_reply *entry)
{
	rpc_lock(rpc);
	if (rpc_reply_running(rpc, entry->rank) == entry)
		entry->is_held = true;
	rpc_unlock(rpc);
}

void rpc_run(struct tutti_rpc_reply *entry)
{
	tutti_rpc *rpc = entry->rpc;
	uint64_t before = rpc_context();
	const struct running outer = running;

	rpc_context_set(entry->request.context);
	tutti_set_error(TUTTI_OK, ""); /* an older one would be taken for the function's */
	const tutti_rpc *calling = rpc_calling(rpc);
	running = (struct running){entry, entry->id};
	const struct rpc_function *f = entry->function;
	tutti_status status;
	const char *before_now = callback_enter(f->is_short ? rpc_short_place : NULL);
	callback_call(f->name, "tutti_rpc_function", rpc->rank,
		      status = f->fn(f->arg, &entry->seen, entry));
	callback_enter(before_now);
	rpc_calling(calling);
	rpc_context_set(before);
	if (status == TUTTI_IN_PROGRESS)
		reply_hold(rpc, entry);
	else
		tutti_rpc_reply_end(entry, status);
	running = outer;
}

void rpc_run_inside(struct tutti_rpc_reply *entry)
{
	tutti_rpc *rpc = entry->rpc;

	rpc_run(entry);
	rpc_lock(rpc);
	if (--rpc->inside == 0 && rpc->state != RPC_RUNS)
		pthread_cond_broadcast(&rpc->changed);
	rpc_unlock(rpc);
}

/* ---- its way back ---- */

struct tutti_rpc_reply *rpc_entry_of(tutti_rpc *rpc, int rank, const struct rpc_message *m)
{
	struct tutti_rpc_reply *entry = rpc_entry_at(&rpc->peers[rank], (int)m->slot);

	return entry && entry->state != ENTRY_IS_FREE && entry->id == m->id ? entry : NULL;
}

static void reply_forget_answer(struct tutti_rpc_reply *entry)
{
	tutti_rpc *rpc = entry->rpc;

	free(entry->block);
	entry->block = NULL;
	entry->num_pieces = 0;
	rpc_parcel_let_go(&entry->parcel);
	if (entry->release) {
		entry->release->next = rpc->releases;
		rpc->releases = entry->release;
		entry->release = NULL;
	}
}

static void reply_forget_payload(struct tutti_rpc_reply *entry)
{
	free(entry->payload);
	entry->payload = NULL;
}

void rpc_reply_forget(struct tutti_rpc_reply *entry)
{
	reply_forget_payload(entry);
	reply_forget_answer(entry);
}

void rpc_reply_clear(struct tutti_rpc_reply *entry)
{
	rpc_reply_forget(entry);
	free(entry->shared);
	entry->shared = NULL;
	entry->num_shared = 0;
}

/* Without the bytes of the answer. */
static void reply_drop(struct tutti_rpc_reply *entry)
{
	rpc_reply_forget(entry);
	entry->reply.is_dropped = 1;
}

/* Decides, alone, whether the reply was ended before CANCEL arrived: under the lock, under which
 * rpc_on_cancel tells the function. An answer that is sent again after a recovery was not
 * cancelled; but if it is long, no caller waits until its bytes have been sent. */
static void reply_settle(struct tutti_rpc_reply *entry)
{
	bool ends = entry->state != ENTRY_OFFERS && entry->state != ENTRY_REPLIED;

	if (entry->is_cancelled && (ends || entry->num_pieces)) {
		if (entry->reply.cancelled == RPC_NOT_CANCELLED)
			entry->reply.cancelled = RPC_BEFORE_IT_ENDED;
		reply_drop(entry);
		entry->reply.bytes = 0;
	} else if (entry->num_pieces && entry->request.is_one_way) {
		reply_drop(entry);
	}
	if (entry->request.is_one_way)
		rpc_refs_take_back(entry);
	entry->reply.shares = entry->num_shared > 0;
}

static void reply_send_as(struct tutti_rpc_reply *entry, enum rpc_kind kind)
{
	struct rpc_message m = entry->reply;
	int tag = kind == RPC_REPLY ? RPC_TAG_REPLY + (int)m.slot : RPC_TAG_NOTES;

	m.kind = kind;
	if (entry->parcel) {
		m.comes_along = 1;
		rpc_message_set_pieces(&m, &(tutti_rpc_piece){NULL, entry->parcel->bytes}, 1);
		rpc_parcel_send(entry->rpc, entry->parcel, entry->rank,
				RPC_TAG_ANSWER + (int)m.slot);
	} else if (entry->num_pieces) {
		rpc_message_set_pieces(&m, entry->pieces, entry->num_pieces);
	}
	entry->state = kind == RPC_REPLY ? ENTRY_REPLIED : ENTRY_OFFERS;
	entry->replied_in = 0;
	if (rpc_post(entry->rpc, &m, entry->rank, tag) == TUTTI_OK)
		entry->replied_in = entry->rpc->epoch;
}

/* An answer that is not long is copied, and comes along with the REPLY. */
static void reply_pack(struct tutti_rpc_reply *entry)
{
	size_t bytes = entry->reply.bytes;
	struct rpc_parcel *parcel = rpc_parcel_make(entry->pieces, entry->num_pieces, bytes);

	if (!parcel)
		return; /* then it is offered */
	reply_forget_answer(entry);
	entry->parcel = parcel;
}

void rpc_reply_send(struct tutti_rpc_reply *entry)
{
	if (!entry->rpc->peers[entry->rank].is_alive || entry->rpc->state == RPC_ENDED) {
		rpc_reply_clear(entry);
		entry->state = ENTRY_IS_FREE;
		return;
	}
	reply_settle(entry);
	if (entry->num_pieces && entry->reply.bytes <= RPC_ALONG_BYTES)
		reply_pack(entry);
	if (!entry->num_pieces) /* else a piece may be of the payload */
		reply_forget_payload(entry);
	reply_send_as(entry, entry->num_pieces ? RPC_OFFER : RPC_REPLY);
}

void rpc_reply_fail(struct tutti_rpc_reply *entry, tutti_status status, const char *format, ...)
{
	tutti_rpc *rpc = entry->rpc;
	char text[RPC_ERROR_BYTES];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof text, format, args);
	va_end(args);
	if (entry->request.is_one_way && !entry->reply.cancelled)
		rpc_complain("rank %d, '%.*s', called one way by rank %d: %s", rpc->rank,
			     (int)entry->request.name_bytes, rpc_message_name(&entry->request),
			     entry->rank, text);
	if (entry->request.is_one_way && !entry->is_cancelled && entry->request.num_pieces &&
	    !entry->request.comes_along &&
	    (entry->state == ENTRY_PULLS || entry->state == ENTRY_RECEIVES))
		rpc_post_note(rpc, RPC_HAVE, &entry->request, entry->rank);
	rpc_reply_forget(entry);
	entry->reply.status = status;
	entry->reply.bytes = strlen(text);
	if (entry->reply.bytes > RPC_INLINE_BYTES && (entry->block = strdup(text)))
		reply_add_piece(entry, entry->block, entry->reply.bytes);
	else
		entry->reply.bytes = entry->reply.bytes < RPC_INLINE_BYTES ? entry->reply.bytes
									   : RPC_INLINE_BYTES;
	if (!entry->num_pieces)
		memcpy(entry->reply.data, text, entry->reply.bytes);
	rpc_reply_send(entry);
}

static void reply_on_sent(void *arg, tutti_status status)
{
	struct tutti_rpc_reply *entry = arg;
	tutti_rpc *rpc = entry->rpc;

	rpc_in_callback++;
	rpc_lock(rpc);
	if (status == TUTTI_OK) {
		reply_send_as(entry, RPC_REPLY);
	} else {
		entry->state = ENTRY_OFFERS; /* it is offered again */
		entry->replied_in = 0;
		if (tutti_comm_status(rpc->comm) != TUTTI_OK)
			rpc_note_failure(rpc);
	}
	rpc_issued_over(rpc, true);
	rpc_unlock(rpc);
	rpc_in_callback--;
}

void rpc_on_take(tutti_rpc *rpc, int rank, const struct rpc_message *m)
{
	struct tutti_rpc_reply *entry = rpc_entry_of(rpc, rank, m);

	if (!entry || entry->state != ENTRY_OFFERS)
		return;
	struct rpc_io io = {.sends = true,
			    .rank = rank,
			    .tag = RPC_TAG_ANSWER + (int)m->slot,
			    .pieces = entry->pieces,
			    .num_pieces = entry->num_pieces,
			    .done = reply_on_sent,
			    .done_arg = entry};
	if (rpc_issue(rpc, &io) == TUTTI_OK)
		entry->state = ENTRY_SENDS;
}

void rpc_on_drop(tutti_rpc *rpc, int rank, const struct rpc_message *m)
{
	struct tutti_rpc_reply *entry = rpc_entry_of(rpc, rank, m);

	if (!entry || (entry->state != ENTRY_OFFERS && entry->state != ENTRY_REPLIED))
		return;
	bool is_answered = entry->state == ENTRY_REPLIED;
	if (!is_answered || m->is_dropped)
		rpc_refs_take_back(entry);
	entry->reply.shares = 0;
	reply_drop(entry);
	if (!is_answered)
		reply_send_as(entry, RPC_REPLY);
}
