/* Greeting the peer, and closing. Both ends send what their queue pair is called (the hello),
 * connect it to the other's, and say that they are ready: a SEND that came earlier would find no
 * queue pair that takes it. Closing says BYE behind the last message and goes on until the peer's
 * device has acknowledged it. */
#include "transport/verbs/verbs.h"

#include "core/clock.h"
#include "core/status.h"
#include "transport/done_list.h"

#include <assert.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#define CLOSING_MS  5000 /* for acknowledgements of the last messages */
#define STOPPING_MS 20   /* for them, where close itself waits */

static struct verbs_conn *verbs_conn_of(struct oob_conn *oob)
{
	return (struct verbs_conn *)((char *)oob - offsetof(struct verbs_conn, oob));
}

static void verbs_conn_free(struct verbs_conn *conn)
{
	struct verbs_endpoint *endpoint = verbs_endpoint_of(conn);
	struct verbs_conn **at = &endpoint->conns;

	while (*at != conn)
		at = &(*at)->next;
	*at = conn->next;
	verbs_conn_deactivate(conn);
	if (conn->state < VERBS_OPEN)
		endpoint->unsettled--;
	verbs_pair_close(conn);
	oob_close(&conn->oob);
	free(conn);
}

tutti_status verbs_connect(struct tutti_endpoint *base, int peer, int channel,
			   const uint8_t *address, size_t address_bytes, struct tutti_conn **out)
{
	struct verbs_endpoint *endpoint = (struct verbs_endpoint *)base;
	struct verbs_conn *conn = calloc(1, sizeof *conn);
	struct verbs_hello hello;

	assert(peer != endpoint->rank && endpoint->oob);
	if (!conn)
		return fail(TUTTI_ERR_MEMORY, "Rank %d has no memory for a connection to rank %d.",
			    endpoint->rank, peer);
	conn->base.endpoint = base;
	conn->base.peer = peer;
	conn->base.channel = channel;
	tutti_done_init(&conn->sends);
	tutti_done_init(&conn->recvs);
	tutti_done_init(&conn->unacked);
	conn->next = endpoint->conns;
	endpoint->conns = conn;
	endpoint->unsettled++;
	tutti_status status = verbs_pair_open(conn);
	if (status == TUTTI_OK) {
		verbs_pair_hello(conn, &hello);
		status = oob_connect(&conn->oob, endpoint->oob, peer, channel, address,
				     verbs_address_oob(address_bytes), &hello, sizeof hello);
	}
	if (status != TUTTI_OK) {
		verbs_conn_free(conn);
		return status;
	}
	*out = &conn->base;
	return TUTTI_OK;
}

/* The peer may send from now on, and only then. */
static void verbs_greeted(struct verbs_conn *conn)
{
	const struct oob_note ready = {.kind = VERBS_NOTE_READY};
	tutti_status status = TUTTI_ERR_MISMATCH;
	struct verbs_hello peer;

	memcpy(conn->base.where, conn->oob.tcp->where, sizeof conn->base.where);
	if (conn->oob.hello_bytes == sizeof peer) {
		memcpy(&peer, conn->oob.hello, sizeof peer);
		status = verbs_pair_connect(conn, &peer);
	} else {
		fail(status, "verbs: rank %d greets in another form: all ranks need the same Tutti",
		     conn->base.peer);
	}
	if (status != TUTTI_OK) {
		verbs_conn_fail(conn, status, "%s", last_error());
		return;
	}
	conn->state = VERBS_CONNECTED;
	oob_send_note(&conn->oob, &ready);
}

static void verbs_noted(struct verbs_conn *conn)
{
	const struct oob_note note = conn->oob.note;

	oob_note_taken(&conn->oob);
	if (note.kind == VERBS_NOTE_RAIL) {
		verbs_rail_noted(conn, &note);
	} else if (note.kind == VERBS_NOTE_FAILED) {
		verbs_conn_end(conn, TUTTI_ERR_PEER, "rank %d ended its connection to rank %d: %s",
			       conn->base.peer, verbs_endpoint_of(conn)->rank, note.text);
	} else if (conn->state == VERBS_CONNECTED) {
		conn->state = VERBS_OPEN;
		verbs_endpoint_of(conn)->unsettled--;
	}
}

/* Its process, or its endpoint. What it had sent is in the completion queue by now. */
static void verbs_peer_is_gone(struct verbs_conn *conn)
{
	if (conn->state == VERBS_CONNECTING) {
		verbs_conn_fail(conn, conn->oob.status, "%s", conn->oob.error);
		return;
	}
	while (conn->state < VERBS_ENDED && verbs_take_completions(conn))
		;
	verbs_conn_end(conn, conn->oob.status, "%s", conn->oob.error);
}

static void verbs_take_news(struct verbs_conn *conn)
{
	if (conn->oob.has_greeted && conn->state == VERBS_CONNECTING)
		verbs_greeted(conn);
	if (conn->oob.has_note)
		verbs_noted(conn);
	if (conn->oob.has_ended)
		verbs_peer_is_gone(conn);
}

bool verbs_look(struct verbs_endpoint *endpoint)
{
	bool is_moving = oob_progress(endpoint->oob);

	for (struct oob_conn *oob; (oob = oob_next_news(endpoint->oob));) {
		verbs_take_news(verbs_conn_of(oob));
		is_moving = true;
	}
	return is_moving;
}

/* BYE comes behind all pieces, whichever rails they take. */
static void say_bye(struct verbs_conn *conn)
{
	if (conn->state == VERBS_OPEN && !conn->has_said_bye && !conn->failing &&
	    conn->pieces == conn->pieces_acked)
		verbs_send_bye(conn);
}

void verbs_close_on(struct verbs_conn *conn)
{
	say_bye(conn);
	if (conn->state != VERBS_OPEN || !verbs_has_unacked(conn) || conn->oob.has_ended ||
	    clock_now_ns() >= conn->deadline_ns)
		verbs_conn_free(conn);
}

/* The peer may write into a buffer of the caller. Only the end of the queue pair keeps it from
 * that: some devices (irdma, older bnxt_re) take no right to write away. The peer's device has
 * acknowledged sends that are done in microseconds, so they are waited for. */
static void await_acks(struct verbs_conn *conn)
{
	uint64_t deadline = deadline_after_ms(STOPPING_MS);

	while (conn->state == VERBS_OPEN && verbs_conn_owes(conn) && clock_now_ns() < deadline) {
		say_bye(conn);
		verbs_take_completions(conn);
	}
}

void verbs_close(struct tutti_conn *base)
{
	struct verbs_conn *conn = (struct verbs_conn *)base;

	if (!conn)
		return;
	bool is_read = verbs_conn_is_read(conn), is_written = verbs_conn_is_written(conn);
	tutti_done_init(&conn->sends);
	tutti_done_init(&conn->recvs);
	tutti_done_init(&conn->unacked);
	done_list_forget(&verbs_endpoint_of(conn)->done, base);
	conn->is_closing = true;
	conn->deadline_ns = deadline_after_ms(CLOSING_MS);
	/* Buffers are the caller's again. While they are read nothing else is on its way. */
	if (is_written)
		await_acks(conn);
	if (is_read || is_written) {
		verbs_conn_free(conn);
		return;
	}
	if (conn->state == VERBS_OPEN)
		verbs_conn_activate(conn);
	verbs_close_on(conn);
}
