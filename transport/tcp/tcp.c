/* The endpoint: a listener, an epoll of everything, and progress. */
#include "transport/tcp/tcp.h"

#include "core/clock.h"
#include "core/forks.h"
#include "core/log.h"
#include "core/net.h"
#include "core/status.h"
#include "transport/registry.h"

#include <assert.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <unistd.h>

#define DIRECT_CONNS 2   /* so few are polled without asking epoll */
#define LOOK_EVERY   16u /* passes, when epoll need not be asked at all */

void tcp_tune(int fd)
{
	int on = 1, idle_s = 30, interval_s = 10;

	/* None of them is needed for correctness. */
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
	setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
	setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof idle_s);
	setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval_s, sizeof interval_s);
}

void tcp_tune_timeout(int fd, int ms)
{
	setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &ms, sizeof ms);
}

/* Controls made for networks, bbr above all, pace what they send by timers. Over loopback that cost
 * half the throughput and saves nothing, for nothing is lost there. It must be so before the
 * connection is up: a socket that was paced once stays paced. */
void tcp_tune_loopback(int fd)
{
	static const char *const unpaced[] = {"cubic", "reno"};

	for (size_t i = 0; i < sizeof unpaced / sizeof *unpaced; i++)
		if (setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, unpaced[i],
			       (socklen_t)strlen(unpaced[i])) == 0)
			return;
}

void tcp_tune_remote(const struct tcp_endpoint *ep, int fd)
{
	if (ep->congestion[0])
		setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, ep->congestion,
			   (socklen_t)strlen(ep->congestion));
}

static void tune_listener(struct tcp_endpoint *ep)
{
	socklen_t bytes = sizeof ep->congestion - 1;

	if (getsockopt(ep->listener.fd, IPPROTO_TCP, TCP_CONGESTION, ep->congestion, &bytes) != 0)
		ep->congestion[0] = '\0';
	else
		tcp_tune_loopback(ep->listener.fd);
}

/* Edge-triggered: whoever gets an event takes all there is, or remembers that there is more. */
tutti_status tcp_watch_add(struct tcp_endpoint *ep, struct tcp_watch *watch, uint32_t events)
{
	struct epoll_event event = {.events = events | EPOLLET, .data.ptr = watch};

	if (epoll_ctl(ep->epoll_fd, EPOLL_CTL_ADD, watch->fd, &event) != 0)
		return fail_errno("a connection cannot be watched (epoll_ctl)");
	forks_own(watch->fd);
	return TUTTI_OK;
}

/* While another process has a copy of the descriptor (a forked child) an epoll keeps it. */
static void forget(const struct tcp_endpoint *ep, const struct tcp_watch *watch)
{
	epoll_ctl(ep->epoll_fd, EPOLL_CTL_DEL, watch->fd, NULL);
	if (ep->alarm.fd >= 0 && watch != &ep->alarm)
		epoll_ctl(ep->alarm.fd, EPOLL_CTL_DEL, watch->fd, NULL);
}

/* Events that were taken but not yet looked at must not find a watch that is gone. */
void tcp_watch_close(struct tcp_endpoint *ep, struct tcp_watch *watch)
{
	tls_free(watch->tls);
	watch->tls = NULL;
	forks_disown(watch->fd);
	if (watch->fd >= 0) {
		forget(ep, watch);
		close(watch->fd);
	}
	watch->fd = -1;
	for (int i = ep->event_at; i < ep->event_count; i++)
		if (ep->events[i].data.ptr == watch)
			ep->events[i].data.ptr = NULL;
}

void tcp_ticking(struct tcp_endpoint *ep)
{
	bool is_needed =
		ep->unsettled > 0 || ep->pending > 0 || ep->arriving > 0 || ep->accept_again;
	struct itimerspec tick = {0};

	if (is_needed == ep->is_ticking || ep->timer.fd < 0)
		return;
	if (is_needed)
		tick.it_value.tv_nsec = tick.it_interval.tv_nsec = TCP_TICK_MS * 1000000L;
	timerfd_settime(ep->timer.fd, 0, &tick, NULL);
	ep->is_ticking = is_needed;
}

static void take_tick(struct tcp_endpoint *ep)
{
	uint64_t ticks, now = clock_now_ns();
	struct tcp_conn *c = ep->conns, *next;

	if (read(ep->timer.fd, &ticks, sizeof ticks) != (ssize_t)sizeof ticks)
		return;
	tcp_accepted_tick(ep, now);
	for (; c; c = next) {
		next = c->next;
		tcp_conn_tick(c, now);
	}
}

static void take_event(struct tcp_endpoint *ep, const struct epoll_event *event)
{
	struct tcp_watch *watch = event->data.ptr;

	if (!watch)
		return;
	switch (watch->kind) {
	case WATCH_LISTENER:
		tcp_accept_all(ep);
		break;
	case WATCH_TIMER:
		take_tick(ep);
		break;
	case WATCH_ACCEPTED:
		tcp_accepted_event(ep, (struct tcp_accepted *)watch);
		break;
	case WATCH_CONN:
		tcp_conn_event(tcp_conn_of(watch), event->events);
		break;
	case WATCH_ALARM:
		ep->has_rung = true;
		break;
	}
}

static int take_events(struct tcp_endpoint *ep, int epoll_fd)
{
	int n = epoll_wait(epoll_fd, ep->events, TCP_EVENTS, 0);

	ep->event_count = n > 0 ? n : 0;
	for (ep->event_at = 0; ep->event_at < ep->event_count; ep->event_at++)
		take_event(ep, &ep->events[ep->event_at]);
	ep->event_at = ep->event_count = 0;
	return n > 0 ? n : 0;
}

int tcp_take_events(struct tcp_endpoint *ep)
{
	int n = take_events(ep, ep->epoll_fd);

	if (!ep->has_rung)
		return n;
	ep->has_rung = false;
	while (take_events(ep, ep->alarm.fd) == TCP_EVENTS)
		;
	return n;
}

/* The peer takes nothing any more. What it sent before is still there for receives to come: until
 * they have had it, sends end well, for one that completes says no more than that its buffer is
 * free. */
static bool end_writing(struct tcp_conn *c)
{
	bool moved = c->sends.head != NULL;

	if (!tcp_has_unread(c)) {
		tcp_conn_lost(c, c->write_error);
		return true;
	}
	c->may_read = true;
	while (c->sends.head)
		tcp_conn_finish(c, &c->sends);
	c->resend.again = c->resend.sent;
	return moved;
}

static bool conn_visit(struct tcp_conn *c, bool is_direct)
{
	bool moved = false;

	if (c->has_hung_up)
		tcp_reconnect_look(c);
	if ((c->sends.head || tcp_must_resend(c)) && c->may_write && c->state == CONN_UP)
		moved |= tcp_send_some(c);
	if (c->recvs.head && (c->may_read || is_direct || tcp_can_take(c)) && c->state == CONN_UP)
		moved |= tcp_receive_some(c);
	if (c->write_error && c->base.status == TUTTI_OK && c->state == CONN_UP) {
		if (tcp_reconnect(c, c->write_error))
			moved = true;
		else if (!c->recvs.head)
			moved |= end_writing(c);
	}
	if (c->state != CONN_UP)
		return moved;
	/* Of one that reconnects its end must be seen though nothing is posted on it. */
	if (!is_direct || !c->may_write)
		tcp_conn_watch(c);
	else if (c->is_watched && moved && (!c->reconnects || c->has_alarm) && ++c->calm > TCP_CALM)
		tcp_conn_unwatch(c);
	return moved;
}

/* Visits every conn with something posted, and forgets those that have nothing left. */
bool tcp_visit_busy(struct tcp_endpoint *ep)
{
	bool moved = false, is_direct = ep->waiting <= DIRECT_CONNS;
	struct tcp_conn **at = &ep->busy;
	int blocked = 0;

	ep->waiting = 0;
	while (*at) {
		struct tcp_conn *c = *at;
		if (c->state == CONN_UP)
			moved |= conn_visit(c, is_direct);
		ep->waiting += c->recvs.head != NULL;
		blocked += c->sends.head || tcp_must_resend(c);
		c->is_busy = c->sends.head || c->recvs.head || tcp_must_resend(c);
		if (c->is_busy)
			at = &c->next_busy;
		else
			*at = c->next_busy;
	}
	ep->passes++;
	if (moved || (ep->waiting > 0 && ep->waiting <= DIRECT_CONNS && blocked == 0))
		ep->wants_look = ep->passes % LOOK_EVERY == 0;
	else
		ep->wants_look = true;
	return moved;
}

static int tcp_progress(struct tutti_endpoint *endpoint, struct tutti_done *done)
{
	struct tcp_endpoint *ep = (struct tcp_endpoint *)endpoint;
	bool moved = false;

	if (ep->wants_look || ep->unsettled > 0)
		moved = tcp_take_events(ep) > 0;
	moved |= tcp_visit_busy(ep);
	if (!ep->finished.head)
		return moved;
	*done->tail = ep->finished.head;
	done->tail = ep->finished.tail;
	tutti_done_init(&ep->finished);
	return 1;
}

static int tcp_event_fd(struct tutti_endpoint *endpoint)
{
	return ((struct tcp_endpoint *)endpoint)->epoll_fd;
}

/* Nobody will look at these conns for a while. */
static void watch_busy(struct tcp_endpoint *ep)
{
	for (struct tcp_conn *c = ep->busy; c; c = c->next_busy)
		if (c->state == CONN_UP)
			tcp_conn_watch(c);
}

static bool has_work(const struct tcp_endpoint *ep)
{
	if (ep->finished.head)
		return true;
	for (const struct tcp_conn *c = ep->busy; c; c = c->next_busy) {
		if (c->state != CONN_UP)
			continue;
		if (((c->sends.head || tcp_must_resend(c)) && c->may_write) || tcp_can_take(c) ||
		    (c->recvs.head && c->may_read) || c->write_error || c->has_hung_up)
			return true;
	}
	return false;
}

/* Takes the edges that epoll holds: from then on its descriptor is readable only when a new one
 * comes. */
static int tcp_arm(struct tutti_endpoint *endpoint)
{
	struct tcp_endpoint *ep = (struct tcp_endpoint *)endpoint;

	watch_busy(ep);
	for (int i = 0; i < 8; i++)
		if (tcp_take_events(ep) == 0)
			return has_work(ep);
	return 1;
}

static void tcp_destroy(struct tutti_endpoint *endpoint)
{
	struct tcp_endpoint *ep = (struct tcp_endpoint *)endpoint;
	uint64_t deadline = deadline_after_ms(TCP_LEAVE_MS);

	if (!ep)
		return;
	while (ep->unsettled > 0 && clock_now_ns() < deadline) {
		struct pollfd pollfd = {.fd = ep->epoll_fd, .events = POLLIN};
		poll(&pollfd, 1, TCP_TICK_MS);
		tcp_take_events(ep);
	}
	tcp_accepted_free_all(ep);
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

static tutti_status open_descriptors(struct tcp_endpoint *ep)
{
	int backlog = ep->size > SOMAXCONN ? ep->size : SOMAXCONN;

	TRY(net_listen(NULL, 0, backlog, &ep->listener.fd, &ep->port));
	tune_listener(ep);
	ep->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	if (ep->epoll_fd < 0)
		return fail_errno("tcp: epoll_create1");
	ep->timer.fd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
	if (ep->timer.fd < 0)
		return fail_errno("tcp: timerfd_create");
	TRY(tcp_watch_add(ep, &ep->listener, EPOLLIN));
	return tcp_watch_add(ep, &ep->timer, EPOLLIN);
}

static tutti_status tcp_open(struct tutti_endpoint **endpoint,
			     const struct tutti_endpoint_config *config)
{
	struct tcp_endpoint *ep = calloc(1, sizeof *ep);
	tutti_status status;

	if (!ep)
		return fail(TUTTI_ERR_MEMORY, "tcp: no memory for an endpoint");
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
	ep->wants_look = true;
	tutti_done_init(&ep->finished);
	status = ep->has_tls ? tls_load() : TUTTI_OK;
	if (status == TUTTI_OK)
		status = open_descriptors(ep);
	if (status == TUTTI_OK)
		status = tcp_address_make(ep, config->address);
	if (status != TUTTI_OK) {
		tcp_destroy(&ep->base);
		return status;
	}
	*endpoint = &ep->base;
	return TUTTI_OK;
}

static int tcp_reach(struct tutti_endpoint *endpoint, int peer, const uint8_t *address,
		     size_t address_bytes)
{
	struct tcp_endpoint *ep = (struct tcp_endpoint *)endpoint;

	return peer == ep->rank ? 0 : tcp_address_reach(ep, address, address_bytes);
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
