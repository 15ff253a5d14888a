/* Arrived messages into posted receives, in the order of arrival, which is that of the sends. */
#include "transport/verbs/verbs.h"

#include <string.h>

bool verbs_can_receive(const struct verbs_conn *conn)
{
	if (!conn->recvs.head)
		return false;
	if (conn->in_payload[1])
		return conn->pieces_in.of[conn->pieces_in.first % VERBS_CHUNKS].is_here;
	return conn->arrived.first != conn->arrived.end;
}

static void verbs_finish_if_whole(struct verbs_conn *conn, struct tutti_io *io)
{
	if (io->moved < io->bytes)
		return;
	conn->in_payload[1] = false;
	verbs_conn_complete(conn, &conn->recvs, TUTTI_OK);
}

static void verbs_receive_damaged(struct verbs_conn *conn)
{
	verbs_conn_fail(conn, TUTTI_ERR_INTERNAL,
			"rank %d (verbs, channel %d) sends to rank %d what does not belong to its "
			"message",
			conn->base.peer, conn->base.channel, verbs_endpoint_of(conn)->rank);
}

static void receive_piece(struct verbs_conn *conn, struct tutti_io *io)
{
	uint32_t at = conn->pieces_in.first % VERBS_CHUNKS;
	struct verbs_piece *piece = &conn->pieces_in.of[at];
	struct verbs_memory *m = &conn->memory;

	if (piece->bytes > io->bytes - io->moved || (verbs_is_mapped(io) && !piece->is_placed)) {
		verbs_receive_damaged(conn);
		return;
	}
	if (piece->is_placed)
		tutti_io_moved(io, piece->bytes);
	else
		tutti_io_copy_in(io, m->chunks_in + (size_t)at * m->chunk_bytes, piece->bytes);
	piece->is_here = false;
	conn->pieces_in.first++;
	conn->due.chunks++;
	verbs_finish_if_whole(conn, io);
}

static void receive_frame(struct verbs_conn *conn, struct tutti_io *io,
			  const struct verbs_arrival *arrival)
{
	const uint8_t *at = verbs_slot(conn, arrival->rail, arrival->slot);
	struct verbs_frame frame;

	memcpy(&frame, at, sizeof frame);
	size_t payload = arrival->bytes - sizeof frame;
	if (frame.number != conn->received ||
	    (payload != frame.bytes && frame.kind == VERBS_DATA)) {
		verbs_receive_damaged(conn);
		return;
	}
	conn->received++;
	if (frame.bytes != io->bytes || frame.tag != io->tag) {
		verbs_conn_fail(conn, TUTTI_ERR_MISMATCH,
				"rank %d sent %llu bytes (tag %#x) where rank %d expects %zu bytes "
				"(tag %#x; verbs, channel %d, message %u): the ranks did not make "
				"the same calls",
				conn->base.peer, (unsigned long long)frame.bytes, frame.tag,
				verbs_endpoint_of(conn)->rank, io->bytes, io->tag,
				conn->base.channel, frame.number);
		return;
	}
	if (frame.kind != VERBS_ASKS && verbs_is_mapped(io)) {
		verbs_conn_fail(
			conn, TUTTI_ERR_MISMATCH,
			"rank %d sends %zu bytes from host memory where rank %d receives into "
			"device memory (verbs, channel %d, message %u): the ranks of a call "
			"pass the same kind of memory",
			conn->base.peer, io->bytes, verbs_endpoint_of(conn)->rank,
			conn->base.channel, frame.number);
		return;
	}
	if (frame.kind == VERBS_DATA)
		tutti_io_copy_in(io, at + sizeof frame, payload);
	verbs_post_receive(conn, arrival->rail, arrival->slot);
	conn->due.slots++;
	conn->in_payload[1] = frame.kind != VERBS_DATA;
	conn->granted.is_asked = frame.kind == VERBS_ASKS;
	if (frame.kind == VERBS_DATA)
		verbs_finish_if_whole(conn, io);
}

bool verbs_receive_some(struct verbs_conn *conn)
{
	bool is_moving = false;

	while (verbs_can_receive(conn) && conn->state != VERBS_FAILED) {
		if (conn->in_payload[1])
			receive_piece(conn, conn->recvs.head);
		else
			receive_frame(
				conn, conn->recvs.head,
				&conn->arrived.arrivals[conn->arrived.first++ % VERBS_ARRIVALS]);
		is_moving = true;
	}
	return is_moving;
}
