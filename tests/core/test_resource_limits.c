/* What would break: failures for lack of something that do not say which limit was met, or name one
 * that is not set. */
#include "core/resource_limits.h"
#include "core/status.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

#include "tests/unit.h"

#undef fail

/* The text for error while the limit is so much; the old one comes back. */
static const char *under(int resource, rlim_t limit, int error)
{
	static char text[RESOURCE_LIMIT_BYTES];
	struct rlimit old, low;

	assert_int_equal(getrlimit(resource, &old), 0);
	low = old;
	low.rlim_cur = limit;
	assert_int_equal(setrlimit(resource, &low), 0);
	resource_limit_text(error, text);
	assert_int_equal(setrlimit(resource, &old), 0);
	return text;
}

static void limits_are_named_with_their_numbers(void **state)
{
	assert_string_equal(under(RLIMIT_NOFILE, 20, EMFILE),
			    "; this process may have 20 open: raise `ulimit -n`");
	assert_string_equal(under(RLIMIT_FSIZE, 4096, EFBIG),
			    "; this process may make files of 4096 bytes: raise `ulimit -f`");
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
	assert_string_equal(under(RLIMIT_AS, 1 << 30, ENOMEM),
			    "; this process may map 1073741824 bytes in all: raise `ulimit -v`");
#endif
	assert_string_equal(under(RLIMIT_DATA, 1 << 30, ENOMEM),
			    "; this process may have 1073741824 bytes of data: raise `ulimit -d`");
	assert_non_null(strstr(under(RLIMIT_NOFILE, 20, ENFILE), "fs.file-max"));
}

static void what_is_no_limit_is_not_blamed(void **state)
{
	char text[RESOURCE_LIMIT_BYTES] = "from before";

	assert_string_equal(resource_limit_text(ECONNREFUSED, text), "");
	assert_string_equal(resource_limit_text(EFBIG, text), "");
	assert_non_null(strstr(resource_limit_text(ENOMEM, text), "ask for less"));
}

/* Behind the errno's text, whatever came before it. */
static void messages_end_with_it(void **state)
{
	char path[400];

	errno = ENFILE;
	fail_errno("tcp: epoll_create1");
	assert_string_equal(last_error(),
			    "tcp: epoll_create1: Too many open files in system (errno 23); the "
			    "whole machine has no more: raise fs.file-max");
	memset(path, 'x', sizeof path - 1);
	path[sizeof path - 1] = '\0';
	errno = ENFILE;
	fail_errno("%s", path);
	assert_non_null(strstr(last_error(), "raise fs.file-max"));
}

/* A message about memory says what to do: once, and not after other errors. */
static void memory_has_advice(void **state)
{
	char first[ERROR_BYTES];

	errno = ENOMEM;
	fail(TUTTI_ERR_MEMORY, "No memory for %d ranks.", 3);
	assert_string_equal(last_error(), "No memory for 3 ranks; ask for less, or see "
					  "vm.overcommit_memory and vm.max_map_count.");
	strcpy(first, last_error());
	fail(TUTTI_ERR_MEMORY, "%s", first);
	assert_string_equal(last_error(), first);
	fail(TUTTI_ERR_PEER, "rank 2 is lost");
	assert_string_equal(last_error(), "rank 2 is lost");
	errno = 0;
	fail(TUTTI_ERR_MEMORY, "no room");
	assert_string_equal(last_error(), "no room");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(limits_are_named_with_their_numbers),
		cmocka_unit_test(what_is_no_limit_is_not_blamed),
		cmocka_unit_test(messages_end_with_it),
		cmocka_unit_test(memory_has_advice),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
