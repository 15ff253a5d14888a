/* Ranks as processes that this program forks, so that they can also be timed without the library,
 * over memory that they share. */
#include "limits.h"
#include "measure.h"

#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define LOOKS    20000 /* about a millisecond: a rank that is away for longer has lost its core */
#define LEAST    5     /* tries of whatever takes long */
#define BUDGET_S 5

int limits_timeout_s = 120;

double limits_now(void)
{
	return measure_seconds(CLOCK_MONOTONIC);
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

struct spread limits_lowest(double *values, int n)
{
	double middle = measure_median(values, n);

	return (struct spread){
		.best = values[0],
		.low = values[(int)((n - 1) * 0.25 + 0.5)],
		.middle = middle,
		.high = values[(int)((n - 1) * 0.75 + 0.5)],
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
	fprintf(stderr, "%s: mmap: %s.\n", program_invocation_short_name, strerror(errno));
	return NULL;
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

bool limits_share_cores(int ranks)
{
	return ranks > limits_cores();
}

struct limits_start {
	struct trial trial;
	int (*body)(struct trial *trial);
	cpu_set_t cores; /* of the program: tutti_spawn binds its ranks */
};

/* On the rank-th of these cores. Where that is refused the figures are noisier. */
static void limits_ranks_pin(const cpu_set_t *cores, int rank)
{
	cpu_set_t one;

	for (size_t core = 0; core < CPU_SETSIZE; core++) {
		if (!CPU_ISSET(core, cores) || rank-- > 0)
			continue;
		CPU_ZERO(&one);
		CPU_SET(core, &one);
		sched_setaffinity(0, sizeof one, &one);
		return;
	}
}

static int limits_ranks_body(int rank, void *arg)
{
	struct limits_start *start = arg;

	start->trial.rank = rank;
	sched_setaffinity(0, sizeof start->cores, &start->cores);
	if (start->trial.is_pinned)
		limits_ranks_pin(&start->cores, rank);
	alarm((unsigned)limits_timeout_s);
	return start->body(&start->trial);
}

int limits_run(struct trial *t, int (*body)(struct trial *trial))
{
	struct limits_start start = {.body = body};

	memset(t->shared, 0, sizeof *t->shared);
	t->looks = limits_share_cores(t->ranks) ? 0 : LOOKS;
	t->until = limits_now() + BUDGET_S;
	start.trial = *t;
	sched_getaffinity(0, sizeof start.cores, &start.cores);
	switch (tutti_spawn(limits_ranks_body, &start, t->ranks)) {
	case TUTTI_OK:
		return 0;
	case TUTTI_ERR_ABORTED:
		exit(tutti_spawn_exit_code());
	default:
		break;
	}
	if (tutti_spawn_exit_code() == 128 + SIGALRM)
		fprintf(stderr,
			"%s: the %d ranks were not done after %d s, so all of them were ended: one "
			"is stopped, or the machine is busy.\n",
			program_invocation_short_name, t->ranks, limits_timeout_s);
	else
		fprintf(stderr, "%s: %s.\n", program_invocation_short_name, tutti_comm_error(NULL));
	return 1;
}

tutti_comm *limits_join(const struct trial *t)
{
	tutti_comm *comm;

	if (tutti_init(&comm, NULL) == TUTTI_OK)
		return comm;
	fprintf(stderr, "%s: rank %d: %s\n", program_invocation_short_name, t->rank,
		tutti_comm_error(NULL));
	_exit(1);
}
