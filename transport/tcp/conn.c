/* A connection: how it begins, comes up, is watched, has ios posted, and ends; bytes that may be
 * lost with its socket. */
#include "transport/tcp/conn.h"

#include "core/clock.h"
#include "core/log.h"
#include "core/status.h"
#include "transport/done_list.h"

#include <endian.h>
#include <errno.h>
#include <linux/sockios.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

/* Why no byte of a connection is lost or doubled when its socket breaks.
 *
 * An io is done when its bytes have gone into the kernel, and some of them may be on their way
 * then. So the last bytes that went into the socket are kept in a ring, as many as the kernel
 * says (SIOCOUTQ) the peer's kernel has not got yet. Bytes that the peer's kernel has are not
 * lost: they can be read from a socket that was reset, and are, before the socket is closed. Then
 * each end says how many bytes it has received, and the other goes on from there: first the bytes
 * in the ring, then new ones. No acknowledgement is ever sent, and a receiver that reads nothing
 * for long holds up no other rank. */

#define REST_STEP  65536u
#define ASK_BYTES  16384u /* from here on asking what is delivered costs less than copying it */
#define KEPT_FIRST 65536u /* bytes of sent ones that are kept, ... */
#define KEPT_MOST  (64u << 20) /* ... as far as the kernel says that the peer lacks them */

uint64_t tcp_position_read(const uint8_t bytes[TCP_POSITION_BYTES])
{
	uint64_t position;

	memcpy(&position, bytes, sizeof position);
	return le64toh(position);
}

void tcp_unread_free(struct tcp_unread *unread)
{
	free(unread->bytes);
	*unread = (struct tcp_unread){0};
}

static bool tcp_conn_unread_grow(struct tcp_unread *unread)
{
	size_t room = unread->room ? 2 * unread->room : REST_STEP;
	uint8_t *bytes = realloc(unread->bytes, room);

	if (!bytes)
		return false;
	unread->bytes = bytes;
	unread->room = room;
	return true;
}

bool tcp_unread_take(struct tcp_unread *unread, const struct tcp_watch *watch)
{
	for (;;) {
		struct iovec room;
		ssize_t n;
		if (unread->end == unread->room && !tcp_conn_unread_grow(unread))
			return false;
		room = (struct iovec){unread->bytes + unread->end, unread->room - unread->end};
		n = tcp_stream_recv(watch, &room, 1);
		if (n <= 0)
			break;
		unread->end += (size_t)n;
	}
	if (unread->at == unread->end)
		tcp_unread_free(unread);
	return true;
}

static void tcp_ring_write(uint8_t *ring, size_t ring_bytes, uint64_t position, const uint8_t *from,
			   size_t bytes)
{
	while (bytes > 0) {
		size_t at = position & (ring_bytes - 1), step = ring_bytes - at;
		step = step < bytes ? step : bytes;
		memcpy(ring + at, from, step);
		position += step;
		from += step;
		bytes -= step;
	}
}

/* A larger ring with the same bytes. Without memory for it the older ones are not kept; whether
 * they were needed shows if the socket breaks. */
static void tcp_conn_ring_grow(struct tcp_resend *r, uint64_t needed)
{
	size_t bytes = KEPT_FIRST, old = r->kept_bytes;
	uint8_t *ring;

	while (bytes < needed && bytes < KEPT_MOST)
		bytes *= 2;
	ring = bytes > old ? malloc(bytes) : NULL;
	if (!ring)
		return;
	for (uint64_t p = r->kept_from; p < r->sent;) {
		size_t at = p & (old - 1), step = old - at;
		step = step < r->sent - p ? step : (size_t)(r->sent - p);
		tcp_ring_write(ring, bytes, p, r->kept + at, step);
		p += step;
	}
	free(r->kept);
	r->kept = ring;
	r->kept_bytes = bytes;
}

/* For so many bytes more, which the socket has already. Returns how many of them need not be kept:
 * the first ones. */
static size_t tcp_make_room(struct tcp_conn *c, size_t bytes)
{
	struct tcp_resend *r = &c->resend;
	uint64_t end = r->sent + bytes;
	int undelivered = 0;
	size_t skip;

	if (bytes < ASK_BYTES && end - r->delivered <= r->kept_bytes)
		return 0;
	if (ioctl(c->watch.fd, SIOCOUTQ, &undelivered) == 0) {
		/* Of TLS a record of which a byte is missing is as good as none; and a greeting may
		 * be among what is on its way. */
		uint64_t lacking = (uint64_t)undelivered + (c->watch.tls ? TLS_RECORD_BYTES : 0);
		if (r->delivered + lacking < end)
			r->delivered = end - lacking;
	}
	if (end - r->delivered > r->kept_bytes || r->kept_bytes == 0)
		tcp_conn_ring_grow(r, end - r->delivered);
	skip = bytes > r->kept_bytes ? bytes - r->kept_bytes : 0;
	if (r->delivered > r->sent + skip)
		skip = (size_t)(r->delivered - r->sent);
	return skip;
}

void tcp_resend_keep(struct tcp_conn *c, const struct iovec *iov, size_t bytes)
{
	struct tcp_resend *r = &c->resend;
	size_t skip = tcp_make_room(c, bytes);

	if (skip > 0)
		r->kept_from = r->sent + skip;
	for (; bytes > 0; iov++) {
		const uint8_t *from = iov->iov_base;
		size_t step = iov->iov_len < bytes ? iov->iov_len : bytes;
		size_t skipped = skip < step ? skip : step;
		if (step > skipped)
			tcp_ring_write(r->kept, r->kept_bytes, r->sent + skipped, from + skipped,
				       step - skipped);
		skip -= skipped;
		r->sent += step;
		bytes -= step;
	}
	r->again = r->sent;
	if (r->sent - r->kept_from > r->kept_bytes)
		r->kept_from = r->sent - r->kept_bytes;
}

/* Another socket is up, and the peer has so much of our stream. False: the bytes behind that are
 * not kept. */
static bool tcp_resend_from(struct tcp_resend *r, uint64_t position)
{
	if (position < r->kept_from || position > r->sent)
		return false;
	r->again = r->delivered = position;
	return true;
}

bool tcp_resend_some(struct tcp_conn *c)
{
	struct tcp_resend *r = &c->resend;
	bool moved = false;

	while (tcp_must_resend(c) && c->may_write) {
		size_t at = r->again & (r->kept_bytes - 1), step = r->kept_bytes - at;
		struct iovec rest;
		ssize_t n;
		step = step < r->sent - r->again ? step : (size_t)(r->sent - r->again);
		rest = (struct iovec){r->kept + at, step};
		n = tcp_stream_send(&c->watch, &rest, 1);
		if (n > 0) {
			r->again += (uint64_t)n;
			moved = true;
		} else if (n < 0) {
			c->may_write = false;
			if (errno != EAGAIN && !c->write_error)
				c->write_error = errno;
		}
	}
	return moved;
}

static void tcp_resend_free(struct tcp_resend *r)
{
	free(r->kept);
	tcp_unread_free(&r->unread);
}

static bool tcp_conn_is_unsettled(enum tcp_state state)
{
	return state != CONN_UP && state != CONN_CLOSED;
}

void tcp_conn_set_state(struct tcp_conn *c, enum tcp_state state)
{
	struct tcp_endpoint *ep = tcp_endpoint_of(c);

	ep->unsettled += (int)tcp_conn_is_unsettled(state) - (int)tcp_conn_is_unsettled(c->state);
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

static void tcp_conn_end_socket(struct tcp_conn *c)
{
	tcp_watch_close(tcp_endpoint_of(c), &c->watch);
	c->is_watched = false;
	free(c->dial);
	c->dial = NULL;
	tcp_conn_set_state(c, CONN_CLOSED);
}

/* Whether all that is ours to say has gone, our end with it. */
static bool tcp_conn_say_end(struct tcp_conn *c)
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
	bool has_said_all = tcp_conn_say_end(c);
	ssize_t n = 1;
	int undelivered = 0;

	for (int i = 0; i < DISCARD_CALLS && n > 0; i++)
		n = recv(c->watch.fd, dropped, sizeof dropped, MSG_DONTWAIT);
	if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR) ||
	    ioctl(c->watch.fd, SIOCOUTQ, &undelivered) != 0 || (has_said_all && undelivered == 0))
		tcp_conn_end_socket(c);
}

static void tcp_conn_begin_closing(struct tcp_conn *c)
{
	if (c->state != CONN_UP) {
		if (c->state != CONN_CLOSING)
			tcp_conn_end_socket(c);
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
		tcp_conn_end_socket(c);
	else
		tcp_conn_begin_closing(c);
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

static void tcp_conn_forget_busy(struct tcp_endpoint *ep, struct tcp_conn *c)
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
	tcp_conn_forget_busy(tcp_endpoint_of(c), c);
	c->is_owned = false;
	tcp_remember_ended(c);
	tcp_conn_begin_closing(c);
	if (c->state == CONN_CLOSED)
		tcp_conn_free(c);
}

void tcp_conn_free(struct tcp_conn *c)
{
	struct tcp_endpoint *ep = tcp_endpoint_of(c);
	struct tcp_conn **at = &ep->conns;

	tcp_conn_end_socket(c);
	tcp_conn_forget_busy(ep, c);
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
		tcp_conn_end_socket(c);
	else
		tcp_linger(c);
	if (c->state == CONN_CLOSED && !c->is_owned)
		tcp_conn_free(c);
}
