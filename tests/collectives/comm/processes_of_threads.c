/* Processes of several ranks each, as a test starts and looks after them. */
#include "processes_of_threads.h"

#include "tests/limit.h"
#include "tests/ports.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include "tests/unit.h"

#define LIFE_S 60 /* of a process, at the most */
#define COUNT  3000

const struct link_way link_ways[] = {
	{"window", "1", "shm,tcp", false},
	{"shm", "0", "shm", false},
	{"tcp", "0", "tcp", false},
	{"nodes", "1", "shm,tcp", true},
};
const int link_way_count = sizeof link_ways / sizeof link_ways[0];

tutti_config team_config(const struct team *team)
{
	bool is_told = team->rendezvous[0]; /* else the environment says it */

	return (tutti_config){.rank = is_told ? team->process : 0,
			      .world_size = is_told ? team->processes : 0,
			      .rendezvous = is_told ? team->rendezvous : NULL,
			      .secret = is_told ? "not much of a secret" : NULL,
			      .timeout_ms = (int)test_limit_stretched(20) * 1000,
			      .local_ranks = team->local_ranks};
}

tutti_status team_sum(tutti_comm *comm, bool *is_right)
{
	static _Thread_local int32_t data[COUNT];
	int size = tutti_size(comm), sum = size * (size + 1) / 2;

	for (int i = 0; i < COUNT; i++)
		data[i] = (tutti_rank(comm) + 1) * (i % 5);
	tutti_status status = tutti_all_reduce(data, data, COUNT, TUTTI_I32, TUTTI_SUM, comm, NULL);
	*is_right = true;
	for (int i = 0; status == TUTTI_OK && i < COUNT; i++)
		*is_right &= data[i] == sum * (i % 5);
	return status;
}

struct rank_thread {
	struct team_rank rank;
	void (*body)(struct team_rank *rank);
	pthread_t id;
};

static void *rank_main(void *arg)
{
	struct rank_thread *thread = arg;

	thread->body(&thread->rank);
	tutti_comm_destroy(thread->rank.comm);
	return NULL;
}

void team_ranks(const struct team *team, void (*body)(struct team_rank *rank))
{
	tutti_config config = team_config(team);
	struct rank_thread threads[LOCAL_RANKS_MOST];
	tutti_comm *comms[LOCAL_RANKS_MOST];
	int t = team->local_ranks;

	TEAM_OK(tutti_init_all(comms, t, &config));
	for (int i = 0; i < t; i++) {
		int rank = team->process * t + i;
		TEAM_CHECK(tutti_rank(comms[i]) == rank, "rank %d, not %d", tutti_rank(comms[i]),
			   rank);
		TEAM_CHECK(tutti_size(comms[i]) == team->processes * t, "size %d",
			   tutti_size(comms[i]));
		threads[i] = (struct rank_thread){.rank = {team, comms[i], rank, i}, .body = body};
	}
	for (int i = 0; i < t; i++)
		TEAM_CHECK(pthread_create(&threads[i].id, NULL, rank_main, &threads[i]) == 0,
			   "no thread");
	for (int i = 0; i < t; i++)
		pthread_join(threads[i].id, NULL);
}

static pid_t start(struct team team, int process, void (*body)(const struct team *team))
{
	char node[16];
	pid_t pid = fork();

	assert_true(pid >= 0);
	if (pid > 0)
		return pid;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	test_limit(LIFE_S);
	/* cmocka's handlers would go on with the tests, in this process, too. */
	signal(SIGSEGV, SIG_DFL);
	signal(SIGBUS, SIG_DFL);
	signal(SIGILL, SIG_DFL);
	signal(SIGFPE, SIG_DFL);
	team.process = process;
	snprintf(node, sizeof node, "node %d", team.way->is_apart ? process : 0);
	setenv("TUTTI_HOST_ID", node, 1);
	setenv("TUTTI_WINDOW", team.way->window, 1);
	setenv("TUTTI_TRANSPORTS", team.way->transports, 1);
	if (team.is_new)
		setenv("TUTTI_RESTARTED", "1", 1);
	body(&team);
	_exit(0);
}

void team_run(struct team team, void (*body)(const struct team *team), unsigned may_die,
	      int restarts)
{
	static int used;
	int failures = 0;
	pid_t pids[PROCESSES_MOST];

	snprintf(team.rendezvous, sizeof team.rendezvous, "tcp://127.0.0.1:%d",
		 test_ports() + used++ % TEST_PORTS);
	for (int p = 0; p < team.processes; p++)
		pids[p] = start(team, p, body);
	for (int left = team.processes; left > 0;) {
		int status = 0, p = 0;
		pid_t pid = wait(&status);
		assert_true(pid > 0 || errno == EINTR);
		while (p < team.processes && pids[p] != pid)
			p++;
		if (p == team.processes)
			continue;
		bool was_killed = may_die & 1u << p && WIFSIGNALED(status);
		if (was_killed && restarts > 0) {
			restarts--;
			team.is_new = true;
			pids[p] = start(team, p, body);
			continue;
		}
		left--;
		if (status != 0 && !was_killed)
			print_error("%d x %d, %s: process %d ended with %#x\n", team.processes,
				    team.local_ranks, team.way->name, p, (unsigned)status);
		failures += status != 0 && !was_killed;
	}
	assert_int_equal(failures, 0);
	assert_int_equal(restarts, 0);
}
