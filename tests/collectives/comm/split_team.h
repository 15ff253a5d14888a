/* A team: ranks as threads of this process, what each of them found wrong, and what all said of a
 * call. */
#ifndef TESTS_COLLECTIVES_COMM_SPLIT_TEAM_H
#define TESTS_COLLECTIVES_COMM_SPLIT_TEAM_H

#include "collectives/comm/comm.h"
#include "tests/entries.h"

#include <pthread.h>
#include <stdio.h>

#define RANKS_MAX 8

struct team;
struct rank {
	struct team *team;
	int me, size;
	tutti_comm *comm;
	pthread_t thread;
	tutti_status status; /* what a body has to say, for the checks after it */
	char message[ERROR_BYTES];
	int wrong;
	char why[300];
};
struct team {
	int size;
	void (*body)(struct rank *);
	const void *arg;
	struct rank rank[RANKS_MAX];
};

#define EXPECT(r, condition, ...)                                                                  \
	do {                                                                                       \
		if (!(condition) && !(r)->wrong++) {                                               \
			int used_ = snprintf((r)->why, sizeof(r)->why, "line %d: %s: ", __LINE__,  \
					     #condition);                                          \
			snprintf((r)->why + used_, sizeof(r)->why - (size_t)used_, __VA_ARGS__);   \
		}                                                                                  \
	} while (0)
#define EXPECT_OK(r, call)                                                                         \
	do {                                                                                       \
		tutti_status status_ = (call);                                                     \
		EXPECT(r, status_ == TUTTI_OK, "%s: %s: %.150s", #call,                            \
		       tutti_status_string(status_), tutti_comm_error(NULL));                      \
	} while (0)

/* The window, shm alone, tcp alone. */
#define WIRES 3
extern const tutti_config wires[WIRES];

/* Runs body on every rank of a new team, a thread each. */
void with_team(struct team *team, int size, const tutti_config *config,
	       void (*body)(struct rank *));
/* The status of a call, kept with its message. */
tutti_status keep(struct rank *rank, tutti_status status);
void check_sum(struct rank *rank, tutti_comm *comm);
/* All ranks of a team kept the same, with one message that has each of the words (NULL ends them).
 */
void check_verdict(const struct team *team, tutti_status wanted, const char *const *words);

#endif
