/* Breaks when a test that hangs does not end, or one that is only slow, beside busy processes,
 * does.
 */
#define TEST_LIMIT_LOAD load_file
static char load_file[] = "/tmp/tutti_test_limit_XXXXXX";
#include "tests/limit.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>

#include "tests/unit.h"

#define SECONDS 1000

/* Of so many processes for each core. */
static void set_load(long each)
{
	FILE *file = fopen(load_file, "w");

	assert_non_null(file);
	fprintf(file, "%ld.99 1.00 1.00 1/100 1000\n", each * test_limit_cores());
	fclose(file);
}

/* Looks when so many seconds are over. Returns how many more there are, or -1 if this is the end.
 */
static int look_after(long seconds, long load)
{
	pid_t pid = fork();
	int status;

	assert_true(pid >= 0);
	if (pid == 0) {
		test_limit(SECONDS);
		set_load(load);
		test_limit_now.begun -= seconds;
		test_limit_look(SIGALRM);
		_exit((int)alarm(0) / 10);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	if (WIFSIGNALED(status)) {
		assert_int_equal(WTERMSIG(status), SIGALRM);
		return -1;
	}
	return 10 * WEXITSTATUS(status);
}

static void test_seconds_of_a_busy_machine(void **state)
{
	assert_int_equal(look_after(SECONDS, 0), -1);
	assert_int_equal(look_after(SECONDS, 1), -1);
	assert_in_range(look_after(SECONDS, 2), SECONDS / 2, SECONDS);
	assert_in_range(look_after(5 * SECONDS / 2, 3), SECONDS / 4, SECONDS / 2);
	assert_int_equal(look_after(3 * SECONDS, 3), -1);
}

static void test_stretched(void **state)
{
	set_load(1);
	assert_int_equal(test_limit_stretched(3000), 3000);
	set_load(9);
	assert_int_equal(test_limit_stretched(3000), 27000);
}

static void test_load_unknown(void **state)
{
	assert_int_equal(unlink(load_file), 0);
	assert_int_equal(test_limit_load(), 0);
	assert_int_equal(test_limit_stretched(3000), 3000);
}

/* The whole of it: a process that waits for nothing, and nobody is busy. */
static void test_hang(void **state)
{
	pid_t pid = fork();
	int status;

	assert_true(pid >= 0);
	if (pid == 0) {
		test_limit(1);
		for (;;)
			pause();
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_seconds_of_a_busy_machine),
		cmocka_unit_test(test_stretched),
		cmocka_unit_test(test_load_unknown),
		cmocka_unit_test(test_hang),
	};
	int fd = mkstemp(load_file);

	if (fd < 0)
		return 1;
	close(fd);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
