/* A port for a job to meet at, below those that the system hands out by itself. Until *fd is closed
 * no other test finds it free; a listener with SO_REUSEADDR, as rank 0's is, can still have it. */
#ifndef TESTS_PORT_H
#define TESTS_PORT_H

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#define PORT_FIRST 12000u
#define PORTS      20000u

/* 0: there is none. */
static inline int port_reserve(int *fd)
{
	struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	int yes = 1;

	for (unsigned i = 0; i < 1000; i++) {
		unsigned port = PORT_FIRST + ((unsigned)getpid() * 31u + i) % PORTS;
		at.sin_port = htons((uint16_t)port);
		*fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
		if (bind(*fd, (struct sockaddr *)&at, sizeof at) == 0 &&
		    setsockopt(*fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes) == 0)
			return (int)port;
		close(*fd);
	}
	return 0;
}

#endif
