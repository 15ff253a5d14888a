/* no_tsan: its ranks are processes */
/* Would break: survivors of a kill dial the dead rank, and rest between two refusals, to learn
 * what the kernel of their own machine says at once. */
#include "tests/collectives/rank_processes.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/unit.h"

#define ODD 2

static const char *const debug[] = {"TUTTI_LOG=debug", NULL};

/* What is logged while the survivors agree and shrink comes as the error of their report. */
static void agree_and_shrink(tutti_comm *comm)
{
	struct report *r = &shared->reports[tutti_rank(comm)];
	int flag = 1, log = memfd_create("log", MFD_CLOEXEC);
	tutti_comm *next = NULL;
	char text[20000] = "";
	float x = 1;

	if (tutti_rank(comm) == ODD) {
		processes_wait(&shared->here[0], PROCESSES - 1);
		raise(SIGKILL);
	}
	atomic_fetch_add(&shared->here[0], 1);
	while (tutti_all_reduce(&x, &x, 1, TUTTI_F32, TUTTI_SUM, comm, NULL) == TUTTI_OK)
		;
	int old = dup(STDERR_FILENO);
	dup2(log, STDERR_FILENO);
	tutti_comm_agree(comm, &flag);
	tutti_status status = tutti_comm_shrink(comm, &next);
	dup2(old, STDERR_FILENO);
	if (pread(log, text, sizeof text - 1, 0) < 0)
		perror("the log");
	const char *dialed = strstr(text, "rank 2 not reached");
	r->status = status;
	snprintf(r->error, sizeof r->error, "%.500s", dialed ? dialed : "");
	tutti_comm_destroy(next);
	close(old);
	close(log);
}

static void test_no_dials(void **state)
{
	for (int w = 0; w < way_count; w++) {
		if (strcmp(ways[w].name, "tcp") != 0)
			continue;
		processes_run(&ways[w], debug, agree_and_shrink, NULL, 1u << ODD);
		for (int r = 0; r < PROCESSES; r++)
			if (r != ODD &&
			    (shared->reports[r].status != TUTTI_OK || shared->reports[r].error[0]))
				fail_msg("rank %d: %s: %s", r,
					 tutti_status_string(shared->reports[r].status),
					 shared->reports[r].error);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_no_dials)};

	return processes_open() ? cmocka_run_group_tests(tests, NULL, NULL) : 77;
}
