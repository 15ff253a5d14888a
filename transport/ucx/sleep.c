/* Sleeping until a conn has work: an epoll of oob's descriptor and of those of the workers that
 * have something to do. The others' may be readable all the time. */
#include "transport/ucx/ucx.h"

#include <errno.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

#define LOOK_NS 100000000 /* between two looks of a rank that is in no call */

static bool ucx_watch(struct ucx_endpoint *endpoint, int fd)
{
	struct epoll_event event = {.events = EPOLLIN, .data.fd = fd};

	return fd >= 0 &&
	       (epoll_ctl(endpoint->epoll_fd, EPOLL_CTL_ADD, fd, &event) == 0 || errno == EEXIST);
}

/* -1: without descriptors to watch. */
int ucx_event_fd(struct tutti_endpoint *base)
{
	struct ucx_endpoint *endpoint = (struct ucx_endpoint *)base;

	if (endpoint->epoll_fd >= 0)
		return endpoint->epoll_fd;
	endpoint->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	if (endpoint->epoll_fd >= 0 && endpoint->oob &&
	    !ucx_watch(endpoint, oob_event_fd(endpoint->oob))) {
		close(endpoint->epoll_fd);
		endpoint->epoll_fd = -1;
	}
	return endpoint->epoll_fd;
}

/* True: there is work at once. */
static bool ucx_arm_conn(struct ucx_endpoint *endpoint, struct ucx_conn *conn)
{
	if ((!conn->is_active && !ucx_is_in_doubt(conn)) || !conn->wire.worker) {
		ucx_wire_unwatch(conn);
		return conn->is_active;
	}
	if (!conn->wire.is_watched)
		conn->wire.is_watched = ucx_watch(endpoint, conn->wire.fd);
	return !conn->wire.is_watched || conn->wire.broken != UCS_OK || conn->has_left ||
	       ucx_can_receive(conn) || ucx_owes_notice(conn) ||
	       endpoint->library->ucp_worker_arm(conn->wire.worker) != UCS_OK;
}

int ucx_arm(struct tutti_endpoint *base)
{
	struct ucx_endpoint *endpoint = (struct ucx_endpoint *)base;

	if (ucx_event_fd(base) < 0 || endpoint->done.head)
		return 1;
	if (!endpoint->oob)
		return 0;
	endpoint->passes = 0; /* what wakes may be oob */
	if (ucx_look(endpoint) || oob_arm(endpoint->oob))
		return 1;
	for (struct ucx_conn *conn = endpoint->conns; conn; conn = conn->next_conn)
		if (ucx_arm_conn(endpoint, conn))
			return 1;
	return 0;
}

/* Setting it makes it unreadable. */
int ucx_next_look(struct ucx_endpoint *endpoint)
{
	const struct itimerspec next = {.it_value.tv_nsec = LOOK_NS};

	if (endpoint->timer_fd < 0)
		endpoint->timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
	if (endpoint->timer_fd >= 0)
		timerfd_settime(endpoint->timer_fd, 0, &next, NULL);
	return endpoint->timer_fd;
}
