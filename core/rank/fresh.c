/* A port is held by a socket that is bound to it with SO_REUSEADDR and never listens. Rank 0 can
 * still bind it and listen, and it can be bound while connections of an earlier job have it, which
 * the system keeps for a minute (TIME_WAIT). Two jobs could hold one port in this way, so a job
 * also binds an abstract Unix socket whose name has the port's number: only one process can. */
#include "core/rank/fresh.h"

#include <errno.h>
#include <netinet/in.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

union address {
	struct sockaddr any;
	struct sockaddr_in ipv4;
	struct sockaddr_in6 ipv6;
};

/* -1 with errno. */
static int fresh_bind_all(int family, int number, union address *address)
{
	int one = 1, zero = 0, error, fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);
	socklen_t bytes = sizeof address->ipv4;

	if (fd < 0)
		return -1;
	if (family == AF_INET6) {
		*address = (union address){.ipv6 = {.sin6_family = AF_INET6,
						    .sin6_port = htons((uint16_t)number),
						    .sin6_addr = IN6ADDR_ANY_INIT}};
		bytes = sizeof address->ipv6;
		setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &zero, sizeof zero);
	} else {
		*address = (union address){.ipv4 = {.sin_family = AF_INET,
						    .sin_port = htons((uint16_t)number),
						    .sin_addr.s_addr = htonl(INADDR_ANY)}};
	}
	if (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one) == 0 &&
	    bind(fd, &address->any, bytes) == 0 && getsockname(fd, &address->any, &bytes) == 0)
		return fd;
	error = errno;
	close(fd);
	errno = error;
	return -1;
}

/* Binds the port for both families at once if the system has IPv6. */
static int fresh_bind_port(int *number)
{
	union address address;
	int fd = fresh_bind_all(AF_INET6, *number, &address);

	if (fd >= 0) {
		*number = ntohs(address.ipv6.sin6_port);
		return fd;
	}
	if (errno != EAFNOSUPPORT && errno != EADDRNOTAVAIL)
		return -1;
	fd = fresh_bind_all(AF_INET, *number, &address);
	if (fd >= 0)
		*number = ntohs(address.ipv4.sin_port);
	return fd;
}

static int fresh_lock_port(int number)
{
	struct sockaddr_un name = {.sun_family = AF_UNIX};
	int n = snprintf(name.sun_path + 1, sizeof name.sun_path - 1, "tutti-port-%d", number);
	int error, fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (fd < 0)
		return -1;
	if (bind(fd, (const struct sockaddr *)&name,
		 (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n)) == 0)
		return fd;
	error = errno;
	close(fd);
	errno = error;
	return -1;
}

int fresh_port_keep(struct fresh_port *port, int number)
{
	int error;

	*port = (struct fresh_port){.number = number, .fd = -1, .lock_fd = -1};
	port->fd = fresh_bind_port(&port->number);
	if (port->fd < 0)
		return -1;
	port->lock_fd = fresh_lock_port(port->number);
	if (port->lock_fd >= 0 || number == 0) /* the system never chooses a port twice */
		return 0;
	error = errno;
	fresh_port_free(port);
	errno = error;
	return -1;
}

void fresh_port_free(struct fresh_port *port)
{
	if (port->fd >= 0)
		close(port->fd);
	if (port->lock_fd >= 0)
		close(port->lock_fd);
	port->fd = port->lock_fd = -1;
}

int fresh_secret(char secret[FRESH_SECRET_BYTES])
{
	unsigned char bits[32];

	if (getrandom(bits, sizeof bits, 0) != (ssize_t)sizeof bits)
		return -1;
	for (size_t i = 0; i < sizeof bits; i++)
		snprintf(secret + 2 * i, 3, "%02x", bits[i]);
	return 0;
}
