/* The messages of an accepted connection, until nothing is missing of its greeting: a hello, the
 * proof that it knows the job's key, TLS's handshake, and how far it has come in the stream. One
 * that says anything wrong, or nothing for too long, is dropped and does no harm. */
#include "transport/tcp/accepted.h"

#include "core/log.h"
#include "transport/tcp/dial.h"

#include <endian.h>
#include <errno.h>
#include <string.h>

void tcp_greet_drop(struct tcp_endpoint *ep, struct tcp_accepted *a, const char *why)
{
	bool was_greeting = a->has_greeted && !a->is_known;
	struct tcp_conn *c = was_greeting ? tcp_conn_for(ep, a->peer, a->channel) : NULL;

	log_seldom("tcp: dropped a connection from %s: %s", a->from, why);
	tcp_accepted_free(ep, a);
	if (c)
		tcp_dial_continue(c);
}

/* Which rank it claims to be, for this communicator and this rank. */
static bool take_context(struct tcp_endpoint *ep, struct tcp_accepted *a)
{
	uint8_t expected[AUTH_CONTEXT_BYTES];
	int32_t numbers[4];

	memcpy(numbers, a->auth.context + sizeof ep->comm_id, sizeof numbers);
	a->peer = numbers[0];
	a->channel = numbers[2];
	a->reconnects = tcp_would_reconnect(ep, a->is_local);
	a->epoch = a->reconnects ? (uint32_t)numbers[3] >> TCP_EPOCH_SHIFT : 0;
	tcp_context(expected, ep, a->peer, ep->rank, a->channel,
		    tcp_terms(ep, a->reconnects, a->epoch));
	return memcmp(expected, a->auth.context, sizeof expected) == 0 && a->peer >= 0 &&
	       a->peer < ep->size && a->peer != ep->rank && a->channel >= 0 &&
	       a->channel < TCP_CHANNELS;
}

/* Whether an accepted connection may become this conn's socket. (NULL: it will be kept.) One that
 * reconnects takes another socket's place at any time, but never one that is younger than itself.
 */
static bool is_open(struct tcp_endpoint *ep, const struct tcp_conn *c, const struct tcp_accepted *a)
{
	const struct tcp_accepted *other = c ? NULL : tcp_accepted_find(ep, a->peer, a->channel);

	if (!c)
		return !other || !a->reconnects || a->epoch > other->epoch;
	/* Nor one that is older than what we have proved ourselves to the peer: that proof may
	 * still lie in a socket of it, dead perhaps, and would take the place of this one, which
	 * the peer then ends. */
	if (a->reconnects && a->epoch < c->resend.next_epoch)
		return false;
	return tcp_is_connecting(c) || (c->reconnects && a->reconnects && c->state == CONN_UP);
}

/* The connection that it wants to go on with was closed here; or the one that it wants has failed
 * here, or was closed before it was up, and what comes too late must not wait for it. */
static bool tcp_is_late(const struct tcp_endpoint *ep, const struct tcp_conn *c,
			const struct tcp_accepted *a)
{
	const struct tcp_ended *ended = ep->ended;

	if (c)
		return c->base.status != TUTTI_OK || c->fails_after_drain != TUTTI_OK;
	while (ended && (ended->peer != a->peer || ended->channel != a->channel))
		ended = ended->next;
	return ended && (ended->is_over || a->epoch > 0);
}

static const char *tcp_take_hello(struct tcp_endpoint *ep, struct tcp_accepted *a)
{
	uint8_t answer[AUTH_ANSWER_BYTES];
	const struct tcp_conn *c;

	if (auth_take_hello(&a->auth, ep->key, a->bytes, answer) != TUTTI_OK)
		return "it is no rank of a job";
	if (!take_context(ep, a))
		return "it asked for another communicator or rank";
	c = tcp_conn_for(ep, a->peer, a->channel);
	if (!tcp_is_late(ep, c, a) && !is_open(ep, c, a))
		return "this connection is there already";
	if (send(a->watch.fd, answer, sizeof answer, MSG_NOSIGNAL) != (ssize_t)sizeof answer)
		return "it could not be answered";
	a->has_greeted = a->pending.goes_last = true;
	a->have = 0;
	return NULL;
}

/* The peer does not resend bytes that came on the older socket: its kernel has told it that they
 * arrived. */
static bool leave_older_socket(struct tcp_endpoint *ep, struct tcp_conn *c, struct tcp_accepted *a)
{
	struct tcp_accepted *other = c ? NULL : tcp_accepted_find(ep, a->peer, a->channel);

	if (c)
		return c->state != CONN_UP || tcp_reconnect_leave(c, ECONNRESET);
	if (!other)
		return true;
	a->unread = other->unread;
	other->unread = (struct tcp_unread){0};
	return tcp_unread_take(&a->unread, &other->watch);
}

/* Each end says how far it has come in the other's stream, and goes on from there. */
static const char *tcp_agree(struct tcp_endpoint *ep, struct tcp_conn *c, struct tcp_accepted *a)
{
	bool is_over = tcp_is_late(ep, c, a);
	uint64_t received = TCP_STREAM_CLOSED;
	struct iovec position = {&received, sizeof received};

	a->position = tcp_position_read(a->bytes);
	if (!is_over && !leave_older_socket(ep, c, a))
		return "the socket before it cannot be left";
	if (!is_over)
		received = htole64(c ? c->resend.received : a->unread.end);
	/* If it has broken already, it reconnects once it is the conn's. Nothing else may follow a
	 * part of this. */
	if (tcp_stream_send(&a->watch, &position, 1) != (ssize_t)sizeof received) {
		shutdown(a->watch.fd, SHUT_RDWR);
		a->is_broken = true;
	}
	return is_over ? "its connection has been closed" : NULL;
}

static const char *tcp_take_proof(struct tcp_endpoint *ep, struct tcp_accepted *a)
{
	const struct tcp_conn *c;

	if (auth_check_proof(&a->auth, a->bytes) != TUTTI_OK)
		return "it could not prove the job's secret";
	c = tcp_conn_for(ep, a->peer, a->channel);
	if (!tcp_is_late(ep, c, a) && !is_open(ep, c, a))
		return "this connection is there already";
	admission_proved(&ep->pending, &a->pending);
	a->have = 0;
	a->is_secure = !ep->has_tls;
	if (ep->has_tls && !tcp_stream_secure(&a->watch, &a->auth, false))
		return "there is no memory for TLS";
	return NULL;
}

static const char *tcp_greet_handshake(struct tcp_accepted *a)
{
	if (tls_handshake(a->watch.tls) == 0) {
		a->is_secure = true;
		return NULL;
	}
	if (errno == EAGAIN)
		return NULL;
	return errno == EBADMSG ? tls_error_text(a->watch.tls) : strerror(errno);
}

/* The end of this socket tells it. */
static const char *turn_away(const struct tcp_accepted *a)
{
	if (a->watch.tls)
		tls_end(a->watch.tls);
	return "its connection has ended";
}

/* Nothing is missing of its greeting. */
static const char *tcp_arrive(struct tcp_endpoint *ep, struct tcp_accepted *a)
{
	struct tcp_conn *c = tcp_conn_for(ep, a->peer, a->channel);
	const char *problem = NULL;
	struct tcp_accepted *other;

	if (!tcp_is_late(ep, c, a) && !is_open(ep, c, a))
		return "this connection is there already";
	if (a->reconnects)
		problem = tcp_agree(ep, c, a);
	else if (tcp_is_late(ep, c, a))
		problem = turn_away(a);
	if (problem)
		return problem;
	/* The peer gave up and dialed again: only its last attempt counts. */
	other = tcp_accepted_find(ep, a->peer, a->channel);
	if (other)
		tcp_greet_drop(ep, other, "the same rank came again");
	a->is_known = true;
	admission_remove(&ep->pending, &a->pending);
	tcp_ticking(ep);
	if (c)
		tcp_accepted_adopt(c);
	return NULL;
}

/* Reads what is missing of what comes next; never more, for what follows is the conn's. */
static bool tcp_greet_read_whole(struct tcp_accepted *a, size_t bytes, const char **problem)
{
	*problem = tcp_stream_fill(&a->watch, a->bytes, bytes, &a->have);
	return !*problem && a->have == bytes;
}

/* Whether nothing is missing of its greeting. problem: why it cannot stay. */
static bool hears_all(struct tcp_endpoint *ep, struct tcp_accepted *a, const char **problem)
{
	if (!a->has_greeted && tcp_greet_read_whole(a, AUTH_HELLO_BYTES, problem))
		*problem = tcp_take_hello(ep, a);
	if (!*problem && a->has_greeted && !a->pending.has_proved &&
	    tcp_greet_read_whole(a, AUTH_PROOF_BYTES, problem))
		*problem = tcp_take_proof(ep, a);
	if (!*problem && a->pending.has_proved && !a->is_secure)
		*problem = tcp_greet_handshake(a);
	if (*problem || !a->is_secure)
		return false;
	return !a->reconnects || tcp_greet_read_whole(a, TCP_POSITION_BYTES, problem);
}

void tcp_greet(struct tcp_endpoint *ep, struct tcp_accepted *a, const char *drop)
{
	bool had_proved = a->pending.has_proved, was_answered = a->has_greeted;
	const char *problem = NULL;

	if (a->is_known)
		return;
	if (hears_all(ep, a, &problem)) {
		problem = tcp_arrive(ep, a);
		if (!problem)
			return;
	}
	/* A rank that was answered just now may believe that it is connected soon. */
	if (!problem && (was_answered || !a->has_greeted) && a->pending.has_proved == had_proved)
		problem = drop;
	if (problem)
		tcp_greet_drop(ep, a, problem);
}
