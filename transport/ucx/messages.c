/* Posted sends into blocks, and blocks into posted receives. A short message is copied into memory
 * of the conn, and its send is done at once; UCX reads the blocks of a long one where they lie. */
#include "transport/ucx/ucx.h"

#include <string.h>

/* Blocks that have arrived into posted receives, in the order in which they were sent. */

bool ucx_can_receive(const struct ucx_conn *conn)
{
	return conn->recvs.head && conn->next != conn->arrived;
}

/* Whether the next block belongs to io. If not, the conn has failed. */
static bool ucx_messages_is_for(struct ucx_conn *conn, const struct tutti_io *io,
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
static bool ucx_messages_fetch_bulk(struct ucx_conn *conn, struct tutti_io *io,
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
static bool ucx_messages_receive_block(struct ucx_conn *conn, struct tutti_io *io)
{
	uint32_t place = conn->next % UCX_WINDOW;
	struct ucx_arrival *arrival = &conn->arrivals[place];
	struct ucx_fetch *fetch = &conn->fetches[place];
	bool is_bulk = arrival->desc != NULL;

	if (!ucx_messages_is_for(conn, io, arrival))
		return false;
	if (is_bulk && !conn->wire.worker) {
		ucx_conn_fail(conn, conn->ended.status, "%s", conn->ended.error);
		return false;
	}
	*fetch = (struct ucx_fetch){
		.conn = conn, .bytes = arrival->bytes, .is_done = !is_bulk, .stage = -1};
	if (!is_bulk)
		tutti_io_copy_in(io, conn->eager_in + (size_t)place * UCX_EAGER, arrival->bytes);
	else if (!ucx_messages_fetch_bulk(conn, io, arrival, fetch))
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

static bool ucx_messages_finish_receives(struct ucx_conn *conn)
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
	bool is_moving = ucx_messages_finish_receives(conn);

	while (ucx_can_receive(conn) && conn->wire.broken == UCS_OK &&
	       ucx_messages_receive_block(conn, conn->recvs.head))
		is_moving = true;
	if (conn->state != UCX_FAILED)
		is_moving |= ucx_messages_finish_receives(conn);
	return is_moving;
}

bool ucx_owes(const struct ucx_conn *conn)
{
	return !ucx_reached(conn->peer.arrived, conn->ends.eager);
}

bool ucx_is_in_doubt(const struct ucx_conn *conn)
{
	return conn->state == UCX_OPEN && !conn->is_active && ucx_owes(conn);
}

static void ucx_tell(struct ucx_conn *conn, struct ucx_header *header)
{
	header->got = conn->told.got = conn->got;
	header->arrived = conn->told.arrived = conn->arrived;
	header->committed = conn->told.committed = conn->completed;
	conn->owes_ack = false;
	conn->eager_bytes = 0;
}

bool ucx_owes_notice(const struct ucx_conn *conn)
{
	return conn->got - conn->told.got >= UCX_WINDOW / 2 || conn->owes_ack ||
	       conn->eager_bytes >= UCX_OUTSTANDING / 4 ||
	       !ucx_reached(conn->told.committed, conn->ends.completed);
}

static void ucx_messages_send_notice(struct ucx_conn *conn, bool wants_ack)
{
	conn->notice.conn = conn;
	conn->notice.header = (struct ucx_header){.kind = UCX_NOTICE, .wants_ack = wants_ack};
	ucx_tell(conn, &conn->notice.header);
	ucx_wire_send(conn, &conn->notice, NULL, 0);
}

void ucx_send_greeting(struct ucx_conn *conn)
{
	ucx_messages_send_notice(conn, false);
}

/* Tells the peer what it waits for, where no message does. */
static void ucx_send_notice(struct ucx_conn *conn)
{
	if (conn->state == UCX_OPEN && conn->wire.broken == UCS_OK && !conn->notice.is_busy &&
	    ucx_owes_notice(conn))
		ucx_messages_send_notice(conn, false);
}

/* The next block's bytes: where they lie when they lie together, else in a stage. False: no stage
 * is free. */
static bool ucx_messages_take_bulk(struct ucx_conn *conn, struct tutti_io *io,
				   struct ucx_slot *slot, const uint8_t **at, size_t *bytes)
{
	size_t here, left = io->bytes - io->moved;

	*at = tutti_io_here(io, &here);
	*bytes = left < UCX_BLOCK ? left : UCX_BLOCK;
	slot->stage = -1;
	if (here >= *bytes || here >= UCX_DIRECT) {
		*bytes = here < *bytes ? here : *bytes;
		tutti_io_moved(io, *bytes);
		return true;
	}
	slot->stage = ucx_stage_take(conn, 0);
	if (slot->stage < 0)
		return false;
	uint8_t *stage = ucx_stage_at(conn, 0, slot->stage);
	tutti_io_copy_out(io, stage, *bytes);
	*at = stage;
	return true;
}

/* Bytes of eager blocks of which the peer has not said that they have come. */
static size_t ucx_outstanding(struct ucx_conn *conn)
{
	for (; conn->outstanding.from != conn->sent &&
	       ucx_reached(conn->peer.arrived, conn->outstanding.from + 1);
	     conn->outstanding.from++) {
		const struct ucx_slot *slot = &conn->slots[conn->outstanding.from % UCX_WINDOW];
		if (!slot->is_bulk)
			conn->outstanding.bytes -= (size_t)slot->header.bytes;
	}
	return conn->outstanding.bytes;
}

static bool ucx_messages_send_block(struct ucx_conn *conn, struct tutti_io *io)
{
	uint32_t place = conn->sent % UCX_WINDOW;
	struct ucx_slot *slot = &conn->slots[place];
	uint8_t *copy = conn->eager_out + (size_t)place * UCX_EAGER;
	const uint8_t *at = copy;
	size_t bytes = io->bytes;
	bool is_bulk = io->bytes > UCX_EAGER;

	ucx_outstanding(conn); /* reads the slots that have arrived */
	*slot = (struct ucx_slot){.conn = conn,
				  .header = {.bytes = io->bytes,
					     .offset = io->moved,
					     .tag = io->tag,
					     .number = conn->sent,
					     .kind = UCX_DATA},
				  .is_bulk = is_bulk,
				  .stage = -1};
	if (!is_bulk)
		tutti_io_copy_out(io, copy, bytes);
	else if (!ucx_messages_take_bulk(conn, io, slot, &at, &bytes))
		return false;
	ucx_tell(conn, &slot->header);
	conn->sent++;
	if (!is_bulk)
		conn->outstanding.bytes += bytes;
	*(is_bulk ? &conn->ends.bulk : &conn->ends.eager) = conn->sent;
	ucx_wire_send(conn, slot, at, bytes);
	if (io->moved < io->bytes)
		return true;
	tutti_done_pop(&conn->sends);
	io->in_piece = conn->sent;
	tutti_done_push(&conn->sending, io, TUTTI_IN_PROGRESS);
	return true;
}

/* A send is done when the rank may leave the library for long. So where UCX has read the caller's
 * buffer, what tells the peer that this was in time has gone out. */
static void ucx_messages_finish_sends(struct ucx_conn *conn)
{
	for (struct tutti_io *io; (io = conn->sending.head);) {
		uint32_t end = (uint32_t)io->in_piece;
		if (!ucx_reached(conn->completed, end) ||
		    (io->bytes > UCX_EAGER &&
		     (conn->busy_small > 0 || !ucx_reached(conn->told.committed, end))))
			return;
		ucx_conn_complete(conn, &conn->sending, TUTTI_OK);
	}
}

static bool ucx_messages_finish_blocks(struct ucx_conn *conn)
{
	bool is_moving = false;

	for (; conn->completed != conn->sent; is_moving = true) {
		struct ucx_slot *slot = &conn->slots[conn->completed % UCX_WINDOW];
		if (!slot->is_complete)
			break;
		if (slot->stage >= 0)
			conn->stages[0].used[slot->stage] = false;
		conn->completed++;
		if (slot->is_bulk)
			conn->ends.completed = conn->completed;
	}
	return is_moving;
}

/* UCX reads no buffer of the caller while sends that are done may not have arrived: closing would
 * have to end both at once. */
static bool ucx_messages_may_start(struct ucx_conn *conn, const struct tutti_io *io)
{
	if (conn->sent - conn->peer.got >= UCX_WINDOW ||
	    conn->slots[conn->sent % UCX_WINDOW].is_busy)
		return false;
	if (io->bytes <= UCX_EAGER ? ucx_outstanding(conn) + io->bytes <= UCX_OUTSTANDING
				   : !ucx_owes(conn))
		return true;
	if (!conn->has_asked && !conn->notice.is_busy) {
		conn->has_asked = true;
		ucx_messages_send_notice(conn, true);
	}
	return false;
}

bool ucx_send_some(struct ucx_conn *conn)
{
	bool is_moving = ucx_messages_finish_blocks(conn);

	while (conn->sends.head && conn->state == UCX_OPEN && conn->wire.broken == UCS_OK &&
	       ucx_messages_may_start(conn, conn->sends.head) &&
	       ucx_messages_send_block(conn, conn->sends.head)) {
		conn->has_asked = false;
		is_moving = true;
	}
	if (conn->state != UCX_OPEN)
		return is_moving;
	is_moving |= ucx_messages_finish_blocks(conn);
	ucx_send_notice(conn);
	ucx_messages_finish_sends(conn);
	return is_moving;
}
