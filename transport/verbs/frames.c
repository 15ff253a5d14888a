/* Frames: what is posted on the rail that they take, and the ones that are about slots and memory.
 */
#include "transport/verbs/verbs.h"

#include <string.h>

void verbs_post(struct verbs_conn *conn, int r, struct ibv_send_wr *wr, struct verbs_asked asked)
{
	struct verbs_rail *rail = &conn->rails[r];
	struct ibv_send_wr *bad;

	if (rail->state != VERBS_RAIL_WORKS)
		return;
	wr->wr_id = VERBS_SENT;
	int why = ibv_post_send(rail->qp, wr, &bad);
	if (wr->send_flags & IBV_SEND_SIGNALED)
		rail->asked.of[rail->asked.end++ % VERBS_ASKED] = asked;
	if (why != 0)
		verbs_rail_lost(conn, r, TUTTI_ERR_DEVICE,
				"rank %d cannot send to rank %d any more (verbs, channel %d; "
				"ibv_post_send): %s",
				verbs_endpoint_of(conn)->rank, conn->base.peer, conn->base.channel,
				strerror(why));
}

bool verbs_has_frames(const struct verbs_conn *conn, uint32_t spare)
{
	return conn->frames - conn->frames_acked + spare < VERBS_SENDS;
}

uint8_t *verbs_frame_at(const struct verbs_conn *conn, uint32_t number)
{
	return conn->memory.sends + (size_t)(number % VERBS_SENDS) * conn->memory.slot_bytes;
}

/* That of number; it has so many bytes of payload. */
static void verbs_transmit(struct verbs_conn *conn, uint32_t number, uint32_t bytes,
			   bool is_signaled)
{
	const struct verbs_rail *rail = &conn->rails[conn->frame_rail];
	struct verbs_asked asked = {.is_frame = true, .frame = number + 1};
	const uint8_t *at = verbs_frame_at(conn, number);
	struct verbs_frame frame;
	struct ibv_sge place = {.addr = (uintptr_t)at,
				.length = bytes + (uint32_t)sizeof frame,
				.lkey = rail->local->lkey};
	struct ibv_send_wr wr = {.sg_list = &place,
				 .num_sge = 1,
				 .opcode = IBV_WR_SEND,
				 .send_flags = is_signaled ? IBV_SEND_SIGNALED : 0};

	memcpy(&frame, at, sizeof frame);
	asked.is_piece = frame.kind == VERBS_PIECE;
	asked.piece = frame.number;
	if (place.length <= rail->inline_bytes)
		wr.send_flags |= IBV_SEND_INLINE;
	verbs_post(conn, conn->frame_rail, &wr, asked);
}

void verbs_post_frame(struct verbs_conn *conn, struct verbs_frame frame, uint32_t bytes)
{
	uint32_t number = conn->frames++;

	frame.slots = (uint16_t)conn->due.slots;
	frame.chunks = (uint16_t)conn->due.chunks;
	conn->due.slots = conn->due.chunks = 0;
	memcpy(verbs_frame_at(conn, number), &frame, sizeof frame);
	verbs_transmit(conn, number, bytes,
		       conn->frames % VERBS_SIGNAL == 0 || frame.kind == VERBS_BYE ||
			       frame.kind == VERBS_BULK || frame.kind == VERBS_ASKS ||
			       frame.kind == VERBS_PIECE);
}

void verbs_send_frame_again(struct verbs_conn *conn, uint32_t number)
{
	struct verbs_frame frame;
	uint32_t bytes = 0;

	memcpy(&frame, verbs_frame_at(conn, number), sizeof frame);
	if (frame.kind == VERBS_DATA)
		bytes = (uint32_t)frame.bytes;
	else if (frame.kind == VERBS_GRANT || frame.kind == VERBS_OWED)
		bytes = sizeof(struct verbs_grant);
	verbs_transmit(conn, number, bytes, true);
}

void verbs_send_credit(struct verbs_conn *conn)
{
	if (conn->state == VERBS_OPEN && !conn->failing && verbs_owes_credit(conn) &&
	    verbs_has_frames(conn, 1))
		verbs_post_frame(conn, (struct verbs_frame){.kind = VERBS_CREDIT}, 0);
}

/* The keys of memory that all rails may write into. */
static bool find_keys(const struct verbs_conn *conn, const struct tutti_io *io,
		      uint32_t remote[VERBS_RAILS])
{
	for (int r = 0; r < conn->rail_count; r++) {
		struct verbs_keys keys;
		if (!verbs_keys_of(conn, r, io->map, io->buf, io->bytes, &keys))
			return false;
		remote[r] = keys.remote;
	}
	return true;
}

static void post_grant(struct verbs_conn *conn, const struct tutti_io *io, uint32_t number,
		       enum verbs_kind kind)
{
	struct verbs_grant grant = {.at = (uintptr_t)io->buf, .bytes = io->bytes, .number = number};

	grant.is_chunks = io->pieces || !find_keys(conn, io, grant.keys);
	if (grant.is_chunks && kind == VERBS_GRANT && !io->asks)
		return;
	conn->slots -= kind == VERBS_GRANT;
	conn->granted.of[number % VERBS_GRANTS] = number + 1;
	if (!grant.is_chunks && (int32_t)(number + 1 - conn->granted.end) > 0)
		conn->granted.end = number + 1;
	memcpy(verbs_frame_at(conn, conn->frames) + sizeof(struct verbs_frame), &grant,
	       sizeof grant);
	verbs_post_frame(conn, (struct verbs_frame){.kind = (uint16_t)kind}, sizeof grant);
}

/* Only where it costs no message its slot. The peer keeps VERBS_GRANTS, that of the message which
 * is on its way among them. */
void verbs_send_grant(struct verbs_conn *conn, const struct tutti_io *io, uint32_t number)
{
	bool is_long = io->bytes > verbs_payload_most(conn) || verbs_asks(io);

	if (conn->state == VERBS_OPEN && !conn->failing && (!io->pieces || io->asks) && is_long &&
	    number - verbs_first_received(conn) < VERBS_GRANTS && conn->slots > VERBS_SLOTS / 2 &&
	    verbs_has_frames(conn, VERBS_SPARE))
		post_grant(conn, io, number, VERBS_GRANT);
}

/* One at a time: the peer has taken it when it sends the message. */
void verbs_send_owed_grant(struct verbs_conn *conn)
{
	uint32_t number = verbs_first_received(conn);
	const struct tutti_io *io = conn->recvs.head;
	bool is_due =
		io && (verbs_is_mapped(io) || (conn->in_payload[1] && conn->granted.is_asked));

	if (is_due && conn->granted.of[number % VERBS_GRANTS] != number + 1 &&
	    conn->state == VERBS_OPEN && !conn->failing && verbs_has_frames(conn, 1))
		post_grant(conn, io, number, VERBS_OWED);
}

void verbs_send_bye(struct verbs_conn *conn)
{
	conn->has_said_bye = true;
	verbs_post_frame(conn, (struct verbs_frame){.kind = VERBS_BYE, .number = conn->pieces}, 0);
}
