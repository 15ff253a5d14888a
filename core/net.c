/* TCP and the byte streams of every socket: listening, connecting, moving bytes before a deadline.
 * Unix sockets and descriptors are in net_unix.c. */
#include "core/net.h"

#include "core/clock.h"
#include "core/cancel.h"
#include "core/status.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define POLL_MAX_MS  3600000
#define PAUSE_MAX_MS 50
/* A name that is not known yet may be that of a container which is just being started. */
#define RESOLVE_RETRY_MS 30000

/* The failure of a call that makes a descriptor; errno survives for callers that look at it. */
static tutti_status descriptor_failed(const char *what)
{
	int error = errno;

	fail_errno("cannot %s", what);
	errno = error;
	return TUTTI_ERR_SYSTEM;
}

static void close_keeping_errno(int fd)
{
	int error = errno;
	close(fd);
	errno = error;
}

/* Transient trouble of the resolver is TUTTI_IN_PROGRESS, with errno. */
static tutti_status look_up(const char *host, int port, int flags, struct addrinfo **list)
{
	struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
	char service[16];
	int rc;

	hints.ai_flags = flags | AI_NUMERICSERV;
	snprintf(service, sizeof service, "%d", port);
	rc = getaddrinfo(host, service, &hints, list);
	if (rc == 0)
		return TUTTI_OK;
	if (rc == EAI_SYSTEM && (errno == EMFILE || errno == ENFILE))
		return descriptor_failed("look up a host name");
	if (rc != EAI_SYSTEM)
		errno = rc == EAI_MEMORY ? ENOMEM : EADDRNOTAVAIL;
	fail(TUTTI_ERR_SYSTEM, "the host name %.200s cannot be resolved: %s", host ? host : "*",
	     gai_strerror(rc));
	return rc == EAI_AGAIN || rc == EAI_NONAME ? TUTTI_IN_PROGRESS : TUTTI_ERR_SYSTEM;
}

static int port_of(int fd)
{
	struct sockaddr_storage address;
	socklen_t length = sizeof address;

	if (getsockname(fd, (struct sockaddr *)&address, &length) < 0)
		return 0;
	if (address.ss_family == AF_INET6)
		return ntohs(((struct sockaddr_in6 *)&address)->sin6_port);
	return ntohs(((struct sockaddr_in *)&address)->sin_port);
}

/* Returns the listening socket, or -1 with errno. */
static int listen_at(const struct addrinfo *at, int backlog)
{
	int one = 1, zero = 0;
	int fd = socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	if (fd < 0)
		return -1;
	/* The port of a job that has just ended may be used again at once. */
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
	if (at->ai_family == AF_INET6) /* [::] serves IPv4 too */
		setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &zero, sizeof zero);
	if (bind(fd, at->ai_addr, at->ai_addrlen) == 0 && listen(fd, backlog) == 0)
		return fd;
	close_keeping_errno(fd);
	return -1;
}

tutti_status net_listen(const char *host, int port, int backlog, int *fd, int *bound_port)
{
	struct addrinfo *list;
	int listener = -1;
	int families[] = {AF_INET6,
			  AF_INET}; /* of all interfaces, the one that serves both first */
	tutti_status status = look_up(host, port, AI_PASSIVE, &list);

	if (status != TUTTI_OK)
		return TUTTI_ERR_SYSTEM;
	for (int i = 0; i < 2 && listener < 0; i++)
		for (struct addrinfo *at = list; at && listener < 0; at = at->ai_next)
			if (host ? i == 0 : at->ai_family == families[i])
				listener = listen_at(at, backlog);
	freeaddrinfo(list);
	if (listener < 0) {
		char what[300];
		snprintf(what, sizeof what, "listen on %.200s:%d", host ? host : "*", port);
		return descriptor_failed(what);
	}
	*fd = listener;
	if (bound_port)
		*bound_port = port_of(listener);
	return TUTTI_OK;
}

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
			return fail_errno("poll failed");
		if (rc == 0 && clock_now_ns() >= cancel_deadline(deadline_ns))
			return fail(TUTTI_ERR_TIMEOUT, "the deadline passed while waiting for a "
						       "socket");
	}
}

/* A connect to a free port of this machine's ephemeral range may meet itself. */
static bool met_itself(int fd)
{
	struct sockaddr_storage here = {0}, there = {0};
	socklen_t here_length = sizeof here, there_length = sizeof there;

	return getsockname(fd, (struct sockaddr *)&here, &here_length) == 0 &&
	       getpeername(fd, (struct sockaddr *)&there, &there_length) == 0 &&
	       here_length == there_length && memcmp(&here, &there, here_length) == 0;
}

/* 0, or the errno of a connect that was begun on fd. */
static int connect_outcome(int fd, uint64_t deadline_ns)
{
	int error = 0;
	socklen_t length = sizeof error;

	if (net_wait(fd, POLLOUT, deadline_ns) != TUTTI_OK)
		return ETIMEDOUT;
	if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length) < 0)
		return errno;
	if (error == 0 && met_itself(fd))
		return ECONNREFUSED;
	return error;
}

/* IN_PROGRESS with errno: nobody there. */
static tutti_status connect_to(const struct addrinfo *to, uint64_t deadline_ns, int *fd)
{
	int one = 1, error = 0;
	int s = socket(to->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	if (s < 0 && errno == EAFNOSUPPORT)
		return TUTTI_IN_PROGRESS;
	if (s < 0)
		return descriptor_failed("make a socket");
	/* Interrupted, a connect goes on as one that would have blocked does. */
	if (connect(s, to->ai_addr, to->ai_addrlen) < 0 && errno != EINPROGRESS && errno != EINTR)
		error = errno;
	else
		error = connect_outcome(s, deadline_ns);
	if (error == 0) {
		setsockopt(s, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
		*fd = s;
		return TUTTI_OK;
	}
	close(s);
	errno = error;
	return TUTTI_IN_PROGRESS;
}

tutti_status net_try_connect(const char *host, int port, uint64_t deadline_ns, int *fd)
{
	struct addrinfo *list;
	tutti_status status = look_up(host, port, 0, &list);
	int error = 0;

	if (status != TUTTI_OK)
		return status;
	status = TUTTI_IN_PROGRESS;
	for (struct addrinfo *to = list; to && status == TUTTI_IN_PROGRESS; to = to->ai_next) {
		status = connect_to(to, deadline_ns, fd);
		error = errno;
	}
	freeaddrinfo(list);
	if (status == TUTTI_IN_PROGRESS) {
		fail(status, "nobody listens at %.200s:%d (%s)", host, port, strerror(error));
		errno = error;
	}
	return status;
}

void net_pause(int attempt, uint64_t deadline_ns)
{
	int ms = attempt < 6 ? 1 << attempt : PAUSE_MAX_MS;
	poll(NULL, 0, cancel_poll_ms(deadline_ns, ms));
}

tutti_status net_connect(const char *host, int port, uint64_t deadline_ns, int *fd)
{
	uint64_t begun_ns = clock_now_ns();
	uint64_t retry_until_ns = begun_ns + RESOLVE_RETRY_MS * UINT64_C(1000000);

	for (int attempt = 0;; attempt++) {
		tutti_status status = net_try_connect(host, port, deadline_ns, fd);
		uint64_t now_ns = clock_now_ns();

		if (status != TUTTI_IN_PROGRESS)
			return status;
		if (errno == EADDRNOTAVAIL && now_ns >= retry_until_ns)
			return TUTTI_ERR_SYSTEM;
		if (now_ns >= cancel_deadline(deadline_ns))
			return fail(TUTTI_ERR_TIMEOUT, "%.400s: given up after %llu ms",
				    last_error(),
				    (unsigned long long)(now_ns - begun_ns) / 1000000);
		net_pause(attempt, deadline_ns);
	}
}

/* The accepted connection itself was already broken, or there is none. */
static bool accept_again(int error)
{
	switch (error) {
	case EAGAIN:
	case EINTR:
	case ECONNABORTED:
	case EPROTO:
	case ENETDOWN:
	case ENOPROTOOPT:
	case EHOSTDOWN:
	case ENONET:
	case EHOSTUNREACH:
	case EOPNOTSUPP:
	case ENETUNREACH:
		return true;
	default:
		return false;
	}
}

bool net_has_caller(int listen_fd)
{
	return one_poll(listen_fd, POLLIN, 0) > 0;
}

tutti_status net_accept(int listen_fd, uint64_t deadline_ns, int *fd)
{
	int one = 1, accepted;

	while ((accepted = accept4(listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK)) < 0) {
		int error = errno;
		bool is_full = error == EMFILE || error == ENFILE;
		if (is_full && !net_has_caller(listen_fd))
			error = EAGAIN;
		errno = error;
		if (!accept_again(error))
			return descriptor_failed("accept a connection");
		if (net_wait(listen_fd, POLLIN, deadline_ns) != TUTTI_OK)
			return fail(TUTTI_ERR_TIMEOUT, "nobody connected before the deadline");
	}
	/* Fails on a Unix socket, which has no such delay. */
	setsockopt(accepted, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
	*fd = accepted;
	return TUTTI_OK;
}

void net_peer_address(int fd, char text[NET_ADDRESS_BYTES])
{
	struct sockaddr_storage address;
	const struct sockaddr_in *four = (const struct sockaddr_in *)&address;
	const struct sockaddr_in6 *six = (const struct sockaddr_in6 *)&address;
	socklen_t length = sizeof address;

	text[0] = '\0';
	if (getpeername(fd, (struct sockaddr *)&address, &length) != 0)
		return;
	if (address.ss_family == AF_INET)
		inet_ntop(AF_INET, &four->sin_addr, text, NET_ADDRESS_BYTES);
	else if (address.ss_family == AF_INET6 && IN6_IS_ADDR_V4MAPPED(&six->sin6_addr))
		inet_ntop(AF_INET, &six->sin6_addr.s6_addr[12], text, NET_ADDRESS_BYTES);
	else if (address.ss_family == AF_INET6)
		inet_ntop(AF_INET6, &six->sin6_addr, text, NET_ADDRESS_BYTES);
}

bool net_is_gone(int error)
{
	switch (error) {
	case EPIPE:
	case ECONNRESET:
	case ETIMEDOUT:
	/* This end was taken apart from outside (`ss -K`, a debugger). */
	case ECONNABORTED:
	case ENOTCONN:
		return true;
	default:
		return false;
	}
}

/* After a send or recv that moved nothing. OK: try again. */
static tutti_status stream_again(int fd, short events, const char *what, uint64_t deadline_ns)
{
	if (errno == EINTR)
		return TUTTI_OK;
	if (errno == EAGAIN)
		return net_wait(fd, events, deadline_ns);
	if (net_is_gone(errno))
		return fail(TUTTI_ERR_PEER, "the other end of a connection went away (%s)",
			    strerror(errno));
	return fail_errno("cannot %s a socket", what);
}

tutti_status net_send_all(int fd, const void *data, size_t bytes, uint64_t deadline_ns)
{
	const char *from = data;

	while (bytes) {
		ssize_t n = send(fd, from, bytes, MSG_NOSIGNAL);
		if (n < 0) {
			TRY(stream_again(fd, POLLOUT, "write to", deadline_ns));
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
			TRY(stream_again(fd, POLLIN, "read from", deadline_ns));
		else
			got += (size_t)n;
	}
	return TUTTI_OK;
}
