/* Would break: the fault suite takes what a job has left for nothing, or what somebody else makes
 * in /tmp meanwhile for the job's. */
#include "tests/faults/hosts.h"
#include "tests/faults/remains.h"
#include "tests/own_folder.h"

#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/unit.h"

static int complaints_of_a_name(bool is_private)
{
	char name[] = "/tmp/tutti-remains-XXXXXX";
	static struct verdict verdict;
	int before = remains_count(is_private), fd = mkstemp(name);

	verdict.complaints = 0;
	remains_judge(&verdict, before, is_private);
	close(fd);
	unlink(name);
	return fd < 0 ? -1 : verdict.complaints;
}

static void a_name_of_somebody_else(void **state)
{
	(void)state;
	assert_int_equal(complaints_of_a_name(false), 0);
}

static void a_name_that_is_left(void **state)
{
	int status = 0;
	pid_t child = fork();

	(void)state;
	if (child == 0)
		_exit(hosts_leave_world(false) ? complaints_of_a_name(true) : 77);
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_true(WIFEXITED(status));
	if (WEXITSTATUS(status) == 77)
		skip_because(OWN_MOUNTS_WHY);
	assert_int_equal(WEXITSTATUS(status), 1);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_name_of_somebody_else),
		cmocka_unit_test(a_name_that_is_left),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
