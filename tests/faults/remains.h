/* What a job may not leave behind. */
#ifndef TESTS_FAULTS_REMAINS_H
#define TESTS_FAULTS_REMAINS_H

#include "tests/faults/judge.h"

/* Names in /dev/shm and /tmp, where these are this process's own. Elsewhere 0: other programs' names,
 * those of other tests among them, come and go. */
int remains_count(bool is_private);
/* Processes that nobody waits for: this one inherits them (PR_SET_CHILD_SUBREAPER). */
void remains_judge(struct verdict *v, int before, bool is_private);
/* All that can be seen of ranks that hang: states, stacks, traces. */
void remains_dump(const pid_t *pids, int ranks, const char *tutti_trace);

#endif
