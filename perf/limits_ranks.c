/* Ranks as processes that this program forks, so that they can also be timed without the library,
 * over memory that they share. */
#include "limits.h"
#include "measure.h"

#include "core/thread.h"

#include <dirent.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
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
	return start->body(&start->trial);
}

/* Ends the ranks when time is up. A signal of their own would not wake one that is stopped. */
struct limits_watch {
	pthread_mutex_t lock;
	pthread_cond_t ended;
	bool is_over;
	bool is_late;
	pid_t stopped; /* one that was stopped when time was up; 0: none */
};

static void limits_watch_kill(struct limits_watch *watch)
{
	DIR *folder = opendir("/proc");
	char path[300], line[512];

	for (struct dirent *e; folder && (e = readdir(folder));) {
		pid_t pid = (pid_t)atoi(e->d_name);
		int parent = 0;
		char state = 0;
		if (pid <= 0)
			continue;
		snprintf(path, sizeof path, "/proc/%s/stat", e->d_name);
		FILE *file = fopen(path, "r");
		const char *at = file && fgets(line, sizeof line, file) ? strrchr(line, ')') : NULL;
		if (file)
			fclose(file);
		if (!at || sscanf(at + 1, " %c %d", &state, &parent) != 2 || parent != getpid())
			continue;
		if (state == 'T' || state == 't')
			watch->stopped = pid;
		kill(pid, SIGKILL);
	}
	if (folder)
		closedir(folder);
}

static void *limits_watch_run(void *arg)
{
	struct limits_watch *watch = arg;
	struct timespec until;

	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_sec += limits_timeout_s;
	pthread_mutex_lock(&watch->lock);
	while (!watch->is_over && !watch->is_late)
		watch->is_late = pthread_cond_clockwait(&watch->ended, &watch->lock,
							CLOCK_MONOTONIC, &until) != 0;
	if (watch->is_late)
		limits_watch_kill(watch);
	pthread_mutex_unlock(&watch->lock);
	return NULL;
}

/* tutti_spawn, which waits for its ranks as long as they take, and for signals, which the watching
 * thread does not get. */
static tutti_status limits_watch_spawn(struct limits_watch *watch, struct limits_start *start)
{
	pthread_t thread;
	int error = thread_start(&thread, limits_watch_run, watch);

	if (error) {
		fprintf(stderr, "%s: no thread to end late ranks: %s\n",
			program_invocation_short_name, strerror(error));
		exit(3);
	}
	tutti_status status = tutti_spawn(limits_ranks_body, start, start->trial.ranks);
	pthread_mutex_lock(&watch->lock);
	watch->is_over = true;
	pthread_cond_signal(&watch->ended);
	pthread_mutex_unlock(&watch->lock);
	pthread_join(thread, NULL);
	return status;
}

int limits_run(struct trial *t, int (*body)(struct trial *trial))
{
	struct limits_start start = {.body = body};

	memset(t->shared, 0, sizeof *t->shared);
	t->looks = limits_share_cores(t->ranks) ? 0 : LOOKS;
	t->until = limits_now() + BUDGET_S;
	start.trial = *t;
	sched_getaffinity(0, sizeof start.cores, &start.cores);
	struct limits_watch watch = {.lock = PTHREAD_MUTEX_INITIALIZER,
				     .ended = PTHREAD_COND_INITIALIZER};
	tutti_status status = limits_watch_spawn(&watch, &start);
	if (status == TUTTI_OK)
		return 0;
	if (status == TUTTI_ERR_ABORTED)
		exit(tutti_spawn_exit_code());
	char why[60] = "is the machine busy?";
	if (watch.stopped)
		snprintf(why, sizeof why, "process %d was stopped.", (int)watch.stopped);
	if (watch.is_late)
		fprintf(stderr,
			"%s: not all of %d ranks were done after %d s, so they were ended; %s\n",
			program_invocation_short_name, t->ranks, limits_timeout_s, why);
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
