/* Ranks as processes that this program forks, so that they can also be timed without the library,
 * over memory that they share. */
#include "limits.h"

#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define LOOKS 20000 /* that a meeting takes before it gives up the core */

double limits_now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

double limits_rollup(const char *name)
{
	char line[200];
	double kilobytes = 0;
	FILE *file = fopen("/proc/self/smaps_rollup", "r");

	while (file && fgets(line, sizeof line, file)) {
		if (strncmp(line, name, strlen(name)) == 0)
			kilobytes = strtod(line + strlen(name), NULL);
	}
	if (file)
		fclose(file);
	return kilobytes;
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

double limits_middle(double *values, int n, double share)
{
	qsort(values, (size_t)n, sizeof *values, by_value);
	return values[(int)((double)(n - 1) * share + 0.5)];
}

struct shared *limits_shared(void)
{
	struct shared *shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE,
				     MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	if (shared != MAP_FAILED)
		return shared;
	perror("limits: mmap");
	return NULL;
}

void limits_meet(struct trial *t, int point)
{
	atomic_fetch_add(&t->shared->arrived[point], 1);
	while (atomic_load(&t->shared->arrived[point]) < t->ranks)
		sched_yield();
}

void limits_meet_again(struct trial *t)
{
	int turn = atomic_fetch_add(&t->shared->gate, 1) / t->ranks;

	for (int i = 0; atomic_load(&t->shared->gate) < (turn + 1) * t->ranks; i++) {
		if (i < LOOKS)
			pause_core();
		else
			sched_yield();
	}
}

int limits_cores(void)
{
	cpu_set_t set;
	int n = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;

	return n < LIMITS_RANKS ? n : LIMITS_RANKS;
}

/* On the rank-th core that this process may use. Where that is refused the figures are noisier. */
static void pin(int rank)
{
	cpu_set_t allowed, one;

	if (sched_getaffinity(0, sizeof allowed, &allowed) != 0)
		return;
	for (size_t core = 0; core < CPU_SETSIZE; core++) {
		if (!CPU_ISSET(core, &allowed) || rank-- > 0)
			continue;
		CPU_ZERO(&one);
		CPU_SET(core, &one);
		sched_setaffinity(0, sizeof one, &one);
		return;
	}
}

/* A process that ends with its parent, whatever ends that: it may spin, and wait for others. */
static pid_t start(void)
{
	pid_t parent = getpid(), pid = fork();

	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (getppid() != parent)
			_exit(1);
	}
	return pid;
}

static int wait_for(const pid_t *pids, int n)
{
	int failed = 0, status;

	for (int i = 0; i < n; i++) {
		if (waitpid(pids[i], &status, 0) < 0 || status != 0)
			failed = 1;
	}
	return failed;
}

int limits_run(int ranks, struct shared *shared, int (*body)(struct trial *trial))
{
	char url[512];
	pid_t pids[LIMITS_MOST];
	int started = 0;

	memset(shared, 0, sizeof *shared);
	if (tutti_rendezvous_open(url, sizeof url) != TUTTI_OK) {
		fprintf(stderr, "limits: %s\n", tutti_comm_error(NULL));
		return 1;
	}
	fflush(stdout);
	for (; started < ranks; started++) {
		struct trial t = {.rank = started, .ranks = ranks, .shared = shared};

		t.config = (tutti_config){
			.rank = started,
			.world_size = ranks,
			.rendezvous = url,
			.timeout_ms = 60000,
		};
		pids[started] = start();
		if (pids[started] == 0)
			_exit(body(&t));
		if (pids[started] < 0)
			break;
	}
	return wait_for(pids, started) || started < ranks;
}

int limits_run_pinned(struct trial t, int (*body)(struct trial *trial))
{
	pid_t pids[LIMITS_RANKS];
	int started = 0;

	memset(t.shared, 0, sizeof *t.shared);
	fflush(stdout);
	for (; started < t.ranks; started++) {
		pids[started] = start();
		if (pids[started] < 0)
			break;
		if (pids[started] > 0)
			continue;
		alarm(120);
		t.rank = started;
		pin(started);
		_exit(body(&t));
	}
	return wait_for(pids, started) || started < t.ranks;
}
