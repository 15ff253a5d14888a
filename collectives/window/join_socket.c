/* Where the ranks of a node meet to share a window, and where one says that it cannot. */
#include "collectives/window/window_join.h"

#include "core/net.h"

#include <stdio.h>
#include <unistd.h>

void window_socket_name(char *name, size_t bytes, const uint64_t comm_id[2])
{
	uint64_t h = comm_id[0] ^ (comm_id[1] << 32 | comm_id[1] >> 32);

	h = (h ^ h >> 30) * 0xbf58476d1ce4e5b9u;
	h = (h ^ h >> 27) * 0x94d049bb133111ebu;
	snprintf(name, bytes, "tutti-window-%016llx", (unsigned long long)(h ^ h >> 31));
}

/* A rank that could not join listens here. That it listens tells the others not to wait for it
 * until their deadline. */
static void refusal_name(char *name, size_t bytes, const struct window_config *config)
{
	size_t n;

	window_socket_name(name, bytes, config->comm_id);
	n = strlen(name);
	snprintf(name + n, bytes - n, "-refused");
}

/* Where this fails the others wait until their deadline. */
void join_refuse(const struct window_config *config)
{
	char name[64];

	refusal_name(name, sizeof name, config);
	if (config->refusal)
		net_unix_listen(name, config->size, config->refusal);
}

tutti_status join_still_worth(const struct join_wait *p, const struct window_config *config)
{
	char name[64];
	tutti_status status;
	int fd, pid = 0;

	if (p->is_over && p->is_over(p->arg))
		return fail(TUTTI_ERR_ABORTED, "the window is no longer needed");
	refusal_name(name, sizeof name, config);
	if (net_unix_connect(name, &fd) != TUTTI_OK)
		return TUTTI_OK;
	status = net_unix_check(fd, &pid);
	close(fd);
	return status == TUTTI_OK ? fail(TUTTI_ERR_PEER,
					 "process %d, another of these ranks, has given up", pid)
				  : TUTTI_OK;
}
