/* What would break: a message of a full disk that says no host or nothing to do, says it of other
 * errors, or has no room for it behind a long path. */
#include "train/base/base.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "tests/unit.h"

static const char *message_of(int error, const char *path)
{
	errno = error;
	assert_int_equal(disk_fail("Taking room for optimizer state in", path), TUTTI_ERR_SYSTEM);
	assert_int_equal(errno, error);
	return tutti_comm_error(NULL);
}

static void test_full(void **state)
{
	char host[41] = "", text[200];

	gethostname(host, sizeof host - 1);
	snprintf(text, sizeof text, "(errno %d): on host '%s' this disk is full: make room", ENOSPC,
		 host);
	assert_non_null(strstr(message_of(ENOSPC, "/x/file"), text));
	snprintf(text, sizeof text, "(errno %d): on host '%s' the quota is full: make room", EDQUOT,
		 host);
	assert_non_null(strstr(message_of(EDQUOT, "/x/file"), text));
}

static void test_other_errors(void **state)
{
	assert_string_equal(message_of(EACCES, "/x/file"),
			    "Taking room for optimizer state in '/x/file' failed: Permission "
			    "denied (errno 13).");
}

/* The longest words that go before it: those of a step since the last average. */
static void test_long_path(void **state)
{
	static const char end[] = "make room there, or choose another folder.";
	char path[DISK_PATH_BYTES], before[] = "Rank 1023 could not make its optimizer state in a "
					       "step since the last average, so ranks do not "
					       "average: ";

	memset(path, 'x', sizeof path);
	path[sizeof path - 1] = '\0';
	const char *message = message_of(ENOSPC, path);
	assert_string_equal(message + strlen(message) - strlen(end), end);
	assert_true(strlen(before) + strlen(message) <
		    sizeof(((struct kept_error *)NULL)->message));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_full),
		cmocka_unit_test(test_other_errors),
		cmocka_unit_test(test_long_path),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
