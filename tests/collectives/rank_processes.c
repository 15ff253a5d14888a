/* Ranks as processes: started, looked after, ended. */
#include "rank_processes.h"

#include "core/clock.h"
#include "tests/limit.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/unit.h"

#define LIFE_S 60 /* of a rank, at the most */

const struct way ways[] = {
	{"window", "1", "shm,tcp", 1},    {"shm", "0", "shm", 1},        {"tcp", "0", "tcp", 1},
	{"two nodes", "1", "shm,tcp", 2}, {"five nodes", "1", "tcp", 5},
};
const int way_count = sizeof ways / sizeof ways[0];

struct shared *shared;
int process_count = PROCESSES;

bool processes_open(void)
{
	shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
		      0);
	return shared != MAP_FAILED;
}

void processes_happens(void)
{
	atomic_store(&shared->happened_ns, clock_now_ns());
	atomic_store(&shared->happened_at, atomic_load(&shared->turns));
}

void processes_report(tutti_comm *comm, tutti_status status)
{
	struct report *r = &shared->reports[tutti_rank(comm)];
	r->at_ns = clock_now_ns();
	r->at = atomic_load(&shared->turns);
	r->status = status;
	r->failed = tutti_comm_failed(comm, &r->first_failed, 1);
	snprintf(r->error, sizeof r->error, "%s", tutti_comm_error(comm));
	atomic_fetch_add(&shared->ended, 1);
}

void processes_wait(const atomic_int *counter, int n)
{
	uint64_t deadline = deadline_after_ms(LIFE_S * 1000);
	while (atomic_load((atomic_int *)(uintptr_t)counter) < n && clock_now_ns() < deadline)
		poll(NULL, 0, 1);
}

static void be_rank(int rank, const struct way *way, const char *const *variables,
		    void (*body)(tutti_comm *))
{
	char node[16];
	tutti_comm *comm;
	tutti_config config = {.rank = rank,
			       .world_size = process_count,
			       .rendezvous = shared->url,
			       .timeout_ms = 40000};

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	test_limit(LIFE_S);
	snprintf(node, sizeof node, "node%d", rank * way->nodes / process_count);
	setenv("TUTTI_HOST_ID", node, 1);
	setenv("TUTTI_WINDOW", way->window, 1);
	setenv("TUTTI_TRANSPORTS", way->transports, 1);
	for (; variables && *variables; variables++)
		putenv((char *)(uintptr_t)*variables);
	if (tutti_init(&comm, &config) != TUTTI_OK) {
		fprintf(stderr, "%s: rank %d: %s\n", way->name, rank, tutti_comm_error(NULL));
		_exit(1);
	}
	body(comm);
	tutti_comm_destroy(comm);
	_exit(0);
}

/* The rendezvous has a thread, and what forks must have none: AddressSanitizer's locks stay locked
 * in a child that was forked while another thread held one. So it has a process of its own. */
static pid_t serve(void)
{
	pid_t pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		test_limit(2 * LIFE_S);
		tutti_status status = tutti_rendezvous_open(shared->url, sizeof shared->url);
		atomic_store(&shared->serves, status == TUTTI_OK ? 1 : -1);
		for (;;)
			pause();
	}
	processes_wait(&shared->serves, 1);
	assert_int_equal(atomic_load(&shared->serves), 1);
	return pid;
}

/* Counts turns, each a rest and some computing, as a rank that waits needs both: what takes ranks
 * long because the machine is busy takes as many turns. */
static pid_t pace(void)
{
	pid_t pid = fork();

	assert_true(pid >= 0);
	if (pid > 0)
		return pid;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	for (;;) {
		volatile unsigned work = 0;
		poll(NULL, 0, 5);
		while (work < 300000)
			work++;
		atomic_fetch_add(&shared->turns, 1);
	}
}

static void end(pid_t pid)
{
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}

void processes_run(const struct way *way, const char *const *variables, void (*body)(tutti_comm *),
		   void (*meanwhile)(void), unsigned may_die)
{
	int failures = 0;
	pid_t server, pacer;

	memset(shared, 0, sizeof *shared);
	server = serve();
	pacer = pace();
	for (int r = 0; r < process_count; r++) {
		pid_t pid = fork();
		assert_true(pid >= 0);
		if (pid == 0)
			be_rank(r, way, variables, body);
		shared->pids[r] = pid;
	}
	if (meanwhile)
		meanwhile();
	for (int r = 0; r < process_count; r++) {
		int status = 0;
		while (waitpid(shared->pids[r], &status, 0) < 0 && errno == EINTR)
			;
		bool is_well = status == 0 || (may_die & 1u << r && WIFSIGNALED(status));
		if (!is_well)
			print_error("%s: rank %d ended with %#x\n", way->name, r, (unsigned)status);
		failures += !is_well;
	}
	end(pacer);
	end(server);
	assert_int_equal(failures, 0);
}
