/* TCP sockets: listening, connecting, accepting. */
#include "core/net.h"

#include "core/status.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

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
		return fail_errno("cannot look up the host name %.200s", host ? host : "*");
	if (rc != EAI_SYSTEM)
		errno = rc == EAI_MEMORY ? ENOMEM : EADDRNOTAVAIL;
	fail(TUTTI_ERR_SYSTEM,
	     "the host name %.200s cannot be resolved: %s (is it right, and known on this "
	     "machine?)",
	     host ? host : "*", gai_strerror(rc));
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

/* A bit for each port. Only added to, and read on its own. */
static _Atomic uint64_t reserved[65536 / 64];

void net_reserve_port(int port)
{
	atomic_fetch_or(&reserved[port / 64], UINT64_C(1) << port % 64);
}

static bool is_reserved(int port)
{
	return atomic_load(&reserved[port / 64]) >> port % 64 & 1;
}

int net_tcp_socket(int family)
{
	int one = 1;
	int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	if (fd >= 0)
		setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
	return fd;
}

/* Returns the bound socket, or -1 with errno. */
static int bind_at(const struct addrinfo *at)
{
	int zero = 0, fd = net_tcp_socket(at->ai_family);

	if (fd < 0)
		return -1;
	if (at->ai_family == AF_INET6) /* [::] serves IPv4 too */
		setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &zero, sizeof zero);
	if (bind(fd, at->ai_addr, at->ai_addrlen) == 0)
		return fd;
	close_keeping_errno(fd);
	return -1;
}

/* The same on any port. A reserved one is held while others are tried, or it would come again. */
static int bind_anywhere(const struct addrinfo *at)
{
	int fd = bind_at(at), other;

	if (fd < 0 || !is_reserved(port_of(fd)))
		return fd;
	other = bind_anywhere(at);
	close_keeping_errno(fd);
	return other;
}

/* Returns the listening socket, or -1 with errno. */
static int listen_at(const struct addrinfo *at, int port, int backlog)
{
	int fd = port ? bind_at(at) : bind_anywhere(at);

	if (fd < 0 || listen(fd, backlog) == 0)
		return fd;
	close_keeping_errno(fd);
	return -1;
}

/* Returns the listening socket, or -1 with errno. A name with several addresses is dialed in the
 * order of the list, too: where the first one's port is another program's, no later one will do. */
static int listen_at_any(const struct addrinfo *list, int port, int backlog)
{
	int listener = -1;

	for (const struct addrinfo *at = list; at && listener < 0; at = at->ai_next) {
		listener = listen_at(at, port, backlog);
		if (listener < 0 && errno == EADDRINUSE)
			break;
	}
	return listener;
}

/* On all interfaces: the address that serves both families comes first. */
static int listen_everywhere(const struct addrinfo *list, int port, int backlog)
{
	const int families[] = {AF_INET6, AF_INET};
	int listener = -1;

	for (int i = 0; i < 2 && listener < 0; i++)
		for (const struct addrinfo *at = list; at && listener < 0; at = at->ai_next)
			if (at->ai_family == families[i])
				listener = listen_at(at, port, backlog);
	return listener;
}

tutti_status net_listen(const char *host, int port, int backlog, int *fd, int *bound_port)
{
	struct addrinfo *list;
	tutti_status status = look_up(host, port, AI_PASSIVE, &list);

	if (status != TUTTI_OK)
		return TUTTI_ERR_SYSTEM;
	int listener =
		host ? listen_at_any(list, port, backlog) : listen_everywhere(list, port, backlog);
	freeaddrinfo(list);
	if (listener < 0)
		return fail_errno("cannot listen on %.200s:%d", host ? host : "*", port);
	*fd = listener;
	if (bound_port)
		*bound_port = port_of(listener);
	return TUTTI_OK;
}

bool net_met_itself(int fd)
{
	const struct linger reset = {.l_onoff = 1, .l_linger = 0};
	struct sockaddr_storage here = {0}, there = {0};
	socklen_t here_length = sizeof here, there_length = sizeof there;

	if (getsockname(fd, (struct sockaddr *)&here, &here_length) != 0 ||
	    getpeername(fd, (struct sockaddr *)&there, &there_length) != 0 ||
	    here_length != there_length || memcmp(&here, &there, here_length) != 0)
		return false;
	/* Closed in peace it would keep its port, which another rank may be about to bind. */
	setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
	return true;
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
	if (error == 0 && net_met_itself(fd))
		return ECONNREFUSED;
	return error;
}

/* IN_PROGRESS with errno when no process listens there. */
static tutti_status connect_to(const struct addrinfo *to, uint64_t deadline_ns, int *fd)
{
	int one = 1, error = 0;
	int s = net_tcp_socket(to->ai_family);

	if (s < 0 && errno == EAFNOSUPPORT)
		return TUTTI_IN_PROGRESS;
	if (s < 0)
		return fail_errno("cannot make a TCP socket");
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
	errno = error;
	if (status == TUTTI_IN_PROGRESS)
		fail(status, "no process listens at %.200s:%d (%s)", host, port, strerror(error));
	return status;
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
			return fail_errno("cannot accept a connection");
		if (net_wait(listen_fd, POLLIN, deadline_ns) != TUTTI_OK)
			return fail(TUTTI_ERR_TIMEOUT, "no process connected before the deadline");
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
