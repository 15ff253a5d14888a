/* Posted sends: short messages into frames, long ones into pieces. What is on its way lies in
 * memory of the conn, so a send is done when its bytes have been copied there. */
#include "transport/verbs/verbs.h"

#include <arpa/inet.h>
#include <string.h>

/* Frames that messages leave to CREDIT and BYE. */
#define SENDS_SPARE 8u

static void post(struct verbs_conn *conn, struct ibv_send_wr *wr)
{
	struct ibv_send_wr *bad;
	int why = ibv_post_send(conn->qp, wr, &bad);

	if (wr->send_flags & IBV_SEND_SIGNALED)
		conn->asked.marks[conn->asked.end++ % VERBS_MARKS] =
			(struct verbs_mark){conn->frames, conn->pieces};
	if (why != 0)
		verbs_conn_end(conn, TUTTI_ERR_DEVICE,
			       "rank %d cannot send to rank %d any more (verbs, channel %d; "
			       "ibv_post_send): %s",
			       verbs_endpoint_of(conn)->rank, conn->base.peer, conn->base.channel,
			       strerror(why));
}

static bool has_frames(const struct verbs_conn *conn, uint32_t spare)
{
	return conn->frames - conn->frames_acked + spare < VERBS_SENDS;
}

/* The payload of so many bytes already lies behind where the frame goes. */
static void post_frame(struct verbs_conn *conn, struct verbs_frame frame, uint32_t bytes)
{
	struct verbs_memory *m = &conn->memory;
	uint8_t *at = m->sends + (size_t)(conn->frames % VERBS_SENDS) * m->slot_bytes;
	struct ibv_sge place = {.addr = (uintptr_t)at,
				.length = bytes + (uint32_t)sizeof frame,
				.lkey = m->local->lkey};
	struct ibv_send_wr wr = {.sg_list = &place, .num_sge = 1, .opcode = IBV_WR_SEND};

	frame.slots = (uint16_t)conn->due.slots;
	frame.chunks = (uint16_t)conn->due.chunks;
	conn->due.slots = conn->due.chunks = 0;
	memcpy(at, &frame, sizeof frame);
	conn->frames++;
	if (place.length <= conn->inline_bytes)
		wr.send_flags |= IBV_SEND_INLINE;
	if (conn->frames % VERBS_SIGNAL == 0 || frame.kind == VERBS_BYE ||
	    frame.kind == VERBS_BULK || frame.kind == VERBS_PIECE)
		wr.send_flags |= IBV_SEND_SIGNALED;
	post(conn, &wr);
}

static void gather(uint8_t *to, struct tutti_io *io, size_t bytes)
{
	while (bytes > 0) {
		size_t here;
		const void *from = tutti_io_here(io, &here);
		size_t n = here < bytes ? here : bytes;
		memcpy(to, from, n);
		tutti_io_moved(io, n);
		to += n;
		bytes -= n;
	}
}

/* The first send's bytes are all on their way. Its buffer is free when the device does not read it,
 * and its turn has come. */
static void finish_send(struct verbs_conn *conn)
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
static void send_frame(struct verbs_conn *conn, struct tutti_io *io)
{
	struct verbs_memory *m = &conn->memory;
	uint8_t *at = m->sends + (size_t)(conn->frames % VERBS_SENDS) * m->slot_bytes;
	bool is_short = io->bytes <= verbs_payload_most(conn);
	struct verbs_frame frame = {.bytes = io->bytes,
				    .tag = io->tag,
				    .number = conn->sent++,
				    .kind = is_short ? VERBS_DATA : VERBS_BULK};

	conn->slots--;
	if (is_short)
		gather(at + sizeof frame, io, io->bytes);
	post_frame(conn, frame, is_short ? (uint32_t)io->bytes : 0);
	if (is_short)
		finish_send(conn);
	else
		conn->in_payload[0] = true;
}

/* A write into memory of the peer, and what tells the peer: immediate data, or a frame. The latter
 * completes: before it, the peer does not know that it has the piece. */
static void post_piece(struct verbs_conn *conn, struct ibv_sge from, uint64_t to, uint32_t key,
		       bool is_placed)
{
	uint32_t number = (conn->pieces++ & VERBS_NUMBER_BITS) | (is_placed ? VERBS_IS_PLACED : 0);
	struct ibv_send_wr wr = {.sg_list = &from,
				 .num_sge = 1,
				 .opcode = IBV_WR_RDMA_WRITE_WITH_IMM,
				 .send_flags = IBV_SEND_SIGNALED,
				 .imm_data = htonl(number),
				 .wr.rdma = {.remote_addr = to, .rkey = key}};

	conn->chunks--;
	if (!conn->port->device->has_immediate) {
		wr.opcode = IBV_WR_RDMA_WRITE;
		wr.send_flags = 0;
	}
	post(conn, &wr);
	if (!conn->port->device->has_immediate)
		post_frame(conn,
			   (struct verbs_frame){
				   .bytes = from.length, .number = number, .kind = VERBS_PIECE},
			   0);
}

/* Of the message that is being sent; NULL: the peer's receive is not posted, or not registered, or
 * of another size. */
static const struct verbs_grant *grant_for(const struct verbs_conn *conn, const struct tutti_io *io)
{
	uint32_t number = conn->sent - 1;
	const struct verbs_grant *grant = &conn->grants[number % VERBS_GRANTS];

	return grant->bytes == io->bytes && grant->number == number ? grant : NULL;
}

/* The next bytes of io where they lie, if the device may read them there. Not while sends that are
 * done have bytes on their way: closing would stop both. */
static bool take_in_place(struct verbs_conn *conn, struct tutti_io *io, size_t most,
			  struct ibv_sge *from)
{
	size_t here, left = io->bytes - io->moved, least = most < left ? most : left;
	void *at = tutti_io_here(io, &here);
	struct verbs_keys keys;

	if (here < least || verbs_conn_owes(conn) ||
	    !verbs_registered_find(conn->port->device, at, least, &keys))
		return false;
	*from = (struct ibv_sge){(uintptr_t)at, (uint32_t)least, keys.local};
	tutti_io_moved(io, least);
	conn->in_place = true;
	return true;
}

static void take_copy(struct verbs_conn *conn, struct tutti_io *io, struct ibv_sge *from)
{
	struct verbs_memory *m = &conn->memory;
	uint8_t *chunk = m->chunks_out + (size_t)(conn->pieces % VERBS_CHUNKS) * m->chunk_bytes;
	size_t left = io->bytes - io->moved;
	size_t bytes = left < m->chunk_bytes ? left : m->chunk_bytes;

	gather(chunk, io, bytes);
	*from = (struct ibv_sge){(uintptr_t)chunk, (uint32_t)bytes, m->local->lkey};
}

static void send_piece(struct verbs_conn *conn, struct tutti_io *io)
{
	const struct verbs_grant *grant = grant_for(conn, io);
	uint64_t chunk = conn->peer.chunks_at +
			 (uint64_t)(conn->pieces % VERBS_CHUNKS) * conn->memory.chunk_bytes;
	uint64_t to = grant ? grant->at + io->moved : chunk;
	struct ibv_sge from;

	if (!take_in_place(conn, io, grant ? VERBS_IN_PLACE : conn->memory.chunk_bytes, &from))
		take_copy(conn, io, &from);
	post_piece(conn, from, to, grant ? grant->key : conn->peer.chunks_key, grant != NULL);
	if (io->moved < io->bytes)
		return;
	conn->in_payload[0] = false;
	finish_send(conn);
}

static bool can_send(const struct verbs_conn *conn)
{
	if (!has_frames(conn, SENDS_SPARE))
		return false;
	if (!conn->in_payload[0])
		return conn->slots > 0;
	return conn->chunks > 0 && conn->pieces - conn->pieces_acked < VERBS_CHUNKS;
}

/* At most what the peer has room for, so that other conns get their turn. */
bool verbs_send_some(struct verbs_conn *conn)
{
	bool is_moving = false;

	while (conn->sends.head && conn->state == VERBS_OPEN && can_send(conn)) {
		if (conn->in_payload[0])
			send_piece(conn, conn->sends.head);
		else
			send_frame(conn, conn->sends.head);
		is_moving = true;
	}
	return is_moving;
}

void verbs_send_credit(struct verbs_conn *conn)
{
	if (conn->state == VERBS_OPEN && verbs_owes_credit(conn) && has_frames(conn, 1))
		post_frame(conn, (struct verbs_frame){.kind = VERBS_CREDIT}, 0);
}

/* Only where it costs no message its slot. */
void verbs_send_grant(struct verbs_conn *conn, const struct tutti_io *io, uint32_t number)
{
	struct verbs_grant grant = {(uintptr_t)io->buf, io->bytes, 0, number};
	struct verbs_memory *m = &conn->memory;
	struct verbs_keys keys;

	if (conn->state != VERBS_OPEN || io->pieces || io->bytes <= verbs_payload_most(conn) ||
	    number - conn->received >= VERBS_GRANTS || conn->slots <= VERBS_SLOTS / 2 ||
	    !has_frames(conn, SENDS_SPARE) ||
	    !verbs_registered_find(conn->port->device, io->buf, io->bytes, &keys))
		return;
	grant.key = keys.remote;
	conn->slots--;
	conn->granted = number + 1;
	memcpy(m->sends + (size_t)(conn->frames % VERBS_SENDS) * m->slot_bytes +
		       sizeof(struct verbs_frame),
	       &grant, sizeof grant);
	post_frame(conn, (struct verbs_frame){.kind = VERBS_GRANT}, sizeof grant);
}

void verbs_send_bye(struct verbs_conn *conn)
{
	post_frame(conn, (struct verbs_frame){.kind = VERBS_BYE}, 0);
}
