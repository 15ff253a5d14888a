/* What would break: two jobs bind their ranks to one core, or a core that nobody uses any more
 * stays taken. */
#include "core/rank/claims.h"
#include "tests/unit.h"

#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

static char name[40];

static void one_process_has_it(void **state)
{
	int fd = rank_claim(name), status;

	assert_true(fd >= 0);
	assert_int_equal(rank_claim(name), -1);
	pid_t child = fork();
	if (child == 0)
		_exit(rank_claim(name) == -1 ? 0 : 1);
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(close(fd), 0); /* the child had it, too, and has ended */
	assert_int_equal(status, 0);
	fd = rank_claim(name);
	assert_true(fd >= 0);
	close(fd);
}

static void a_killed_process_has_it_no_more(void **state)
{
	int ready[2];
	char byte;

	assert_int_equal(pipe(ready), 0);
	pid_t child = fork();
	if (child == 0) {
		if (rank_claim(name) < 0 || write(ready[1], "", 1) != 1)
			_exit(1);
		pause();
	}
	assert_int_equal(read(ready[0], &byte, 1), 1);
	assert_int_equal(rank_claim(name), -1);
	kill(child, SIGKILL);
	assert_int_equal(waitpid(child, NULL, 0), child);
	assert_true(rank_claim(name) >= 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(one_process_has_it),
		cmocka_unit_test(a_killed_process_has_it_no_more),
	};

	snprintf(name, sizeof name, "tuttirun-test-%d", (int)getpid());
	return cmocka_run_group_tests(tests, NULL, NULL);
}
