/* A connection: greeting the peer, what is posted on it, and how it moves. */
#include "core/clock.h"
#include "core/log.h"
#include "core/status.h"
#include "transport/done_list.h"
#include "transport/verbs/verbs.h"

#include <assert.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A conn goes on without a rail that has failed. Each end stops its QP, takes what had come by it
 * to the last completion, and tells the other so over oob: then nothing comes by this rail any
 * more, and both know what has to be sent again. Nothing new is sent until then.
 *
 * What is sent again still lies where it was: frames and chunks until they are acknowledged, and
 * buffers of the caller until their sends are done. The receiver's memory for it is still free. */

static struct verbs_tally verbs_count(const struct verbs_conn *conn)
{
	struct verbs_tally tally = {conn->frames_received, conn->pieces_in.first, 0};

	for (uint32_t i = 0; i < VERBS_CHUNKS; i++)
		if (conn->pieces_in.of[(conn->pieces_in.first + i) % VERBS_CHUNKS].is_here)
			tally.ahead |= 1u << i;
	return tally;
}

static bool verbs_conn_has_piece(const struct verbs_tally *tally, uint32_t number)
{
	uint32_t ahead = number - tally->pieces;

	return (int32_t)ahead < 0 || (ahead < VERBS_CHUNKS && (tally->ahead >> ahead & 1));
}

static void verbs_tell(struct verbs_conn *conn, int r)
{
	struct oob_note note = {.kind = VERBS_NOTE_RAIL, .number = (uint64_t)r};
	struct verbs_tally tally = verbs_count(conn);

	memcpy(note.text, &tally, sizeof tally);
	oob_send_note(&conn->oob, &note);
	conn->rails[r].state = VERBS_RAIL_COUNTED;
}

static bool verbs_is_settled(struct verbs_conn *conn)
{
	for (int r = 0; r < conn->rail_count; r++) {
		struct verbs_rail *rail = &conn->rails[r];
		if (rail->state == VERBS_RAIL_LOST && rail->receives == 0)
			verbs_tell(conn, r);
		if (rail->state == VERBS_RAIL_LOST ||
		    (rail->state == VERBS_RAIL_COUNTED && !rail->has_tally))
			return false;
	}
	return true;
}

static int verbs_conn_first_that_works(const struct verbs_conn *conn)
{
	int r = 0;

	while (conn->rails[r].state != VERBS_RAIL_WORKS)
		r++;
	return r;
}

static void verbs_conn_send_frames_again(struct verbs_conn *conn, uint32_t received)
{
	conn->frames_acked = received;
	for (uint32_t n = received; n != conn->frames; n++)
		verbs_send_frame_again(conn, n);
}

static void verbs_conn_send_pieces_again(struct verbs_conn *conn, const bool is_new[VERBS_RAILS])
{
	for (uint32_t n = conn->pieces_acked; n != conn->pieces; n++) {
		struct verbs_flight *flight = &conn->flights[n % VERBS_CHUNKS];
		if (flight->is_acked || !is_new[flight->rail])
			continue;
		if (verbs_conn_has_piece(&conn->rails[flight->rail].tally, n))
			flight->is_acked = true;
		else
			verbs_send_piece_again(conn, n);
	}
	verbs_conn_complete_acked(conn);
}

/* While rails are failing: counts, tells the peer, sends again. Returns whether it is over. */
static bool verbs_failover(struct verbs_conn *conn)
{
	const struct verbs_rail *old = &conn->rails[conn->frame_rail];
	bool is_new[VERBS_RAILS] = {false};

	verbs_endpoint_of(conn)->passes = 0; /* the peer's note is to be seen soon */
	if (!verbs_is_settled(conn))
		return false;
	for (int r = 0; r < conn->rail_count; r++)
		if (conn->rails[r].state == VERBS_RAIL_COUNTED) {
			conn->rails[r].state = VERBS_RAIL_DEAD;
			conn->failing--;
			is_new[r] = true;
		}
	if (old->state != VERBS_RAIL_WORKS) {
		conn->frame_rail = verbs_conn_first_that_works(conn);
		verbs_conn_send_frames_again(conn, old->tally.frames);
	}
	verbs_conn_send_pieces_again(conn, is_new);
	return true;
}

/* The peer's word on a rail that has failed. */
static void verbs_rail_noted(struct verbs_conn *conn, const struct oob_note *note)
{
	struct verbs_tally tally;
	struct verbs_rail *rail;

	memcpy(&tally, note->text, sizeof tally);
	bool has_frames = note->number == (uint64_t)conn->frame_rail;
	if (note->number >= (uint64_t)conn->rail_count ||
	    (has_frames && conn->frames - tally.frames > conn->frames - conn->frames_acked) ||
	    (int32_t)(conn->pieces - tally.pieces) < 0) {
		verbs_conn_end(conn, TUTTI_ERR_INTERNAL,
			       "rank %d (verbs, channel %d) has received what rank %d never sent",
			       conn->base.peer, conn->base.channel, verbs_endpoint_of(conn)->rank);
		return;
	}
	rail = &conn->rails[note->number];
	rail->tally = tally;
	rail->has_tally = true;
	verbs_rail_lost(conn, (int)note->number, TUTTI_ERR_DEVICE,
			"rank %d (verbs, channel %d) cannot reach rank %d by its port %d",
			conn->base.peer, conn->base.channel, verbs_endpoint_of(conn)->rank,
			(int)note->number + 1);
}

/* Greeting the peer, and closing. Both ends send what their queue pair is called (the hello),
 * connect it to the other's, and say that they are ready: a SEND that came earlier would find no
 * queue pair that takes it. Closing says BYE behind the last message and goes on until the peer's
 * device has acknowledged it. */

#define CLOSING_MS  5000 /* for acknowledgements of the last messages */
#define STOPPING_MS 20   /* for them, where close itself waits */

static struct verbs_conn *verbs_conn_of(struct oob_conn *oob)
{
	return (struct verbs_conn *)((char *)oob - offsetof(struct verbs_conn, oob));
}

static void verbs_conn_free(struct verbs_conn *conn)
{
	struct verbs_endpoint *endpoint = verbs_endpoint_of(conn);
	struct verbs_conn **at = &endpoint->conns;

	while (*at != conn)
		at = &(*at)->next;
	*at = conn->next;
	verbs_conn_deactivate(conn);
	if (conn->state < VERBS_OPEN)
		endpoint->unsettled--;
	verbs_pair_close(conn);
	oob_close(&conn->oob);
	free(conn);
}

tutti_status verbs_connect(struct tutti_endpoint *base, int peer, int channel,
			   const uint8_t *address, size_t address_bytes, struct tutti_conn **out)
{
	struct verbs_endpoint *endpoint = (struct verbs_endpoint *)base;
	struct verbs_conn *conn = calloc(1, sizeof *conn);
	struct verbs_hello hello;

	assert(peer != endpoint->rank && endpoint->oob);
	if (!conn)
		return fail(TUTTI_ERR_MEMORY, "Rank %d has no memory for a connection to rank %d.",
			    endpoint->rank, peer);
	conn->base.endpoint = base;
	conn->base.peer = peer;
	conn->base.channel = channel;
	tutti_done_init(&conn->sends);
	tutti_done_init(&conn->recvs);
	tutti_done_init(&conn->unacked);
	conn->next = endpoint->conns;
	endpoint->conns = conn;
	endpoint->unsettled++;
	tutti_status status = verbs_pair_open(conn);
	if (status == TUTTI_OK) {
		verbs_pair_hello(conn, &hello);
		status = oob_connect(&conn->oob, endpoint->oob, peer, channel, address,
				     address_bytes, &hello, sizeof hello);
	}
	if (status != TUTTI_OK) {
		verbs_conn_free(conn);
		return status;
	}
	*out = &conn->base;
	return TUTTI_OK;
}

/* The peer may send from now on, and only then. */
static void verbs_greeted(struct verbs_conn *conn)
{
	const struct oob_note ready = {.kind = VERBS_NOTE_READY};
	tutti_status status = TUTTI_ERR_MISMATCH;
	struct verbs_hello peer;

	memcpy(conn->base.where, conn->oob.tcp->where, sizeof conn->base.where);
	if (conn->oob.hello_bytes == sizeof peer) {
		memcpy(&peer, conn->oob.hello, sizeof peer);
		status = verbs_pair_connect(conn, &peer);
	} else {
		fail(status, "verbs: rank %d greets in another form: all ranks need the same Tutti",
		     conn->base.peer);
	}
	if (status != TUTTI_OK) {
		verbs_conn_fail(conn, status, "%s", last_error());
		return;
	}
	conn->state = VERBS_CONNECTED;
	oob_send_note(&conn->oob, &ready);
}

static void verbs_noted(struct verbs_conn *conn)
{
	const struct oob_note note = conn->oob.note;

	oob_note_taken(&conn->oob);
	if (note.kind == VERBS_NOTE_RAIL) {
		verbs_rail_noted(conn, &note);
	} else if (note.kind == VERBS_NOTE_FAILED) {
		verbs_conn_end(conn, TUTTI_ERR_PEER, "rank %d ended its connection to rank %d: %s",
			       conn->base.peer, verbs_endpoint_of(conn)->rank, note.text);
	} else if (conn->state == VERBS_CONNECTED) {
		conn->state = VERBS_OPEN;
		verbs_endpoint_of(conn)->unsettled--;
	}
}

/* Its process, or its endpoint. What it had sent is in the completion queue by now. */
static void verbs_peer_is_gone(struct verbs_conn *conn)
{
	if (conn->state == VERBS_CONNECTING) {
		verbs_conn_fail(conn, conn->oob.status, "%s", conn->oob.error);
		return;
	}
	while (conn->state < VERBS_ENDED && verbs_take_completions(conn))
		;
	verbs_conn_end(conn, conn->oob.status, "%s", conn->oob.error);
}

static void verbs_take_news(struct verbs_conn *conn)
{
	if (conn->oob.has_greeted && conn->state == VERBS_CONNECTING)
		verbs_greeted(conn);
	if (conn->oob.has_note)
		verbs_noted(conn);
	if (conn->oob.has_ended)
		verbs_peer_is_gone(conn);
}

bool verbs_look(struct verbs_endpoint *endpoint)
{
	bool is_moving = oob_progress(endpoint->oob);

	for (struct oob_conn *oob; (oob = oob_next_news(endpoint->oob));) {
		verbs_take_news(verbs_conn_of(oob));
		is_moving = true;
	}
	return is_moving;
}

/* BYE comes behind all pieces, whichever rails they take. */
static void verbs_conn_say_bye(struct verbs_conn *conn)
{
	if (conn->state == VERBS_OPEN && !conn->has_said_bye && !conn->failing &&
	    conn->pieces == conn->pieces_acked)
		verbs_send_bye(conn);
}

void verbs_close_on(struct verbs_conn *conn)
{
	verbs_conn_say_bye(conn);
	if (conn->state != VERBS_OPEN || !verbs_has_unacked(conn) || conn->oob.has_ended ||
	    clock_now_ns() >= conn->deadline_ns)
		verbs_conn_free(conn);
}

/* The peer may write into a buffer of the caller. Only the end of the queue pair keeps it from
 * that: some devices (irdma, older bnxt_re) take no right to write away. The peer's device has
 * acknowledged sends that are done in microseconds, so they are waited for. */
static void verbs_conn_await_acks(struct verbs_conn *conn)
{
	uint64_t deadline = deadline_after_ms(STOPPING_MS);

	while (conn->state == VERBS_OPEN && verbs_conn_owes(conn) && clock_now_ns() < deadline) {
		verbs_conn_say_bye(conn);
		verbs_take_completions(conn);
	}
}

void verbs_close(struct tutti_conn *base)
{
	struct verbs_conn *conn = (struct verbs_conn *)base;

	if (!conn)
		return;
	bool is_read = verbs_conn_is_read(conn), is_written = verbs_conn_is_written(conn);
	tutti_done_init(&conn->sends);
	tutti_done_init(&conn->recvs);
	tutti_done_init(&conn->unacked);
	done_list_forget(&verbs_endpoint_of(conn)->done, base);
	conn->is_closing = true;
	conn->deadline_ns = deadline_after_ms(CLOSING_MS);
	/* Buffers are the caller's again. While they are read nothing else is on its way. */
	if (is_written)
		verbs_conn_await_acks(conn);
	if (is_read || is_written) {
		verbs_conn_free(conn);
		return;
	}
	if (conn->state == VERBS_OPEN)
		verbs_conn_activate(conn);
	verbs_close_on(conn);
}

/* Messages that have arrived are received first. While the conn waits for receives of the caller,
 * sends end well: one that completes says no more than that its buffer is free. */
static bool verbs_move_ended(struct verbs_conn *conn)
{
	bool is_moving = verbs_receive_some(conn);

	if (conn->state == VERBS_FAILED)
		return true;
	if (conn->recvs.head || conn->arrived.first == conn->arrived.end) {
		verbs_conn_fail(conn, conn->ended.status, "%s", conn->ended.error);
		return true;
	}
	for (; conn->unacked.head; is_moving = true)
		verbs_conn_complete(conn, &conn->unacked, TUTTI_OK);
	for (; conn->sends.head; is_moving = true)
		verbs_conn_complete(conn, &conn->sends, TUTTI_OK);
	return is_moving;
}

bool verbs_conn_move(struct verbs_conn *conn)
{
	bool is_moving = false;

	if (conn->state == VERBS_CONNECTING || conn->state == VERBS_FAILED)
		return false;
	if (conn->state != VERBS_ENDED)
		is_moving = verbs_take_completions(conn);
	if (conn->failing)
		is_moving |= verbs_failover(conn);
	if (conn->is_closing)
		return is_moving;
	if (conn->state == VERBS_ENDED) {
		is_moving |= verbs_move_ended(conn);
	} else {
		is_moving |= verbs_receive_some(conn);
		is_moving |= verbs_send_some(conn);
		verbs_send_owed_grant(conn);
		verbs_send_credit(conn);
	}
	if (!conn->sends.head && !conn->unacked.head && !conn->recvs.head && !conn->failing &&
	    !(conn->state == VERBS_OPEN && verbs_owes_credit(conn)))
		verbs_conn_deactivate(conn);
	return is_moving;
}

void verbs_conn_post(struct verbs_conn *conn, struct tutti_io *io, bool is_send)
{
	struct tutti_done *queue = is_send ? &conn->sends : &conn->recvs;
	bool is_first = !queue->head;

	assert(!io->map || verbs_map_covers(io->map, io));
	io->conn = &conn->base;
	tutti_io_rewind(io);
	tutti_done_push(queue, io, TUTTI_IN_PROGRESS);
	conn->posted += !is_send;
	if (conn->state == VERBS_FAILED) {
		verbs_conn_complete(conn, queue, conn->base.status);
		return;
	}
	verbs_conn_activate(conn);
	if (!is_send)
		verbs_send_grant(conn, io, conn->posted - 1);
	/* The peer may wait for it: on its way at once. */
	if (is_send && is_first && conn->state == VERBS_OPEN)
		verbs_send_some(conn);
}
