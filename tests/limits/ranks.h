/* Ranks as processes, one of which may be refused something; and what became of each. */
#ifndef TESTS_LIMITS_RANKS_H
#define TESTS_LIMITS_RANKS_H

#include "tests/limits/job.h"
#include "tests/limits/shim.h"

#include <stdbool.h>

#define RANKS_MOST    4
#define RANKS_ALARM_S 60 /* a rank that takes longer hangs */

struct scene {
	int size, timeout_ms;
	const char *transports;
	bool window;
	/* In each rank, before it joins. NULL: nothing. */
	void (*prepare)(int rank, void *arg);
	void *arg;
	bool first; /* rank 0 may fail before the others can meet it: then they stay at home */
};

struct outcome {
	struct job_of job;
	bool was_refused; /* prepare's shim_fail came to something */
	bool is_over;     /* the rank ended by itself */
	int signal;       /* or by this */
	bool was_started;
	long blocks, files;     /* left behind */
	long calls[SHIM_KINDS]; /* requests of the system */
	int ms;
};

/* Runs the job; outcomes are valid until the next call. */
struct outcome *ranks_run(const struct scene *scene);
/* Every rank ended by itself, with right values or a message, and left nothing behind. what: for
 * the report. LIMITS_SHOW: what each of them said is printed. */
void ranks_expect_decent(const struct outcome *outcomes, int size, const char *what);
bool ranks_all_well(const struct outcome *outcomes, int size);

#endif
