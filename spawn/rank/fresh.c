/* A port is reserved by binding it and never listening: rank 0 can still bind and listen beside the
 * reservation, since both allow reuse, while another job's reservation, bound before it allows
 * reuse, finds it taken. So jobs that start at the same moment get different ports. */
#include "spawn/rank/fresh.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#define PORT_MAX 65535

int fresh_port_at(int port)
{
	struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
	int yes = 1, error;
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (fd < 0)
		return -1;
	address.sin_addr.s_addr = htonl(INADDR_ANY);
	if (bind(fd, (struct sockaddr *)&address, sizeof address) == 0 &&
	    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes) == 0)
		return fd;
	error = errno;
	close(fd);
	errno = error;
	return -1;
}

int fresh_port_from(int first, int *port)
{
	int last = first + FRESH_PORTS - 1 < PORT_MAX ? first + FRESH_PORTS - 1 : PORT_MAX, fd = -1;

	for (*port = first;; ++*port) {
		fd = fresh_port_at(*port);
		if (fd >= 0 || errno != EADDRINUSE || *port == last)
			return fd;
	}
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
