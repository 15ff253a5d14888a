/* Accepted sockets. A a is a stranger until it has proved the job's key; strangers are few, are
 * dropped when their time is up, and disturb nobody. A known a, one per peer and channel, waits
 * for this rank to connect. */
#include "transport/tcp/tcp.h"

#include "core/clock.h"
#include "core/log.h"
#include "core/net.h"
#include "core/resource_limits.h"
#include "core/status.h"
#include "core/admission.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define ACCEPTS_MAX 64 /* at a time */

/* It has gone, or is no stranger any more. */
static void give_place_back(struct tcp_endpoint *ep)
{
	ep->pending--;
	admission_leave();
	tcp_ticking(ep);
}

static void count_arriving(struct tcp_endpoint *ep, int more)
{
	ep->arriving += more;
	tcp_ticking(ep);
}

static void accepted_look(struct tcp_endpoint *ep, struct tcp_accepted *a, const char *drop);

static void accepted_free(struct tcp_endpoint *ep, struct tcp_accepted *a)
{
	struct tcp_accepted **at = &ep->accepted;

	while (*at != a)
		at = &(*at)->next;
	*at = a->next;
	if (!a->has_proved)
		give_place_back(ep);
	else if (!a->is_known)
		count_arriving(ep, -1);
	tcp_watch_close(ep, &a->watch);
	tcp_unread_free(&a->unread);
	free(a);
}

static bool is_connecting(const struct tcp_conn *c)
{
	return c->state == CONN_WAITING || c->state == CONN_DIALING || c->state == CONN_GREETING;
}

static struct tcp_conn *conn_for(struct tcp_endpoint *ep, int peer, int channel)
{
	for (struct tcp_conn *c = ep->conns; c; c = c->next)
		if (c->is_owned && c->base.peer == peer && c->base.channel == channel)
			return c;
	return NULL;
}

static void accepted_drop(struct tcp_endpoint *ep, struct tcp_accepted *a, const char *why)
{
	bool was_near = a->has_greeted && !a->is_known;
	struct tcp_conn *c = was_near ? conn_for(ep, a->peer, a->channel) : NULL;

	log_seldom("tcp: dropped a connection from %s: %s", a->from, why);
	accepted_free(ep, a);
	if (c)
		tcp_dial_continue(c);
}

bool tcp_accepted_is_greeting(const struct tcp_conn *c)
{
	const struct tcp_accepted *a = tcp_endpoint_of(c)->accepted;

	while (a && (!a->has_greeted || a->is_known || a->peer != c->base.peer ||
		     a->channel != c->base.channel))
		a = a->next;
	return a != NULL;
}

static struct tcp_accepted *oldest_pending(struct tcp_endpoint *ep, bool has_greeted)
{
	struct tcp_accepted *a = ep->accepted;

	while (a && (a->has_proved || a->has_greeted != has_greeted))
		a = a->next;
	return a;
}

/* Makes room: who has been a stranger for longest goes first, unless its proof lies here already.
 * Who has greeted knows the communicator's number, and where nothing reconnects it takes itself for
 * connected when it has sent its proof: it goes last, while who has not been answered dials again.
 * False: there is none. */
static bool drop_oldest_pending(struct tcp_endpoint *ep)
{
	struct tcp_accepted *a = oldest_pending(ep, false);

	if (!a)
		a = oldest_pending(ep, true);
	if (a)
		accepted_look(ep, a, "too many connections without a proof");
	return a != NULL;
}

/* No descriptor is left. Who has been answered is not dropped for that: it would be a rank that
 * takes itself for connected, and then this one for dead. It proves itself, or its time is up. */
static bool free_descriptor(struct tcp_endpoint *ep)
{
	struct tcp_accepted *a = oldest_pending(ep, false);

	if (a)
		accepted_look(ep, a, "too many connections without a proof");
	return a != NULL;
}

/* Nobody can be let in: who waits for somebody waits in vain. Strangers may leave soon. */
static void refuse_all(struct tcp_endpoint *ep, const char *why)
{
	char kept[200];

	snprintf(kept, sizeof kept, "%.199s", why);
	for (struct tcp_conn *c = ep->conns; c && ep->pending == 0; c = c->next)
		if (c->is_owned && is_connecting(c))
			tcp_conn_refuse(c, kept);
}

/* Who calls is heard at once, so that it is further on when others come. */
static void accepted_add(struct tcp_endpoint *ep, int fd, const struct sockaddr *sockaddr)
{
	struct tcp_accepted *a = calloc(1, sizeof *a), **at = &ep->accepted;

	ep->turned_away = a ? 0 : ep->turned_away + 1;
	if (!a) {
		close(fd);
		if (ep->turned_away >= TCP_TURNED_AWAY)
			refuse_all(ep, "there is no memory to accept connections");
		return;
	}
	while (!admission_enter(ep->pending, TCP_PENDING + ep->size))
		drop_oldest_pending(ep);
	tcp_address_print(sockaddr, a->from);
	a->is_local = tcp_address_is_loopback(sockaddr);
	a->watch = (struct tcp_watch){.kind = WATCH_ACCEPTED, .fd = fd};
	a->deadline_ns = deadline_after_ms(TCP_PENDING_MS);
	while (*at)
		at = &(*at)->next;
	*at = a;
	ep->pending++;
	tcp_ticking(ep);
	tcp_tune(fd);
	if (!a->is_local)
		tcp_tune_remote(ep, fd);
	if (tcp_watch_add(ep, &a->watch, EPOLLIN | EPOLLOUT | EPOLLRDHUP) != TUTTI_OK) {
		accepted_drop(ep, a, "it cannot be watched");
		refuse_all(ep, last_error());
	} else {
		accepted_look(ep, a, NULL);
	}
}

/* Whoever is left waits for the next tick, and those that are here get their turn. */
static void accept_later(struct tcp_endpoint *ep)
{
	ep->accept_again = true;
	tcp_ticking(ep);
}

void tcp_accept_all(struct tcp_endpoint *ep)
{
	char files[OPEN_FILES_LIMIT_BYTES];

	ep->accept_again = false;
	for (int i = 0; i < ACCEPTS_MAX; i++) {
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
			if (free_descriptor(ep))
				continue;
			log_seldom("tcp: rank %d cannot accept connections: %s", ep->rank,
				   strerror(error));
			if (error == EMFILE || error == ENFILE)
				refuse_all(ep, open_files_limit_text(files));
			break;
		} else if (errno != EINTR && errno != ECONNABORTED && errno != EPROTO) {
			log_seldom("tcp: accept: %s", strerror(errno));
			return;
		}
	}
	accept_later(ep);
}

/* Who it claims to be, for this communicator and this rank. */
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

/* Who came before for the same peer and channel, and is kept. */
static struct tcp_accepted *older_duplicate(struct tcp_endpoint *ep, const struct tcp_accepted *a)
{
	struct tcp_accepted *twin = ep->accepted;

	while (twin && (twin == a || !twin->is_known || twin->peer != a->peer ||
			twin->channel != a->channel))
		twin = twin->next;
	return twin;
}

/* Whether a a may become this conn's socket. (NULL: it will be kept.) One that reconnects takes
 * another socket's place at any time, but never one that is younger than itself. */
static bool is_open(struct tcp_endpoint *ep, const struct tcp_conn *c, const struct tcp_accepted *a)
{
	const struct tcp_accepted *twin = c ? NULL : older_duplicate(ep, a);

	if (!c)
		return !twin || !a->reconnects || a->epoch > twin->epoch;
	/* Nor one that is older than what we have proved ourselves to the peer: that proof may
	 * still lie in a socket of it, dead perhaps, and would take the place of this one, which
	 * the peer then ends. */
	if (a->reconnects && a->epoch < c->resend.next_epoch)
		return false;
	return is_connecting(c) || (c->reconnects && a->reconnects && c->state == CONN_UP);
}

/* The connection that it wants to go on with was closed here; or the one that it wants has failed
 * here, and what comes too late must not wait for it. */
static bool is_late(const struct tcp_endpoint *ep, const struct tcp_conn *c,
		    const struct tcp_accepted *a)
{
	const struct tcp_ended *ended = ep->ended;

	if (c)
		return c->base.status != TUTTI_OK || c->fails_after_drain != TUTTI_OK;
	while (ended && (ended->peer != a->peer || ended->channel != a->channel))
		ended = ended->next;
	return ended && (ended->has_failed || a->epoch > 0);
}

static const char *take_hello(struct tcp_endpoint *ep, struct tcp_accepted *a)
{
	uint8_t answer[AUTH_ANSWER_BYTES];
	const struct tcp_conn *c;

	if (auth_take_hello(&a->auth, ep->key, a->bytes, answer) != TUTTI_OK)
		return "it is no rank of a job";
	if (!take_context(ep, a))
		return "it asked for another communicator or rank";
	c = conn_for(ep, a->peer, a->channel);
	if (!is_late(ep, c, a) && !is_open(ep, c, a))
		return "this connection is there already";
	if (send(a->watch.fd, answer, sizeof answer, MSG_NOSIGNAL) != (ssize_t)sizeof answer)
		return "it could not be answered";
	a->has_greeted = true;
	a->have = 0;
	return NULL;
}

/* What came on the socket whose place it takes is not sent again: the peer was told by its kernel
 * that it had arrived. */
static bool leave_older_socket(struct tcp_endpoint *ep, struct tcp_conn *c, struct tcp_accepted *a)
{
	struct tcp_accepted *twin = c ? NULL : older_duplicate(ep, a);

	if (c)
		return c->state != CONN_UP || (tcp_reconnect(c, ECONNRESET) && is_connecting(c));
	if (!twin)
		return true;
	a->unread = twin->unread;
	twin->unread = (struct tcp_unread){0};
	return tcp_unread_take(&a->unread, &twin->watch);
}

/* Each end says how far it has come in the other's stream, and goes on from there. */
static const char *agree(struct tcp_endpoint *ep, struct tcp_conn *c, struct tcp_accepted *a)
{
	bool is_over = is_late(ep, c, a);
	uint8_t bytes[TCP_POSITION_BYTES];
	struct iovec position = {bytes, sizeof bytes};

	a->position = tcp_position_read(a->bytes);
	if (!is_over && !leave_older_socket(ep, c, a))
		return "the socket before it cannot be left";
	if (is_over)
		tcp_position_write(bytes, TCP_STREAM_CLOSED);
	else
		tcp_position_write(bytes, c ? c->resend.received : a->unread.end);
	/* If it has broken already, it reconnects once it is the conn's. Nothing else may follow a
	 * part of this. */
	if (tcp_stream_send(&a->watch, &position, 1) != (ssize_t)sizeof bytes) {
		shutdown(a->watch.fd, SHUT_RDWR);
		a->is_broken = true;
	}
	return is_over ? "its connection has been closed" : NULL;
}

/* It is a rank of the job, and gets the time that it needs for the rest. */
static const char *take_proof(struct tcp_endpoint *ep, struct tcp_accepted *a)
{
	const struct tcp_conn *c;

	if (auth_check_proof(&a->auth, a->bytes) != TUTTI_OK)
		return "it could not prove the job's secret";
	c = conn_for(ep, a->peer, a->channel);
	if (!is_late(ep, c, a) && !is_open(ep, c, a))
		return "this connection is there already";
	a->has_proved = true;
	a->have = 0;
	a->deadline_ns = deadline_after_ms(TCP_PENDING_MS);
	give_place_back(ep);
	count_arriving(ep, 1);
	a->is_secure = !ep->has_tls;
	if (ep->has_tls && !tcp_stream_secure(&a->watch, &a->auth, false))
		return "there is no memory for TLS";
	return NULL;
}

static const char *shake(struct tcp_accepted *a)
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
	return "its connection has failed";
}

/* Nothing is missing of its greeting. */
static const char *arrive(struct tcp_endpoint *ep, struct tcp_accepted *a)
{
	struct tcp_conn *c = conn_for(ep, a->peer, a->channel);
	const char *problem = NULL;
	struct tcp_accepted *twin;

	if (!is_late(ep, c, a) && !is_open(ep, c, a))
		return "this connection is there already";
	if (a->reconnects)
		problem = agree(ep, c, a);
	else if (is_late(ep, c, a))
		problem = turn_away(a);
	if (problem)
		return problem;
	/* A dialer that gave up and dialed again: only its last attempt counts. */
	twin = older_duplicate(ep, a);
	if (twin)
		accepted_drop(ep, twin, "the same rank came again");
	a->is_known = true;
	count_arriving(ep, -1);
	if (c)
		tcp_accepted_adopt(c);
	return NULL;
}

/* Reads what is missing of what comes next; never more, for what follows is the conn's. */
static bool accepted_read(struct tcp_accepted *a, size_t bytes, const char **problem)
{
	while (a->have < bytes) {
		struct iovec rest = {a->bytes + a->have, bytes - a->have};
		ssize_t n = tcp_stream_recv(&a->watch, &rest, 1);
		if (n > 0) {
			a->have += (size_t)n;
			continue;
		}
		if (n == 0)
			*problem = "it hung up before its greeting was over";
		else if (errno != EAGAIN)
			*problem = strerror(errno);
		return false;
	}
	return true;
}

/* Whether nothing is missing of its greeting. problem: why it cannot stay. */
static bool hears_all(struct tcp_endpoint *ep, struct tcp_accepted *a, const char **problem)
{
	if (!a->has_greeted && accepted_read(a, AUTH_HELLO_BYTES, problem))
		*problem = take_hello(ep, a);
	if (!*problem && a->has_greeted && !a->has_proved &&
	    accepted_read(a, AUTH_PROOF_BYTES, problem))
		*problem = take_proof(ep, a);
	if (!*problem && a->has_proved && !a->is_secure)
		*problem = shake(a);
	if (*problem || !a->is_secure)
		return false;
	return !a->reconnects || accepted_read(a, TCP_POSITION_BYTES, problem);
}

/* Afterwards the a may be gone: dropped, or somebody's socket. drop: why it is dropped if it
 * has not proved itself by now; NULL: it may stay. */
static void accepted_look(struct tcp_endpoint *ep, struct tcp_accepted *a, const char *drop)
{
	bool had_proved = a->has_proved;
	const char *problem = NULL;
	bool was_answered = a->has_greeted;

	if (hears_all(ep, a, &problem)) {
		problem = arrive(ep, a);
		if (!problem)
			return;
	}
	/* Who was answered just now may believe that it is connected soon. */
	if (!problem && (was_answered || !a->has_greeted) && a->has_proved == had_proved)
		problem = drop;
	if (problem)
		accepted_drop(ep, a, problem);
}

void tcp_accepted_event(struct tcp_endpoint *ep, struct tcp_accepted *a)
{
	if (!a->is_known)
		accepted_look(ep, a, NULL);
}

static void take_terms(struct tcp_conn *c, struct tcp_accepted *a)
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

/* A dial of its own that is under way ends with this. */
bool tcp_accepted_adopt(struct tcp_conn *c)
{
	struct tcp_endpoint *ep = tcp_endpoint_of(c);
	struct epoll_event event = {.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET,
				    .data.ptr = &c->watch};

	for (struct tcp_accepted *a = ep->accepted; a; a = a->next) {
		if (!a->is_known || a->peer != c->base.peer || a->channel != c->base.channel)
			continue;
		uint64_t position = a->position;
		bool is_broken = a->is_broken;
		take_terms(c, a);
		memcpy(c->where, a->from, sizeof c->where);
		tcp_watch_close(ep, &c->watch);
		c->watch.fd = a->watch.fd;
		c->watch.tls = a->watch.tls;
		a->watch.fd = -1;
		a->watch.tls = NULL;
		accepted_free(ep, a);
		/* It is watched already and memory was taken then, so this cannot fail. */
		epoll_ctl(ep->epoll_fd, EPOLL_CTL_MOD, c->watch.fd, &event);
		tcp_conn_up(c);
		if (c->reconnects)
			tcp_resend_at(c, position);
		if (is_broken) {
			c->write_error = ECONNRESET;
			tcp_conn_busy(c);
		}
		return true;
	}
	return false;
}

static struct tcp_accepted *late_pending(const struct tcp_endpoint *ep, uint64_t now_ns)
{
	struct tcp_accepted *a = ep->accepted;

	while (a && (a->is_known || now_ns < a->deadline_ns))
		a = a->next;
	return a;
}

void tcp_accepted_tick(struct tcp_endpoint *ep, uint64_t now_ns)
{
	struct tcp_accepted *late;

	/* Its proof may lie here already, and we have been busy. */
	while ((late = late_pending(ep, now_ns)))
		accepted_look(ep, late, "its greeting took too long");
	if (ep->accept_again)
		tcp_accept_all(ep);
}

void tcp_accepted_free_all(struct tcp_endpoint *ep)
{
	while (ep->accepted)
		accepted_free(ep, ep->accepted);
}
