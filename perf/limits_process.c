/* The cost of a rank as a process: time to join, processor time while idle, memory. */
#include "limits.h"
#include "measure.h"

#include <string.h>
#include <unistd.h>

#define JOINS        5
#define IDLE_SECONDS 5
#define PAYLOAD      ((size_t)64 << 20)

static int limits_process_join(struct trial *t)
{
	tutti_comm *comm;
	double start;

	limits_meet(t);
	start = limits_now();
	comm = limits_join(t);
	t->shared->figures[t->rank][0] = limits_now() - start;
	tutti_comm_destroy(comm);
	return 0;
}

/* The slowest rank's time, best and worst of a few joins. */
int limits_join_time(struct trial *t)
{
	double best = 1e9, worst = 0;

	t->ranks = LIMITS_RANKS;
	for (int i = 0; i < JOINS; i++) {
		double slowest = 0;

		if (limits_run(t, limits_process_join) != 0)
			return 1;
		for (int rank = 0; rank < LIMITS_RANKS; rank++) {
			double s = t->shared->figures[rank][0];

			slowest = s > slowest ? s : slowest;
		}
		best = slowest < best ? slowest : best;
		worst = slowest > worst ? slowest : worst;
	}
	printf("tutti_init of %d local ranks: %.1f to %.1f ms (slowest rank, %d times)\n",
	       LIMITS_RANKS, best * 1e3, worst * 1e3, JOINS);
	limits_figure("join_8_best_ms", best * 1e3);
	limits_figure("join_8_worst_ms", worst * 1e3);
	return 0;
}

static int limits_process_idle(struct trial *t)
{
	tutti_comm *comm = limits_join(t);
	double before;

	if (tutti_barrier(comm, NULL) != TUTTI_OK)
		return 1;
	before = measure_seconds(CLOCK_PROCESS_CPUTIME_ID);
	sleep(IDLE_SECONDS);
	t->shared->figures[t->rank][0] =
		(measure_seconds(CLOCK_PROCESS_CPUTIME_ID) - before) / IDLE_SECONDS;
	limits_meet(t);
	tutti_comm_destroy(comm);
	return 0;
}

int limits_idle(struct trial *t)
{
	t->ranks = 2;
	if (limits_run(t, limits_process_idle) != 0)
		return 1;
	double percent = t->shared->figures[0][0] * 100;

	printf("processor time of a rank with nothing in flight: %.3f %% (%d s)\n", percent,
	       IDLE_SECONDS);
	limits_figure("idle_percent", percent);
	return 0;
}

/* Memory shared with n others counts by an n-th. */
static int limits_process_memory(struct trial *t)
{
	char *buffer = malloc(PAYLOAD);
	double before;
	tutti_comm *comm;

	if (!buffer)
		return 1;
	memset(buffer, 1, PAYLOAD); /* not 0, which may leave the pages out */
	before = limits_rollup("Pss:");
	comm = limits_join(t);
	for (size_t bytes = 8; bytes <= PAYLOAD; bytes *= 4) {
		if (tutti_all_reduce(buffer, buffer, bytes / 4, TUTTI_F32, TUTTI_SUM, comm, NULL) !=
		    TUTTI_OK)
			return 1;
	}
	t->shared->figures[t->rank][0] = limits_rollup("Pss:") - before;
	limits_meet(t);
	tutti_comm_destroy(comm);
	free(buffer);
	return 0;
}

int limits_memory(struct trial *t)
{
	static const char *const names[] = {"memory_2_MiB", "memory_4_MiB", "memory_8_MiB"};
	int i = 0;

	for (t->ranks = 2; t->ranks <= LIMITS_RANKS; t->ranks *= 2, i++) {
		if (limits_run(t, limits_process_memory) != 0)
			return 1;
		double mib = t->shared->figures[0][0] / 1024;

		printf("memory of a rank among %d after all_reduce up to %zu MiB: %.1f MiB\n",
		       t->ranks, PAYLOAD >> 20, mib);
		limits_figure(names[i], mib);
	}
	return 0;
}
