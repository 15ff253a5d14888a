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

static void set_state(struct tcp_conn *c, enum tcp_state state)
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

static uint64_t connect_deadline(const struct tcp_endpoint *ep, int channel)
{
	return channel == TUTTI_CHANNEL_PATIENT ? DEADLINE_NONE : deadline_after_ms(ep->timeout_ms);
}

static tutti_status conn_new(struct tcp_conn **conn, struct tcp_endpoint *ep, int peer, int channel)
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
	c->deadline_ns = connect_deadline(ep, channel);
	queue_init(&c->sends);
	queue_init(&c->recvs);
	c->next = ep->conns;
	ep->conns = c;
	*conn = c;
	return TUTTI_OK;
}

tutti_status tcp_connect(struct tutti_endpoint *endpoint, int peer, int channel,
			 const uint8_t *address, size_t address_bytes, struct tutti_conn **conn)
{
	struct tcp_endpoint *ep = (struct tcp_endpoint *)endpoint;
	struct tcp_conn *c = NULL;

	assert(peer >= 0 && peer < ep->size && peer != ep->rank);
	assert(channel >= 0 && channel < TCP_CHANNELS);
	assert(address_bytes <= TUTTI_ADDRESS_BYTES);
	TRY(conn_new(&c, ep, peer, channel));
	memcpy(c->resend.address, address, address_bytes);
	c->resend.address_bytes = address_bytes;
	if (tcp_accepted_adopt(c)) {
		*conn = &c->base;
		return TUTTI_OK;
	}
	c->dial = calloc(1, sizeof *c->dial);
	if (c->dial)
		c->dial->count =
			tcp_address_candidates(ep, address, address_bytes, c->dial->candidates);
	if (!c->dial || c->dial->count == 0) {
		tutti_status status = c->dial ? TUTTI_ERR_UNSUPPORTED : TUTTI_ERR_MEMORY;
		tcp_conn_free(c);
		if (status == TUTTI_ERR_MEMORY)
			return fail(status, "tcp: no memory for a connection to rank %d", peer);
		return fail(status, "tcp: rank %d has no address that rank %d can connect to", peer,
			    ep->rank);
	}
	tcp_conn_reach(c);
	*conn = &c->base;
	return TUTTI_OK;
}

void tcp_conn_reach(struct tcp_conn *c)
{
	if (tcp_endpoint_of(c)->rank > c->base.peer) {
		set_state(c, CONN_DIALING);
		tcp_dial_begin(c);
	} else {
		c->dial->give_up_ns = deadline_after_ms(TCP_YIELD_MS);
		set_state(c, CONN_WAITING);
	}
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
	set_state(c, CONN_UP);
	tcp_alarm_add(c);
	log_debug("tcp: rank %d is connected at %s, channel %d", c->base.peer, c->where,
		  c->base.channel);
}

/* Being watched makes every message dearer, so a conn that is looked at all the time is not;
 * whoever stops looking watches it first, and learns what came in between. */
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
	set_state(c, CONN_CLOSED);
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
	set_state(c, CONN_CLOSING);
	linger(c);
	if (c->state == CONN_CLOSING)
		tcp_conn_watch(c);
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
	char sentence[sizeof c->base.error];
	va_list args;

	va_start(args, format);
	vsnprintf(sentence, sizeof sentence, format, args);
	va_end(args);
	if (!tcp_has_unread(c)) {
		tcp_conn_fail(c, status, "%s", sentence);
		return;
	}
	memcpy(c->base.error, sentence, sizeof sentence);
	c->fails_after_drain = status;
	tcp_watch_close(tcp_endpoint_of(c), &c->watch);
	tcp_conn_up(c);
	c->is_watched = c->may_write = false;
	c->write_error = ECONNRESET;
	c->resend.again = c->resend.sent;
	tcp_conn_busy(c);
}

/* Who has been lied to once cannot tell where the truth ended: this does not heal. */
static void spoilt(struct tcp_conn *c)
{
	tcp_conn_fail(c, TUTTI_ERR_AUTH,
		      "what rank %d and rank %d (tcp %s, channel %d) say to each other is changed "
		      "on its way (TLS: %s)",
		      tcp_endpoint_of(c)->rank, c->base.peer, c->where, c->base.channel,
		      c->watch.tls ? tls_error_text(c->watch.tls) : "");
}

void tcp_conn_lost(struct tcp_conn *c, int error)
{
	int rank = tcp_endpoint_of(c)->rank;

	if (error == EBADMSG) {
		spoilt(c);
		return;
	}
	if (tcp_reconnect(c, error))
		return;
	if (c->fails_after_drain != TUTTI_OK) {
		char sentence[sizeof c->base.error];
		memcpy(sentence, c->base.error, sizeof sentence);
		tcp_conn_fail(c, c->fails_after_drain, "%s", sentence);
	} else if (error == 0)
		tcp_conn_fail(c, TUTTI_ERR_PEER,
			      "rank %d (tcp %s, channel %d) closed its connection to rank %d",
			      c->base.peer, c->where, c->base.channel, rank);
	else
		tcp_conn_fail(c, TUTTI_ERR_PEER,
			      "rank %d (tcp %s, channel %d) lost its connection to rank %d: %s",
			      c->base.peer, c->where, c->base.channel, rank, strerror(error));
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

static void linger_event(struct tcp_conn *c)
{
	linger(c);
	if (c->state == CONN_CLOSED && !c->is_owned)
		tcp_conn_free(c);
}

void tcp_conn_event(struct tcp_conn *c, uint32_t events)
{
	if (c->state == CONN_CLOSING) {
		linger_event(c);
		return;
	}
	if (c->state != CONN_UP) {
		tcp_dial_event(c);
		return;
	}
	if (events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR))
		c->at_end = c->may_read = c->may_write = true;
	if ((events & (EPOLLHUP | EPOLLERR)) && c->reconnects) {
		c->has_hung_up = true;
		tcp_conn_busy(c);
	}
	if (events & EPOLLIN)
		c->may_read = true;
	if (events & EPOLLOUT)
		c->may_write = true;
}

/* The peer may have no use for this conn yet, or be gone: dialing tells. */
static void stop_waiting(struct tcp_conn *c)
{
	if (!tcp_is_reconnecting(c))
		c->deadline_ns = connect_deadline(tcp_endpoint_of(c), c->base.channel);
	set_state(c, CONN_DIALING);
	tcp_dial_begin(c);
}

static void connect_timed_out(struct tcp_conn *c)
{
	struct tcp_endpoint *ep = tcp_endpoint_of(c);

	tcp_conn_fail(c, TUTTI_ERR_TIMEOUT,
		      "rank %d at tcp %s did not accept the connection of rank %d (channel %d) "
		      "within %d ms",
		      c->base.peer, c->where, ep->rank, c->base.channel, ep->timeout_ms);
}

void tcp_conn_tick(struct tcp_conn *c, uint64_t now_ns)
{
	bool is_healing = tcp_is_reconnecting(c);
	bool is_wanted = c->sends.head || c->recvs.head || is_healing;

	if (!is_unsettled(c->state))
		return;
	if (c->state == CONN_CLOSING) {
		if (now_ns >= c->deadline_ns)
			end_socket(c);
		else
			linger(c);
		if (c->state == CONN_CLOSED && !c->is_owned)
			tcp_conn_free(c);
	} else if (c->state == CONN_WAITING) {
		if (is_wanted && now_ns >= c->dial->give_up_ns)
			stop_waiting(c);
	} else if (now_ns >= c->deadline_ns && !is_healing) {
		connect_timed_out(c);
	} else if (now_ns >= c->deadline_ns && c->state == CONN_DIALING) {
		tcp_reconnect_is_over(c);
	} else {
		tcp_dial_tick(c, now_ns);
	}
}
