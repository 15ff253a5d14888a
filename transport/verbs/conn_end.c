/* The end of a connection, and of what is posted on it. */
#include "transport/verbs/verbs.h"

#include "core/log.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void verbs_conn_activate(struct verbs_conn *conn)
{
	if (conn->is_active)
		return;
	conn->is_active = true;
	LIST_INSERT_HEAD(&verbs_endpoint_of(conn)->active, conn, active);
}

void verbs_conn_deactivate(struct verbs_conn *conn)
{
	if (!conn->is_active)
		return;
	conn->is_active = false;
	LIST_REMOVE(conn, active);
}

void verbs_conn_complete(struct verbs_conn *conn, struct tutti_done *queue, tutti_status status)
{
	tutti_done_push(&verbs_endpoint_of(conn)->done, tutti_done_pop(queue), status);
}

void verbs_conn_complete_acked(struct verbs_conn *conn)
{
	struct tutti_io *io;

	while (conn->pieces_acked != conn->pieces &&
	       conn->flights[conn->pieces_acked % VERBS_CHUNKS].is_acked)
		conn->pieces_acked++;
	while ((io = conn->unacked.head) &&
	       (int32_t)(conn->pieces_acked - (uint32_t)io->in_piece) >= 0) {
		conn->owed = (struct verbs_mark){(uint32_t)io->moved, (uint32_t)io->in_piece};
		verbs_conn_complete(conn, &conn->unacked, TUTTI_OK);
	}
}

bool verbs_conn_is_read(const struct verbs_conn *conn)
{
	return conn->in_place || conn->unacked.head;
}

bool verbs_conn_is_written(const struct verbs_conn *conn)
{
	int32_t ahead = (int32_t)(conn->granted.end - conn->received);

	return ahead > 0 || (ahead == 0 && conn->in_payload[1]);
}

bool verbs_conn_owes(const struct verbs_conn *conn)
{
	return (int32_t)(conn->frames_acked - conn->owed.frames) < 0 ||
	       (int32_t)(conn->pieces_acked - conn->owed.pieces) < 0;
}

/* The peer writes nowhere by it any more, and the device reads nothing for it. */
static void verbs_stop(struct verbs_rail *rail)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};

	rail->port->device->library->modify_qp(rail->qp, &attr, IBV_QP_STATE);
}

static void verbs_settle(struct verbs_conn *conn)
{
	if (conn->state < VERBS_OPEN)
		verbs_endpoint_of(conn)->unsettled--;
}

/* The peer learns why, but from a conn that it has ended itself. */
static void verbs_tell_peer(struct verbs_conn *conn, tutti_status status)
{
	struct oob_note note = {.kind = VERBS_NOTE_FAILED, .status = (int32_t)status};

	if (!conn->oob.has_greeted || conn->oob.has_ended || conn->has_told)
		return;
	conn->has_told = true;
	memcpy(note.text, conn->base.error, sizeof note.text);
	oob_send_note(&conn->oob, &note);
}

void verbs_conn_fail(struct verbs_conn *conn, tutti_status status, const char *format, ...)
{
	va_list args;

	if (conn->state == VERBS_FAILED)
		return;
	va_start(args, format);
	vsnprintf(conn->base.error, sizeof conn->base.error, format, args);
	va_end(args);
	verbs_settle(conn);
	if (verbs_conn_is_read(conn) || verbs_conn_is_written(conn))
		for (int r = 0; r < conn->rail_count; r++)
			verbs_stop(&conn->rails[r]);
	conn->state = VERBS_FAILED;
	conn->base.status = status;
	verbs_conn_deactivate(conn);
	verbs_tell_peer(conn, status);
	while (conn->recvs.head)
		verbs_conn_complete(conn, &conn->recvs, status);
	while (conn->unacked.head)
		verbs_conn_complete(conn, &conn->unacked, status);
	while (conn->sends.head)
		verbs_conn_complete(conn, &conn->sends, status);
}

void verbs_conn_end(struct verbs_conn *conn, tutti_status status, const char *format, ...)
{
	va_list args;

	if (conn->state >= VERBS_ENDED)
		return;
	verbs_settle(conn);
	conn->state = VERBS_ENDED;
	conn->failing = 0; /* nothing is sent again */
	conn->ended.status = status;
	va_start(args, format);
	vsnprintf(conn->ended.error, sizeof conn->ended.error, format, args);
	va_end(args);
	if (conn->sends.head || conn->unacked.head || conn->recvs.head)
		verbs_conn_activate(conn);
}

static bool verbs_conn_end_has_other_rail(const struct verbs_conn *conn, int rail)
{
	for (int r = 0; r < conn->rail_count; r++)
		if (r != rail && conn->rails[r].state == VERBS_RAIL_WORKS)
			return true;
	return false;
}

void verbs_rail_lost(struct verbs_conn *conn, int r, tutti_status status, const char *format, ...)
{
	struct verbs_rail *rail = &conn->rails[r];
	char error[sizeof conn->ended.error];
	va_list args;

	if (rail->state != VERBS_RAIL_WORKS || conn->state >= VERBS_ENDED)
		return;
	va_start(args, format);
	vsnprintf(error, sizeof error, format, args);
	va_end(args);
	if (!verbs_conn_end_has_other_rail(conn, r)) {
		verbs_conn_end(conn, status, "%s", error);
		return;
	}
	log_seldom("%s; the other ports have to do", error);
	rail->state = VERBS_RAIL_LOST;
	conn->failing++;
	verbs_stop(rail);
	verbs_conn_activate(conn);
}
