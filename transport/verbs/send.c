/* Posted sends: short messages into frames, long ones into pieces. What is on its way lies in
 * memory of the conn, so a send is done when its bytes have been copied there. */
#include "transport/verbs/verbs.h"

#include <arpa/inet.h>
#include <string.h>

/* asked: what the completion says, if there will be one. On a rail that has failed nothing is
 * posted: it is sent again when both ends have counted. */
static void verbs_post(struct verbs_conn *conn, int r, struct ibv_send_wr *wr,
		       struct verbs_asked asked)
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

static bool verbs_has_frames(const struct verbs_conn *conn, uint32_t spare)
{
	return conn->frames - conn->frames_acked + spare < VERBS_SENDS;
}

/* Where the frame of that number goes. */
static uint8_t *verbs_frame_at(const struct verbs_conn *conn, uint32_t number)
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

static void verbs_post_frame(struct verbs_conn *conn, struct verbs_frame frame, uint32_t bytes)
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
static bool verbs_send_find_keys(const struct verbs_conn *conn, const struct tutti_io *io,
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

static void verbs_send_post_grant(struct verbs_conn *conn, const struct tutti_io *io,
				  uint32_t number, enum verbs_kind kind)
{
	struct verbs_grant grant = {.at = (uintptr_t)io->buf, .bytes = io->bytes, .number = number};

	grant.is_chunks = io->pieces || !verbs_send_find_keys(conn, io, grant.keys);
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
		verbs_send_post_grant(conn, io, number, VERBS_GRANT);
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
		verbs_send_post_grant(conn, io, number, VERBS_OWED);
}

void verbs_send_bye(struct verbs_conn *conn)
{
	conn->has_said_bye = true;
	verbs_post_frame(conn, (struct verbs_frame){.kind = VERBS_BYE, .number = conn->pieces}, 0);
}

/* The first send's bytes are all on their way. Its buffer is free when the device does not read it,
 * and its turn has come. */
static void verbs_send_finish_send(struct verbs_conn *conn)
{
	if (!conn->in_place && !conn->unacked.head) {
		verbs_conn_complete(conn, &conn->sends, TUTTI_OK);
		conn->owed = (struct verbs_mark){conn->frames, conn->pieces};
		return;
	}
	struct tutti_io *io = tutti_done_pop(&conn->sends);
	io->moved = conn->frames;
	io->in_piece = conn->pieces;
	tutti_done_push(&conn->unacked, io, TUTTI_IN_PROGRESS);
	conn->in_place = false;
}

/* The message, or what announces it. */
static void verbs_send_frame(struct verbs_conn *conn, struct tutti_io *io)
{
	uint8_t *at = verbs_frame_at(conn, conn->frames);
	bool asks = verbs_asks(io);
	bool is_short = io->bytes <= verbs_payload_most(conn) && !asks;
	struct verbs_frame frame = {.bytes = io->bytes,
				    .tag = io->tag,
				    .number = conn->sent++,
				    .kind = is_short ? VERBS_DATA
					    : asks   ? VERBS_ASKS
						     : VERBS_BULK};

	conn->slots--;
	if (is_short)
		tutti_io_copy_out(io, at + sizeof frame, io->bytes);
	verbs_post_frame(conn, frame, is_short ? (uint32_t)io->bytes : 0);
	if (is_short)
		verbs_send_finish_send(conn);
	else
		conn->in_payload[0] = true;
}

/* The rail with the least on its way: a faster one gets more. */
static int verbs_send_choose_rail(const struct verbs_conn *conn)
{
	int best = conn->frame_rail;

	for (int r = 0; r < conn->rail_count; r++)
		if (conn->rails[r].state == VERBS_RAIL_WORKS &&
		    conn->rails[r].pieces < conn->rails[best].pieces)
			best = r;
	return best;
}

/* The peer's word on a message that is being sent; NULL: its receive is not posted, or not
 * registered, or of another size. */
static const struct verbs_grant *verbs_answer_to(const struct verbs_conn *conn,
						 const struct tutti_io *io)
{
	uint32_t number = conn->sent - 1;
	const struct verbs_grant *grant = &conn->grants[number % VERBS_GRANTS];

	return grant->bytes == io->bytes && grant->number == number ? grant : NULL;
}

static const struct verbs_grant *verbs_send_grant_for(const struct verbs_conn *conn,
						      const struct tutti_io *io)
{
	const struct verbs_grant *grant = verbs_answer_to(conn, io);

	return grant && !grant->is_chunks ? grant : NULL;
}

/* A write into memory of the peer, and what tells the peer: immediate data, or a frame. The latter
 * completes: before it, the peer does not know that it has the piece. */
static void verbs_send_post_piece(struct verbs_conn *conn, uint32_t number,
				  const struct verbs_flight *flight, uint32_t local,
				  uint32_t remote)
{
	struct verbs_rail *rail = &conn->rails[flight->rail];
	uint32_t word = (number & VERBS_NUMBER_BITS) | (flight->is_placed ? VERBS_IS_PLACED : 0);
	struct ibv_sge from = {flight->from, flight->bytes, local};
	struct ibv_send_wr wr = {.sg_list = &from,
				 .num_sge = 1,
				 .opcode = IBV_WR_RDMA_WRITE_WITH_IMM,
				 .send_flags = IBV_SEND_SIGNALED,
				 .imm_data = htonl(word),
				 .wr.rdma = {.remote_addr = flight->to, .rkey = remote}};

	rail->pieces++;
	if (!conn->has_immediate) {
		wr.opcode = IBV_WR_RDMA_WRITE;
		wr.send_flags = 0;
	}
	verbs_post(conn, flight->rail, &wr,
		   (struct verbs_asked){.is_piece = true, .piece = number});
	if (!conn->has_immediate)
		verbs_post_frame(conn,
				 (struct verbs_frame){.bytes = flight->bytes,
						      .number = word,
						      .kind = VERBS_PIECE},
				 0);
}

/* The next bytes of io where they lie, if the device may read them there. Not while sends that are
 * done have bytes on their way: closing would stop both. */
static bool verbs_send_take_in_place(struct verbs_conn *conn, struct tutti_io *io, size_t most,
				     struct verbs_flight *flight, uint32_t *key)
{
	size_t here, left = io->bytes - io->moved, least = most < left ? most : left;
	void *at = tutti_io_here(io, &here);
	struct verbs_keys keys;

	if (io->map && here < least)
		least = here;
	if (here < least || verbs_conn_owes(conn) ||
	    !verbs_keys_of(conn, flight->rail, io->map, at, least, &keys))
		return false;
	flight->map = io->map;
	flight->from = (uintptr_t)at;
	flight->bytes = (uint32_t)least;
	*key = keys.local;
	tutti_io_moved(io, least);
	conn->in_place = true;
	return true;
}

static void verbs_send_take_copy(struct verbs_conn *conn, struct tutti_io *io,
				 struct verbs_flight *flight, uint32_t *key)
{
	struct verbs_memory *m = &conn->memory;
	uint8_t *chunk = m->chunks_out + (size_t)(conn->pieces % VERBS_CHUNKS) * m->chunk_bytes;
	size_t left = io->bytes - io->moved;

	flight->from = (uintptr_t)chunk;
	flight->bytes = (uint32_t)(left < m->chunk_bytes ? left : m->chunk_bytes);
	flight->is_chunk = true;
	*key = conn->rails[flight->rail].local->lkey;
	tutti_io_copy_out(io, chunk, flight->bytes);
}

static void verbs_send_piece(struct verbs_conn *conn, struct tutti_io *io)
{
	const struct verbs_grant *grant = verbs_send_grant_for(conn, io);
	uint32_t number = conn->pieces, local, remote;
	struct verbs_flight *flight = &conn->flights[number % VERBS_CHUNKS];

	*flight = (struct verbs_flight){.rail = (uint8_t)verbs_send_choose_rail(conn),
					.is_placed = grant != NULL};
	remote = grant ? grant->keys[flight->rail] : conn->rails[flight->rail].peer.chunks_key;
	flight->to = grant ? grant->at + io->moved
			   : conn->peer_chunks +
				     (uint64_t)(number % VERBS_CHUNKS) * conn->memory.chunk_bytes;
	flight->message = conn->sent - 1;
	if (!verbs_send_take_in_place(conn, io, grant ? VERBS_IN_PLACE : conn->memory.chunk_bytes,
				      flight, &local))
		verbs_send_take_copy(conn, io, flight, &local);
	conn->pieces++;
	conn->chunks--;
	verbs_send_post_piece(conn, number, flight, local, remote);
	if (io->moved < io->bytes)
		return;
	conn->in_payload[0] = false;
	verbs_send_finish_send(conn);
}

/* Its keys are those of another rail now. */
void verbs_send_piece_again(struct verbs_conn *conn, uint32_t number)
{
	struct verbs_flight *flight = &conn->flights[number % VERBS_CHUNKS];
	struct verbs_keys keys = {0};

	flight->rail = (uint8_t)verbs_send_choose_rail(conn);
	const struct verbs_rail *rail = &conn->rails[flight->rail];
	if (flight->is_chunk)
		keys.local = rail->local->lkey;
	else
		verbs_keys_of(conn, flight->rail, flight->map,
			      (const void *)(uintptr_t)flight->from, flight->bytes, &keys);
	keys.remote = flight->is_placed
			      ? conn->grants[flight->message % VERBS_GRANTS].keys[flight->rail]
			      : rail->peer.chunks_key;
	verbs_send_post_piece(conn, number, flight, keys.local, keys.remote);
}

static bool verbs_can_send(const struct verbs_conn *conn)
{
	if (conn->failing || !verbs_has_frames(conn, VERBS_SPARE))
		return false;
	if (!conn->in_payload[0])
		return conn->slots > 0;
	const struct tutti_io *io = conn->sends.head;
	if (verbs_asks(io) && !verbs_answer_to(conn, io))
		return false;
	if (verbs_is_mapped(io) && verbs_conn_owes(conn))
		return false;
	return conn->chunks > 0 && conn->pieces - conn->pieces_acked < VERBS_CHUNKS;
}

/* At most what the peer has room for, so that other conns get their turn. */
bool verbs_send_some(struct verbs_conn *conn)
{
	bool is_moving = false;

	while (conn->sends.head && conn->state == VERBS_OPEN && verbs_can_send(conn)) {
		if (conn->in_payload[0])
			verbs_send_piece(conn, conn->sends.head);
		else
			verbs_send_frame(conn, conn->sends.head);
		is_moving = true;
	}
	return is_moving;
}
