/* TCP sockets: listening, connecting, accepting. */
#include "core/net.h"

#include "core/status.h"
#include "core/tries.h"

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

/* host NULL: all interfaces. port 0: any. */
struct listen_place {
	const char *host;
	int port;
};

static void net_tcp_close_keeping_errno(int fd)
{
	int error = errno;
	close(fd);
	errno = error;
}

/* The resolver reports a denied socket as a server that does not answer: this tells them apart. */
static bool net_may_ask_servers(void)
{
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	if (fd >= 0)
		close(fd);
	return fd >= 0 || tried_of(errno) != TRIED_DENIED;
}

tutti_status net_look_up(const char *host, int port, int flags, struct addrinfo **list)
{
	struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
	char service[16];
	int rc;

	hints.ai_flags = flags | AI_NUMERICSERV;
	snprintf(service, sizeof service, "%d", port);
	rc = getaddrinfo(host, service, &hints, list);
	if (rc == 0)
		return TUTTI_OK;
	if (rc == EAI_AGAIN && !net_may_ask_servers())
		return fail_errno("the host name %.200s cannot be looked up (socket)",
				  host ? host : "*");
	if (rc == EAI_MEMORY)
		errno = ENOMEM;
	if (rc == EAI_MEMORY || (rc == EAI_SYSTEM && tried_of(errno) == TRIED_DENIED))
		return fail_errno("the host name %.200s cannot be looked up (getaddrinfo)",
				  host ? host : "*");
	if (rc != EAI_SYSTEM)
		errno = EADDRNOTAVAIL;
	fail(TUTTI_ERR_SYSTEM,
	     "the host name %.200s cannot be resolved: %s (is it right, and known on this "
	     "machine?)",
	     host ? host : "*", rc == EAI_SYSTEM ? strerror(errno) : gai_strerror(rc));
	return rc == EAI_AGAIN || rc == EAI_NONAME ? TUTTI_IN_PROGRESS : TUTTI_ERR_SYSTEM;
}

/* -1 with errno. */
static int net_tcp_port_of(int fd)
{
	struct sockaddr_storage address;
	socklen_t length = sizeof address;

	if (getsockname(fd, (struct sockaddr *)&address, &length) < 0)
		return -1;
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

static bool net_tcp_is_reserved(int port)
{
	return atomic_load(&reserved[port / 64]) >> port % 64 & 1;
}

int net_tcp_socket(int family)
{
	int one = 1;
	int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	if (fd < 0) {
		fail_errno("cannot make a TCP socket (socket)");
	} else if (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one) != 0) {
		fail_errno("cannot let a TCP socket share its port (setsockopt, SO_REUSEADDR)");
		net_tcp_close_keeping_errno(fd);
		fd = -1;
	}
	return fd;
}

/* For the message of a failed bind or connect. The parser refuses such an address
 * (core/words/netaddr.h), but a name may have one. */
static const char *net_scope_hint(int error)
{
	return error == EINVAL ? "; a link-local IPv6 address needs a scope, as in fe80::1%eth0"
			       : "";
}

/* Closes fd and returns -1, with errno and a message, for the functions below. */
static int net_fail_listen(int fd, const struct listen_place *at, const char *call)
{
	fail_errno("cannot listen on %.200s:%d (%s%s)", at->host ? at->host : "*", at->port, call,
		   net_scope_hint(errno));
	net_tcp_close_keeping_errno(fd);
	return -1;
}

/* Returns the bound socket, or -1 with errno and a message. */
static int net_tcp_bind_at(const struct addrinfo *at, const struct listen_place *place)
{
	int zero = 0, fd = net_tcp_socket(at->ai_family);

	if (fd < 0)
		return -1;
	/* [::] serves IPv4 too */
	if (at->ai_family == AF_INET6 &&
	    setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &zero, sizeof zero) != 0)
		return net_fail_listen(fd, place, "setsockopt, IPV6_V6ONLY");
	if (bind(fd, at->ai_addr, at->ai_addrlen) != 0)
		return net_fail_listen(fd, place, "bind");
	return fd;
}

/* The same on any port. A reserved one is held while others are tried, or it would come again. */
static int net_tcp_bind_anywhere(const struct addrinfo *at, const struct listen_place *place)
{
	int fd = net_tcp_bind_at(at, place), port = fd < 0 ? -1 : net_tcp_port_of(fd), other;

	if (fd >= 0 && port < 0)
		return net_fail_listen(fd, place, "getsockname");
	if (fd < 0 || !net_tcp_is_reserved(port))
		return fd;
	other = net_tcp_bind_anywhere(at, place);
	net_tcp_close_keeping_errno(fd);
	return other;
}

/* Returns the listening socket, or -1 with errno and a message. */
static int net_tcp_listen_at(const struct addrinfo *at, const struct listen_place *place,
			     int backlog)
{
	int fd = place->port ? net_tcp_bind_at(at, place) : net_tcp_bind_anywhere(at, place);

	if (fd < 0 || listen(fd, backlog) == 0)
		return fd;
	return net_fail_listen(fd, place, "listen");
}

/* net_tcp_listen_at, which adds to tries why it cannot. */
static int net_tcp_listen_try(const struct addrinfo *at, const struct listen_place *place,
			      int backlog, struct tries *tries)
{
	int listener = net_tcp_listen_at(at, place, backlog);

	if (listener < 0)
		tries_add(tries, tried_of(errno), errno, last_error());
	return listener;
}

/* Returns the listening socket, or -1 with errno. Peers dial the addresses of a
 * name in this order, too. So if another program has the port at one of them, a later one is of no
 * use. */
static int net_tcp_listen_at_any(const struct addrinfo *list, const struct listen_place *place,
				 int backlog, struct tries *tries)
{
	int listener = -1;

	for (const struct addrinfo *at = list; at && listener < 0; at = at->ai_next) {
		listener = net_tcp_listen_try(at, place, backlog, tries);
		if (listener < 0 && errno == EADDRINUSE)
			break;
	}
	return listener;
}

/* On all interfaces: the address that serves both families comes first. */
static int net_tcp_listen_everywhere(const struct addrinfo *list, const struct listen_place *place,
				     int backlog, struct tries *tries)
{
	const int families[] = {AF_INET6, AF_INET};
	int listener = -1;

	for (int i = 0; i < 2 && listener < 0; i++)
		for (const struct addrinfo *at = list; at && listener < 0; at = at->ai_next)
			if (at->ai_family == families[i])
				listener = net_tcp_listen_try(at, place, backlog, tries);
	return listener;
}

tutti_status net_listen(const char *host, int port, int backlog, int *fd, int *bound_port)
{
	const struct listen_place place = {host, port};
	struct addrinfo *list;
	struct tries tries = {0};

	if (net_look_up(host, port, AI_PASSIVE, &list) != TUTTI_OK)
		return TUTTI_ERR_SYSTEM;
	int listener = host ? net_tcp_listen_at_any(list, &place, backlog, &tries)
			    : net_tcp_listen_everywhere(list, &place, backlog, &tries);
	freeaddrinfo(list);
	if (listener < 0) {
		errno = tries.error;
		return fail(TUTTI_ERR_SYSTEM, "%s", tries.why);
	}
	*fd = listener;
	if (bound_port)
		*bound_port = port ? port : net_tcp_port_of(listener);
	return TUTTI_OK;
}

/* Whether both ends of a connection are this socket: connect to a port of this machine on which no
 * process listens may take that port. Closing it leaves nothing behind then. */
static bool net_met_itself(int fd)
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

tutti_status net_connect_end(int fd, int *error)
{
	socklen_t length = sizeof *error;

	*error = 0;
	if (getsockopt(fd, SOL_SOCKET, SO_ERROR, error, &length) < 0)
		return fail_errno("cannot find out how a connect ended (getsockopt, SO_ERROR)");
	if (*error == 0 && net_met_itself(fd))
		*error = ECONNREFUSED;
	return TUTTI_OK;
}

/* *error: 0, or the errno why no connection was made. SYSTEM: this process cannot even try. */
static tutti_status net_connect_socket(int fd, const struct sockaddr *to, socklen_t bytes,
				       uint64_t deadline_ns, int *error)
{
	tutti_status status;

	*error = 0;
	/* Interrupted, a connect goes on as one that would have blocked does. */
	if (connect(fd, to, bytes) < 0 && errno != EINPROGRESS && errno != EINTR) {
		*error = errno;
		return TUTTI_OK;
	}
	status = net_wait(fd, POLLOUT, deadline_ns);
	if (status != TUTTI_ERR_TIMEOUT)
		return status == TUTTI_OK ? net_connect_end(fd, error) : status;
	*error = ETIMEDOUT;
	return TUTTI_OK;
}

static tutti_status net_connect_to(const struct addrinfo *to, int port, uint64_t deadline_ns,
				   int *fd, int *error)
{
	struct sockaddr_storage address = {0};
	int one = 1, s = net_tcp_socket(to->ai_family);
	tutti_status status;

	*error = errno;
	if (s < 0)
		return errno == EAFNOSUPPORT ? TUTTI_OK : TUTTI_ERR_SYSTEM;
	memcpy(&address, to->ai_addr, to->ai_addrlen);
	if (to->ai_family == AF_INET6)
		((struct sockaddr_in6 *)&address)->sin6_port = htons((uint16_t)port);
	else
		((struct sockaddr_in *)&address)->sin_port = htons((uint16_t)port);
	status = net_connect_socket(s, (struct sockaddr *)&address, to->ai_addrlen, deadline_ns,
				    error);
	if (status != TUTTI_OK || *error != 0) {
		net_tcp_close_keeping_errno(s);
		return status;
	}
	setsockopt(s, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
	*fd = s;
	return TUTTI_OK;
}

void net_say_unconnected(const char *to, int error)
{
	errno = error;
	if (tried_of(error) == TRIED_DENIED)
		fail_errno("cannot connect to %.216s (connect)", to);
	else if (error == ECONNREFUSED)
		fail(TUTTI_ERR_PEER, "no process listens at %.216s (%s)", to, strerror(error));
	else if (error == ETIMEDOUT)
		fail(TUTTI_ERR_PEER, "nothing answers at %.216s (%s)", to, strerror(error));
	else
		fail(TUTTI_ERR_PEER, "%.216s cannot be reached (%s%s)", to, strerror(error),
		     net_scope_hint(error));
}

tutti_status net_connect(const struct addrinfo *list, const char *host, int port,
			 uint64_t deadline_ns, int *fd)
{
	char where[216];
	int error = 0, last;

	for (const struct addrinfo *to = list; to; to = to->ai_next) {
		TRY(net_connect_to(to, port, deadline_ns, fd, &last));
		if (last == 0)
			return TUTTI_OK;
		if (error == 0 || tried_of(last) > tried_of(error))
			error = last;
	}
	snprintf(where, sizeof where, "%.200s:%d", host, port);
	net_say_unconnected(where, error);
	return TUTTI_IN_PROGRESS;
}

tutti_status net_try_connect(const char *host, int port, uint64_t deadline_ns, int *fd)
{
	struct addrinfo *list;
	tutti_status status;
	int error;

	TRY(net_look_up(host, port, 0, &list));
	status = net_connect(list, host, port, deadline_ns, fd);
	error = errno;
	freeaddrinfo(list);
	errno = error;
	return status;
}

/* The accepted connection itself was already broken, or there is none. */
static bool net_tcp_accept_again(int error)
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
		if (!net_tcp_accept_again(error))
			return fail_errno("cannot accept a connection (accept4)");
		tutti_status status = net_wait(listen_fd, POLLIN, deadline_ns);
		if (status == TUTTI_ERR_TIMEOUT)
			return fail(status, "no process connected before the deadline");
		TRY(status);
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
