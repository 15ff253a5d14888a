/* limits: what Tutti costs apart from the data it moves. A rank is a process that this program
 * forks, so that the ranks can also be timed without the library, over memory they share. */
#include "limits.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

double limits_now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

void limits_meet(struct trial *t, int point)
{
	atomic_fetch_add(&t->shared->arrived[point], 1);
	while (atomic_load(&t->shared->arrived[point]) < t->ranks)
		sched_yield();
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
	pid_t pids[LIMITS_RANKS];
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
		pids[started] = fork();
		if (pids[started] == 0)
			_exit(body(&t));
		if (pids[started] < 0)
			break;
	}
	return wait_for(pids, started) || started < ranks;
}

int main(int argc, char **argv)
{
	if (argc > 1) {
		fprintf(stderr, "usage: %s\nPrints what Tutti costs apart from the data.\n",
			argv[0]);
		return strcmp(argv[1], "--help") == 0 ? 0 : 2;
	}
	return limits_call() | limits_join() | limits_idle() | limits_memory();
}
