/* The endpoint: its life, its progress, and the table of functions. */
#include "core/clock.h"
#include "core/forks.h"
#include "core/log.h"
#include "core/net.h"
#include "core/status.h"
#include "transport/done_list.h"
#include "transport/registry.h"
#include "transport/tcp/accept.h"
#include "transport/tcp/conn.h"
#include "transport/tcp/dial.h"
#include "transport/tcp/tcp.h"

#include <assert.h>
#include <linux/sockios.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

/* Progress of an endpoint: events are taken from epoll and handed to what they are for, then the
 * connections with something posted are visited. */

#define DIRECT_CONNS 2   /* so few are polled without asking epoll */
#define LOOK_EVERY   16u /* passes, when epoll need not be asked at all */
#define CALM         64  /* visits without need of epoll, until it is left */
#define BLIND_MS     1   /* between two looks where there is no descriptor to sleep on */

static void tcp_conn_event(struct tcp_conn *c, uint32_t events)
{
	if (c->state == CONN_CLOSING) {
		tcp_conn_linger(c, 0);
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

static void tcp_tick(struct tcp_endpoint *ep)
{
	uint64_t now = clock_now_ns();
	struct tcp_conn *next;

	tcp_accept_tick(ep, now);
	for (struct tcp_conn *c = ep->conns; c; c = next) {
		next = c->next;
		if (c->state == CONN_CLOSING)
			tcp_conn_linger(c, now);
		else if (c->state < CONN_UP)
			tcp_dial_tick(c, now);
	}
}

static void tcp_endpoint_take_tick(struct tcp_endpoint *ep)
{
	uint64_t ticks;

	if (read(ep->timer.fd, &ticks, sizeof ticks) == (ssize_t)sizeof ticks)
		tcp_tick(ep);
}

static void tcp_take_event(struct tcp_endpoint *ep, const struct epoll_event *event)
{
	struct tcp_watch *watch = event->data.ptr;

	if (!watch)
		return;
	switch (watch->kind) {
	case WATCH_LISTENER:
		tcp_accept_all(ep);
		break;
	case WATCH_TIMER:
		tcp_endpoint_take_tick(ep);
		break;
	case WATCH_ACCEPTED:
		tcp_greet(ep, (struct tcp_accepted *)watch, NULL);
		break;
	case WATCH_CONN:
		tcp_conn_event(tcp_conn_of(watch), event->events);
		break;
	case WATCH_ALARM:
		ep->has_rung = true;
		break;
	}
}

static int tcp_endpoint_take_events(struct tcp_endpoint *ep, int epoll_fd)
{
	int n = epoll_wait(epoll_fd, ep->events, TCP_EVENTS, 0);

	ep->event_count = n > 0 ? n : 0;
	for (ep->event_at = 0; ep->event_at < ep->event_count; ep->event_at++)
		tcp_take_event(ep, &ep->events[ep->event_at]);
	ep->event_at = ep->event_count = 0;
	return n > 0 ? n : 0;
}

/* Before there is an epoll the listener alone may have news. */
static int tcp_endpoint_look_at_listener(struct tcp_endpoint *ep)
{
	if (ep->accept_again || !net_has_caller(ep->listener.fd))
		return 0;
	tcp_accept_all(ep);
	return 1;
}

/* Asks epoll; returns how many events there were. */
static int tcp_take_events(struct tcp_endpoint *ep)
{
	int n = ep->epoll_fd < 0 ? tcp_endpoint_look_at_listener(ep)
				 : tcp_endpoint_take_events(ep, ep->epoll_fd);

	if (tcp_tick_by_clock(ep)) {
		tcp_tick(ep);
		n++;
	}
	if (!ep->has_rung)
		return n;
	ep->has_rung = false;
	while (tcp_endpoint_take_events(ep, ep->alarm.fd) == TCP_EVENTS)
		;
	return n;
}

/* The peer receives nothing any more. Receives to come still find the bytes that it sent before:
 * until they have received those, sends end well, for one that completes says no more than that its
 * buffer is free. */
static bool tcp_endpoint_end_writing(struct tcp_conn *c)
{
	bool moved = c->sends.head != NULL;

	if (!tcp_conn_has_unread(c)) {
		tcp_reconnect_or_fail(c, c->write_error);
		return true;
	}
	c->may_read = true;
	while (c->sends.head)
		tcp_conn_finish(c, &c->sends);
	c->resend.again = c->resend.sent;
	return moved;
}

static bool tcp_endpoint_has_to_send(const struct tcp_conn *c)
{
	return c->sends.head || tcp_must_resend(c);
}

/* Acts on the result of a visit. moved: so far. Returns whether anything has. */
static bool tcp_endpoint_end_visit(struct tcp_conn *c, bool moved, bool is_direct)
{
	if (c->is_lost) {
		c->is_lost = false;
		tcp_reconnect_or_fail(c, c->lost_error);
	}
	if (c->write_error && c->base.status == TUTTI_OK && c->state == CONN_UP) {
		if (tcp_reconnect(c, c->write_error))
			moved = true;
		else if (!c->recvs.head)
			moved |= tcp_endpoint_end_writing(c);
	}
	if (c->state != CONN_UP)
		return moved;
	/* Of one that reconnects its end must be seen though nothing is posted on it. */
	if (!is_direct || !c->may_write)
		tcp_conn_watch(c);
	else if (c->is_watched && moved && (!c->reconnects || c->has_alarm) && ++c->calm > CALM)
		tcp_conn_unwatch(c);
	return moved;
}

/* Visits every conn with something posted, and forgets those that have nothing left. */
static bool tcp_visit_busy(struct tcp_endpoint *ep)
{
	bool any = false, is_direct = ep->waiting <= DIRECT_CONNS;
	struct tcp_conn **at = &ep->busy;
	int blocked = 0;

	ep->waiting = 0;
	while (*at) {
		struct tcp_conn *c = *at;
		bool moved = false;
		if (c->has_hung_up && c->state == CONN_UP)
			tcp_reconnect_look(c);
		if (tcp_endpoint_has_to_send(c) && c->may_write && c->state == CONN_UP)
			moved = tcp_send_some(c);
		if (c->recvs.head && (c->may_read || is_direct || tcp_can_take(c)) &&
		    c->state == CONN_UP)
			moved |= tcp_receive_some(c);
		any |= tcp_endpoint_end_visit(c, moved, is_direct);
		ep->waiting += c->recvs.head != NULL;
		blocked += tcp_endpoint_has_to_send(c);
		c->is_busy = c->recvs.head || tcp_endpoint_has_to_send(c);
		if (c->is_busy)
			at = &c->next_busy;
		else
			*at = c->next_busy;
	}
	ep->passes++;
	if (any || (ep->waiting > 0 && ep->waiting <= DIRECT_CONNS && blocked == 0))
		ep->wants_look = ep->passes % LOOK_EVERY == 0;
	else
		ep->wants_look = true;
	return any;
}

static int tcp_progress(struct tutti_endpoint *endpoint, struct tutti_done *done)
{
	struct tcp_endpoint *ep = (struct tcp_endpoint *)endpoint;
	bool moved = false;

	if (ep->wants_look || ep->unsettled > 0)
		moved = tcp_take_events(ep) > 0;
	moved |= tcp_visit_busy(ep);
	return done_list_take(done, &ep->finished) || moved;
}

static bool tcp_endpoint_has_work(const struct tcp_endpoint *ep)
{
	if (ep->finished.head)
		return true;
	for (const struct tcp_conn *c = ep->busy; c; c = c->next_busy) {
		if (c->state != CONN_UP)
			continue;
		if ((tcp_endpoint_has_to_send(c) && c->may_write) || tcp_can_take(c) ||
		    (c->recvs.head && c->may_read) || c->write_error || c->has_hung_up)
			return true;
	}
	return false;
}

/* Takes the edges that epoll holds: from then on its descriptor is readable only when a new one
 * comes. Where there is no descriptor to sleep on, the caller looks again a little later. */
static int tcp_arm(struct tutti_endpoint *endpoint)
{
	struct tcp_endpoint *ep = (struct tcp_endpoint *)endpoint;

	if (tcp_epoll_open(ep) != TUTTI_OK || tcp_lacks_timer(ep)) {
		poll(NULL, 0, BLIND_MS);
		return 1;
	}
	/* They will not be looked at for a while. */
	for (struct tcp_conn *c = ep->busy; c; c = c->next_busy)
		if (c->state == CONN_UP)
			tcp_conn_watch(c);
	for (int i = 0; i < 8; i++)
		if (tcp_take_events(ep) == 0)
			return tcp_endpoint_has_work(ep);
	return 1;
}

/* Service for peers while a rank is in no call. A socket with bytes of its last messages
 * may have broken, and the peer waits for these bytes; or a peer asks for its connection back, to
 * send its own bytes again.
 *
 * The thread that does this sleeps on an epoll of its own, the alarm: only the ends of sockets and
 * new connections wake it, and not the messages of a rank that computes or is in a call with
 * another thread. While a connection is being made again it sleeps on the epoll of everything. The
 * alarm is also a member of that one, so that a rank inside of a call takes its events itself.
 * Where no connection is ever made again there is no alarm: the listener will do. */

#define MEND_PASSES 16

/* Known before a connection is up: one that is dialed from a call wakes nobody here. If none of a
 * peer's loopback addresses answers but another does, such a connection is made again in calls. */
static bool tcp_endpoint_may_reconnect(const struct tcp_endpoint *ep)
{
	return tcp_would_reconnect(ep, !ep->has_far_peer);
}

static tutti_status tcp_endpoint_open_alarm(struct tcp_endpoint *ep)
{
	struct epoll_event callers = {.events = EPOLLIN | EPOLLET, .data.ptr = &ep->listener};

	ep->alarm.fd = epoll_create1(EPOLL_CLOEXEC);
	if (ep->alarm.fd < 0 ||
	    epoll_ctl(ep->alarm.fd, EPOLL_CTL_ADD, ep->listener.fd, &callers) != 0)
		return fail_errno("rank %d cannot watch its tcp connections between calls (epoll)",
				  ep->rank);
	if (ep->epoll_fd >= 0)
		TRY(tcp_watch_add(ep, &ep->alarm, EPOLLIN));
	for (struct tcp_conn *c = ep->conns; c; c = c->next)
		if (c->state == CONN_UP)
			tcp_conn_add_alarm(c);
	return TUTTI_OK;
}

/* Without descriptors or memory for it, connections are made again only in calls. */
static bool tcp_endpoint_has_alarm(struct tcp_endpoint *ep)
{
	if (ep->alarm.fd < 0 && tcp_endpoint_open_alarm(ep) != TUTTI_OK) {
		log_seldom("%s", last_error());
		tcp_watch_close(ep, &ep->alarm);
	}
	return ep->alarm.fd >= 0;
}

/* Something can be done at once. */
static bool tcp_endpoint_has_repairs(const struct tcp_endpoint *ep)
{
	for (const struct tcp_conn *c = ep->busy; c; c = c->next_busy)
		if (c->state == CONN_UP && (c->has_hung_up || (tcp_must_resend(c) && c->may_write)))
			return true;
	return false;
}

static bool tcp_endpoint_is_reconnecting_any(const struct tcp_endpoint *ep)
{
	for (const struct tcp_conn *c = ep->conns; c; c = c->next)
		if (tcp_is_reconnecting(c) || (c->state == CONN_UP && tcp_must_resend(c)))
			return true;
	return ep->pending.count > 0 || ep->accept_again;
}

static int tcp_endpoint_sleeps_on(const struct tcp_endpoint *ep)
{
	if (tcp_endpoint_is_reconnecting_any(ep))
		return ep->epoll_fd;
	return ep->alarm.fd >= 0 ? ep->alarm.fd : ep->listener.fd;
}

static int tcp_mend(struct tutti_endpoint *endpoint, int *fd)
{
	struct tcp_endpoint *ep = (struct tcp_endpoint *)endpoint;

	*fd = -1;
	if (ep->reconnect == 0 || (tcp_endpoint_may_reconnect(ep) && !tcp_endpoint_has_alarm(ep)))
		return 0;
	for (int pass = 0; pass < MEND_PASSES; pass++) {
		int events = tcp_take_events(ep);
		if (events == 0 && !tcp_endpoint_has_repairs(ep)) {
			*fd = tcp_endpoint_sleeps_on(ep);
			return tcp_lacks_timer(ep);
		}
		tcp_visit_busy(ep);
	}
	*fd = ep->epoll_fd;
	return 1;
}

/* The peer's kernel has all of it, or it is not wanted any more. */
static bool tcp_endpoint_has_delivered(const struct tcp_conn *c)
{
	int undelivered = 0;

	if (!c->reconnects || c->base.status != TUTTI_OK || c->fails_after_drain != TUTTI_OK ||
	    c->write_error)
		return true;
	return c->state == CONN_UP && !tcp_must_resend(c) &&
	       (ioctl(c->watch.fd, SIOCOUTQ, &undelivered) != 0 || undelivered == 0);
}

static int tcp_in_doubt(struct tutti_endpoint *endpoint)
{
	const struct tcp_endpoint *ep = (const struct tcp_endpoint *)endpoint;

	for (const struct tcp_conn *c = ep->conns; c; c = c->next)
		if (c->is_owned && !tcp_endpoint_has_delivered(c))
			return 1;
	return 0;
}

#define PENDING_MS 10000 /* for the proof, and again for what follows it */
#define LEAVE_MS   500   /* how long destroy waits for that */

static void tcp_endpoint_tune_listener(struct tcp_endpoint *ep)
{
	socklen_t bytes = sizeof ep->congestion - 1;

	if (getsockopt(ep->listener.fd, IPPROTO_TCP, TCP_CONGESTION, ep->congestion, &bytes) != 0)
		ep->congestion[0] = '\0';
	else
		tcp_tune_loopback(ep->listener.fd);
}

static int tcp_event_fd(struct tutti_endpoint *endpoint)
{
	struct tcp_endpoint *ep = (struct tcp_endpoint *)endpoint;

	return tcp_epoll_open(ep) == TUTTI_OK ? ep->epoll_fd : -1;
}

static void tcp_destroy(struct tutti_endpoint *endpoint)
{
	struct tcp_endpoint *ep = (struct tcp_endpoint *)endpoint;
	uint64_t deadline = deadline_after_ms(LEAVE_MS);

	if (!ep)
		return;
	while (ep->unsettled > 0 && clock_now_ns() < deadline) {
		struct pollfd pollfd = {.fd = ep->epoll_fd, .events = POLLIN};
		poll(&pollfd, 1, TCP_TICK_MS);
		tcp_take_events(ep);
	}
	while (ep->accepted)
		tcp_accepted_free(ep, ep->accepted);
	while (ep->conns) {
		assert(!ep->conns->is_owned);
		tcp_conn_free(ep->conns);
	}
	while (ep->ended) {
		struct tcp_ended *ended = ep->ended;
		ep->ended = ended->next;
		free(ended);
	}
	tcp_watch_close(ep, &ep->listener);
	tcp_watch_close(ep, &ep->timer);
	tcp_watch_close(ep, &ep->alarm);
	if (ep->epoll_fd >= 0)
		close(ep->epoll_fd);
	free(ep);
}

static tutti_status tcp_endpoint_open_listener(struct tcp_endpoint *ep)
{
	int backlog = ep->size > SOMAXCONN ? ep->size : SOMAXCONN;

	TRY(net_listen(NULL, 0, backlog, &ep->listener.fd, &ep->port));
	forks_own(ep->listener.fd);
	tcp_endpoint_tune_listener(ep);
	return TUTTI_OK;
}

static tutti_status tcp_open(struct tutti_endpoint **endpoint,
			     const struct tutti_endpoint_config *config)
{
	struct tcp_endpoint *ep = calloc(1, sizeof *ep);
	tutti_status status;

	if (!ep)
		return fail(TUTTI_ERR_MEMORY, "rank %d has no memory for its tcp endpoint",
			    config->rank);
	ep->base.transport = &transport_tcp;
	ep->rank = config->rank;
	ep->size = config->size;
	ep->timeout_ms = config->timeout_ms;
	ep->reconnect = config->reconnect;
	ep->reconnect_ms = config->reconnect_ms;
	ep->reconnect_tries = config->reconnect_tries;
	memcpy(ep->comm_id, config->comm_id, sizeof ep->comm_id);
	memcpy(ep->key, config->key, sizeof ep->key);
	ep->header_bytes = config->checksum ? TCP_SUMMED_BYTES : TCP_HEADER_BYTES;
	ep->epoll_fd = -1;
	ep->has_tls = config->tls;
	ep->listener = (struct tcp_watch){.kind = WATCH_LISTENER, .fd = -1};
	ep->timer = (struct tcp_watch){.kind = WATCH_TIMER, .fd = -1};
	ep->alarm = (struct tcp_watch){.kind = WATCH_ALARM, .fd = -1};
	admission_init(&ep->pending, TCP_PENDING + ep->size, PENDING_MS);
	ep->wants_look = true;
	tutti_done_init(&ep->finished);
	status = ep->has_tls ? tls_load() : TUTTI_OK;
	if (status == TUTTI_OK)
		status = tcp_endpoint_open_listener(ep);
	if (status == TUTTI_OK)
		status = tcp_address_make(ep, config->address);
	if (status != TUTTI_OK) {
		tcp_destroy(&ep->base);
		return status;
	}
	*endpoint = &ep->base;
	return TUTTI_OK;
}

static tutti_status tcp_connect(struct tutti_endpoint *endpoint, int peer, int channel,
				const uint8_t *address, size_t address_bytes,
				struct tutti_conn **conn)
{
	struct tcp_endpoint *ep = (struct tcp_endpoint *)endpoint;
	struct tcp_conn *c = NULL;

	assert(peer >= 0 && peer < ep->size && peer != ep->rank);
	assert(channel >= 0 && channel < TCP_CHANNELS);
	assert(address_bytes <= TUTTI_ADDRESS_BYTES);
	TRY(tcp_conn_new(&c, ep, peer, channel));
	memcpy(c->resend.address, address, address_bytes);
	c->resend.address_bytes = address_bytes;
	ep->has_far_peer |= tcp_address_is_far(ep, address, address_bytes);
	if (tcp_accepted_adopt(c)) {
		*conn = &c->base;
		return TUTTI_OK;
	}
	c->dial = tcp_dial_new(c);
	if (!c->dial || c->dial->count == 0) {
		tutti_status status = c->dial ? TUTTI_ERR_UNSUPPORTED : TUTTI_ERR_MEMORY;
		tcp_conn_free(c);
		if (status == TUTTI_ERR_MEMORY)
			return fail(status, "rank %d has no memory for a tcp connection to rank %d",
				    ep->rank, peer);
		return fail(status,
			    "rank %d has no tcp address that rank %d can connect to: "
			    "TUTTI_ADDRESS names one",
			    peer, ep->rank);
	}
	tcp_dial_begin(c);
	*conn = &c->base;
	return TUTTI_OK;
}

static int tcp_reach(struct tutti_endpoint *endpoint, int peer, const uint8_t *address,
		     size_t address_bytes)
{
	struct tcp_endpoint *ep = (struct tcp_endpoint *)endpoint;

	if (peer == ep->rank)
		return 0;
	ep->has_far_peer |= tcp_address_is_far(ep, address, address_bytes);
	return tcp_address_reach(ep, address, address_bytes);
}

const struct tutti_transport transport_tcp = {
	.abi = TUTTI_TRANSPORT_ABI,
	.name = "tcp",
	.kinds = 1u << TUTTI_MEMORY_HOST,
	.open = tcp_open,
	.reach = tcp_reach,
	.connect = tcp_connect,
	.send = tcp_send,
	.recv = tcp_recv,
	.progress = tcp_progress,
	.close = tcp_close,
	.destroy = tcp_destroy,
	.event_fd = tcp_event_fd,
	.arm = tcp_arm,
	.mend = tcp_mend,
	.in_doubt = tcp_in_doubt,
};
