/* The bytes of a socket: in clear, or sealed where both ends have proved that they mean it so. */
#include "transport/tcp/tcp.h"

#include <errno.h>
#include <netinet/tcp.h>
#include <sodium.h>
#include <string.h>
#include <sys/socket.h>

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
