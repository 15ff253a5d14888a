/* A job of tutti_spawn: the processes that it has forked, from the first to the last one's end. */
#ifndef COLLECTIVES_SPAWN_SPAWN_H
#define COLLECTIVES_SPAWN_SPAWN_H

#include "collectives/spawn/cores.h"
#include "collectives/spawn/outside.h"
#include "core/rank/ending.h"
#include "core/rank/fresh.h"

#include <tutti/tutti.h>

#include <poll.h>
#include <stdint.h>

struct spawned {
	pid_t pid;
	int fd;                /* its pidfd; -1 once it has ended                             */
	bool is_lost;          /* it has ended, and another wait of the program took its code */
	struct rank_ending ending;
};

struct spawn {
	int (*fn)(int rank, void *arg);
	void *arg;
	int n, started, alive;
	struct spawned *rank;
	struct pollfd *poll;   /* room for each rank, and for the signals from outside        */
	pid_t parent;
	const char *host;      /* where the ranks meet, and ...                                */
	struct fresh_port port; /* ... where there, until the job is over                      */
	char secret[FRESH_SECRET_BYTES]; /* "": the environment has the user's                */
	struct outside outside;
	struct cores *cores;   /* NULL: no rank is bound                                      */
	const struct spawned *failed; /* the first                                            */
	int asked;             /* the signal from outside that had come by then, or 0         */
	bool has_run;          /* all were started                                            */
	int exit_code;         /* as tuttirun's; 0 as long as none has failed                 */
	bool is_ending;        /* a failure, or a signal from outside, ends the job           */
	int interrupts;        /* SIGINT came so often                                        */
	uint64_t term_at, kill_at;
};

/* Forks the next rank. SYSTEM: there is none. */
tutti_status spawn_fork(struct spawn *spawn);
/* Waits until all that were started have ended, and ends them after a failure. */
void spawn_await(struct spawn *spawn);
/* Of a job that is over. OK: all have returned 0. PEER: one has failed. ABORTED: a signal from
 * outside has ended them. SYSTEM: it is not known how one has ended. */
tutti_status spawn_explain(const struct spawn *spawn);
void spawn_kill(const struct spawn *spawn, int signal);
/* Writes what stdio has in memory. NULL, or why some output of this process is lost. */
const char *spawn_output_lost(void);

#endif
