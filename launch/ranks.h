/* The ranks as processes: started, signalled, observed. */
#ifndef LAUNCH_RANKS_H
#define LAUNCH_RANKS_H

#include "agent.h"
#include "binding.h"
#include "guard.h"
#include "hosts.h"
#include "meeting.h"
#include "output.h"
#include "words.h"

#include "core/rank/ending.h"

#include <signal.h>
#include <sys/types.h>

/* A rank, or with --hosts the agent of a host or the ssh to it, leads a process group of its own, so that
 * signals reach its children as well. It is not reaped before the end, or until it is started again: until
 * then no other process can get its number, and signals stay safe. */
struct rank {
	int number;               /* in the whole job; with --hosts of the host             */
	pid_t pid;                /* 0: not started                                         */
	bool has_ended;
	bool is_new;              /* started again alone; no rank has called tutti_comm_grow since */
	bool waits;               /* it is new, and has said that none does                 */
	bool has_joined;          /* the others, in tutti_init                              */
	struct rank_ending ending;
	char name[300];           /* for messages: "rank 3 (pid 4711)", or "host a"         */
	int control_fd;           /* to the stdin of a host's agent; else -1                */
	struct log_file log;
	struct stream out, err;
};

struct ranks {
	int n, alive;
	struct rank *rank;
	struct sink out, err;
	int input_fd;             /* ours to rank 0's stdin when that is a terminal; else -1 */
};

struct start {
	const struct options *options;
	struct meeting *meeting;             /* another one when the ranks of hosts are started again */
	const struct guard *guard;
	const struct bindings *bindings;
	const struct words *words;
	struct hosts *hosts;                 /* NULL, or a "rank" is all ranks of a host    */
	const sigset_t *signals;             /* the mask the ranks shall have               */
	pid_t launcher;
	struct agent agent;                  /* input_fd -1 where this is none                      */
};

/* Starts all; returns 0, or the exit code after a message on stderr, with none left running. */
int ranks_start(struct ranks *ranks, const struct start *start);
/* The rank in whose process group that process is, or NULL. */
struct rank *ranks_of(const struct ranks *ranks, pid_t process);
/* The rank with that number, or NULL: for a process that has gone, and with it its group. */
struct rank *ranks_numbered(const struct ranks *ranks, int number);
/* Looks which ranks have ended; returns one that has failed, or NULL. Among several it is the process first, or
 * one that was killed: more likely the cause than an exit, which may be a survivor's complaint. Never blocks. */
struct rank *ranks_observe(struct ranks *ranks, pid_t first);
/* Whether any has ended well. */
bool ranks_any_done(const struct ranks *ranks);
/* Starts a rank again that has ended and whose output was read: as the restart of this number, or,
 * with WITH_ALL, as the whole job is. Kills the processes that it has left behind. Returns as ranks_start. */
#define WITH_ALL (-1)
int ranks_restart(struct ranks *ranks, const struct start *start, struct rank *rank, int restart);
void ranks_signal(const struct ranks *ranks, int signal);
/* SIGTERM for all, since the job has failed. */
void ranks_end(const struct ranks *ranks);
/* Reaps all that were started, waiting for them; the guard forgets them. */
void ranks_finish(struct ranks *ranks, const struct guard *guard);

#endif
