/* The descriptors that the endpoint's epolls watch, and its timer. */
#include "transport/tcp/tcp.h"

#include "core/clock.h"
#include "core/forks.h"
#include "core/status.h"

#include <sys/timerfd.h>
#include <unistd.h>

/* Edge-triggered: the receiver of an event takes all there is, or remembers that there is more. */
static tutti_status tcp_add(struct tcp_endpoint *ep, struct tcp_watch *watch, uint32_t events)
{
	struct epoll_event event = {.events = events | EPOLLET, .data.ptr = watch};

	if (epoll_ctl(ep->epoll_fd, EPOLL_CTL_ADD, watch->fd, &event) != 0)
		return fail_errno("rank %d cannot watch a tcp socket (epoll_ctl)", ep->rank);
	forks_own(watch->fd);
	return TUTTI_OK;
}

tutti_status tcp_epoll_open(struct tcp_endpoint *ep)
{
	if (ep->epoll_fd >= 0)
		return TUTTI_OK;
	ep->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	if (ep->epoll_fd < 0)
		return fail_errno("rank %d cannot watch its tcp sockets (epoll_create1)", ep->rank);
	if (tcp_add(ep, &ep->listener, EPOLLIN) == TUTTI_OK &&
	    (ep->alarm.fd < 0 || tcp_add(ep, &ep->alarm, EPOLLIN) == TUTTI_OK))
		return TUTTI_OK;
	close(ep->epoll_fd);
	ep->epoll_fd = -1;
	return TUTTI_ERR_SYSTEM;
}

tutti_status tcp_watch_add(struct tcp_endpoint *ep, struct tcp_watch *watch, uint32_t events)
{
	TRY(tcp_epoll_open(ep));
	return tcp_add(ep, watch, events);
}

/* Events that were taken but not yet looked at must not find a watch that is gone. */
void tcp_watch_close(struct tcp_endpoint *ep, struct tcp_watch *watch)
{
	tls_free(watch->tls);
	watch->tls = NULL;
	forks_disown(watch->fd);
	if (watch->fd >= 0) {
		/* While a forked child has a copy of the descriptor an epoll keeps it. */
		epoll_ctl(ep->epoll_fd, EPOLL_CTL_DEL, watch->fd, NULL);
		if (ep->alarm.fd >= 0 && watch != &ep->alarm)
			epoll_ctl(ep->alarm.fd, EPOLL_CTL_DEL, watch->fd, NULL);
		close(watch->fd);
	}
	watch->fd = -1;
	for (int i = ep->event_at; i < ep->event_count; i++)
		if (ep->events[i].data.ptr == watch)
			ep->events[i].data.ptr = NULL;
}

static void open_timer(struct tcp_endpoint *ep)
{
	struct itimerspec tick = {.it_value.tv_nsec = TCP_TICK_MS * 1000000L,
				  .it_interval.tv_nsec = TCP_TICK_MS * 1000000L};

	ep->timer.fd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
	if (ep->timer.fd < 0)
		return;
	timerfd_settime(ep->timer.fd, 0, &tick, NULL);
	if (tcp_watch_add(ep, &ep->timer, EPOLLIN) != TUTTI_OK)
		tcp_watch_close(ep, &ep->timer);
}

void tcp_ticking(struct tcp_endpoint *ep)
{
	bool is_needed = ep->unsettled > 0 || ep->pending.count > 0 || ep->accept_again;

	if (is_needed == ep->is_ticking)
		return;
	ep->is_ticking = is_needed;
	ep->tick_ns = deadline_after_ms(TCP_TICK_MS);
	if (is_needed)
		open_timer(ep);
	else
		tcp_watch_close(ep, &ep->timer);
}

bool tcp_tick_by_clock(struct tcp_endpoint *ep)
{
	if (!tcp_lacks_timer(ep) || clock_now_ns() < ep->tick_ns)
		return false;
	ep->tick_ns = deadline_after_ms(TCP_TICK_MS);
	open_timer(ep);
	return true;
}
