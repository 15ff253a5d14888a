/* Breaks when a loop over hosts, ports or addresses does not report its most telling cause with its
 * errno, loses the first one of that kind, or miscounts the rest. */
#include "core/tries.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "tests/unit.h"

static void the_most_telling_end_is_kept(void **state)
{
	static const int errors[] = {ENETUNREACH, ETIMEDOUT,  ECONNREFUSED,
				     ECONNRESET,  EADDRINUSE, EPERM};
	char text[TRIES_TEXT_BYTES], why[24];

	/* In every order of two. */
	for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
		for (size_t j = 0; j < sizeof errors / sizeof *errors; j++) {
			struct tries tries = {0};
			int error = errors[i > j ? i : j];
			tries_add(&tries, tried_of(errors[i]), errors[i], strerror(errors[i]));
			tries_add(&tries, tried_of(errors[j]), errors[j], strerror(errors[j]));
			assert_int_equal(tries.error, error);
			assert_string_equal(tries.why, strerror(error));
		}
	struct tries tries = {0};
	assert_string_equal(tries_text(&tries, text, sizeof text), "");
	for (int i = 0; i < 3; i++) {
		snprintf(why, sizeof why, "port %d", i);
		tries_add(&tries, TRIED_REFUSED, ECONNREFUSED, why);
	}
	assert_string_equal(tries_text(&tries, text, sizeof text), "port 0; 3 tries: 3 refused");
	tries_add(&tries, TRIED_SILENT, 0, "quiet");
	tries_add(&tries, TRIED_OTHER_SECRET, 0, "no key");
	assert_string_equal(tries_text(&tries, text, sizeof text),
			    "no key; 5 tries: 1 another secret, 3 refused, 1 no answer");
	assert_string_equal(tries_text(&tries, text, 7), "no key");
}

static void one_try_is_not_counted_aloud(void **state)
{
	struct tries tries = {0};
	char text[TRIES_TEXT_BYTES], why[2 * TRIES_WHY_BYTES];

	memset(why, 'x', sizeof why - 1);
	why[sizeof why - 1] = '\0';
	errno = EDOM;
	tries_add(&tries, TRIED_UNRESOLVED, EADDRNOTAVAIL, why);
	assert_int_equal(errno, EDOM);
	assert_int_equal(strlen(tries_text(&tries, text, sizeof text)), TRIES_WHY_BYTES - 1);
	for (int end = 0; end < TRIED_ENDS; end++)
		tries_add(&tries, (enum tried)end, 0, "other");
	assert_non_null(
		strstr(tries_text(&tries, text, sizeof text), "other; 10 tries: 1 denied, "));
	assert_true(strlen(text) < sizeof text - 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_most_telling_end_is_kept),
		cmocka_unit_test(one_try_is_not_counted_aloud),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
