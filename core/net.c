/* The bytes of every socket, moved before a deadline, and waiting for it. How TCP sockets come
 * about is in net_tcp.c, Unix ones and descriptors in net_unix.c. */
#include "core/net.h"

#include "core/cancel.h"
#include "core/clock.h"
#include "core/status.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>

#define POLL_MAX_MS  3600000
#define PAUSE_MAX_MS 50

static int one_poll(int fd, short events, uint64_t deadline_ns)
{
	struct pollfd p = {.fd = fd, .events = events};
	return poll(&p, 1, cancel_poll_ms(deadline_ns, POLL_MAX_MS));
}

tutti_status net_wait(int fd, short events, uint64_t deadline_ns)
{
	for (;;) {
		int rc = one_poll(fd, events, deadline_ns);
		if (rc > 0)
			return TUTTI_OK;
		if (rc < 0 && errno != EINTR)
			return fail_errno("cannot wait for a socket (poll)");
		if (rc == 0 && clock_now_ns() >= cancel_deadline(deadline_ns))
			return fail(
				TUTTI_ERR_TIMEOUT,
				"the other end of a connection did not answer before the deadline");
	}
}

bool net_has_caller(int listen_fd)
{
	return one_poll(listen_fd, POLLIN, 0) > 0;
}

void net_pause(int attempt, uint64_t deadline_ns)
{
	int ms = attempt < 6 ? 1 << attempt : PAUSE_MAX_MS;
	poll(NULL, 0, cancel_poll_ms(deadline_ns, ms));
}

bool net_is_gone(int error)
{
	switch (error) {
	case EPIPE:
	case ECONNRESET:
	case ETIMEDOUT:
	/* Another program has closed this end (`ss -K`, a debugger). */
	case ECONNABORTED:
	case ENOTCONN:
		return true;
	default:
		return false;
	}
}

tutti_status net_again(int fd, short events, const char *what, uint64_t deadline_ns)
{
	if (errno == EINTR)
		return TUTTI_OK;
	if (errno == EAGAIN)
		return net_wait(fd, events, deadline_ns);
	if (net_is_gone(errno))
		return fail(TUTTI_ERR_PEER, "the other end of a connection went away (%s)",
			    strerror(errno));
	return fail_errno("cannot %s", what);
}

tutti_status net_send_all(int fd, const void *data, size_t bytes, uint64_t deadline_ns)
{
	const char *from = data;

	while (bytes) {
		ssize_t n = send(fd, from, bytes, MSG_NOSIGNAL);
		if (n < 0) {
			TRY(net_again(fd, POLLOUT, "write to a socket (send)", deadline_ns));
			continue;
		}
		from += n;
		bytes -= (size_t)n;
	}
	return TUTTI_OK;
}

tutti_status net_recv_all(int fd, void *data, size_t bytes, uint64_t deadline_ns)
{
	char *to = data;
	size_t got = 0;

	while (got < bytes) {
		ssize_t n = recv(fd, to + got, bytes - got, 0);
		if (n == 0)
			return fail(TUTTI_ERR_PEER,
				    "the other end closed the connection after %zu of %zu bytes",
				    got, bytes);
		if (n < 0)
			TRY(net_again(fd, POLLIN, "read from a socket (recv)", deadline_ns));
		else
			got += (size_t)n;
	}
	return TUTTI_OK;
}
