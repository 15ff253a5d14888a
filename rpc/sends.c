/* Sends of the rpc's own memory: messages, and bytes that come along with one. That memory is free
 * again when its send is over, which is looked at whenever there is another one, or a message comes
 * in. */
#include "rpc/rpc_internal.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* Sends of which one look asks whether they are over: more than one, so that they do not pile up,
 * and no more than these, however many there are. */
enum { LOOKS = 8 };

static void free_note(tutti_rpc *rpc, struct rpc_note *note)
{
	note->next_free = rpc->free_notes;
	rpc->free_notes = note;
}

static struct rpc_note *take_note(tutti_rpc *rpc)
{
	struct rpc_note *note = rpc->free_notes;

	rpc->free_notes = note->next_free;
	return note;
}

static void send_over(tutti_rpc *rpc, struct rpc_send *send)
{
	tutti_work_release(&send->work);
	rpc_issued_over(rpc, false);
	if (!send->parcel)
		free_note(rpc, (struct rpc_note *)send);
	else if (!send->parcel->is_held)
		free(send->parcel);
}

static struct rpc_send *take_send(tutti_rpc *rpc)
{
	struct rpc_send *send = rpc->sends;

	if (!(rpc->sends = send->next))
		rpc->sends_tail = &rpc->sends;
	return send;
}

/* Most are over at once: p2p has copied them. Else it is the last to be looked at. */
static bool sends_look(tutti_rpc *rpc, struct rpc_send *send)
{
	int is_done = 0;

	tutti_work_test(send->work, &is_done);
	if (is_done) {
		send_over(rpc, send);
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
		struct rpc_send *send = take_send(rpc);
		if (!sends_look(rpc, send) && !first)
			first = send;
	}
}

void rpc_sends_end(tutti_rpc *rpc)
{
	while (rpc->sends) {
		struct rpc_send *send = take_send(rpc);
		tutti_work_wait(&send->work, 0);
		send_over(rpc, send);
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
	free_note(rpc, note);
	return TUTTI_OK;
}

tutti_status rpc_post(tutti_rpc *rpc, const struct rpc_message *m, int rank, int tag)
{
	TRY(rpc_notes_reserve(rpc)); /* else the call that it is about ends at its deadline */
	struct rpc_note *note = take_note(rpc);
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
		sends_look(rpc, &note->send);
	else
		free_note(rpc, note);
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
		free(take_note(rpc));
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
		sends_look(rpc, &parcel->send);
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
