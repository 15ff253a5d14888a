/* Whether what the ranks have written down is right, given what was done to them: nobody is told of
 * a failure that was none, or without the name of one that was; all that go on do so together; what
 * they agree on is the same for all; nobody who is well is left behind or refused. */
#ifndef TESTS_FAULTS_JUDGE_H
#define TESTS_FAULTS_JUDGE_H

#include "tests/faults/board.h"

/* What was done. Times are 0 where it was not. */
struct truth {
	const struct scenario *scenario;
	pid_t pids[RANKS_MOST];
	uint64_t dead_ns[RANKS_MOST];
	bool is_unproved[RANKS_MOST];   /* dead, but nobody is left there who could refuse a call */
	uint64_t silent_ns[RANKS_MOST]; /* stopped, or out of reach for all others */
	uint32_t absent; /* came anew, was told that it had not joined, and so has left */
	uint64_t cut_ns; /* two sides do not reach each other */
	uint32_t side;
	uint64_t broken_ns; /* a connection between two */
	uint32_t ends;
	bool reconnects; /* it is made again, and nobody notices */
	uint64_t aborted_ns;
	uint32_t aborter;
};

struct verdict {
	int complaints;
	size_t used;
	char text[16000];
};

void judge(struct verdict *v, const struct board *board, const struct truth *t);
void judge_complain(struct verdict *v, const char *format, ...)
	__attribute__((format(printf, 2, 3)));
/* When a rank that nothing was done to heard of a failure first; 0: it did not. */
uint64_t judge_told_ns(const struct board *board, const struct truth *t, int rank);
/* When the first thing was done; 0: nothing was. */
uint64_t judge_first_ns(const struct truth *t);

#endif
