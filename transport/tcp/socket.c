/* The bytes of a socket: in clear, or sealed where both ends have proved that they mean it so. */
#include "core/clock.h"
#include "core/forks.h"
#include "core/status.h"
#include "transport/tcp/tcp.h"

#include <errno.h>
#include <netinet/tcp.h>
#include <sodium.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <unistd.h>

bool tcp_stream_secure(struct tcp_watch *w, const struct auth *auth, bool dials)
{
	uint8_t key[TUTTI_KEY_BYTES];
	tutti_status status;

	auth_tls_key(auth, key);
	status = tls_new(&w->tls, w->fd, key, dials, TLS_RECORDS);
	sodium_memzero(key, sizeof key);
	return status == TUTTI_OK;
}

ssize_t tcp_stream_send(const struct tcp_watch *w, const struct iovec *iov, int count)
{
	struct msghdr message = {.msg_iov = (struct iovec *)(uintptr_t)iov,
				 .msg_iovlen = (size_t)count};
	ssize_t n;

	if (w->tls)
		return tls_send(w->tls, iov, count);
	do
		n = count == 1
			    ? send(w->fd, iov->iov_base, iov->iov_len, MSG_DONTWAIT | MSG_NOSIGNAL)
			    : sendmsg(w->fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
	while (n < 0 && errno == EINTR);
	return n;
}

ssize_t tcp_stream_recv(const struct tcp_watch *w, struct iovec *iov, int count)
{
	struct msghdr message = {.msg_iov = iov, .msg_iovlen = (size_t)count};
	ssize_t n;

	if (w->tls)
		return tls_recv(w->tls, iov, count);
	do
		n = count == 1 ? recv(w->fd, iov->iov_base, iov->iov_len, MSG_DONTWAIT)
			       : recvmsg(w->fd, &message, MSG_DONTWAIT);
	while (n < 0 && errno == EINTR);
	return n;
}

const char *tcp_stream_fill(const struct tcp_watch *w, uint8_t *to, size_t bytes, size_t *have)
{
	while (*have < bytes) {
		struct iovec rest = {to + *have, bytes - *have};
		ssize_t n = tcp_stream_recv(w, &rest, 1);
		if (n == 0) {
			errno = 0;
			return "it hung up";
		}
		if (n < 0)
			return errno == EAGAIN ? NULL : strerror(errno);
		*have += (size_t)n;
	}
	return NULL;
}

bool tcp_stream_may_have_more(const struct tcp_watch *w)
{
	return w->tls && tls_may_have_more(w->tls);
}

bool tcp_stream_has_unread(const struct tcp_watch *w)
{
	uint8_t byte;

	if (w->tls)
		return tls_has_unread(w->tls);
	return recv(w->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) > 0;
}

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

/* The descriptors that the endpoint's epolls watch, and its timer. */

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

static void socket_open_timer(struct tcp_endpoint *ep)
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
		socket_open_timer(ep);
	else
		tcp_watch_close(ep, &ep->timer);
}

bool tcp_tick_by_clock(struct tcp_endpoint *ep)
{
	if (!tcp_lacks_timer(ep) || clock_now_ns() < ep->tick_ns)
		return false;
	ep->tick_ns = deadline_after_ms(TCP_TICK_MS);
	socket_open_timer(ep);
	return true;
}
