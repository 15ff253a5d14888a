/* no_tsan: it has one thread */
/* What would break: a slip of the finger that is answered with another name than the one meant, or
 * with none; and a name that has nothing in common with what was typed. */
#include "core/words/nearest.h"

#include <limits.h>
#include <string.h>

#include "tests/random.h"
#include "tests/unit.h"

static const char *const names[] = {"devices", "nodes",      "strategy", "precision", "clip",
				    "gpus",    "accumulate", "resume",   "test",      "port"};
enum { NAMES = sizeof names / sizeof *names };

static const char *meant(const char *typed)
{
	struct nearest nearest = nearest_to(typed, strlen(typed));

	for (int i = 0; i < NAMES; i++)
		nearest_try(&nearest, names[i]);
	return nearest.name;
}

static void slips_are_understood(void **state)
{
	assert_string_equal(meant("stratgy"), "strategy");
	assert_string_equal(meant("STRATEGY"), "strategy");
	assert_string_equal(meant("device"), "devices");
	assert_string_equal(meant("strat"), "strategy"); /* short for it */
	assert_string_equal(meant("nnodes"), "nodes");
	assert_string_equal(meant("tset"), "test");
	assert_string_equal(meant("gpu"), "gpus");
	assert_string_equal(meant("precison"), "precision");
	assert_null(meant("learning-rate"));
	assert_null(meant("x"));
	assert_null(meant("no"));
	assert_null(meant(""));
}

static int smaller_of(int a, int b)
{
	return a < b ? a : b;
}

/* The plain twin: the recursion as it is defined, of short words in lower case. */
static int distance_of(const char *a, int m, const char *b, int n)
{
	if (m == 0 || n == 0)
		return m + n;
	int best = distance_of(a, m - 1, b, n - 1) + (a[m - 1] != b[n - 1]);

	best = smaller_of(best, distance_of(a, m - 1, b, n) + 1);
	best = smaller_of(best, distance_of(a, m, b, n - 1) + 1);
	if (m > 1 && n > 1 && a[m - 1] == b[n - 2] && a[m - 2] == b[n - 1])
		best = smaller_of(best, distance_of(a, m - 2, b, n - 2) + 1);
	return best;
}

static void random_word(uint64_t *random, char word[7])
{
	size_t n = random_below(random, 7);

	for (size_t i = 0; i < n; i++)
		word[i] = (char)('a' + random_below(random, 3));
	word[n] = '\0';
}

static void distances_are_those_of_the_definition(void **state)
{
	uint64_t seed = 20, random = seed;

	print_message("seed %llu\n", (unsigned long long)seed);
	for (int i = 0; i < 2000; i++) {
		char a[7], b[7];
		random_word(&random, a);
		random_word(&random, b);
		size_t m = strlen(a), n = strlen(b);
		int wanted = m >= 3 && m < n && memcmp(a, b, m) == 0
				     ? 1
				     : distance_of(a, (int)m, b, (int)n);
		if (nearest_distance(a, m, b) != wanted)
			fail_msg("'%s' and '%s': %d instead of %d", a, b, nearest_distance(a, m, b),
				 wanted);
	}
}

static void words_of_any_length_are_compared(void **state)
{
	char word[200];

	memset(word, 'a', sizeof word - 1);
	word[sizeof word - 1] = '\0';
	assert_int_equal(nearest_distance(word, 64, "aa"), 62);
	assert_int_equal(nearest_distance(word, 65, "aa"), INT_MAX);
	assert_int_equal(nearest_distance("aa", 2, word), INT_MAX);
	assert_null(meant(word));
	struct nearest nearest = nearest_to(word, (size_t)1 << 40);
	nearest_try(&nearest, "a");
	assert_null(nearest.name);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(slips_are_understood),
		cmocka_unit_test(distances_are_those_of_the_definition),
		cmocka_unit_test(words_of_any_length_are_compared),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
