/* The descriptors that an endpoint watches, and what is said over sockets after the hello: a byte
 * wakes the other end. */
#include "transport/shm/shm.h"

#include "core/forks.h"
#include "core/status.h"

#include <errno.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <unistd.h>

static tutti_status shm_add(struct shm_endpoint *endpoint, struct shm_watch *watch)
{
	struct epoll_event event = {.events = EPOLLIN, .data.ptr = watch};

	if (epoll_ctl(endpoint->epoll_fd, EPOLL_CTL_ADD, watch->fd, &event) < 0)
		return fail_errno("rank %d cannot watch a socket (epoll_ctl)", endpoint->rank);
	forks_own(watch->fd);
	return TUTTI_OK;
}

tutti_status shm_epoll_open(struct shm_endpoint *endpoint)
{
	if (endpoint->epoll_fd >= 0)
		return TUTTI_OK;
	endpoint->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	if (endpoint->epoll_fd < 0)
		return fail_errno("rank %d cannot watch sockets (epoll_create1)", endpoint->rank);
	if (endpoint->listener.fd < 0 || shm_add(endpoint, &endpoint->listener) == TUTTI_OK)
		return TUTTI_OK;
	close(endpoint->epoll_fd);
	endpoint->epoll_fd = -1;
	return TUTTI_ERR_SYSTEM;
}

tutti_status shm_watch_add(struct shm_endpoint *endpoint, struct shm_watch *watch)
{
	TRY(shm_epoll_open(endpoint));
	return shm_add(endpoint, watch);
}

bool shm_timer_open(struct shm_endpoint *endpoint)
{
	struct shm_watch *timer = &endpoint->timer;

	if (timer->fd >= 0)
		return true;
	timer->fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
	if (timer->fd >= 0 && shm_watch_add(endpoint, timer) == TUTTI_OK)
		return true;
	if (timer->fd >= 0)
		close(timer->fd);
	timer->fd = -1;
	return false;
}

/* While another process has a copy of the descriptor (a forked child) an epoll keeps it. */
void shm_watch_close(struct shm_endpoint *endpoint, struct shm_watch *watch)
{
	forks_disown(watch->fd);
	if (watch->fd >= 0) {
		epoll_ctl(endpoint->epoll_fd, EPOLL_CTL_DEL, watch->fd, NULL);
		close(watch->fd);
	}
	watch->fd = -1;
}

bool shm_socket_drain(int fd, bool *is_anything)
{
	char bytes[256];

	for (;;) {
		ssize_t n = recv(fd, bytes, sizeof bytes, MSG_DONTWAIT);
		if (n > 0) {
			*is_anything = true;
			continue;
		}
		return n < 0 && (errno == EAGAIN || errno == EINTR);
	}
}

/* When the socket is full of doorbells the peer has enough of them. */
void shm_ring_doorbell(int fd)
{
	ssize_t n = fd < 0 ? 0 : send(fd, "", 1, MSG_DONTWAIT | MSG_NOSIGNAL);
	(void)n;
}
