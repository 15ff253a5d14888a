/* The environment variables by which a process learns which rank it is, in torchrun's names where
 * it has one. */
#ifndef CORE_RANK_VARIABLES_H
#define CORE_RANK_VARIABLES_H

#include <stdbool.h>
#include <sys/types.h>

#define RANKS_MAX     4096 /* on one node */
#define VARIABLES_MAX 16

struct setting {
	const char *name, *text;
	char number[24];       /* what text is where the value is a number                    */
};

/* Where a rank is, and where it meets the others. */
struct rank_seat {
	int local, local_size; /* among the ranks of this machine                             */
	int node, nodes;       /* among the machines, all with as many ranks                  */
	const char *host;      /* where rank 0 serves                                         */
	int port;
	bool is_chosen;        /* the port, without knowing whether it is free there          */
	pid_t starter;         /* the process that starts the ranks of this machine           */
	int cores;             /* for its threads; 0: not known                               */
};

/* The variable that tells an agent of tuttirun, and its ranks, that the port was chosen: 1 or 0. */
#define MEETING_CHOSEN "TUTTIRUN_PORT_TAKEN"

/* Returns how many. The texts are those of seat, or in settings. */
int variables_of(struct setting settings[VARIABLES_MAX], const struct rank_seat *seat);

#endif
