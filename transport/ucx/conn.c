/* A connection: greeting the peer, what is posted on it, and how it moves. */
#include "core/clock.h"
#include "core/status.h"
#include "transport/done_list.h"
#include "transport/ucx/ucx.h"

#include <assert.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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
static void ucx_conn_answer_bye(struct ucx_conn *conn)
{
	const struct oob_note ack = {.kind = UCX_NOTE_BYE_ACK};

	if (conn->is_released)
		return;
	oob_send_note(&conn->oob, &ack);
	if (conn->is_closing) {
		conn->is_released = true;
		return;
	}
	ucx_conn_end(conn, TUTTI_ERR_PEER, "rank %d has closed its connection to rank %d (ucx)",
		     conn->base.peer, ucx_endpoint_of(conn)->rank);
}

static bool ucx_conn_move_wire(struct ucx_conn *conn)
{
	bool is_moving = ucx_wire_progress(conn);

	if (conn->has_left && (conn->is_closing || conn->arrived == conn->peer.committed))
		ucx_conn_answer_bye(conn);
	else if (conn->wire.broken != UCS_OK)
		ucx_break_off(conn);
	else
		return is_moving;
	return true;
}

static bool ucx_conn_is_idle(const struct ucx_conn *conn)
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
		is_moving = ucx_conn_move_wire(conn);
	if (conn->is_closing)
		return is_moving;
	if (conn->state == UCX_ENDED) {
		is_moving |= ucx_move_ended(conn);
	} else {
		is_moving |= ucx_receive_some(conn);
		if (conn->state != UCX_FAILED)
			is_moving |= ucx_send_some(conn);
	}
	if (conn->state != UCX_FAILED && ucx_conn_is_idle(conn))
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

/* Greeting the peer, and closing. Both ends send their worker's address (the hello) and connect to
 * the other's. Closing says BYE over oob, with the number of blocks that have been sent, and goes
 * on until the peer has them all. */

#define MAGIC        0x31756c68u /* of a hello */
#define CLOSING_MS   5000        /* for the peer to take the last messages */
#define DRAIN_PASSES 1000        /* for what a peer that is gone has left on the way */

static struct ucx_conn *ucx_conn_of(struct oob_conn *oob)
{
	return (struct ucx_conn *)((char *)oob - offsetof(struct ucx_conn, oob));
}

static void ucx_conn_free(struct ucx_conn *conn)
{
	struct ucx_endpoint *endpoint = ucx_endpoint_of(conn);
	struct ucx_conn **at = &endpoint->conns;

	while (*at != conn)
		at = &(*at)->next_conn;
	*at = conn->next_conn;
	ucx_conn_deactivate(conn);
	if (conn->state < UCX_OPEN)
		endpoint->unsettled--;
	oob_close(&conn->oob); /* first: it says why the peer does not reach UCX's part any more */
	ucx_wire_close(conn);
	free(conn->stages[0].base);
	free(conn->stages[1].base);
	free(conn->eager_out);
	free(conn);
}

static tutti_status ucx_begin(struct ucx_conn *conn, const uint8_t *address, size_t address_bytes)
{
	struct ucx_endpoint *endpoint = ucx_endpoint_of(conn);
	struct ucx_hello *hello;
	size_t bytes;

	conn->eager_out = malloc(2 * (size_t)UCX_WINDOW * UCX_EAGER);
	if (!conn->eager_out)
		return fail(TUTTI_ERR_MEMORY, "Rank %d has no memory for a connection to rank %d.",
			    endpoint->rank, conn->base.peer);
	conn->eager_in = conn->eager_out + (size_t)UCX_WINDOW * UCX_EAGER;
	TRY(ucx_wire_open(conn));
	TRY(ucx_wire_hello(conn, &hello, &bytes));
	hello->magic = MAGIC;
	tutti_status status = oob_connect(&conn->oob, endpoint->oob, conn->base.peer,
					  conn->base.channel, address, address_bytes, hello, bytes);
	free(hello);
	return status;
}

tutti_status ucx_connect(struct tutti_endpoint *base, int peer, int channel, const uint8_t *address,
			 size_t address_bytes, struct tutti_conn **out)
{
	struct ucx_endpoint *endpoint = (struct ucx_endpoint *)base;
	struct ucx_conn *conn = calloc(1, sizeof *conn);

	assert(peer != endpoint->rank && endpoint->oob);
	if (!conn)
		return fail(TUTTI_ERR_MEMORY, "Rank %d has no memory for a connection to rank %d.",
			    endpoint->rank, peer);
	conn->base.endpoint = base;
	conn->base.peer = peer;
	conn->base.channel = channel;
	tutti_done_init(&conn->sends);
	tutti_done_init(&conn->recvs);
	tutti_done_init(&conn->sending);
	tutti_done_init(&conn->receiving);
	conn->wire.fd = -1;
	conn->next_conn = endpoint->conns;
	endpoint->conns = conn;
	endpoint->unsettled++;
	tutti_status status = ucx_begin(conn, address, address_bytes);
	if (status != TUTTI_OK) {
		ucx_conn_free(conn);
		return status;
	}
	*out = &conn->base;
	return TUTTI_OK;
}

static void ucx_noted(struct ucx_conn *conn)
{
	const struct oob_note note = conn->oob.note, ack = {.kind = UCX_NOTE_BYE_ACK};

	oob_note_taken(&conn->oob);
	if (note.kind == UCX_NOTE_FAILED) {
		ucx_conn_end(conn, TUTTI_ERR_PEER, "rank %d ended its connection to rank %d: %s",
			     conn->base.peer, ucx_endpoint_of(conn)->rank, note.text);
	} else if (note.kind == UCX_NOTE_BYE) {
		conn->has_left = true;
		conn->peer.committed = (uint32_t)note.number;
		if (conn->state < UCX_ENDED)
			ucx_conn_activate(conn);
		else
			oob_send_note(&conn->oob, &ack);
	} else if (note.kind == UCX_NOTE_BYE_ACK) {
		conn->is_released = true;
	}
}

/* Its process, or its endpoint. */
static void ucx_peer_is_gone(struct ucx_conn *conn)
{
	if (conn->state == UCX_CONNECTING) {
		ucx_conn_fail(conn, conn->oob.status, "%s", conn->oob.error);
		return;
	}
	for (int i = 0; i < DRAIN_PASSES && conn->state < UCX_ENDED && ucx_wire_progress(conn); i++)
		;
	ucx_conn_end(conn, conn->oob.status, "%s", conn->oob.error);
}

/* UCX does not say whether the peer has gone meanwhile; oob does. One that has failed, too, says so
 * in a note: then both have a reason of their own. */
static void ucx_conn_cannot_connect(struct ucx_conn *conn, tutti_status status)
{
	char why[sizeof conn->base.error];

	snprintf(why, sizeof why, "%s", last_error());
	oob_progress(conn->oob.endpoint);
	if (conn->oob.has_ended && !conn->oob.has_note)
		ucx_peer_is_gone(conn);
	else
		ucx_conn_fail(conn, status, "%s", why);
}

static void ucx_greeted(struct ucx_conn *conn)
{
	const struct oob_conn *oob = &conn->oob;
	tutti_status status = TUTTI_ERR_MISMATCH;
	struct ucx_hello hello = {0};

	memcpy(conn->base.where, oob->tcp->where, sizeof conn->base.where);
	if (oob->hello_bytes > sizeof hello)
		memcpy(&hello, oob->hello, sizeof hello);
	if (hello.magic == MAGIC && hello.address_bytes == oob->hello_bytes - sizeof hello)
		status = ucx_wire_connect(conn, oob->hello + sizeof hello);
	else
		fail(status, "ucx: rank %d greets in another form: all ranks need the same Tutti",
		     conn->base.peer);
	if (status != TUTTI_OK) {
		ucx_conn_cannot_connect(conn, status);
		return;
	}
	conn->state = UCX_CONNECTED;
	ucx_conn_activate(conn);
	ucx_send_greeting(conn);
}

static void ucx_take_news(struct ucx_conn *conn)
{
	if (conn->oob.has_greeted && conn->state == UCX_CONNECTING)
		ucx_greeted(conn);
	if (conn->oob.has_note)
		ucx_noted(conn);
	if (conn->oob.has_ended)
		ucx_peer_is_gone(conn);
}

bool ucx_look(struct ucx_endpoint *endpoint)
{
	bool is_moving = oob_progress(endpoint->oob);

	for (struct oob_conn *oob; (oob = oob_next_news(endpoint->oob));) {
		ucx_take_news(ucx_conn_of(oob));
		is_moving = true;
	}
	return is_moving;
}

/* UCX 1.13 aborts the peer's process if this end destroys its worker during their handshake. So a
 * closing connection stays until the first message of UCX has come, or until its deadline. */
static bool ucx_is_in_handshake(const struct ucx_conn *conn)
{
	return conn->state == UCX_CONNECTED ||
	       (conn->state == UCX_CONNECTING && oob_is_up(&conn->oob));
}

static void ucx_say_bye(struct ucx_conn *conn)
{
	const struct oob_note bye = {.kind = UCX_NOTE_BYE, .number = conn->sent};

	conn->has_said_bye = true;
	oob_send_note(&conn->oob, &bye);
	conn->is_released |= !ucx_owes(conn) && conn->busy == 0;
}

void ucx_close_on(struct ucx_conn *conn)
{
	if (conn->state == UCX_OPEN && !conn->has_said_bye)
		ucx_say_bye(conn);
	if ((conn->state != UCX_OPEN && !ucx_is_in_handshake(conn)) || conn->is_released ||
	    conn->oob.has_ended || conn->wire.broken != UCS_OK ||
	    clock_now_ns() >= conn->deadline_ns)
		ucx_conn_free(conn);
}

void ucx_close(struct tutti_conn *base)
{
	struct ucx_conn *conn = (struct ucx_conn *)base;

	if (!conn)
		return;
	bool is_in_flight = ucx_conn_is_in_flight(conn);
	tutti_done_init(&conn->sends);
	tutti_done_init(&conn->recvs);
	tutti_done_init(&conn->sending);
	tutti_done_init(&conn->receiving);
	done_list_forget(&ucx_endpoint_of(conn)->done, base);
	conn->is_closing = true;
	conn->deadline_ns = deadline_after_ms(CLOSING_MS);
	/* Buffers are the caller's again. While UCX uses some nothing else is on its way. */
	if (is_in_flight) {
		ucx_conn_free(conn);
		return;
	}
	ucx_conn_activate(conn);
	ucx_close_on(conn);
}
