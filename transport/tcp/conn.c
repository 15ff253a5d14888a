/* A connection: how it begins, comes up, is watched, has ios posted, gets another socket, and ends.
 */
#include "transport/tcp/conn.h"

#include "core/clock.h"
#include "core/log.h"
#include "core/status.h"
#include "transport/done_list.h"
#include "transport/tcp/dial.h"

#include <errno.h>
#include <linux/sockios.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

static bool is_unsettled(enum tcp_state state)
{
	return state != CONN_UP && state != CONN_CLOSED;
}

void tcp_conn_set_state(struct tcp_conn *c, enum tcp_state state)
{
	struct tcp_endpoint *ep = tcp_endpoint_of(c);

	ep->unsettled += (int)is_unsettled(state) - (int)is_unsettled(c->state);
	c->state = state;
	tcp_ticking(ep);
}

void tcp_conn_finish(struct tcp_conn *c, struct tutti_done *queue)
{
	tutti_done_push(&tcp_endpoint_of(c)->finished, tutti_done_pop(queue), TUTTI_OK);
}

uint64_t tcp_connect_deadline(const struct tcp_endpoint *ep, int channel)
{
	return channel == TUTTI_CHANNEL_PATIENT ? DEADLINE_NONE : deadline_after_ms(ep->timeout_ms);
}

tutti_status tcp_conn_new(struct tcp_conn **conn, struct tcp_endpoint *ep, int peer, int channel)
{
	struct tcp_conn *c = calloc(1, sizeof *c);

	if (!c || !(c->ahead = malloc(TCP_AHEAD_BYTES)) ||
	    !(c->ended = calloc(1, sizeof *c->ended))) {
		if (c)
			free(c->ahead);
		free(c);
		return fail(TUTTI_ERR_MEMORY,
			    "rank %d has no memory for a tcp connection to rank %d", ep->rank,
			    peer);
	}
	c->base.endpoint = &ep->base;
	c->base.peer = peer;
	c->base.channel = channel;
	c->watch = (struct tcp_watch){.kind = WATCH_CONN, .fd = -1};
	c->state = CONN_CLOSED;
	c->is_owned = true;
	c->deadline_ns = tcp_connect_deadline(ep, channel);
	tutti_done_init(&c->sends);
	tutti_done_init(&c->recvs);
	c->next = ep->conns;
	ep->conns = c;
	*conn = c;
	return TUTTI_OK;
}

void tcp_conn_add_alarm(struct tcp_conn *c)
{
	struct tcp_endpoint *ep = tcp_endpoint_of(c);
	/* Errors and hang-ups are always told. */
	struct epoll_event event = {.events = EPOLLET, .data.ptr = &c->watch};

	c->has_alarm = false;
	if (c->reconnects && c->watch.fd >= 0 && ep->alarm.fd >= 0)
		c->has_alarm = epoll_ctl(ep->alarm.fd, EPOLL_CTL_ADD, c->watch.fd, &event) == 0;
}

struct tcp_conn *tcp_conn_for(const struct tcp_endpoint *ep, int peer, int channel)
{
	for (struct tcp_conn *c = ep->conns; c; c = c->next)
		if (c->is_owned && c->base.peer == peer && c->base.channel == channel)
			return c;
	return NULL;
}

void tcp_conn_up(struct tcp_conn *c)
{
	_Static_assert(sizeof c->base.where == sizeof c->where, "addresses");
	free(c->dial);
	c->dial = NULL;
	c->may_read = c->may_write = c->is_watched = true;
	c->at_end = c->has_hung_up = false;
	c->write_error = 0;
	c->resend.was_up = true;
	memcpy(c->base.where, c->where, sizeof c->base.where);
	tcp_conn_set_state(c, CONN_UP);
	tcp_conn_add_alarm(c);
	log_debug("tcp: rank %d is connected at %s, channel %d", c->base.peer, c->where,
		  c->base.channel);
}

void tcp_conn_up_at(struct tcp_conn *c, uint64_t position)
{
	struct tcp_resend *r = &c->resend;

	tcp_conn_up(c);
	if (!c->reconnects)
		return;
	if (tcp_resend_from(r, position)) {
		if (tcp_must_resend(c))
			tcp_conn_busy(c);
		return;
	}
	tcp_conn_fail(
		c, TUTTI_ERR_PEER,
		"the connection from rank %d to rank %d (tcp %s, channel %d) cannot go on: the "
		"peer has received %llu of %llu bytes, and only those from %llu on are kept (does "
		"a proxy between the ranks acknowledge bytes?)",
		tcp_endpoint_of(c)->rank, c->base.peer, c->where, c->base.channel,
		(unsigned long long)position, (unsigned long long)r->sent,
		(unsigned long long)r->kept_from);
}

/* Being watched makes every message dearer, so a conn that is read all the time is not
 * watched. It is watched again before it is left, and epoll tells what came in between. */
void tcp_conn_watch(struct tcp_conn *c)
{
	c->calm = 0;
	if (c->is_watched || c->watch.fd < 0)
		return;
	c->is_watched = true;
	if (tcp_watch_add(tcp_endpoint_of(c), &c->watch, EPOLLIN | EPOLLOUT | EPOLLRDHUP) !=
	    TUTTI_OK)
		tcp_conn_fail(c, TUTTI_ERR_SYSTEM,
			      "rank %d cannot watch its connection to rank %d (tcp %s): %.200s",
			      tcp_endpoint_of(c)->rank, c->base.peer, c->where, last_error());
}

void tcp_conn_unwatch(struct tcp_conn *c)
{
	if (epoll_ctl(tcp_endpoint_of(c)->epoll_fd, EPOLL_CTL_DEL, c->watch.fd, NULL) == 0)
		c->is_watched = false;
}

void tcp_conn_busy(struct tcp_conn *c)
{
	struct tcp_endpoint *ep = tcp_endpoint_of(c);

	if (c->is_busy)
		return;
	c->is_busy = true;
	c->next_busy = ep->busy;
	ep->busy = c;
}

void tcp_conn_post(struct tcp_conn *c, struct tutti_done *queue, struct tutti_io *io)
{
	io->conn = &c->base;
	tutti_io_rewind(io);
	if (c->base.status != TUTTI_OK) {
		tutti_done_push(&tcp_endpoint_of(c)->finished, io, c->base.status);
		return;
	}
	tutti_done_push(queue, io, TUTTI_IN_PROGRESS);
	tcp_conn_busy(c);
}

/* The end of a connection: how it fails, or is closed, and how what the kernel has taken by then is
 * still delivered. */

#define DISCARD_BYTES 32768
#define DISCARD_CALLS 256   /* at a time, so that a peer that pours does not hold us */
#define LINGER_MS     10000 /* a closed connection's time to deliver what was sent */

static void end_socket(struct tcp_conn *c)
{
	tcp_watch_close(tcp_endpoint_of(c), &c->watch);
	c->is_watched = false;
	free(c->dial);
	c->dial = NULL;
	tcp_conn_set_state(c, CONN_CLOSED);
}

/* Whether all that is ours to say has gone, our end with it. */
static bool say_end(struct tcp_conn *c)
{
	if (c->has_said_end)
		return true;
	if (c->watch.tls && tls_end(c->watch.tls) != 0 && errno == EAGAIN)
		return false;
	shutdown(c->watch.fd, SHUT_WR);
	c->has_said_end = true;
	return true;
}

/* Closing a socket with unread data makes the kernel throw away what it has not delivered yet. So
 * we end our direction, drop what still comes in, and close when the peer's kernel has it all. */
static void tcp_linger(struct tcp_conn *c)
{
	uint8_t dropped[DISCARD_BYTES];
	bool has_said_all = say_end(c);
	ssize_t n = 1;
	int undelivered = 0;

	for (int i = 0; i < DISCARD_CALLS && n > 0; i++)
		n = recv(c->watch.fd, dropped, sizeof dropped, MSG_DONTWAIT);
	if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR) ||
	    ioctl(c->watch.fd, SIOCOUTQ, &undelivered) != 0 || (has_said_all && undelivered == 0))
		end_socket(c);
}

static void begin_closing(struct tcp_conn *c)
{
	if (c->state != CONN_UP) {
		if (c->state != CONN_CLOSING)
			end_socket(c);
		return;
	}
	c->deadline_ns = deadline_after_ms(LINGER_MS);
	tcp_conn_set_state(c, CONN_CLOSING);
	tcp_linger(c);
	if (c->state == CONN_CLOSING)
		tcp_conn_watch(c);
}

bool tcp_conn_has_unread(const struct tcp_conn *c)
{
	return tcp_read_ahead(c) || c->resend.unread.end > c->resend.unread.at ||
	       tcp_stream_has_unread(&c->watch);
}

void tcp_conn_fail(struct tcp_conn *c, tutti_status status, const char *format, ...)
{
	struct tcp_endpoint *ep = tcp_endpoint_of(c);
	struct tutti_io *io;
	va_list args;

	va_start(args, format);
	vsnprintf(c->base.error, sizeof c->base.error, format, args);
	va_end(args);
	c->base.status = status;
	log_info("tcp: %s", c->base.error);
	while ((io = tutti_done_pop(&c->recvs)))
		tutti_done_push(&ep->finished, io, status);
	while ((io = tutti_done_pop(&c->sends)))
		tutti_done_push(&ep->finished, io, status);
	if (status == TUTTI_ERR_PEER)
		end_socket(c);
	else
		begin_closing(c);
}

void tcp_conn_fail_after_drain(struct tcp_conn *c, tutti_status status, const char *format, ...)
{
	char message[sizeof c->base.error];
	va_list args;

	va_start(args, format);
	vsnprintf(message, sizeof message, format, args);
	va_end(args);
	if (!tcp_conn_has_unread(c)) {
		tcp_conn_fail(c, status, "%s", message);
		return;
	}
	memcpy(c->base.error, message, sizeof message);
	c->fails_after_drain = status;
	tcp_watch_close(tcp_endpoint_of(c), &c->watch);
	tcp_conn_up(c);
	c->is_watched = c->may_write = false;
	c->write_error = ECONNRESET;
	c->resend.again = c->resend.sent;
	tcp_conn_busy(c);
}

void tcp_conn_refuse(struct tcp_conn *c, const char *why)
{
	tcp_conn_fail(c, TUTTI_ERR_SYSTEM,
		      "rank %d cannot connect to rank %d (tcp, channel %d): %.200s",
		      tcp_endpoint_of(c)->rank, c->base.peer, c->base.channel, why);
}

static void forget_busy(struct tcp_endpoint *ep, struct tcp_conn *c)
{
	struct tcp_conn **at = &ep->busy;

	while (*at && *at != c)
		at = &(*at)->next_busy;
	if (*at)
		*at = c->next_busy;
	c->is_busy = false;
}

static void tcp_remember_ended(struct tcp_conn *c)
{
	struct tcp_endpoint *ep = tcp_endpoint_of(c);
	bool is_over =
		!c->resend.was_up || c->base.status != TUTTI_OK || c->fails_after_drain != TUTTI_OK;

	if (!is_over && !c->reconnects)
		return;
	*c->ended = (struct tcp_ended){ep->ended, c->base.peer, c->base.channel, is_over};
	ep->ended = c->ended;
	c->ended = NULL;
}

void tcp_close(struct tutti_conn *conn)
{
	struct tcp_conn *c = (struct tcp_conn *)conn;

	if (!c)
		return;
	tutti_done_init(&c->sends);
	tutti_done_init(&c->recvs);
	done_list_forget(&tcp_endpoint_of(c)->finished, conn);
	forget_busy(tcp_endpoint_of(c), c);
	c->is_owned = false;
	tcp_remember_ended(c);
	begin_closing(c);
	if (c->state == CONN_CLOSED)
		tcp_conn_free(c);
}

void tcp_conn_free(struct tcp_conn *c)
{
	struct tcp_endpoint *ep = tcp_endpoint_of(c);
	struct tcp_conn **at = &ep->conns;

	end_socket(c);
	forget_busy(ep, c);
	while (*at != c)
		at = &(*at)->next;
	*at = c->next;
	free(c->ended);
	tcp_resend_free(&c->resend);
	free(c->ahead);
	free(c);
}

void tcp_conn_linger(struct tcp_conn *c, uint64_t now_ns)
{
	if (now_ns >= c->deadline_ns)
		end_socket(c);
	else
		tcp_linger(c);
	if (c->state == CONN_CLOSED && !c->is_owned)
		tcp_conn_free(c);
}

/* A socket that breaks between live ranks (a link that flaps, a middlebox that forgets) is replaced
 * by another one, and no call notices. Both ends dial, as they did first (dial.c), at the address
 * that led to the peer before. If every address refuses, the peer is gone. If none answers, the
 * rank tries again, for as long and as often as is configured; but a peer whose kernel takes the
 * connection is alive, and may be busy elsewhere for longer than that.
 *
 * Sockets of a connection are numbered. The number is in what both ends prove, and one that is not
 * larger than that of the socket in use is refused: a late greeting changes nothing. */

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
