/* Processes of several ranks each (config.local_ranks), for tests: started, killed, started again.
 * In a process each rank has a thread, and a check that fails there ends the process. */
#ifndef TESTS_COLLECTIVES_COMM_PROCESSES_OF_THREADS_H
#define TESTS_COLLECTIVES_COMM_PROCESSES_OF_THREADS_H

#include <tutti/tutti.h>

#include <stdbool.h>
#include <stdio.h>
#include <sys/types.h>
#include <unistd.h>

#define PROCESSES_MOST   4
#define LOCAL_RANKS_MOST 4

/* How the ranks reach each other, and of how many nodes they are. */
struct link_way {
	const char *name, *window, *transports;
	bool is_apart; /* each process counts as a node */
};
extern const struct link_way link_ways[];
extern const int link_way_count;

/* What a process is, from its fork on. */
struct team {
	int processes, local_ranks, process;
	const struct link_way *way;
	char rendezvous[64];
	bool is_new; /* started for one that has died */
};

struct team_rank {
	const struct team *team;
	tutti_comm *comm; /* it destroys it */
	int rank, local;
};

#define TEAM_CHECK(condition, ...)                                                                 \
	do {                                                                                       \
		if (!(condition)) {                                                                \
			fprintf(stderr, "%s:%d: %s: ", __FILE__, __LINE__, #condition);            \
			fprintf(stderr, __VA_ARGS__);                                              \
			fprintf(stderr, " [%s]\n", tutti_comm_error(NULL));                        \
			_exit(1);                                                                  \
		}                                                                                  \
	} while (0)
#define TEAM_OK(call) TEAM_CHECK((call) == TUTTI_OK, "it failed")

/* The config of the team's processes. All is from the environment where rendezvous is "". */
tutti_config team_config(const struct team *team);
/* This process joins with its ranks, and each runs body on a thread of its own. */
void team_ranks(const struct team *team, void (*body)(struct team_rank *rank));
/* Every process runs body. may_die: a bit for each process that may be killed. restarts: so many
 * that were killed are started again, with is_new and TUTTI_RESTARTED. All others must end well. */
void team_run(struct team team, void (*body)(const struct team *team), unsigned may_die,
	      int restarts);
/* The sum over all ranks of 1 + its rank in comm, as an all_reduce has it. */
tutti_status team_sum(tutti_comm *comm, bool *is_right);

#endif
