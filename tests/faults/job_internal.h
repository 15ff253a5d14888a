/* What the parts of a job share: starting its ranks, injecting faults from outside, looking after
 * them. */
#ifndef TESTS_FAULTS_JOB_INTERNAL_H
#define TESTS_FAULTS_JOB_INTERNAL_H

#include "tests/faults/hosts.h"
#include "tests/faults/job.h"

struct job {
	const struct scenario *s;
	const struct job_options *options;
	struct board *board;
	struct hosts hosts;
	struct truth truth;
	struct verdict verdict;
	int doorbell, port, outputs[RANKS_MOST];
	pid_t wire;
	pid_t running[RANKS_MOST]; /* 0: has ended                                             */
	int status[RANKS_MOST];
	bool is_injected[FAULTS_MOST];
	uint64_t up_ns; /* a link is to go up again                           */
	int up_host;
	uint64_t stopped_ns[RANKS_MOST]; /* seen so                                            */
	const char *skipped;
	bool has_hung, has_happened;
};

/* job_start.c: the wire, where there is one, and all ranks. */
void job_start(struct job *job);
/* ... And who comes in the place of that rank. */
void job_start_joiner(struct job *job, int rank);
/* job_inject.c: does what ranks have asked for and is due. */
void job_inject_due(struct job *job);
/* job.c: those of the ranks that run. */
void job_signal(const struct job *job, uint32_t ranks, int signal);

#endif
