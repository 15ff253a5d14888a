/* The processes of other ranks, watched by descriptors (pidfds): one for each process, for all
 * segments that it shares with this one. */
#include "collectives/window/segment.h"

#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

struct watched {
	struct watched *next;
	uint64_t token;
	int fd, users;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct watched *processes;

int processes_watch(uint64_t token, int pid_fd)
{
	struct watched *p;

	pthread_mutex_lock(&lock);
	for (p = token ? processes : NULL; p && p->token != token; p = p->next)
		;
	if (p) {
		p->users++;
		close(pid_fd);
		pid_fd = p->fd;
	} else if ((p = malloc(sizeof *p))) { /* else nobody shares it */
		*p = (struct watched){processes, token, pid_fd, 1};
		processes = p;
	}
	pthread_mutex_unlock(&lock);
	return pid_fd;
}

void processes_forget(int pid_fd)
{
	struct watched **at = &processes, *p;

	pthread_mutex_lock(&lock);
	while ((p = *at) && p->fd != pid_fd)
		at = &p->next;
	bool is_last = !p || --p->users == 0;
	if (is_last && p)
		*at = p->next;
	pthread_mutex_unlock(&lock);
	if (!is_last)
		return;
	close(pid_fd);
	free(p);
}
