/* TCP ports that no other test of this machine takes: blocks outside of what systems hand out
 * themselves (32768 and above), of what tuttirun --hosts takes (29600 to 30495) and of what is derived from
 * the numbers of jobs (12000 to 28383). A block belongs to who has bound its abstract Unix socket,
 * which like the ports is one of the network namespace, and which ends with the process and its
 * children. */
#ifndef TESTS_PORTS_H
#define TESTS_PORTS_H

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define TEST_PORTS         256    /* in a block */
#define TEST_PORTS_WAIT_MS 120000 /* for a block, where tests hold all */

static inline int test_ports_hold(int first)
{
	struct sockaddr_un name = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	int n = snprintf(name.sun_path + 1, sizeof name.sun_path - 1, "tutti-test-ports-%d", first);

	if (fd >= 0 && bind(fd, (struct sockaddr *)&name,
			    (socklen_t)(sizeof name.sun_family + 1 + (size_t)n)) == 0)
		return fd;
	if (fd >= 0)
		close(fd);
	return -1;
}

/* The first port of this process's block, always the same. It keeps a descriptor: tests that count
 * those ask for it before they count. */
static inline int test_ports(void)
{
	static const int ranges[][2] = {{10000, 12000}, {30500, 32768}};
	static int mine;

	for (int ms = 0; !mine && ms < TEST_PORTS_WAIT_MS; ms += 10) {
		for (int i = 0; i < 2 && !mine; i++)
			for (int at = ranges[i][0]; at + TEST_PORTS <= ranges[i][1] && !mine;
			     at += TEST_PORTS)
				if (test_ports_hold(at) >= 0)
					mine = at;
		if (!mine)
			poll(NULL, 0, 10);
	}
	if (!mine) {
		fprintf(stderr, "all blocks of ports are taken by other tests\n");
		exit(1);
	}
	return mine;
}

#endif
