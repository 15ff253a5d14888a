/* One job of a scenario: started, hit by faults, looked after and judged. */
#ifndef TESTS_FAULTS_JOB_H
#define TESTS_FAULTS_JOB_H

#include "tests/faults/judge.h"

enum outcome {
	JOB_WELL,    /* all is as it should be                                            */
	JOB_FAILED,  /* something is not: it is on stdout                                 */
	JOB_SKIPPED, /* this machine cannot do that: why says what is missing             */
};

struct result {
	enum outcome outcome;
	bool has_happened;          /* not too late: before the ranks had ended        */
	const char *why;            /* JOB_SKIPPED                                     */
	double told_ms[RANKS_MOST]; /* from the fault to each rank that heard of it    */
	int told;
	double lasted_s;
};

struct job_options {
	bool is_verbose, is_private; /* private: hosts_leave_world            */
	const char *tutti_trace;     /* the program; NULL: none                              */
};

void job_run(const struct scenario *s, const struct job_options *options, struct result *result);

#endif
