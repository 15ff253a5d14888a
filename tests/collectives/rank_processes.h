/* Ranks that are processes, on one node or on several, connected in every way there is: for tests
 * in which one of them is killed, stopped or gone. */
#ifndef TESTS_COLLECTIVES_RANK_PROCESSES_H
#define TESTS_COLLECTIVES_RANK_PROCESSES_H

#include <tutti/tutti.h>

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define PROCESSES      5
#define PROCESSES_MOST 8

struct way {
	const char *name, *window, *transports;
	int nodes;
};
extern const struct way ways[];
extern const int way_count;

/* What ranks and test have in common; zero at the start of each run. */
struct shared {
	atomic_int ended;   /* ranks that have reported                                   */
	atomic_int here[4]; /* for the bodies: ranks that have come to some place         */
	atomic_int turns;   /* of the pacer: 5 ms each, and longer where the cores are busy */
	atomic_int happened_at; /* turn */
	_Atomic uint64_t happened_ns;
	atomic_int serves; /* 1: at url; -1: not                                         */
	char url[512];
	struct report {
		tutti_status status;
		int failed, first_failed, at; /* at: turn */
		uint64_t at_ns;
		char error[600];
	} reports[PROCESSES_MOST];
	pid_t pids[PROCESSES_MOST];
};
extern struct shared *shared;
extern int process_count; /* of the next run; PROCESSES unless a test says otherwise */

/* false: this machine has no memory for it. Before anything else. */
bool processes_open(void);
/* Something has happened, from which turns are counted. */
void processes_happens(void);
/* As rank: what has become of it. */
void processes_report(tutti_comm *comm, tutti_status status);
void processes_wait(const atomic_int *counter, int n);
/* Every rank runs body with a communicator of all. variables: "NAME=value", ..., NULL, besides the
 * way's. meanwhile, or NULL, runs in the test's process. Ranks in may_die may be killed; the others
 * must end well. */
void processes_run(const struct way *way, const char *const *variables, void (*body)(tutti_comm *),
		   void (*meanwhile)(void), unsigned may_die);

#endif
