/* Words to tuttirun on what it cannot see of the processes that it has started, over a socket whose
 * name it has put into their environment. */
#include "rendezvous/rendezvous.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

void rendezvous_tell_launcher(enum launcher_word word)
{
	const char *name = getenv("TUTTIRUN_SOCKET");
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	const char byte = (char)word;

	if (!name || strlen(name) > sizeof address.sun_path - 2)
		return;
	int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	int n = snprintf(address.sun_path + 1, sizeof address.sun_path - 1, "%s", name);
	socklen_t bytes = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n);

	if (fd < 0)
		return;
	/* A launcher that has gone, or is on another network, has no use for it. */
	ssize_t sent = sendto(fd, &byte, 1, MSG_NOSIGNAL, (struct sockaddr *)&address, bytes);
	(void)sent;
	close(fd);
}
