/* A connection: what is posted on it, and how it moves. */
#include "transport/ucx/ucx.h"

/* Messages that have arrived are received first. While the conn waits for receives of the caller,
 * sends end well: one that completes says no more than that its buffer is free. */
static bool ucx_move_ended(struct ucx_conn *conn)
{
	bool is_moving = ucx_receive_some(conn);

	if (conn->state == UCX_FAILED)
		return true;
	if (conn->recvs.head || conn->receiving.head || conn->next == conn->arrived) {
		ucx_conn_fail(conn, conn->ended.status, "%s", conn->ended.error);
		return true;
	}
	for (; conn->sending.head; is_moving = true)
		ucx_conn_complete(conn, &conn->sending, TUTTI_OK);
	for (; conn->sends.head; is_moving = true)
		ucx_conn_complete(conn, &conn->sends, TUTTI_OK);
	return is_moving;
}

/* UCX has lost the peer. oob gets one more pass to say it better. */
static void ucx_break_off(struct ucx_conn *conn)
{
	struct ucx_endpoint *endpoint = ucx_endpoint_of(conn);

	if (!conn->wire.is_looked_at) {
		conn->wire.is_looked_at = true;
		endpoint->passes = 0;
		return;
	}
	ucx_conn_end(conn, ucx_status(conn->wire.broken),
		     "rank %d has lost its connection to rank %d (ucx, channel %d): %s",
		     endpoint->rank, conn->base.peer, conn->base.channel,
		     endpoint->library->ucs_status_string(conn->wire.broken));
}

/* The peer has closed its end, and all that it had sent is here. */
static void answer_bye(struct ucx_conn *conn)
{
	const struct oob_note ack = {.kind = UCX_NOTE_BYE_ACK};

	oob_send_note(&conn->oob, &ack);
	if (conn->is_closing) {
		conn->is_released = true;
		return;
	}
	ucx_conn_end(conn, TUTTI_ERR_PEER, "rank %d has closed its connection to rank %d (ucx)",
		     conn->base.peer, ucx_endpoint_of(conn)->rank);
}

static bool move_wire(struct ucx_conn *conn)
{
	bool is_moving = ucx_wire_progress(conn);

	if (conn->has_left && (conn->is_closing || conn->arrived == conn->peer.committed))
		answer_bye(conn);
	else if (conn->wire.broken != UCS_OK)
		ucx_break_off(conn);
	else
		return is_moving;
	return true;
}

static bool is_idle(const struct ucx_conn *conn)
{
	if (conn->sends.head || conn->sending.head || conn->recvs.head || conn->receiving.head)
		return false;
	return conn->state >= UCX_ENDED ||
	       (conn->state == UCX_OPEN && conn->busy == 0 && !conn->has_left &&
		conn->wire.broken == UCS_OK && !ucx_owes_notice(conn));
}

bool ucx_conn_move(struct ucx_conn *conn)
{
	bool is_moving = false;

	if (conn->state == UCX_CONNECTING || conn->state == UCX_FAILED)
		return false;
	if (conn->state != UCX_ENDED)
		is_moving = move_wire(conn);
	if (conn->is_closing)
		return is_moving;
	if (conn->state == UCX_ENDED) {
		is_moving |= ucx_move_ended(conn);
	} else {
		is_moving |= ucx_receive_some(conn);
		if (conn->state != UCX_FAILED)
			is_moving |= ucx_send_some(conn);
	}
	if (conn->state != UCX_FAILED && is_idle(conn))
		ucx_conn_deactivate(conn);
	return is_moving;
}

void ucx_conn_post(struct ucx_conn *conn, struct tutti_io *io, bool is_send)
{
	struct tutti_done *queue = is_send ? &conn->sends : &conn->recvs;

	io->conn = &conn->base;
	tutti_io_rewind(io);
	tutti_done_push(queue, io, TUTTI_IN_PROGRESS);
	if (conn->state == UCX_FAILED)
		ucx_conn_complete(conn, queue, conn->base.status);
	else
		ucx_conn_activate(conn);
}
