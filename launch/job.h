/* A job whose ranks run: what supervise.c and job_restart.c share. */
#ifndef LAUNCH_JOB_H
#define LAUNCH_JOB_H

#include "input.h"
#include "progress.h"
#include "ranks.h"

#include <poll.h>
#include <stdbool.h>
#include <stdint.h>

#define TIMEOUT_CODE 124 /* exit code of a job whose time is over */
#define NEVER        UINT64_MAX

struct job {
	struct ranks *ranks;
	const struct start *start;
	const struct options *options;
	struct input input;
	int signal_fd;
	int control_fd;           /* of an agent: tells what to do; else -1                 */
	int exit_code, interrupts, restarts, turn;
	bool is_ending;           /* a failure, the timeout or a signal ends the job        */
	bool is_restarting;       /* all ranks are ended, to be started again               */
	bool has_advised;         /* said once that --restart job may be what is needed     */
	uint64_t timeout_at, term_at, kill_at, leave_at;
	uint64_t tell_at;         /* to say that ranks have not ended after end_signal      */
	int end_signal;
	struct progress progress;
	struct pollfd *poll;      /* signals, input, words, control, then those of relay.c  */
};

/* An agent waits as long for its ranks as this tuttirun for its own, and then has to say so. */
unsigned job_agents_grace(const struct job *job);
/* The ranks get SIGTERM after so long, and SIGKILL later; what they leave behind once all have ended. */
void job_end(struct job *job, int exit_code, unsigned after_ms);
/* After a signal that was passed to the ranks they are killed later, if they have not ended then. */
void job_await_end(struct job *job, int signal);
/* Says so at tell_at. */
void job_say_unended(struct job *job);
/* Whether our stdout is gone, so that rank ended: what there was to say about that has been said. */
bool job_is_cut_off(const struct job *job, const struct rank *rank);
/* Says how a rank has ended, after its own last words. rest: of the line. */
void job_report(struct job *job, struct rank *rank, const char *rest);

/* Returns a rank that has failed and is not started again, or NULL. first: as in ranks_observe. */
struct rank *job_restart_failed(struct job *job, pid_t first);
/* Starts all ranks again, all of which have ended. */
void job_restart_all(struct job *job);
/* A rank that was started again waits for tutti_comm_grow; NULL: it is none of ours. */
void job_hear_waiting(struct job *job, struct rank *rank);

#endif
