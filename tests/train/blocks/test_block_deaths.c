/* Would break: ranks that wait for one that has died in fn, or do not name it. */
#include "tests/collectives/rank_processes.h"

#include <tutti/parallel.h>

#include <signal.h>
#include <stdlib.h>

#include "tests/unit.h"

enum { DEAD = 2, COUNT = 300000, BEFORE = 3 };

struct plan {
	int rank, call, block; /* at which block the rank dies */
	int scatters;
	float sum;
};

static tutti_status act(void *arg, int rank, void *data, size_t count)
{
	struct plan *p = arg;
	float *values = data;

	if (p->rank == DEAD && p->call == BEFORE && rank == p->block)
		raise(SIGKILL);
	for (size_t i = 0; i < count; i++)
		if (p->scatters)
			values[i] = 0;
		else
			p->sum += values[i]; /* a gather's blocks are not fn's to write */
	return TUTTI_OK;
}

static void run(tutti_comm *comm, int scatters)
{
	struct plan p = {.rank = tutti_rank(comm), .block = 3, .scatters = scatters};
	float *values = calloc(COUNT, sizeof *values);
	tutti_status status = TUTTI_OK;

	for (p.call = 0; status == TUTTI_OK; p.call++)
		status = scatters ? tutti_reduce_scatter_each(values, COUNT, TUTTI_F32, TUTTI_SUM,
							      act, &p, comm, NULL)
				  : tutti_all_gather_each(values, COUNT, TUTTI_F32, act, &p, comm,
							  NULL);
	processes_report(comm, status);
	free(values);
}

static void gather(tutti_comm *comm)
{
	run(comm, 0);
}

static void scatter(tutti_comm *comm)
{
	run(comm, 1);
}

static void die_in(const char *name, void (*body)(tutti_comm *))
{
	for (int w = 0; w < way_count; w++) {
		processes_run(&ways[w], NULL, body, NULL, 1u << DEAD);
		for (int r = 0; r < PROCESSES; r++) {
			const struct report *report = &shared->reports[r];
			if (r != DEAD && (report->status != TUTTI_ERR_PEER || report->failed != 1 ||
					  report->first_failed != DEAD))
				fail_msg("%s, %s: rank %d: %s: %s", name, ways[w].name, r,
					 tutti_status_string(report->status), report->error);
		}
	}
}

static void test_gather(void **state)
{
	die_in("all_gather_each", gather);
}

static void test_scatter(void **state)
{
	die_in("reduce_scatter_each", scatter);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_gather),
					   cmocka_unit_test(test_scatter)};

	return processes_open() ? cmocka_run_group_tests(tests, NULL, NULL) : 1;
}
