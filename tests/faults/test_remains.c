/* Would break: the fault suite takes what a job has left for nothing, or what somebody else makes
 * in /tmp meanwhile for the job's; or it hides the build where that is below /tmp. */
#include "tests/entries.h"
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
	assert_int_equal(complaints_of_a_name(false), 0);
}

/* What body returns, in a process of its own; the case is skipped for 77. */
static int in_child(int (*body)(void))
{
	int status = 0;
	pid_t child = fork();

	if (child == 0)
		_exit(body());
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_true(WIFEXITED(status));
	if (WEXITSTATUS(status) == 77)
		skip_because(OWN_MOUNTS_WHY);
	return WEXITSTATUS(status);
}

static int leave_a_name(void)
{
	return hosts_leave_world(false) ? complaints_of_a_name(true) : 77;
}

static void a_name_that_is_left(void **state)
{
	assert_int_equal(in_child(leave_a_name), 1);
}

/* Wherever it is: as below /tmp. */
static int hide_the_build(void)
{
	char folder[PATH_MAX];

	if (!own_mounts())
		return 77;
	strcpy(folder, own_program);
	*strchr(folder + 1, '/') = '\0';
	return own_folder(folder, NULL) && access(own_program, X_OK) == 0 && entries_of(folder) == 1
		       ? 0
		       : 1;
}

static void a_build_stays_in_sight(void **state)
{
	assert_int_equal(in_child(hide_the_build), 0);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_name_of_somebody_else),
		cmocka_unit_test(a_name_that_is_left),
		cmocka_unit_test(a_build_stays_in_sight),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
