/* A child process with a network of its own: loopback alone, whose systems' own ports are few.
 * Comes last, as tests/unit.h does. */
#ifndef TESTS_OWN_NETWORK_H
#define TESTS_OWN_NETWORK_H

#include "core/status.h"
#include "tests/limit.h"

#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/unit.h"

/* In the child: what holds nowhere else ends it, and says where. */
#define OWN_NETWORK_NEED(condition)                                                                \
	do {                                                                                       \
		if (!(condition)) {                                                                \
			fprintf(stderr, "%s:%d: not %s: %s\n", __FILE__, __LINE__, #condition,     \
				last_error());                                                     \
			_exit(1);                                                                  \
		}                                                                                  \
	} while (0)

/* Ports that are asked for as any, or that connect takes, are from first to last. */
static inline bool own_network_enter(int first, int last)
{
	struct ifreq loopback = {.ifr_name = "lo", .ifr_flags = IFF_UP};
	char range[32];
	int n = snprintf(range, sizeof range, "%d %d", first, last);

	if (unshare(CLONE_NEWNET) != 0 && unshare(CLONE_NEWUSER | CLONE_NEWNET) != 0)
		return false;
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	bool is_up = fd >= 0 && ioctl(fd, SIOCSIFFLAGS, &loopback) == 0;
	close(fd);
	fd = open("/proc/sys/net/ipv4/ip_local_port_range", O_WRONLY | O_CLOEXEC);
	is_up = is_up && fd >= 0 && write(fd, range, (size_t)n) == n;
	close(fd);
	return is_up;
}

/* Runs body there. Returns its process's status: 0, or 77 << 8 where that is not allowed, which is printed. */
static inline int own_network_run(int first, int last, void (*body)(void))
{
	int status = -1;
	pid_t child = fork();

	if (child == 0) {
		test_limit(100);
		if (!own_network_enter(first, last)) {
			dprintf(STDOUT_FILENO, "a network of one's own needs root, or namespaces for users: %s\n",
				strerror(errno));
			_exit(77);
		}
		body();
		_exit(0);
	}
	return waitpid(child, &status, 0) == child ? status : -1;
}

/* The same as a cmocka case, with as many ports from first on; skipped where that is not allowed. */
static inline void own_network_case(int first, int ports, void (*body)(void))
{
	int status = own_network_run(first, first + ports - 1, body);

	if (status == 77 << 8)
		skip();
	assert_int_equal(status, 0);
}

#endif
