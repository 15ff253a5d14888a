/* Service for peers while a rank is in no call. A socket with bytes of its last messages
 * may have broken, and the peer waits for these bytes; or a peer asks for its connection back, to
 * send its own bytes again.
 *
 * The thread that does this sleeps on an epoll of its own, the alarm: only the ends of sockets and
 * new connections wake it, and not the messages of a rank that computes or is in a call with
 * another thread. While a connection is being made again it sleeps on the epoll of everything. The
 * alarm is also a member of that one, so that a rank inside of a call takes its events itself.
 * Where no connection is ever made again there is no alarm: the listener will do. */
#include "transport/tcp/conn.h"

#include "core/log.h"
#include "core/status.h"

#include <linux/sockios.h>
#include <sys/ioctl.h>

#define PASSES 16

/* Known before a connection is up: one that is dialed from a call wakes nobody here. If none of a
 * peer's loopback addresses answers but another does, such a connection is made again in calls. */
static bool may_reconnect(const struct tcp_endpoint *ep)
{
	return tcp_would_reconnect(ep, !ep->has_far_peer);
}

static tutti_status open_alarm(struct tcp_endpoint *ep)
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
static bool has_alarm(struct tcp_endpoint *ep)
{
	if (ep->alarm.fd < 0 && open_alarm(ep) != TUTTI_OK) {
		log_seldom("%s", last_error());
		tcp_watch_close(ep, &ep->alarm);
	}
	return ep->alarm.fd >= 0;
}

/* Something can be done at once. */
static bool has_repairs(const struct tcp_endpoint *ep)
{
	for (const struct tcp_conn *c = ep->busy; c; c = c->next_busy)
		if (c->state == CONN_UP && (c->has_hung_up || (tcp_must_resend(c) && c->may_write)))
			return true;
	return false;
}

static bool is_reconnecting_any(const struct tcp_endpoint *ep)
{
	for (const struct tcp_conn *c = ep->conns; c; c = c->next)
		if (tcp_is_reconnecting(c) || (c->state == CONN_UP && tcp_must_resend(c)))
			return true;
	return ep->pending.count > 0 || ep->accept_again;
}

static int sleeps_on(const struct tcp_endpoint *ep)
{
	if (is_reconnecting_any(ep))
		return ep->epoll_fd;
	return ep->alarm.fd >= 0 ? ep->alarm.fd : ep->listener.fd;
}

int tcp_mend(struct tutti_endpoint *endpoint, int *fd)
{
	struct tcp_endpoint *ep = (struct tcp_endpoint *)endpoint;

	*fd = -1;
	if (ep->reconnect == 0 || (may_reconnect(ep) && !has_alarm(ep)))
		return 0;
	for (int pass = 0; pass < PASSES; pass++) {
		int events = tcp_take_events(ep);
		if (events == 0 && !has_repairs(ep)) {
			*fd = sleeps_on(ep);
			return tcp_lacks_timer(ep);
		}
		tcp_visit_busy(ep);
	}
	*fd = ep->epoll_fd;
	return 1;
}

/* The peer's kernel has all of it, or it is not wanted any more. */
static bool has_delivered(const struct tcp_conn *c)
{
	int undelivered = 0;

	if (!c->reconnects || c->base.status != TUTTI_OK || c->fails_after_drain != TUTTI_OK ||
	    c->write_error)
		return true;
	return c->state == CONN_UP && !tcp_must_resend(c) &&
	       (ioctl(c->watch.fd, SIOCOUTQ, &undelivered) != 0 || undelivered == 0);
}

int tcp_in_doubt(struct tutti_endpoint *endpoint)
{
	const struct tcp_endpoint *ep = (const struct tcp_endpoint *)endpoint;

	for (const struct tcp_conn *c = ep->conns; c; c = c->next)
		if (c->is_owned && !has_delivered(c))
			return 1;
	return 0;
}
