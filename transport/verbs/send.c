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

	frame.slots = (uint16_t)conn->due_slots;
	frame.chunks = (uint16_t)conn->due_chunks;
	conn->due_slots = conn->due_chunks = 0;
	memcpy(at, &frame, sizeof frame);
	conn->frames++;
	if (place.length <= conn->inline_bytes)
		wr.send_flags |= IBV_SEND_INLINE;
	if (conn->frames % VERBS_SIGNAL == 0 || frame.kind == VERBS_BYE)
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
		verbs_conn_complete(conn, &conn->sends, TUTTI_OK);
	else
		conn->in_payload[0] = true;
}

/* A write into the peer's chunk, and what tells the peer: immediate data, or a frame. */
static void post_piece(struct verbs_conn *conn, const uint8_t *chunk, uint32_t bytes)
{
	uint32_t number = conn->pieces++;
	struct ibv_sge place = {
		.addr = (uintptr_t)chunk, .length = bytes, .lkey = conn->memory.local->lkey};
	struct ibv_send_wr wr = {.sg_list = &place,
				 .num_sge = 1,
				 .opcode = IBV_WR_RDMA_WRITE_WITH_IMM,
				 .send_flags = IBV_SEND_SIGNALED,
				 .imm_data = htonl(number),
				 .wr.rdma = {.remote_addr = conn->peer.chunks_at +
							    (uint64_t)(number % VERBS_CHUNKS) *
								    conn->memory.chunk_bytes,
					     .rkey = conn->peer.chunks_key}};

	conn->chunks--;
	if (!conn->port->device->has_immediate) {
		wr.opcode = IBV_WR_RDMA_WRITE;
		post(conn, &wr);
		post_frame(
			conn,
			(struct verbs_frame){.bytes = bytes, .number = number, .kind = VERBS_PIECE},
			0);
	} else {
		post(conn, &wr);
	}
}

static void send_piece(struct verbs_conn *conn, struct tutti_io *io)
{
	struct verbs_memory *m = &conn->memory;
	uint8_t *chunk = m->chunks_out + (size_t)(conn->pieces % VERBS_CHUNKS) * m->chunk_bytes;
	size_t left = io->bytes - io->moved;
	size_t bytes = left < m->chunk_bytes ? left : m->chunk_bytes;

	gather(chunk, io, bytes);
	post_piece(conn, chunk, (uint32_t)bytes);
	if (io->moved < io->bytes)
		return;
	conn->in_payload[0] = false;
	verbs_conn_complete(conn, &conn->sends, TUTTI_OK);
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

void verbs_send_bye(struct verbs_conn *conn)
{
	post_frame(conn, (struct verbs_frame){.kind = VERBS_BYE}, 0);
}
