/* Ranks as processes that this program forks, so that they can also be timed without the library,
 * over memory that they share. */
#include "limits.h"
#include "limits_watch.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define LOOKS    20000 /* about a millisecond: a rank that is away for longer has lost its core */
#define LEAST    5     /* tries of whatever takes long */
#define BUDGET_S 5

int limits_timeout_s = 120;

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

static int limits_ranks_by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

double limits_middle(double *values, int n, double share)
{
	qsort(values, (size_t)n, sizeof *values, limits_ranks_by_value);
	return values[(int)((double)(n - 1) * share + 0.5)];
}

struct spread limits_lowest(double *values, int n)
{
	return (struct spread){
		.best = limits_middle(values, n, 0),
		.low = limits_middle(values, n, 0.25),
		.middle = limits_middle(values, n, 0.5),
		.high = limits_middle(values, n, 0.75),
	};
}

struct spread limits_rate(struct spread seconds, double amount)
{
	return (struct spread){
		.best = amount / seconds.best,
		.low = amount / seconds.high,
		.middle = amount / seconds.middle,
		.high = amount / seconds.low,
	};
}

void *limits_map(size_t bytes)
{
	void *base = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
			  MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (base != MAP_FAILED)
		return base;
	perror("limits: mmap");
	return NULL;
}

struct shared *limits_shared(void)
{
	return limits_map(sizeof(struct shared));
}

void limits_wait(const struct trial *t, int look)
{
	if (look < t->looks)
		pause_core();
	else
		sched_yield();
}

void limits_meet(struct trial *t)
{
	int mine = atomic_fetch_add(&t->shared->met[t->rank].count, 1) + 1;

	for (int rank = 0; rank < t->ranks; rank++) {
		for (int look = 0; atomic_load(&t->shared->met[rank].count) < mine; look++)
			limits_wait(t, look);
	}
}

/* Rank 0 looks at the clock for all. It writes the other word the next time, so no late rank
 * reads that. */
bool limits_again(struct trial *t, int tries, int most)
{
	_Atomic bool *is_over = &t->shared->is_over[tries & 1];

	if (t->rank == 0)
		atomic_store(is_over, tries >= most || (tries >= LEAST && limits_now() > t->until));
	limits_meet(t);
	return !atomic_load(is_over);
}

int limits_cores(void)
{
	cpu_set_t set;
	int n = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;

	return n < LIMITS_RANKS ? n : LIMITS_RANKS;
}

/* On the rank-th core that this process may use. Where that is refused the figures are noisier. */
static void limits_ranks_pin(int rank)
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

bool limits_share_cores(int ranks)
{
	return ranks > limits_cores();
}

static int limits_ranks_run(struct trial like, bool is_pinned, int (*body)(struct trial *trial))
{
	struct watch watch = {.timeout_s = limits_timeout_s};

	memset(like.shared, 0, sizeof *like.shared);
	like.looks = limits_share_cores(like.ranks) ? 0 : LOOKS;
	like.until = limits_now() + BUDGET_S;
	while (watch.started < like.ranks) {
		like.rank = like.config.rank = watch.started;
		switch (watch_fork(&watch)) {
		case -1:
			watch_kill(&watch);
			return 1;
		case 0:
			if (is_pinned)
				limits_ranks_pin(like.rank);
			_exit(body(&like));
		}
	}
	return watch_until_end(&watch) ? 0 : 1;
}

int limits_run(int ranks, struct shared *shared, int (*body)(struct trial *trial))
{
	char url[512];
	struct trial t = {.ranks = ranks, .shared = shared};

	if (tutti_rendezvous_open(url, sizeof url) != TUTTI_OK) {
		fprintf(stderr, "%s: %s\n", program_invocation_short_name, tutti_comm_error(NULL));
		return 1;
	}
	t.config = (tutti_config){.world_size = ranks, .rendezvous = url, .timeout_ms = 60000};
	return limits_ranks_run(t, false, body);
}

int limits_run_pinned(struct trial t, int (*body)(struct trial *trial))
{
	return limits_ranks_run(t, true, body);
}
