/* A connection: what is posted on it, and how it moves. */
#include "transport/verbs/verbs.h"

#include <assert.h>

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
