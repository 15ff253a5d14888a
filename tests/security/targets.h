/* The listeners of a job's processes, as any process of the machine can find them. */
#ifndef TESTS_SECURITY_TARGETS_H
#define TESTS_SECURITY_TARGETS_H

#include <stdbool.h>
#include <sys/types.h>

#define TARGETS_MOST 128

struct target {
	bool is_unix;
	int port;       /* of TCP, reached at 127.0.0.1 */
	char name[108]; /* of an abstract Unix socket, without @ */
};

/* Those of these processes; returns how many there are. */
int targets_find(const pid_t *pids, int n, struct target targets[TARGETS_MOST]);

#endif
