/* Words to tuttirun on what it cannot see of the processes that it has started, over a socket whose
 * name it has put into their environment. */
#include "core/join/rendezvous.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#define TELL_S 5 /* a socket may hold only 10 words, and all ranks join at once */

void rendezvous_tell_launcher(enum launcher_word word)
{
	const char *name = getenv("TUTTIRUN_SOCKET");
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	const struct sockaddr *to = (const struct sockaddr *)&address;
	struct timeval limit = {.tv_sec = TELL_S};
	const char *rank = getenv("RANK");
	char text[24];
	/* The launcher sees which process tells it, unless that has gone meanwhile. */
	size_t length = (size_t)snprintf(text, sizeof text, "%c%.20s", (int)word, rank ? rank : "");

	if (!name || strlen(name) > sizeof address.sun_path - 2)
		return;
	int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	int n = snprintf(address.sun_path + 1, sizeof address.sun_path - 1, "%s", name);
	socklen_t bytes = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n);

	if (fd < 0)
		return;
	/* A launcher that has gone, or is on another network, has no use for it. */
	if (setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit) == 0)
		while (sendto(fd, text, length, MSG_NOSIGNAL, to, bytes) < 0 && errno == EINTR)
			continue;
	close(fd);
}
