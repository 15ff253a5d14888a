/* Teams of ranks that share a window: see window_team.h. */
#include "window_team.h"

#include "core/clock.h"
#include "core/status.h"
#include "core/wait.h"
#include "tests/limit.h"

#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/wait.h>
#include <unistd.h>

struct member {
	const struct team *team;
	struct window *window;
	int rank;
};

static struct window_config config_for(const struct team *team, int rank, const uint64_t id[2])
{
	struct window_config config = {rank,
				       team->size,
				       {id[0], id[1]},
				       team->window_bytes,
				       wait_policy_on(team->size, wait_cores()),
				       team->is_oversubscribed || team->has_cores,
				       team->read_bytes,
				       wait_cores(),
				       NULL};
	if (!config.window_bytes)
		config.window_bytes = 8u << 20;
	if (team->is_oversubscribed)
		config.policy = wait_policy_on(INT_MAX, wait_cores());
	if (team->has_cores)
		config.policy = wait_policy_on(1, 1);
	return config;
}

static void *thread_main(void *arg)
{
	struct member *m = arg;
	m->team->member(m->window, m->rank, m->team->arg);
	return NULL;
}

void team_open(const struct team *team, struct window **windows)
{
	uint64_t id[2] = {team_random(1, (uint64_t)getpid(), clock_now_ns()), 7};
	struct window_config configs[TEAM_RANKS];

	for (int rank = 0; rank < team->size; rank++)
		configs[rank] = config_for(team, rank, id);
	team_check(window_join_all(windows, configs, team->size) == TUTTI_OK, "%s", last_error());
}

void team_close(struct window **windows, int size)
{
	for (int rank = 0; rank < size; rank++)
		window_destroy(windows[rank]);
}

static int run_threads(const struct team *team)
{
	struct window *windows[TEAM_RANKS];
	struct member members[TEAM_RANKS];
	pthread_t threads[TEAM_RANKS];

	team_open(team, windows);
	for (int rank = 0; rank < team->size; rank++) {
		members[rank] = (struct member){team, windows[rank], rank};
		team_check(!pthread_create(&threads[rank], NULL, thread_main, &members[rank]),
			   "pthread_create");
	}
	for (int rank = 0; rank < team->size; rank++)
		pthread_join(threads[rank], NULL);
	team_close(windows, team->size);
	return 0;
}

static void process_main(const struct team *team, int rank, const uint64_t id[2])
{
	struct window_config config = config_for(team, rank, id);
	struct window *window;

	test_limit(100);
	team_check(window_join(&window, &config, deadline_after_ms(60000), NULL, NULL) == TUTTI_OK,
		   "%s", last_error());
	team->member(window, rank, team->arg);
	window_destroy(window);
}

static int run_processes(const struct team *team)
{
	uint64_t id[2] = {team_random(2, (uint64_t)getpid(), clock_now_ns()), 9};
	pid_t pids[TEAM_RANKS];
	int bad = 0;

	fflush(NULL);
	for (int rank = 0; rank < team->size; rank++) {
		pids[rank] = fork();
		team_check(pids[rank] >= 0, "fork");
		if (pids[rank] == 0) {
			process_main(team, rank, id);
			_exit(0);
		}
	}
	for (int rank = 0; rank < team->size; rank++) {
		int status = 0;
		waitpid(pids[rank], &status, 0);
		bad += status != 0;
	}
	return bad;
}

struct killing {
	atomic_int calls[TEAM_RANKS];
	tutti_status status[TEAM_RANKS];
	char error[TEAM_RANKS][ERROR_BYTES];
};

/* Calls until something goes wrong. */
static void call_until_failed(const struct team_kill *kill, struct window *window, int rank,
			      struct killing *shared)
{
	tutti_status status = TUTTI_OK;

	for (uint64_t i = 0; status == TUTTI_OK; i++) {
		struct call_args args = kill->call(i, rank);
		status = team_drive(window, &args);
		atomic_fetch_add(&shared->calls[rank], 1);
	}
	snprintf(shared->error[rank], ERROR_BYTES, "%s", last_error());
	shared->status[rank] = status;
	window_fail(window, status, shared->error[rank]); /* as the engine does */
	/* Not the call that showed it: one that is told does not hang in the next either. */
	struct call_args args = kill->call(0, rank);
	team_check(team_drive(window, &args) == TUTTI_ERR_PEER, "%s", last_error());
}

static pid_t start_to_kill(const struct team_kill *kill, const uint64_t *id, int rank,
			   struct killing *shared)
{
	struct window_config config = config_for(&kill->team, rank, id);
	struct window *window;
	pid_t pid = fork();

	if (pid != 0)
		return pid;
	test_limit(100);
	team_check(window_join(&window, &config, deadline_after_ms(60000), NULL, NULL) == TUTTI_OK,
		   "%s", last_error());
	call_until_failed(kill, window, rank, shared);
	window_destroy(window);
	_exit(0);
}

static void check_survivor(const struct killing *shared, int rank, int victim, int ended)
{
	char name[32];

	snprintf(name, sizeof name, "Rank %d (process", victim);
	team_check(ended == 0, "rank %d: %d", rank, ended);
	team_check(shared->status[rank] == TUTTI_ERR_PEER, "rank %d: %s", rank,
		   shared->error[rank]);
	team_check(strstr(shared->error[rank], name), "rank %d: %s", rank, shared->error[rank]);
}

static void kill_one(const struct team_kill *plan, struct killing *shared, int victim, int after)
{
	uint64_t id[2] = {(uint64_t)after, clock_now_ns()};
	pid_t pids[TEAM_RANKS];

	memset(shared, 0, sizeof *shared);
	for (int rank = 0; rank < plan->team.size; rank++) {
		pids[rank] = start_to_kill(plan, id, rank, shared);
		team_check(pids[rank] > 0, "fork");
	}
	/* Not before its first call: then it may not have joined. */
	while (atomic_load(&shared->calls[victim]) < after) {
		team_check(waitpid(pids[victim], NULL, WNOHANG) == 0,
			   "the victim has ended before");
		sched_yield();
	}
	kill(pids[victim], SIGKILL);
	for (int rank = 0; rank < plan->team.size; rank++) {
		int ended;
		team_check(waitpid(pids[rank], &ended, 0) == pids[rank], "waitpid");
		if (rank != victim)
			check_survivor(shared, rank, victim, ended);
	}
}

void team_kill(const struct team_kill *plan, uint64_t seed)
{
	struct killing *shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE,
				      MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	team_check(shared != MAP_FAILED, "mmap");
	for (int round = 0; round < plan->rounds; round++)
		kill_one(plan, shared, round % plan->team.size,
			 1 + (int)(team_random(seed, (uint64_t)round, 2) %
				   (uint64_t)plan->most_calls));
	munmap(shared, sizeof *shared);
}

int team_run(const struct team *team)
{
	team_check(team->size <= TEAM_RANKS, "%d ranks", team->size);
	return team->are_processes ? run_processes(team) : run_threads(team);
}

uint64_t team_seed(void)
{
	const char *text = getenv("TEST_SEED");
	uint64_t seed = 0;

	if (text)
		seed = strtoull(text, NULL, 0);
	else
		team_check(getrandom(&seed, sizeof seed, 0) == sizeof seed, "getrandom");
	printf("TEST_SEED=0x%llx\n", (unsigned long long)seed);
	fflush(stdout);
	return seed;
}

tutti_status team_drive(struct window *window, const struct call_args *args)
{
	struct window_run run;

	window_begin(window, &run, args);
	return window_drive(window, &run, TEAM_TIMEOUT_NS, NULL, NULL, NULL);
}

uint8_t *team_alloc(struct window *window, size_t bytes)
{
	struct call_args args = {.collective = COLL_MEM_ALLOC,
				 .count = bytes,
				 .fingerprint = (uint32_t)(bytes * 2 + 1)};
	struct window_run run;
	tutti_status status;

	window_begin(window, &run, &args);
	status = window_drive(window, &run, TEAM_TIMEOUT_NS, NULL, NULL, NULL);
	team_check(status == TUTTI_OK, "%s", last_error());
	return run.memory;
}
