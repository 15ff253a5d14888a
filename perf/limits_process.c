/* The cost of a rank as a process: time to join, processor time while idle, memory. */
#include "limits.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#define JOINS        5
#define IDLE_SECONDS 5
#define PAYLOAD      ((size_t)64 << 20)

static tutti_comm *limits_process_join(struct trial *t)
{
	tutti_comm *comm;

	if (tutti_init(&comm, &t->config) == TUTTI_OK)
		return comm;
	fprintf(stderr, "limits: rank %d: %s\n", t->rank, tutti_comm_error(NULL));
	_exit(1);
}

static int join_body(struct trial *t)
{
	tutti_comm *comm;
	double start;

	limits_meet(t);
	start = limits_now();
	comm = limits_process_join(t);
	t->shared->figures[t->rank][0] = limits_now() - start;
	tutti_comm_destroy(comm);
	return 0;
}

/* The slowest rank's time, best and worst of a few joins. */
int limits_join(void)
{
	struct shared *shared = limits_shared();
	double best = 1e9, worst = 0;

	if (!shared)
		return 1;
	for (int i = 0; i < JOINS; i++) {
		double slowest = 0;

		if (limits_run(LIMITS_RANKS, shared, join_body) != 0)
			return 1;
		for (int rank = 0; rank < LIMITS_RANKS; rank++) {
			double s = shared->figures[rank][0];

			slowest = s > slowest ? s : slowest;
		}
		best = slowest < best ? slowest : best;
		worst = slowest > worst ? slowest : worst;
	}
	printf("tutti_init of %d local ranks: %.1f to %.1f ms (slowest rank, %d times)\n",
	       LIMITS_RANKS, best * 1e3, worst * 1e3, JOINS);
	limits_figure("join_8_best_ms", best * 1e3);
	limits_figure("join_8_worst_ms", worst * 1e3);
	munmap(shared, sizeof *shared);
	return 0;
}

static double processor_seconds(void)
{
	struct rusage u;

	getrusage(RUSAGE_SELF, &u);
	return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
	       (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) * 1e-6;
}

static int idle_body(struct trial *t)
{
	tutti_comm *comm = limits_process_join(t);
	double before;

	if (tutti_barrier(comm, NULL) != TUTTI_OK)
		return 1;
	before = processor_seconds();
	sleep(IDLE_SECONDS);
	t->shared->figures[t->rank][0] = (processor_seconds() - before) / IDLE_SECONDS;
	limits_meet(t);
	tutti_comm_destroy(comm);
	return 0;
}

int limits_idle(void)
{
	struct shared *shared = limits_shared();

	if (!shared || limits_run(2, shared, idle_body) != 0)
		return 1;
	printf("processor time of a rank with nothing in flight: %.3f %% (%d s)\n",
	       shared->figures[0][0] * 100, IDLE_SECONDS);
	limits_figure("idle_percent", shared->figures[0][0] * 100);
	munmap(shared, sizeof *shared);
	return 0;
}

/* Memory shared with n others counts by an n-th. */
static int memory_body(struct trial *t)
{
	char *buffer = malloc(PAYLOAD);
	double before;
	tutti_comm *comm;

	if (!buffer)
		return 1;
	memset(buffer, 1, PAYLOAD); /* not 0, which may leave the pages out */
	before = limits_rollup("Pss:");
	comm = limits_process_join(t);
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

int limits_memory(void)
{
	struct shared *shared = limits_shared();

	static const char *const names[] = {"memory_2_MiB", "memory_4_MiB", "memory_8_MiB"};

	if (!shared)
		return 1;
	for (int ranks = 2, i = 0; ranks <= LIMITS_RANKS; ranks *= 2, i++) {
		if (limits_run(ranks, shared, memory_body) != 0)
			return 1;
		printf("memory of a rank among %d after all_reduce up to %zu MiB: %.1f MiB\n",
		       ranks, PAYLOAD >> 20, shared->figures[0][0] / 1024);
		limits_figure(names[i], shared->figures[0][0] / 1024);
	}
	munmap(shared, sizeof *shared);
	return 0;
}
