/* Sends and recvs, issued under the lock. None of them may wait there for room in the engine, so
 * more than a few go in groups, which never do. */
#include "rpc/rpc_internal.h"

#include <assert.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

static tutti_status issue_piece(tutti_rpc *rpc, const struct rpc_io *io, int piece,
				const tutti_call *call)
{
	const tutti_rpc_piece *p = &io->pieces[piece];
	int rank = io->rank == TUTTI_ANY ? TUTTI_ANY : rpc->peers[io->rank].now;

	if (io->sends)
		return tutti_send(p->data, p->bytes, TUTTI_U8, rank, rpc->comm, call);
	return tutti_recv((void *)(uintptr_t)p->data, p->bytes, TUTTI_U8, rank, rpc->comm, call);
}

static tutti_status issue_group(tutti_rpc *rpc, const struct rpc_io *io, const tutti_call *call)
{
	tutti_status status = tutti_group_begin(), ended;
	tutti_call member = *call;

	member.work = NULL;
	member.done = NULL;
	if (status != TUTTI_OK)
		return status;
	for (int i = 0; i < io->num_pieces && status == TUTTI_OK; i++)
		status = issue_piece(rpc, io, i, &member);
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
		status = issue_piece(rpc, io, 0, &call);
	else
		status = issue_group(rpc, io, &call);
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

static void note_over(tutti_rpc *rpc, struct rpc_note *note)
{
	tutti_work_release(&note->work);
	rpc_issued_over(rpc, false);
	note->next = rpc->free_notes;
	rpc->free_notes = note;
}

static void notes_look(tutti_rpc *rpc)
{
	struct rpc_note **at = &rpc->notes, *note;
	int is_done;

	while ((note = *at)) {
		is_done = 1;
		tutti_work_test(note->work, &is_done);
		if (!is_done) {
			at = &note->next;
			continue;
		}
		*at = note->next;
		note_over(rpc, note);
	}
}

tutti_status rpc_notes_reserve(tutti_rpc *rpc)
{
	struct rpc_note *note = rpc->free_notes;

	if (!note && !(note = aligned_alloc(64, sizeof *note)))
		return train_no_memory("a message of the rpc");
	if (!rpc->free_notes) {
		note->next = NULL;
		rpc->free_notes = note;
	}
	return TUTTI_OK;
}

tutti_status rpc_post(tutti_rpc *rpc, const struct rpc_message *m, int rank, int tag)
{
	struct rpc_note *note;
	tutti_rpc_piece piece;
	struct rpc_io io = {
		.sends = true, .rank = rank, .tag = tag, .pieces = &piece, .num_pieces = 1};
	int is_done = 0;

	TRY(rpc_notes_reserve(rpc)); /* else the call that it is about ends at its deadline */
	note = rpc->free_notes;
	rpc->free_notes = note->next;
	note->message = *m;
	piece = (tutti_rpc_piece){&note->message, sizeof note->message};
	io.work = &note->work;
	tutti_status status = rpc_issue(rpc, &io);
	if (status != TUTTI_OK) {
		note->next = rpc->free_notes;
		rpc->free_notes = note;
		return status;
	}
	tutti_work_test(note->work, &is_done);
	if (is_done) { /* most are: p2p has copied it */
		note_over(rpc, note);
	} else {
		note->next = rpc->notes;
		rpc->notes = note;
	}
	return TUTTI_OK;
}

void rpc_post_note(tutti_rpc *rpc, enum rpc_kind kind, const struct rpc_message *about, int rank)
{
	struct rpc_message m = {.kind = kind, .slot = about->slot, .id = about->id};

	rpc_post(rpc, &m, rank, RPC_TAG_NOTES);
}

/* ---- parcels ---- */

struct rpc_parcel *rpc_parcel_make(const tutti_rpc_piece *pieces, int num_pieces, size_t bytes)
{
	struct rpc_parcel *parcel = malloc(sizeof *parcel + bytes);
	size_t at = 0;

	if (!parcel)
		return NULL;
	*parcel = (struct rpc_parcel){.is_held = true, .bytes = bytes};
	for (int i = 0; i < num_pieces; i++) {
		memcpy(parcel->data + at, pieces[i].data, pieces[i].bytes);
		at += pieces[i].bytes;
	}
	return parcel;
}

static void parcel_over(tutti_rpc *rpc, struct rpc_parcel *parcel)
{
	tutti_work_release(&parcel->work);
	rpc_issued_over(rpc, false);
	if (!parcel->is_held)
		free(parcel);
}

void rpc_parcel_send(tutti_rpc *rpc, struct rpc_parcel *parcel, int rank, int tag)
{
	tutti_rpc_piece piece = {parcel->data, parcel->bytes};
	struct rpc_io io = {.sends = true,
			    .rank = rank,
			    .tag = tag,
			    .pieces = &piece,
			    .num_pieces = 1,
			    .work = &parcel->work};
	int is_done = 0;

	if (rpc_issue(rpc, &io) != TUTTI_OK)
		return;
	tutti_work_test(parcel->work, &is_done);
	if (is_done) {
		parcel_over(rpc, parcel);
	} else {
		parcel->next = rpc->parcels;
		rpc->parcels = parcel;
	}
}

void rpc_parcel_let_go(struct rpc_parcel **held)
{
	struct rpc_parcel *parcel = *held;

	*held = NULL;
	if (!parcel)
		return;
	parcel->is_held = false;
	if (!parcel->work)
		free(parcel);
}

static void parcels_look(tutti_rpc *rpc)
{
	struct rpc_parcel **at = &rpc->parcels, *parcel;

	while ((parcel = *at)) {
		int is_done = 1;
		tutti_work_test(parcel->work, &is_done);
		if (!is_done) {
			at = &parcel->next;
			continue;
		}
		*at = parcel->next;
		parcel_over(rpc, parcel);
	}
}

static void on_swallowed(void *arg, tutti_status status)
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
			    .done = on_swallowed,
			    .done_arg = rpc};

	rpc_issue(rpc, &io);
}

void rpc_notes_look(tutti_rpc *rpc)
{
	notes_look(rpc);
	parcels_look(rpc);
}

void rpc_notes_end(tutti_rpc *rpc)
{
	while (rpc->parcels) {
		struct rpc_parcel *parcel = rpc->parcels;
		rpc->parcels = parcel->next;
		tutti_work_wait(&parcel->work, 0);
		parcel_over(rpc, parcel);
	}
	while (rpc->notes) {
		struct rpc_note *note = rpc->notes;
		rpc->notes = note->next;
		tutti_work_wait(&note->work, 0);
		note_over(rpc, note);
	}
}

void rpc_notes_free(tutti_rpc *rpc)
{
	assert(!rpc->notes);
	while (rpc->free_notes) {
		struct rpc_note *note = rpc->free_notes;
		rpc->free_notes = note->next;
		free(note);
	}
}
