/* A socket that breaks between live ranks (a link that flaps, a middlebox that forgets) is replaced
 * by another one, and no call notices. Both ends dial, as they did first (dial.c), at the address
 * that led to the peer before. If every address refuses, the peer is gone. If none answers, the
 * rank tries again, for as long and as often as is configured; but a peer whose kernel takes the
 * connection is alive, and may be busy elsewhere for longer than that.
 *
 * Sockets of a connection are numbered. The number is in what both ends prove, and one that is not
 * larger than that of the socket in use is refused: a late greeting changes nothing. */
#include "transport/tcp/dial.h"

#include "core/clock.h"
#include "core/log.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define EPOCHS (1u << 19) /* sockets that a connection may have had */

/* Keeps only the address of the list that has the socket's host. If none has it, addresses are
 * translated on the way, and all are kept. */
static int keep_proven(struct tcp_address *list, int count, const char *where)
{
	const char *colon = strrchr(where, ':');
	size_t host = colon ? (size_t)(colon - where) : 0;

	for (int i = 0; i < count && colon; i++) {
		char text[TCP_TEXT_BYTES];
		tcp_address_print((const struct sockaddr *)&list[i].sockaddr, text);
		if (strncmp(text, where, host + 1) != 0)
			continue;
		list[0] = list[i];
		return 1;
	}
	return count;
}

/* The same trouble goes on until bytes have moved. */
static void begin_trying(struct tcp_conn *c, int error)
{
	struct tcp_resend *r = &c->resend;

	if (r->since_ns == 0 || r->mark != r->sent + r->received) {
		r->mark = r->sent + r->received;
		r->since_ns = clock_now_ns();
		r->tries = 0;
	}
	r->cause = error;
	c->deadline_ns = r->since_ns + (uint64_t)tcp_endpoint_of(c)->reconnect_ms * 1000000u;
}

/* EPIPE: the peer had ended the connection before it was reset. */
static bool can_reconnect(const struct tcp_conn *c, int error)
{
	return c->reconnects && c->is_owned && c->state == CONN_UP && c->watch.fd >= 0 &&
	       c->base.status == TUTTI_OK && error != 0 && error != EPIPE && error != EBADMSG &&
	       c->resend.next_epoch < EPOCHS - 1;
}

bool tcp_reconnect_leave(struct tcp_conn *c, int error)
{
	size_t had = c->resend.unread.end;
	struct tcp_dial *d;
	bool is_taken;

	if (!can_reconnect(c, error) || !(d = tcp_dial_new(c)))
		return false;
	d->count = keep_proven(d->candidates, d->count, c->where);
	is_taken = tcp_unread_take(&c->resend.unread, &c->watch);
	if (c->resend.unread.end > had)
		c->resend.received += c->resend.unread.end - had;
	if (!is_taken) {
		free(d);
		return false;
	}
	log_info("tcp: rank %d (tcp %s, channel %d) lost a connection, which is made again: %s",
		 c->base.peer, c->where, c->base.channel, strerror(error));
	tcp_watch_close(tcp_endpoint_of(c), &c->watch);
	c->is_watched = c->has_hung_up = false;
	c->write_error = 0;
	c->dial = d;
	begin_trying(c, error);
	tcp_conn_set_state(c, CONN_WAITING);
	return true;
}

bool tcp_reconnect(struct tcp_conn *c, int error)
{
	if (!tcp_reconnect_leave(c, error))
		return false;
	tcp_dial_begin(c);
	return true;
}

void tcp_reconnect_look(struct tcp_conn *c)
{
	int error = 0;
	socklen_t bytes = sizeof error;

	c->has_hung_up = false;
	if (c->state != CONN_UP || c->watch.fd < 0 ||
	    getsockopt(c->watch.fd, SOL_SOCKET, SO_ERROR, &error, &bytes) != 0)
		return;
	/* The kernel reports this error only once, and counts what it still had to deliver for
	 * ever as not delivered. */
	if (!tcp_reconnect(c, error) && error && !c->write_error)
		c->write_error = error;
}

/* Where in the stream the first changed byte was is unknown, so this connection is not made
 * again. */
static void fail_changed(struct tcp_conn *c)
{
	tcp_conn_fail(c, TUTTI_ERR_AUTH,
		      "the data between rank %d and rank %d (tcp %s, channel %d) is changed on its "
		      "way (TLS: %s; is a proxy between them?)",
		      tcp_endpoint_of(c)->rank, c->base.peer, c->where, c->base.channel,
		      c->watch.tls ? tls_error_text(c->watch.tls) : "");
}

void tcp_reconnect_or_fail(struct tcp_conn *c, int error)
{
	int rank = tcp_endpoint_of(c)->rank;

	if (error == EBADMSG) {
		fail_changed(c);
		return;
	}
	if (tcp_reconnect(c, error))
		return;
	if (c->fails_after_drain != TUTTI_OK) {
		char message[sizeof c->base.error];
		memcpy(message, c->base.error, sizeof message);
		tcp_conn_fail(c, c->fails_after_drain, "%s", message);
	} else if (error == 0)
		tcp_conn_fail(c, TUTTI_ERR_PEER,
			      "rank %d (tcp %s, channel %d) closed its connection to rank %d",
			      c->base.peer, c->where, c->base.channel, rank);
	else if (tried_of(error) == TRIED_DENIED)
		tcp_conn_fail(
			c, TUTTI_ERR_SYSTEM,
			"rank %d cannot use its connection to rank %d (tcp %s, channel %d; sendmsg "
			"or recvmsg): %s (errno %d)",
			rank, c->base.peer, c->where, c->base.channel, strerror(error), error);
	else
		tcp_conn_fail(c, TUTTI_ERR_PEER,
			      "rank %d (tcp %s, channel %d) lost its connection to rank %d: %s",
			      c->base.peer, c->where, c->base.channel, rank, strerror(error));
}
