/* Accepted connections, from the listener until each is known and a conn's. */
#include "transport/tcp/accept.h"

#include "core/log.h"
#include "core/net.h"
#include "core/status.h"
#include "core/tries.h"
#include "transport/tcp/address.h"
#include "transport/tcp/dial.h"

#include <endian.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Accepted connections that belong to no conn yet. One whose greeting is over is kept, one for each
 * peer and channel, until this rank connects. */

void tcp_accepted_free(struct tcp_endpoint *ep, struct tcp_accepted *a)
{
	struct tcp_accepted **at = &ep->accepted;

	while (*at != a)
		at = &(*at)->next;
	*at = a->next;
	admission_remove(&ep->pending, &a->pending);
	tcp_ticking(ep);
	tcp_watch_close(ep, &a->watch);
	tcp_unread_free(&a->unread);
	free(a);
}

bool tcp_accepted_is_greeting(const struct tcp_conn *c)
{
	const struct tcp_accepted *a = tcp_endpoint_of(c)->accepted;

	while (a && (!a->has_greeted || a->is_known || a->peer != c->base.peer ||
		     a->channel != c->base.channel))
		a = a->next;
	return a != NULL;
}

/* The known one of this peer and channel; NULL: there is none. */
static struct tcp_accepted *tcp_accepted_find(const struct tcp_endpoint *ep, int peer, int channel)
{
	struct tcp_accepted *a = ep->accepted;

	while (a && (!a->is_known || a->peer != peer || a->channel != channel))
		a = a->next;
	return a;
}

static void accept_take_terms(struct tcp_conn *c, struct tcp_accepted *a)
{
	struct tcp_resend *r = &c->resend;

	c->reconnects = a->reconnects;
	if (!r->was_up) {
		r->unread = a->unread;
		r->received = r->unread.end;
		a->unread = (struct tcp_unread){0};
	}
	r->epoch = a->epoch;
	if (r->next_epoch <= r->epoch)
		r->next_epoch = r->epoch + 1;
}

/* A dial of its own that is in flight ends with this. */
bool tcp_accepted_adopt(struct tcp_conn *c)
{
	struct tcp_endpoint *ep = tcp_endpoint_of(c);
	struct tcp_accepted *a = tcp_accepted_find(ep, c->base.peer, c->base.channel);
	struct epoll_event event = {.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET,
				    .data.ptr = &c->watch};

	if (!a)
		return false;
	uint64_t position = a->position;
	bool is_broken = a->is_broken;
	accept_take_terms(c, a);
	memcpy(c->where, a->from, sizeof c->where);
	tcp_watch_close(ep, &c->watch);
	c->watch.fd = a->watch.fd;
	c->watch.tls = a->watch.tls;
	a->watch.fd = -1;
	a->watch.tls = NULL;
	tcp_accepted_free(ep, a);
	/* The socket is watched already and memory was taken then, so this cannot fail. */
	epoll_ctl(ep->epoll_fd, EPOLL_CTL_MOD, c->watch.fd, &event);
	tcp_conn_up_at(c, position);
	if (is_broken) {
		c->write_error = ECONNRESET;
		tcp_conn_busy(c);
	}
	return true;
}

/* The messages of an accepted connection, until nothing is missing of its greeting: a hello, the
 * proof that it knows the job's key, TLS's handshake, and how far it has come in the stream. One
 * that says anything wrong, or nothing for too long, is dropped and does no harm. */

static void tcp_greet_drop(struct tcp_endpoint *ep, struct tcp_accepted *a, const char *why)
{
	bool was_greeting = a->has_greeted && !a->is_known;
	struct tcp_conn *c = was_greeting ? tcp_conn_for(ep, a->peer, a->channel) : NULL;

	log_seldom("tcp: dropped a connection from %s: %s", a->from, why);
	tcp_accepted_free(ep, a);
	if (c)
		tcp_dial_continue(c);
}

/* Which rank it claims to be, for this communicator and this rank. */
static bool accept_take_context(struct tcp_endpoint *ep, struct tcp_accepted *a)
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

/* Whether it asks for another rank or communicator, which may have had this port before. */
static bool accept_wants_another(const struct tcp_endpoint *ep, const struct tcp_accepted *a)
{
	int32_t numbers[2];

	memcpy(numbers, a->auth.context + sizeof ep->comm_id, sizeof numbers);
	return numbers[1] != ep->rank ||
	       memcmp(a->auth.context, ep->comm_id, sizeof ep->comm_id) != 0;
}

/* Whether an accepted connection may become this conn's socket. (NULL: it will be kept.) One that
 * reconnects takes another socket's place at any time, but never one that is younger than itself.
 */
static bool accept_is_open(struct tcp_endpoint *ep, const struct tcp_conn *c,
			   const struct tcp_accepted *a)
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
	if (!accept_take_context(ep, a)) {
		if (accept_wants_another(ep, a))
			send(a->watch.fd, auth_not_here, sizeof auth_not_here, MSG_NOSIGNAL);
		return "it asked for another communicator or rank";
	}
	c = tcp_conn_for(ep, a->peer, a->channel);
	if (!tcp_is_late(ep, c, a) && !accept_is_open(ep, c, a))
		return "this connection is there already";
	if (send(a->watch.fd, answer, sizeof answer, MSG_NOSIGNAL) != (ssize_t)sizeof answer)
		return "it could not be answered";
	a->has_greeted = a->pending.goes_last = true;
	a->have = 0;
	return NULL;
}

/* The peer does not resend bytes that came on the older socket: its kernel has told it that they
 * arrived. */
static bool accept_leave_older_socket(struct tcp_endpoint *ep, struct tcp_conn *c,
				      struct tcp_accepted *a)
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
	if (!is_over && !accept_leave_older_socket(ep, c, a))
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
	if (!tcp_is_late(ep, c, a) && !accept_is_open(ep, c, a))
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
static const char *accept_turn_away(const struct tcp_accepted *a)
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

	if (!tcp_is_late(ep, c, a) && !accept_is_open(ep, c, a))
		return "this connection is there already";
	if (a->reconnects)
		problem = tcp_agree(ep, c, a);
	else if (tcp_is_late(ep, c, a))
		problem = accept_turn_away(a);
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
static bool accept_hears_all(struct tcp_endpoint *ep, struct tcp_accepted *a, const char **problem)
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
	if (accept_hears_all(ep, a, &problem)) {
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

#define ACCEPTS_MAX 64 /* at a time */
#define TURNED_AWAY 8  /* then memory is not lacking for a moment */

/* The oldest connection without a proof goes, unless its proof lies here already. One that was
 * answered knows the communicator's number, and where connections are not made again its rank takes
 * itself for connected when it has sent its proof: it goes last, while a rank that has not been
 * answered dials again. False: there is none. */
static bool tcp_drop_oldest(struct tcp_endpoint *ep, bool was_answered)
{
	struct admission_entry *oldest = admission_oldest(&ep->pending, was_answered);

	if (oldest)
		tcp_greet(ep, tcp_accepted_of(oldest), "too many connections without a proof");
	return oldest != NULL;
}

/* No connection can be accepted, so all connects fail that wait for a peer's dialing; unless
 * connections without a proof are there, which may leave soon. */
static void accept_refuse_all(struct tcp_endpoint *ep, const char *why)
{
	char kept[200];

	snprintf(kept, sizeof kept, "%.199s", why);
	for (struct tcp_conn *c = ep->conns; c && ep->pending.unproved == 0; c = c->next)
		if (c->is_owned && tcp_is_connecting(c))
			tcp_conn_refuse(c, kept);
}

/* Reads the first bytes of a new connection at once, so that it is further on when others come. */
static void accepted_add(struct tcp_endpoint *ep, int fd, const struct sockaddr *sockaddr)
{
	struct tcp_accepted *a = calloc(1, sizeof *a);

	ep->turned_away = a ? 0 : ep->turned_away + 1;
	if (!a) {
		close(fd);
		if (ep->turned_away >= TURNED_AWAY)
			accept_refuse_all(ep, "there is no memory to accept connections");
		return;
	}
	while (!admission_has_room(&ep->pending))
		if (!tcp_drop_oldest(ep, false))
			tcp_drop_oldest(ep, true);
	tcp_address_print(sockaddr, a->from);
	a->is_local = tcp_address_is_loopback(sockaddr);
	a->watch = (struct tcp_watch){.kind = WATCH_ACCEPTED, .fd = fd};
	a->next = ep->accepted;
	ep->accepted = a;
	admission_add(&ep->pending, &a->pending);
	tcp_ticking(ep);
	tcp_tune(fd);
	if (!a->is_local)
		tcp_tune_remote(ep, fd);
	if (tcp_watch_add(ep, &a->watch, EPOLLIN | EPOLLOUT | EPOLLRDHUP) != TUTTI_OK) {
		tcp_greet_drop(ep, a, "it cannot be watched");
		accept_refuse_all(ep, last_error());
	} else {
		tcp_greet(ep, a, NULL);
	}
}

/* None is accepted that could not be watched then: a rank that is hung up on dials again, and that
 * takes time. */
static bool accept_can_watch(struct tcp_endpoint *ep)
{
	if (tcp_epoll_open(ep) == TUTTI_OK)
		return true;
	log_seldom("tcp: rank %d cannot accept connections: %s", ep->rank, last_error());
	accept_refuse_all(ep, last_error());
	return false;
}

static void accept_fail(const struct tcp_endpoint *ep, int error)
{
	errno = error;
	fail_errno("rank %d cannot accept connections (accept4)", ep->rank);
	log_seldom("tcp: %s", last_error());
	errno = error;
}

void tcp_accept_all(struct tcp_endpoint *ep)
{
	ep->accept_again = false;
	for (int i = 0; i < ACCEPTS_MAX && accept_can_watch(ep); i++) {
		struct sockaddr_storage from = {0};
		socklen_t bytes = sizeof from;
		int fd = accept4(ep->listener.fd, (struct sockaddr *)&from, &bytes,
				 SOCK_NONBLOCK | SOCK_CLOEXEC);
		if (fd >= 0) {
			accepted_add(ep, fd, (struct sockaddr *)&from);
		} else if (errno == EAGAIN) {
			return;
		} else if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS ||
			   errno == ENOMEM) {
			int error = errno;
			if (!net_has_caller(ep->listener.fd))
				return;
			/* A connection that was answered keeps its descriptor: its rank may take
			 * itself for connected, and then this one for dead. */
			if (tcp_drop_oldest(ep, false))
				continue;
			accept_fail(ep, error);
			if (error == EMFILE || error == ENFILE)
				accept_refuse_all(ep, last_error());
			break;
		} else if (errno != EINTR && errno != ECONNABORTED && errno != EPROTO) {
			accept_fail(ep, errno);
			if (tried_of(errno) == TRIED_DENIED)
				accept_refuse_all(ep, last_error());
			return;
		}
	}
	/* The other connections get their turn first; the rest is accepted at the next tick. */
	ep->accept_again = true;
	tcp_ticking(ep);
}

void tcp_accept_tick(struct tcp_endpoint *ep, uint64_t now_ns)
{
	struct admission_entry *late;

	/* The proof of a late one may lie here already, and this rank was busy. */
	while ((late = admission_late(&ep->pending, now_ns)))
		tcp_greet(ep, tcp_accepted_of(late), "its greeting took too long");
	if (ep->accept_again)
		tcp_accept_all(ep);
}
