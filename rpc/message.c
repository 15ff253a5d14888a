/* Messages: what makes one sound, the sizes of pieces in it, and how all is sent and received. */
#include "rpc/message.h"

#include "core/memory_left.h"
#include "core/status.h"
#include "rpc/rpc_internal.h"

#include <assert.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

enum { LOOK_AT_MEMORY_BYTES = 64 << 20 }; /* more bytes are compared with what is left */

bool rpc_memory_has(uint64_t bytes)
{
	return bytes <= LOOK_AT_MEMORY_BYTES || bytes < memory_left("");
}

tutti_status rpc_pieces_check(const char *what, const tutti_rpc_piece *pieces, int num_pieces)
{
	size_t left = RPC_BYTES_MOST;

	if (num_pieces < 0 || num_pieces > TUTTI_RPC_PIECES)
		return fail_invalid("%s: %d pieces: there may be %d", what, num_pieces,
				    TUTTI_RPC_PIECES);
	if (num_pieces && !pieces)
		return fail_invalid("%s: pieces is NULL, and num_pieces is %d", what, num_pieces);
	for (int i = 0; i < num_pieces; i++) {
		if (pieces[i].bytes && !pieces[i].data)
			return fail_invalid("%s: piece %d has %zu bytes, and data is NULL", what, i,
					    pieces[i].bytes);
		if (pieces[i].bytes > left)
			return fail_invalid("%s: the pieces have more bytes than a memory can",
					    what);
		left -= pieces[i].bytes;
	}
	return TUTTI_OK;
}

size_t rpc_message_piece(const struct rpc_message *m, int piece)
{
	uint64_t bytes;

	memcpy(&bytes, m->data + (size_t)piece * sizeof bytes, sizeof bytes);
	return (size_t)bytes;
}

void rpc_message_set_pieces(struct rpc_message *m, const tutti_rpc_piece *pieces, int n)
{
	m->num_pieces = (uint8_t)n;
	for (int i = 0; i < n; i++) {
		uint64_t bytes = pieces[i].bytes;
		memcpy(m->data + (size_t)i * sizeof bytes, &bytes, sizeof bytes);
	}
}

static bool message_pieces_are_sound(const struct rpc_message *m)
{
	uint64_t left = m->bytes;

	if (m->num_pieces > TUTTI_RPC_PIECES)
		return false;
	for (int i = 0; i < m->num_pieces; i++) {
		size_t piece = rpc_message_piece(m, i);
		if (piece == 0 || piece > left)
			return false;
		left -= piece;
	}
	return left == 0 && m->bytes <= RPC_BYTES_MOST;
}

bool rpc_message_is_sound(const struct rpc_message *m)
{
	size_t name_bytes = m->kind == RPC_REQUEST ? m->name_bytes : 0;

	if (m->kind < RPC_REQUEST || m->kind > RPC_STATE || m->slot >= RPC_CALLS_MAX || m->id == 0)
		return false;
	if (m->kind == RPC_REQUEST && (name_bytes < 1 || name_bytes > RPC_NAME_BYTES))
		return false;
	if (m->kind != RPC_REQUEST && m->kind != RPC_REPLY && m->kind != RPC_OFFER)
		return true;
	if (m->status < TUTTI_OK || m->status == TUTTI_IN_PROGRESS ||
	    m->status > TUTTI_ERR_INTERNAL)
		return false;
	if (m->cancelled > RPC_BEFORE_IT_ENDED)
		return false;
	if (m->comes_along && (m->num_pieces != 1 || m->bytes > RPC_ALONG_BYTES))
		return false;
	if (m->num_pieces)
		return message_pieces_are_sound(m);
	return m->kind != RPC_OFFER && (m->is_dropped || m->bytes <= rpc_room_beside(name_bytes));
}

/* ---- sends and recvs ---- */

/* Issued under the lock. None of them may wait there for room in the engine, so more than a few go
 * in groups, which never do. */

static tutti_status message_issue_piece(tutti_rpc *rpc, const struct rpc_io *io, int piece,
					const tutti_call *call)
{
	const tutti_rpc_piece *p = &io->pieces[piece];
	int rank = io->rank == TUTTI_ANY ? TUTTI_ANY : rpc->peers[io->rank].now;

	if (io->sends)
		return tutti_send(p->data, p->bytes, TUTTI_U8, rank, rpc->comm, call);
	return tutti_recv((void *)(uintptr_t)p->data, p->bytes, TUTTI_U8, rank, rpc->comm, call);
}

static tutti_status message_issue_group(tutti_rpc *rpc, const struct rpc_io *io,
					const tutti_call *call)
{
	tutti_status status = tutti_group_begin(), ended;
	tutti_call member = *call;

	member.work = NULL;
	member.done = NULL;
	if (status != TUTTI_OK)
		return status;
	for (int i = 0; i < io->num_pieces && status == TUTTI_OK; i++)
		status = message_issue_piece(rpc, io, i, &member);
	ended = tutti_group_end(call);
	return status == TUTTI_OK ? ended : status;
}

tutti_status rpc_issue(tutti_rpc *rpc, const struct rpc_io *io)
{
	/* The rpc has deadlines of its own; this one would fail the communicator. */
	tutti_call call = {.work = io->work,
			   .done = io->done,
			   .done_arg = io->done_arg,
			   .tag = io->tag,
			   .source = io->source,
			   .timeout_ms = INT_MAX};
	tutti_status status;

	if (rpc->state != RPC_RUNS || (io->rank != TUTTI_ANY && !rpc->peers[io->rank].is_alive))
		return TUTTI_ERR_PEER;
	if (io->num_pieces == 1 && rpc->works < RPC_DIRECT)
		status = message_issue_piece(rpc, io, 0, &call);
	else
		status = message_issue_group(rpc, io, &call);
	if (status == TUTTI_OK) {
		rpc->works++;
		rpc->inside += io->done != NULL;
	} else if (tutti_comm_status(rpc->comm) != TUTTI_OK) {
		rpc_note_failure(rpc);
	}
	return status;
}

void rpc_issued_over(tutti_rpc *rpc, bool has_called)
{
	rpc->works--;
	if (has_called && --rpc->inside == 0 && rpc->state != RPC_RUNS)
		pthread_cond_broadcast(&rpc->changed);
}

static void message_on_swallowed(void *arg, tutti_status status)
{
	tutti_rpc *rpc = arg;

	(void)status;
	rpc_in_callback++;
	rpc_lock(rpc);
	rpc_issued_over(rpc, true);
	rpc_unlock(rpc);
	rpc_in_callback--;
}

void rpc_swallow(tutti_rpc *rpc, size_t bytes, int rank, int tag)
{
	tutti_rpc_piece piece = {rpc->scratch, bytes};
	struct rpc_io io = {.rank = rank,
			    .tag = tag,
			    .pieces = &piece,
			    .num_pieces = 1,
			    .done = message_on_swallowed,
			    .done_arg = rpc};

	rpc_issue(rpc, &io);
}

/* ---- sends of memory of ours ---- */

/* Sends of the rpc's own memory: messages, and bytes that come along with one. That memory is free
 * again when its send is over, which is looked at whenever there is another one, or a message comes
 * in. */

/* Sends of which one look asks whether they are over: more than one, so that they do not pile up,
 * and no more than these, however many there are. */
enum { LOOKS = 8 };

static void message_free_note(tutti_rpc *rpc, struct rpc_note *note)
{
	note->next_free = rpc->free_notes;
	rpc->free_notes = note;
}

static struct rpc_note *message_take_note(tutti_rpc *rpc)
{
	struct rpc_note *note = rpc->free_notes;

	rpc->free_notes = note->next_free;
	return note;
}

static void message_send_over(tutti_rpc *rpc, struct rpc_send *send)
{
	tutti_work_release(&send->work);
	rpc_issued_over(rpc, false);
	if (!send->parcel)
		message_free_note(rpc, (struct rpc_note *)send);
	else if (!send->parcel->is_held)
		free(send->parcel);
}

static struct rpc_send *message_take_send(tutti_rpc *rpc)
{
	struct rpc_send *send = rpc->sends;

	if (!(rpc->sends = send->next))
		rpc->sends_tail = &rpc->sends;
	return send;
}

/* Most are over at once: p2p has copied them. Else it is the last to be looked at. */
static bool message_sends_look(tutti_rpc *rpc, struct rpc_send *send)
{
	int is_done = 0;

	tutti_work_test(send->work, &is_done);
	if (is_done) {
		message_send_over(rpc, send);
		return true;
	}
	send->next = NULL;
	*rpc->sends_tail = send;
	rpc->sends_tail = &send->next;
	return false;
}

void rpc_sends_look(tutti_rpc *rpc)
{
	const struct rpc_send *first = NULL; /* of those that are not over */

	for (int i = 0; i < LOOKS && rpc->sends && rpc->sends != first; i++) {
		struct rpc_send *send = message_take_send(rpc);
		if (!message_sends_look(rpc, send) && !first)
			first = send;
	}
}

void rpc_sends_end(tutti_rpc *rpc)
{
	while (rpc->sends) {
		struct rpc_send *send = message_take_send(rpc);
		tutti_work_wait(&send->work, 0);
		message_send_over(rpc, send);
	}
}

/* ---- messages ---- */

tutti_status rpc_notes_reserve(tutti_rpc *rpc)
{
	struct rpc_note *note;

	if (rpc->free_notes)
		return TUTTI_OK;
	if (!(note = aligned_alloc(64, sizeof *note)))
		return fail_no_memory("a message of the rpc");
	note->send.parcel = NULL;
	message_free_note(rpc, note);
	return TUTTI_OK;
}

tutti_status rpc_post(tutti_rpc *rpc, const struct rpc_message *m, int rank, int tag)
{
	TRY(rpc_notes_reserve(rpc)); /* else the call that it is about ends at its deadline */
	struct rpc_note *note = message_take_note(rpc);
	tutti_rpc_piece piece = {&note->message, sizeof note->message};
	struct rpc_io io = {.sends = true,
			    .rank = rank,
			    .tag = tag,
			    .pieces = &piece,
			    .num_pieces = 1,
			    .work = &note->send.work};

	note->message = *m;
	rpc_sends_look(rpc); /* before an error has its message */
	tutti_status status = rpc_issue(rpc, &io);
	if (status == TUTTI_OK)
		message_sends_look(rpc, &note->send);
	else
		message_free_note(rpc, note);
	return status;
}

void rpc_post_note(tutti_rpc *rpc, enum rpc_kind kind, const struct rpc_message *about, int rank)
{
	struct rpc_message m = {.kind = kind, .slot = about->slot, .id = about->id};

	rpc_post(rpc, &m, rank, RPC_TAG_NOTES);
}

void rpc_notes_free(tutti_rpc *rpc)
{
	assert(!rpc->sends);
	while (rpc->free_notes)
		free(message_take_note(rpc));
}

/* ---- parcels ---- */

struct rpc_parcel *rpc_parcel_make(const tutti_rpc_piece *pieces, int num_pieces, size_t bytes)
{
	struct rpc_parcel *parcel = malloc(sizeof *parcel + bytes);
	size_t at = 0;

	if (!parcel)
		return NULL;
	*parcel = (struct rpc_parcel){.send.parcel = parcel, .is_held = true, .bytes = bytes};
	for (int i = 0; i < num_pieces; i++) {
		memcpy(parcel->data + at, pieces[i].data, pieces[i].bytes);
		at += pieces[i].bytes;
	}
	return parcel;
}

void rpc_parcel_send(tutti_rpc *rpc, struct rpc_parcel *parcel, int rank, int tag)
{
	tutti_rpc_piece piece = {parcel->data, parcel->bytes};
	struct rpc_io io = {.sends = true,
			    .rank = rank,
			    .tag = tag,
			    .pieces = &piece,
			    .num_pieces = 1,
			    .work = &parcel->send.work};

	if (rpc_issue(rpc, &io) == TUTTI_OK)
		message_sends_look(rpc, &parcel->send);
}

void rpc_parcel_let_go(struct rpc_parcel **held)
{
	struct rpc_parcel *parcel = *held;

	*held = NULL;
	if (!parcel)
		return;
	parcel->is_held = false;
	if (!parcel->send.work)
		free(parcel);
}
