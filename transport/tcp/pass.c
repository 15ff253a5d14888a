/* Progress of an endpoint: events are taken from epoll and handed to what they are for, then the
 * connections with something posted are visited. */
#include "transport/tcp/accepted.h"

#include "core/clock.h"
#include "core/net.h"
#include "transport/done_list.h"
#include "transport/tcp/dial.h"

#include <poll.h>
#include <unistd.h>

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

static void take_tick(struct tcp_endpoint *ep)
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
		take_tick(ep);
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

static int take_events(struct tcp_endpoint *ep, int epoll_fd)
{
	int n = epoll_wait(epoll_fd, ep->events, TCP_EVENTS, 0);

	ep->event_count = n > 0 ? n : 0;
	for (ep->event_at = 0; ep->event_at < ep->event_count; ep->event_at++)
		tcp_take_event(ep, &ep->events[ep->event_at]);
	ep->event_at = ep->event_count = 0;
	return n > 0 ? n : 0;
}

/* Before there is an epoll the listener alone may have news. */
static int look_at_listener(struct tcp_endpoint *ep)
{
	if (ep->accept_again || !net_has_caller(ep->listener.fd))
		return 0;
	tcp_accept_all(ep);
	return 1;
}

int tcp_take_events(struct tcp_endpoint *ep)
{
	int n = ep->epoll_fd < 0 ? look_at_listener(ep) : take_events(ep, ep->epoll_fd);

	if (tcp_tick_by_clock(ep)) {
		tcp_tick(ep);
		n++;
	}
	if (!ep->has_rung)
		return n;
	ep->has_rung = false;
	while (take_events(ep, ep->alarm.fd) == TCP_EVENTS)
		;
	return n;
}

/* The peer receives nothing any more. Receives to come still find the bytes that it sent before:
 * until they have received those, sends end well, for one that completes says no more than that its
 * buffer is free. */
static bool end_writing(struct tcp_conn *c)
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

static bool has_to_send(const struct tcp_conn *c)
{
	return c->sends.head || tcp_must_resend(c);
}

/* Acts on the result of a visit. moved: so far. Returns whether anything has. */
static bool end_visit(struct tcp_conn *c, bool moved, bool is_direct)
{
	if (c->is_lost) {
		c->is_lost = false;
		tcp_reconnect_or_fail(c, c->lost_error);
	}
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
	else if (c->is_watched && moved && (!c->reconnects || c->has_alarm) && ++c->calm > CALM)
		tcp_conn_unwatch(c);
	return moved;
}

/* Visits every conn with something posted, and forgets those that have nothing left. */
bool tcp_visit_busy(struct tcp_endpoint *ep)
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
		if (has_to_send(c) && c->may_write && c->state == CONN_UP)
			moved = tcp_send_some(c);
		if (c->recvs.head && (c->may_read || is_direct || tcp_can_take(c)) &&
		    c->state == CONN_UP)
			moved |= tcp_receive_some(c);
		any |= end_visit(c, moved, is_direct);
		ep->waiting += c->recvs.head != NULL;
		blocked += has_to_send(c);
		c->is_busy = c->recvs.head || has_to_send(c);
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

int tcp_progress(struct tutti_endpoint *endpoint, struct tutti_done *done)
{
	struct tcp_endpoint *ep = (struct tcp_endpoint *)endpoint;
	bool moved = false;

	if (ep->wants_look || ep->unsettled > 0)
		moved = tcp_take_events(ep) > 0;
	moved |= tcp_visit_busy(ep);
	return done_list_take(done, &ep->finished) || moved;
}

static bool has_work(const struct tcp_endpoint *ep)
{
	if (ep->finished.head)
		return true;
	for (const struct tcp_conn *c = ep->busy; c; c = c->next_busy) {
		if (c->state != CONN_UP)
			continue;
		if ((has_to_send(c) && c->may_write) || tcp_can_take(c) ||
		    (c->recvs.head && c->may_read) || c->write_error || c->has_hung_up)
			return true;
	}
	return false;
}

/* Takes the edges that epoll holds: from then on its descriptor is readable only when a new one
 * comes. Where there is no descriptor to sleep on, the caller looks again a little later. */
int tcp_arm(struct tutti_endpoint *endpoint)
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
			return has_work(ep);
	return 1;
}
