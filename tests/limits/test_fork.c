/* Breaks when a program that forks while it has communicators pays for it: its child, which does
 * what children do, must not disturb the job, and a call in the child must be refused instead of
 * hanging. */
#include "core/clock.h"
#include "tests/limit.h"
#include "tests/limits/job.h"

#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/unit.h"

#define RANKS 2

static tutti_comm *comms[RANKS];
static struct job_of jobs[RANKS];

static void *use(void *arg)
{
	int r = *(int *)arg;

	job_use(&jobs[r], comms[r]);
	return NULL;
}

static void use_all(void)
{
	pthread_t threads[RANKS];
	int numbers[RANKS];

	for (int r = 0; r < RANKS; r++) {
		numbers[r] = r;
		jobs[r].where = NULL;
		assert_int_equal(pthread_create(&threads[r], NULL, use, &numbers[r]), 0);
	}
	for (int r = 0; r < RANKS; r++) {
		pthread_join(threads[r], NULL);
		if (jobs[r].where)
			fail_msg("rank %d: %s: %s", r, jobs[r].where, jobs[r].error);
		assert_int_equal(jobs[r].wrong, 0);
	}
}

static void join_all(const char *transports)
{
	tutti_config config = {.transports = transports, .timeout_ms = 20000};

	assert_int_equal(tutti_init_all(comms, RANKS, &config), TUTTI_OK);
	use_all(); /* connections, plans, the helper's thread: all that a child can inherit */
}

static void leave_all(void)
{
	for (int r = 0; r < RANKS; r++)
		tutti_comm_destroy(comms[r]);
}

/* Runs it in a child that must end well within seconds. */
static void in_child(void (*what)(void))
{
	pid_t pid = fork();
	int status;

	assert_true(pid >= 0);
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		test_limit(20);
		what();
		exit(0); /* with all that runs at exit */
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

static void nothing(void)
{
}

static void need_refusal(tutti_status status, const char *name)
{
	const char *error = tutti_comm_error(NULL);

	if (status == TUTTI_ERR_INVALID && strstr(error, name) && strstr(error, "was forked"))
		return;
	fprintf(stderr, "%s: status %d, %s\n", name, (int)status, error);
	_exit(1);
}

static void every_call(void)
{
	tutti_comm *made = NULL;
	tutti_work *work = NULL;
	tutti_call call = {.work = &work};
	int64_t word = 1, sum = 0;
	void *memory;

	need_refusal(tutti_all_reduce(&word, &sum, 1, TUTTI_I64, TUTTI_SUM, comms[0], NULL),
		     "all_reduce");
	need_refusal(tutti_all_reduce(&word, &sum, 1, TUTTI_I64, TUTTI_SUM, comms[0], &call),
		     "all_reduce");
	need_refusal(tutti_barrier(comms[1], NULL), "barrier");
	need_refusal(tutti_send(&word, 1, TUTTI_I64, 1, comms[0], NULL), "send");
	need_refusal(tutti_comm_split(comms[0], 0, 0, NULL, &made), "tutti_comm_split");
	need_refusal(tutti_comm_dup(comms[0], &made), "tutti_comm_dup");
	need_refusal(tutti_mem_alloc(&memory, 100, comms[0]), "tutti_mem_alloc");
	need_refusal(tutti_comm_abort(comms[0]), "tutti_comm_abort");
	need_refusal(tutti_init(&made, NULL), "tutti_init");
	need_refusal(tutti_init_all(&made, 1, NULL), "tutti_init_all");
	leave_all(); /* nothing of the parent's */
}

static void children_disturb_nobody(void **state)
{
	static const char *const transports[] = {NULL, "tcp", "shm"};

	for (int i = 0; i < 3; i++) {
		setenv("TUTTI_WINDOW", i == 2 ? "0" : "1", 1);
		join_all(transports[i]);
		in_child(nothing);
		use_all();
		in_child(every_call);
		use_all();
		leave_all();
	}
}

static void join_and_leave(void)
{
	if (tutti_init_all(comms, RANKS, NULL) != TUTTI_OK) {
		fprintf(stderr, "%s\n", tutti_comm_error(NULL));
		_exit(1);
	}
	leave_all();
}

/* A process that has none when it forks has children that may have their own. */
static void children_of_nobody_may_join(void **state)
{
	in_child(join_and_leave);
	join_all(NULL);
	leave_all();
	in_child(join_and_leave);
}

/* A work that is in flight belongs to the parent; so does its end. */
static tutti_work *pending;

static void wait_for_it(void)
{
	int is_done;

	need_refusal(tutti_work_wait(&pending, 1000), "tutti_work_wait");
	need_refusal(tutti_work_test(pending, &is_done), "tutti_work_test");
	tutti_work_release(&pending);
}

static void works_stay_with_the_parent(void **state)
{
	int64_t word = 0;
	tutti_call call = {.work = &pending};
	int64_t out = 7;

	join_all(NULL);
	assert_int_equal(tutti_recv(&word, 1, TUTTI_I64, 1, comms[0], &call), TUTTI_OK);
	in_child(wait_for_it);
	assert_int_equal(tutti_send(&out, 1, TUTTI_I64, 0, comms[1], NULL), TUTTI_OK);
	assert_int_equal(tutti_work_wait(&pending, 0), TUTTI_OK);
	assert_int_equal(word, 7);
	leave_all();
}

/* Shared by ranks and test. */
static struct shared {
	pid_t child;
	tutti_status status;
	char error[512];
	bool goes_on;
} * shared;

static void die_leaving_a_child(tutti_comm *comm)
{
	pid_t pid = fork();

	(void)comm;
	if (pid == 0) {
		test_limit(60);
		for (;;)
			pause();
	}
	shared->child = pid;
	raise(SIGKILL);
}

static void outlive(tutti_comm *comm)
{
	tutti_comm *survivors = NULL;
	int64_t word = 1, sum = 0;

	shared->status = tutti_all_reduce(&word, &sum, 1, TUTTI_I64, TUTTI_SUM, comm, NULL);
	snprintf(shared->error, sizeof shared->error, "%s", tutti_comm_error(comm));
	if (tutti_comm_shrink(comm, &survivors) == TUTTI_OK)
		shared->goes_on = tutti_all_reduce(&word, &sum, 1, TUTTI_I64, TUTTI_SUM, survivors,
						   NULL) == TUTTI_OK &&
				  sum == 1;
	else
		snprintf(shared->error, sizeof shared->error, "%s", tutti_comm_error(comm));
	tutti_comm_destroy(survivors);
	tutti_comm_destroy(comm);
	_exit(0);
}

static pid_t start_rank(int rank, int port, const char *transports)
{
	pid_t pid = fork();
	char where[64];
	tutti_config config = {.rank = rank,
			       .world_size = RANKS,
			       .rendezvous = where,
			       .secret = "of the forks",
			       .transports = transports,
			       .timeout_ms = 15000};
	int64_t word = 1, sum = 0;
	tutti_comm *comm;

	assert_true(pid >= 0);
	if (pid > 0)
		return pid;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	test_limit(60);
	snprintf(where, sizeof where, "tcp://127.0.0.1:%d", port);
	if (tutti_init(&comm, &config) != TUTTI_OK ||
	    tutti_all_reduce(&word, &sum, 1, TUTTI_I64, TUTTI_SUM, comm, NULL) != TUTTI_OK) {
		snprintf(shared->error, sizeof shared->error, "%s", tutti_comm_error(NULL));
		_exit(1);
	}
	(rank == 1 ? die_leaving_a_child : outlive)(comm);
	_exit(1);
}

/* Without a window nothing but the end of its connections, and a listener that refuses, tells of a
 * death. */
static void a_child_hides_no_death(void **state)
{
	static const char *const transports[] = {"tcp", "shm", NULL};

	setenv("TUTTI_WINDOW", "0", 1);
	setenv("TUTTI_SILENCE_MS", "0", 1);
	for (int i = 0; i < 3; i++) {
		int port = job_free_port(), status;
		memset(shared, 0, sizeof *shared);
		pid_t first = start_rank(0, port, transports[i]);
		pid_t second = start_rank(1, port, transports[i]);
		assert_int_equal(waitpid(first, &status, 0), first);
		if (status != 0 || shared->status != TUTTI_ERR_PEER || !shared->goes_on)
			fail_msg("%s: ended with %x, status %d: %s", transports[i], status,
				 (int)shared->status, shared->error);
		assert_int_equal(waitpid(second, &status, 0), second);
		assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
		assert_int_equal(kill(shared->child, SIGKILL), 0); /* it was there all the time */
	}
	unsetenv("TUTTI_SILENCE_MS");
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(children_of_nobody_may_join),
		cmocka_unit_test(children_disturb_nobody),
		cmocka_unit_test(works_stay_with_the_parent),
		cmocka_unit_test(a_child_hides_no_death),
	};

	shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
		      0);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
