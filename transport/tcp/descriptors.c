/* The descriptors that the endpoint's epolls watch, and its timer. */
#include "transport/tcp/tcp.h"

#include "core/forks.h"
#include "core/status.h"

#include <sys/timerfd.h>
#include <unistd.h>

/* Edge-triggered: the receiver of an event takes all there is, or remembers that there is more. */
tutti_status tcp_watch_add(struct tcp_endpoint *ep, struct tcp_watch *watch, uint32_t events)
{
	struct epoll_event event = {.events = events | EPOLLET, .data.ptr = watch};

	if (epoll_ctl(ep->epoll_fd, EPOLL_CTL_ADD, watch->fd, &event) != 0)
		return fail_errno("rank %d cannot watch a tcp socket (epoll_ctl)", ep->rank);
	forks_own(watch->fd);
	return TUTTI_OK;
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

void tcp_ticking(struct tcp_endpoint *ep)
{
	bool is_needed = ep->unsettled > 0 || ep->pending.count > 0 || ep->accept_again;
	struct itimerspec tick = {0};

	if (is_needed == ep->is_ticking || ep->timer.fd < 0)
		return;
	if (is_needed)
		tick.it_value.tv_nsec = tick.it_interval.tv_nsec = TCP_TICK_MS * 1000000L;
	timerfd_settime(ep->timer.fd, 0, &tick, NULL);
	ep->is_ticking = is_needed;
}
