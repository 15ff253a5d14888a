/* Which processes the guard of a killed launcher ends: if it ended a group that a rank had before
 * it was started again, it would end unrelated processes, and if it forgot one that is there, its
 * children would stay. */
#include "launch/guard.h"

#include "launch/options.h"
#include "tests/limit.h"

#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/unit.h"

/* A rank that has told the guard of its group, as it returns. */
static pid_t start_rank(const struct guard *guard, int local)
{
	int ready[2];
	char byte;
	pid_t pid;

	assert_int_equal(pipe(ready), 0);
	pid = fork();
	if (pid == 0) {
		setpgid(0, 0);
		guard_join(guard, local);
		close(guard->fd); /* as exec would */
		close(ready[0]);
		close(ready[1]);
		for (;;)
			pause();
	}
	assert_true(pid > 0);
	close(ready[1]);
	assert_int_equal(read(ready[0], &byte, 1), 0);
	close(ready[0]);
	return pid;
}

/* The launcher is killed: its end of the pipe closes, and nobody ends the guard. */
static void lose_launcher(struct guard *guard)
{
	close(guard->fd);
	assert_int_equal(waitpid(guard->pid, NULL, 0), guard->pid);
}

static void assert_killed(pid_t pid)
{
	int how;

	assert_int_equal(waitpid(pid, &how, 0), pid);
	assert_true(WIFSIGNALED(how) && WTERMSIG(how) == SIGKILL);
}

static void assert_lives(pid_t pid)
{
	assert_int_equal(waitpid(pid, NULL, WNOHANG), 0);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}

/* The process that was rank 1 stands for another one that has its number by then. */
static void test_groups_that_were(void **state)
{
	struct guard guard = guard_start();
	pid_t first = start_rank(&guard, 0), was = start_rank(&guard, 1), now, last;

	(void)state;
	guard_forget(&guard, 1);
	now = start_rank(&guard, 1);
	last = start_rank(&guard, RANKS_MAX - 1);
	guard_forget(&guard, 0);
	lose_launcher(&guard);
	assert_killed(now);
	assert_killed(last);
	assert_lives(was);
	assert_lives(first);
}

/* More restarts than there may be ranks. */
static void test_many_restarts(void **state)
{
	struct guard guard = guard_start();
	pid_t rank;

	(void)state;
	for (int i = 0; i < RANKS_MAX + 1; i++) {
		guard_join(&guard, 0); /* this process: it had better be forgotten */
		guard_forget(&guard, 0);
	}
	rank = start_rank(&guard, 0);
	lose_launcher(&guard);
	assert_killed(rank);
}

static void test_an_end_in_order(void **state)
{
	struct guard guard = guard_start();
	pid_t rank = start_rank(&guard, 0);

	(void)state;
	guard_end(&guard);
	assert_lives(rank);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_groups_that_were),
		cmocka_unit_test(test_many_restarts),
		cmocka_unit_test(test_an_end_in_order),
	};

	test_limit(60);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
