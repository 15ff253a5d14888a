/* A conn goes on without a rail that has failed. Each end stops its QP, takes what had come by it
 * to the last completion, and tells the other so over oob: then nothing comes by this rail any
 * more, and both know what has to be sent again. Nothing new is sent until then.
 *
 * What is sent again still lies where it was: frames and chunks until they are acknowledged, and
 * buffers of the caller until their sends are done. The receiver's memory for it is still free. */
#include "transport/verbs/verbs.h"

#include <string.h>

static struct verbs_tally verbs_count(const struct verbs_conn *conn)
{
	struct verbs_tally tally = {conn->frames_received, conn->pieces_in.first, 0};

	for (uint32_t i = 0; i < VERBS_CHUNKS; i++)
		if (conn->pieces_in.of[(conn->pieces_in.first + i) % VERBS_CHUNKS].is_here)
			tally.ahead |= 1u << i;
	return tally;
}

static bool has_piece(const struct verbs_tally *tally, uint32_t number)
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

static int first_that_works(const struct verbs_conn *conn)
{
	int r = 0;

	while (conn->rails[r].state != VERBS_RAIL_WORKS)
		r++;
	return r;
}

static void send_frames_again(struct verbs_conn *conn, uint32_t received)
{
	conn->frames_acked = received;
	for (uint32_t n = received; n != conn->frames; n++)
		verbs_send_frame_again(conn, n);
}

static void send_pieces_again(struct verbs_conn *conn, const bool is_new[VERBS_RAILS])
{
	for (uint32_t n = conn->pieces_acked; n != conn->pieces; n++) {
		struct verbs_flight *flight = &conn->flights[n % VERBS_CHUNKS];
		if (flight->is_acked || !is_new[flight->rail])
			continue;
		if (has_piece(&conn->rails[flight->rail].tally, n))
			flight->is_acked = true;
		else
			verbs_send_piece_again(conn, n);
	}
	verbs_conn_complete_acked(conn);
}

bool verbs_failover(struct verbs_conn *conn)
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
		conn->frame_rail = first_that_works(conn);
		send_frames_again(conn, old->tally.frames);
	}
	send_pieces_again(conn, is_new);
	return true;
}

void verbs_rail_noted(struct verbs_conn *conn, const struct oob_note *note)
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
