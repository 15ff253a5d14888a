/* Would break: members that make a child wait for one that has died, or blame another. */
#include "tests/collectives/rank_processes.h"

#include <signal.h>
#include <string.h>

#include "tests/unit.h"

#define DEAD 2

static void die_or_make(tutti_comm *comm)
{
	static const int list[] = {4, DEAD, 0, 3};
	tutti_comm *child = NULL;

	if (tutti_rank(comm) == 1)
		return;
	if (tutti_rank(comm) == DEAD)
		raise(SIGKILL);
	processes_report(comm, tutti_comm_create_from(comm, list, 4, 1, NULL, &child));
	tutti_comm_destroy(child);
}

static void test_death(void **state)
{
	for (int w = 0; w < way_count; w++) {
		processes_run(&ways[w], NULL, die_or_make, NULL, 1u << DEAD);
		for (int r = 0; r < PROCESSES; r++) {
			const struct report *report = &shared->reports[r];
			if (r == DEAD || r == 1)
				continue;
			if (report->status != TUTTI_ERR_PEER || report->failed != 1 ||
			    report->first_failed != DEAD)
				fail_msg("%s: rank %d: %s: %s", ways[w].name, r,
					 tutti_status_string(report->status), report->error);
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_death)};

	return processes_open() ? cmocka_run_group_tests(tests, NULL, NULL) : 1;
}
