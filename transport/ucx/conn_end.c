/* The end of a connection, and of what is posted on it. */
#include "transport/ucx/ucx.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void ucx_conn_activate(struct ucx_conn *conn)
{
	if (conn->is_active)
		return;
	conn->is_active = true;
	LIST_INSERT_HEAD(&ucx_endpoint_of(conn)->active, conn, active);
}

void ucx_conn_deactivate(struct ucx_conn *conn)
{
	if (!conn->is_active)
		return;
	conn->is_active = false;
	LIST_REMOVE(conn, active);
}

void ucx_conn_complete(struct ucx_conn *conn, struct tutti_done *queue, tutti_status status)
{
	tutti_done_push(&ucx_endpoint_of(conn)->done, tutti_done_pop(queue), status);
}

bool ucx_conn_is_in_flight(const struct ucx_conn *conn)
{
	return !ucx_reached(conn->completed, conn->ends.bulk) || conn->got != conn->next;
}

static void ucx_settle(struct ucx_conn *conn)
{
	if (conn->state < UCX_OPEN)
		ucx_endpoint_of(conn)->unsettled--;
}

/* The peer learns why, but from a conn that it has ended itself. */
static void ucx_tell_peer(struct ucx_conn *conn, tutti_status status)
{
	struct oob_note note = {.kind = UCX_NOTE_FAILED, .status = (int32_t)status};

	if (!conn->oob.has_greeted || conn->oob.has_ended || conn->has_told)
		return;
	conn->has_told = true;
	memcpy(note.text, conn->base.error, sizeof note.text);
	oob_send_note(&conn->oob, &note);
}

void ucx_conn_fail(struct ucx_conn *conn, tutti_status status, const char *format, ...)
{
	va_list args;

	if (conn->state == UCX_FAILED)
		return;
	va_start(args, format);
	vsnprintf(conn->base.error, sizeof conn->base.error, format, args);
	va_end(args);
	ucx_settle(conn);
	ucx_wire_close(conn);
	conn->state = UCX_FAILED;
	conn->base.status = status;
	if (!conn->is_closing) /* else the next pass frees it */
		ucx_conn_deactivate(conn);
	ucx_tell_peer(conn, status);
	while (conn->receiving.head)
		ucx_conn_complete(conn, &conn->receiving, status);
	while (conn->recvs.head)
		ucx_conn_complete(conn, &conn->recvs, status);
	while (conn->sending.head)
		ucx_conn_complete(conn, &conn->sending, status);
	while (conn->sends.head)
		ucx_conn_complete(conn, &conn->sends, status);
}

void ucx_conn_end(struct ucx_conn *conn, tutti_status status, const char *format, ...)
{
	va_list args;

	if (conn->state >= UCX_ENDED)
		return;
	ucx_settle(conn);
	ucx_wire_close(conn);
	conn->state = UCX_ENDED;
	conn->ended.status = status;
	va_start(args, format);
	vsnprintf(conn->ended.error, sizeof conn->ended.error, format, args);
	va_end(args);
	if (conn->sends.head || conn->sending.head || conn->recvs.head || conn->receiving.head)
		ucx_conn_activate(conn);
}

int ucx_stage_take(struct ucx_conn *conn, int is_in)
{
	if (!conn->stages[is_in].base)
		conn->stages[is_in].base = malloc(UCX_STAGES * UCX_BLOCK);
	if (!conn->stages[is_in].base) {
		ucx_conn_fail(conn, TUTTI_ERR_MEMORY,
			      "rank %d has no memory for messages of rank %d that lie in pieces",
			      ucx_endpoint_of(conn)->rank, conn->base.peer);
		return -1;
	}
	for (int i = 0; i < UCX_STAGES; i++) {
		if (!conn->stages[is_in].used[i]) {
			conn->stages[is_in].used[i] = true;
			return i;
		}
	}
	return -1;
}

uint8_t *ucx_stage_at(const struct ucx_conn *conn, int is_in, int stage)
{
	return conn->stages[is_in].base + (size_t)stage * UCX_BLOCK;
}
