/* Blocks that have arrived into posted receives, in the order in which they were sent. */
#include "transport/ucx/ucx.h"

#include <string.h>

bool ucx_can_receive(const struct ucx_conn *conn)
{
	return conn->recvs.head && conn->next != conn->arrived;
}

/* Whether the next block belongs to io. If not, the conn has failed. */
static bool is_for(struct ucx_conn *conn, const struct tutti_io *io,
		   const struct ucx_arrival *arrival)
{
	const struct ucx_header *header = &arrival->header;
	int rank = ucx_endpoint_of(conn)->rank;

	if (header->bytes != io->bytes || header->tag != io->tag) {
		ucx_conn_fail(conn, TUTTI_ERR_MISMATCH,
			      "rank %d sent %llu bytes (tag %#x) where rank %d expects %zu bytes "
			      "(tag %#x; ucx, channel %d): the ranks did not make the same calls",
			      conn->base.peer, (unsigned long long)header->bytes, header->tag, rank,
			      io->bytes, io->tag, conn->base.channel);
		return false;
	}
	if (header->offset != io->moved || arrival->bytes > io->bytes - io->moved ||
	    (arrival->bytes == 0 && io->bytes > 0)) {
		ucx_conn_fail(conn, TUTTI_ERR_INTERNAL,
			      "rank %d (ucx, channel %d) sends to rank %d what does not belong to "
			      "its message",
			      conn->base.peer, conn->base.channel, rank);
		return false;
	}
	return true;
}

/* False: no stage is free. */
static bool fetch_bulk(struct ucx_conn *conn, struct tutti_io *io,
		       const struct ucx_arrival *arrival, struct ucx_fetch *fetch)
{
	size_t here;
	void *to = tutti_io_here(io, &here);

	fetch->stage = -1;
	if (here < arrival->bytes) {
		fetch->stage = ucx_stage_take(conn, 1);
		if (fetch->stage < 0)
			return false;
		to = ucx_stage_at(conn, 1, fetch->stage);
	}
	fetch->at = *io;
	tutti_io_moved(io, arrival->bytes);
	ucx_wire_fetch(conn, fetch, arrival->desc, to);
	return true;
}

/* False: it has to wait, or the conn has failed. */
static bool receive_block(struct ucx_conn *conn, struct tutti_io *io)
{
	uint32_t place = conn->next % UCX_WINDOW;
	struct ucx_arrival *arrival = &conn->arrivals[place];
	struct ucx_fetch *fetch = &conn->fetches[place];
	bool is_bulk = arrival->desc != NULL;

	if (!is_for(conn, io, arrival))
		return false;
	if (is_bulk && !conn->wire.worker) {
		ucx_conn_fail(conn, conn->ended.status, "%s", conn->ended.error);
		return false;
	}
	*fetch = (struct ucx_fetch){
		.conn = conn, .bytes = arrival->bytes, .is_done = !is_bulk, .stage = -1};
	if (!is_bulk)
		tutti_io_copy_in(io, conn->eager_in + (size_t)place * UCX_EAGER, arrival->bytes);
	else if (!fetch_bulk(conn, io, arrival, fetch))
		return false;
	arrival->is_here = false;
	conn->next++;
	if (io->moved < io->bytes)
		return true;
	tutti_done_pop(&conn->recvs);
	io->in_piece = conn->next;
	io->piece = is_bulk;
	tutti_done_push(&conn->receiving, io, TUTTI_IN_PROGRESS);
	return true;
}

static bool finish_receives(struct ucx_conn *conn)
{
	bool is_moving = false;

	for (; conn->got != conn->next && conn->fetches[conn->got % UCX_WINDOW].is_done;
	     conn->got++) {
		struct ucx_fetch *fetch = &conn->fetches[conn->got % UCX_WINDOW];
		if (fetch->stage >= 0) {
			tutti_io_copy_in(&fetch->at, ucx_stage_at(conn, 1, fetch->stage),
					 fetch->bytes);
			conn->stages[1].used[fetch->stage] = false;
		}
		is_moving = true;
	}
	for (struct tutti_io *io; (io = conn->receiving.head); is_moving = true) {
		uint32_t end = (uint32_t)io->in_piece;
		if (!ucx_reached(conn->got, end) ||
		    (io->piece && !ucx_reached(conn->peer.committed, end)))
			break;
		ucx_conn_complete(conn, &conn->receiving, TUTTI_OK);
	}
	return is_moving;
}

bool ucx_receive_some(struct ucx_conn *conn)
{
	bool is_moving = finish_receives(conn);

	while (ucx_can_receive(conn) && conn->wire.broken == UCS_OK &&
	       receive_block(conn, conn->recvs.head))
		is_moving = true;
	if (conn->state != UCX_FAILED)
		is_moving |= finish_receives(conn);
	return is_moving;
}
