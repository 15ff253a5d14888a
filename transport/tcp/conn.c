/* A connection from connect to close: what is posted on it, how it fails, and how what the kernel
 * has taken is still delivered after it was closed. */
#include "transport/tcp/tcp.h"

#include "core/clock.h"
#include "core/log.h"
#include "core/resource_limits.h"
#include "core/status.h"

#include <assert.h>
#include <errno.h>
#include <linux/sockios.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#define DISCARD_BYTES 32768
#define DISCARD_CALLS 256 /* at a time, so that a peer that pours does not hold us */

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

static void queue_init(struct tcp_queue *q)
{
	q->head = NULL;
	q->tail = &q->head;
}

struct tutti_io *tcp_queue_pop(struct tcp_queue *q)
{
	struct tutti_io *io = q->head;

	if (io && !(q->head = io->next))
		q->tail = &q->head;
	return io;
}

void tcp_conn_finish(struct tcp_conn *c, struct tcp_queue *q)
{
	tutti_done_push(&tcp_endpoint_of(c)->finished, tcp_queue_pop(q), TUTTI_OK);
}

uint64_t tcp_connect_deadline(const struct tcp_endpoint *ep, int channel)
{
	return channel == TUTTI_CHANNEL_PATIENT ? DEADLINE_NONE : deadline_after_ms(ep->timeout_ms);
}

tutti_status tcp_conn_new(struct tcp_conn **conn, struct tcp_endpoint *ep, int peer, int channel)
{
	struct tcp_conn *c = calloc(1, sizeof *c);

	if (c) {
		c->ahead = malloc(TCP_AHEAD_BYTES);
		c->ended = calloc(1, sizeof *c->ended);
	}
	if (!c || !c->ahead || !c->ended) {
		if (c) {
			free(c->ahead);
			free(c->ended);
		}
		free(c);
		return fail(TUTTI_ERR_MEMORY, "tcp: no memory for a connection to rank %d", peer);
	}
	c->base.endpoint = &ep->base;
	c->base.peer = peer;
	c->base.channel = channel;
	c->watch = (struct tcp_watch){.kind = WATCH_CONN, .fd = -1};
	c->state = CONN_CLOSED;
	c->is_owned = true;
	c->deadline_ns = tcp_connect_deadline(ep, channel);
	queue_init(&c->sends);
	queue_init(&c->recvs);
	c->next = ep->conns;
	ep->conns = c;
	*conn = c;
	return TUTTI_OK;
}

/* before others get their turn */

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
		"peer "
		"has received %llu of %llu bytes, and only those from %llu on are kept (does a "
		"proxy between the ranks acknowledge bytes?)",
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
			      "the connection to rank %d (tcp %s) cannot be watched: %.100s",
			      c->base.peer, c->where, last_error());
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

static void post(struct tcp_conn *c, struct tcp_queue *q, struct tutti_io *io)
{
	struct tcp_endpoint *ep = tcp_endpoint_of(c);

	io->conn = &c->base;
	io->next = NULL;
	tutti_io_rewind(io);
	if (c->base.status != TUTTI_OK) {
		tutti_done_push(&ep->finished, io, c->base.status);
		return;
	}
	*q->tail = io;
	q->tail = &io->next;
	tcp_conn_busy(c);
}

void tcp_send(struct tutti_conn *conn, struct tutti_io *io)
{
	struct tcp_conn *c = (struct tcp_conn *)conn;
	post(c, &c->sends, io);
}

void tcp_recv(struct tutti_conn *conn, struct tutti_io *io)
{
	struct tcp_conn *c = (struct tcp_conn *)conn;
	post(c, &c->recvs, io);
}

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
static void linger(struct tcp_conn *c)
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
	c->deadline_ns = deadline_after_ms(TCP_LINGER_MS);
	tcp_conn_set_state(c, CONN_CLOSING);
	linger(c);
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
	while ((io = tcp_queue_pop(&c->recvs)))
		tutti_done_push(&ep->finished, io, status);
	while ((io = tcp_queue_pop(&c->sends)))
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

static void forget_finished(struct tcp_endpoint *ep, const struct tcp_conn *c)
{
	struct tutti_io **at = &ep->finished.head;

	while (*at) {
		if ((*at)->conn == &c->base)
			*at = (*at)->next;
		else
			at = &(*at)->next;
	}
	ep->finished.tail = at;
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

static void remember_ended(struct tcp_conn *c)
{
	struct tcp_endpoint *ep = tcp_endpoint_of(c);

	*c->ended =
		(struct tcp_ended){ep->ended, c->base.peer, c->base.channel,
				   c->base.status != TUTTI_OK || c->fails_after_drain != TUTTI_OK};
	ep->ended = c->ended;
	c->ended = NULL;
}

void tcp_close(struct tutti_conn *conn)
{
	struct tcp_conn *c = (struct tcp_conn *)conn;

	if (!c)
		return;
	queue_init(&c->sends);
	queue_init(&c->recvs);
	forget_finished(tcp_endpoint_of(c), c);
	forget_busy(tcp_endpoint_of(c), c);
	c->is_owned = false;
	if (c->reconnects || c->base.status != TUTTI_OK || c->fails_after_drain != TUTTI_OK)
		remember_ended(c);
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
		linger(c);
	if (c->state == CONN_CLOSED && !c->is_owned)
		tcp_conn_free(c);
}
