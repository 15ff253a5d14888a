/* A claim is a socket bound to an abstract name: the kernel gives a name to one process, frees it
 * with the process, and leaves no file. A process that takes names for no reason costs others their
 * binding and nothing else. */
#include "core/rank/claims.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

int rank_claim(const char *name)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int n = snprintf(address.sun_path + 1, sizeof address.sun_path - 1, "%s", name);
	int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	if (fd < 0)
		return -1;
	if (bind(fd, (struct sockaddr *)&address,
		 (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n)) == 0)
		return fd;
	close(fd);
	return -1;
}

int claim_cpu(int cpu)
{
	char name[40];

	snprintf(name, sizeof name, "tuttirun-cpu-%d", cpu);
	return rank_claim(name);
}
