/* Breaks when a misspelt variable or a bad value would be silently ignored, or a secret printed. */
#include "core/env.h"

#include "core/log.h"
#include "core/status.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit.h"

extern char **environ;

/* Every test begins with no TUTTI_ variable at all. */
static int clean(void **state)
{
	for (size_t i = 0; environ[i];) {
		char name[256];
		snprintf(name, sizeof name, "%.*s", (int)strcspn(environ[i], "="), environ[i]);
		if (strncmp(name, "TUTTI_", 6) == 0)
			unsetenv(name);
		else
			i++;
	}
	last_error_clear();
	log_set_level(LOG_OFF);
	return 0;
}

static void expect_refused(const char *name, const char *value, const char *says)
{
	struct env env = {.timeout_ms = -7};

	setenv(name, value, 1);
	assert_int_equal(env_load(&env), TUTTI_ERR_INVALID);
	if (!strstr(last_error(), says))
		fail_msg("%s=%s: \"%s\" does not say \"%s\"", name, value, last_error(), says);
	assert_int_equal(env.timeout_ms, -7); /* written only on success */
	unsetenv(name);
}

static void expect_bytes(const char *value, int64_t bytes)
{
	struct env env;

	setenv("TUTTI_WINDOW_BYTES", value, 1);
	assert_int_equal(env_load(&env), TUTTI_OK);
	assert_int_equal(env.window_bytes, bytes);
}

static void defaults_are_the_tables(void **state)
{
	struct env env;

	assert_int_equal(env_load(&env), TUTTI_OK);
#define CHECK(field, name, unit, min, max, init, help)                                             \
	assert_int_equal(env.field, init);                                                         \
	assert_in_range(init, min, max);
	ENV_NUMBERS(CHECK)
#undef CHECK
#define CHECK(field, name, choices, help) assert_null(env.field);
	ENV_TEXTS(CHECK)
#undef CHECK
}

static void every_number_takes_its_limits(void **state)
{
	struct env env;
	char text[32];

#define CHECK(field, name, unit, min, max, init, help)                                             \
	snprintf(text, sizeof text, "%lld", (long long)(min));                                     \
	setenv(name, text, 1);                                                                     \
	assert_int_equal(env_load(&env), TUTTI_OK);                                                \
	assert_int_equal(env.field, min);                                                          \
	snprintf(text, sizeof text, "%lld", (long long)(max));                                     \
	setenv(name, text, 1);                                                                     \
	assert_int_equal(env_load(&env), TUTTI_OK);                                                \
	assert_int_equal(env.field, max);                                                          \
	snprintf(text, sizeof text, "%lld", (long long)(min)-1);                                   \
	expect_refused(name, text, name);                                                          \
	snprintf(text, sizeof text, "%lld", (long long)(max) + 1);                                 \
	expect_refused(name, text, (max) == 1 ? "0 or 1" : unit);
	ENV_NUMBERS(CHECK)
#undef CHECK
}

static void a_misspelt_name_gets_a_suggestion(void **state)
{
	expect_refused("TUTTI_TIMEOUT_MSS", "1000",
		       "TUTTI_TIMEOUT_MSS is not a variable of Tutti: did you mean "
		       "TUTTI_TIMEOUT_MS?");
	expect_refused("TUTTI_TIMEOUT", "1000", "did you mean TUTTI_TIMEOUT_MS?");
	expect_refused("TUTTI_LGO", "info", "did you mean TUTTI_LOG?");
	expect_refused("TUTTI_SECERT", "x", "did you mean TUTTI_SECRET?");
	expect_refused("TUTTI_log", "info", "did you mean TUTTI_LOG?");
	expect_refused("TUTTI_TRANSPORT", "shm", "did you mean TUTTI_TRANSPORTS?");
	expect_refused("TUTTI_COMPLETELY_DIFFERENT", "1", "those are");
	expect_refused("TUTTI_COMPLETELY_DIFFERENT", "1", "WINDOW_BYTES");
	expect_refused("TUTTI_", "1", "TUTTI_");
}

static void a_long_name_does_no_harm(void **state)
{
	char name[5000] = "TUTTI_";

	memset(name + 6, 'X', sizeof name - 7);
	expect_refused(name, "1", "is not a variable");
}

static void other_programs_variables_are_theirs(void **state)
{
	struct env env;

	setenv("TUTTIFRUTTI", "1", 1);
	setenv("TUTTITEST_X", "1", 1);
	setenv("MY_TUTTI_X", "1", 1);
	assert_int_equal(env_load(&env), TUTTI_OK);
	/* Of layers above the library, which read and check their own. */
	setenv("TUTTI_EXT_ANYTHING", "", 1);
	setenv("TUTTI_PY_ANYTHING", "1", 1);
	setenv("TUTTI_TORCH_TIMEOUT_MS", "1", 1);
	if (env_load(&env) != TUTTI_OK)
		fail_msg("%s", last_error());
	unsetenv("TUTTI_EXT_ANYTHING");
	unsetenv("TUTTI_PY_ANYTHING");
	unsetenv("TUTTI_TORCH_TIMEOUT_MS");
	expect_refused("TUTTI_EXT", "1", "TUTTI_EXT is not a variable of Tutti");
	expect_refused("TUTTI_PYTHON", "1", "TUTTI_PYTHON is not a variable of Tutti");
	expect_refused("TUTTI_EXTRA_X", "1", "TUTTI_EXTRA_X is not a variable of Tutti");
}

static void bytes_take_suffixes(void **state)
{
	expect_bytes("65536", 65536);
	expect_bytes("64K", 65536);
	expect_bytes("64k", 65536);
	expect_bytes("3M", 3 << 20);
	expect_bytes("1G", 1 << 30);
	expect_refused("TUTTI_WINDOW_BYTES", "2G", "is out of range");
	expect_refused("TUTTI_WINDOW_BYTES", "63K", "is out of range");
	expect_refused("TUTTI_WINDOW_BYTES", "1GB", "is not a number");
	expect_refused("TUTTI_WINDOW_BYTES", "1T", "is not a number");
	expect_refused("TUTTI_WINDOW_BYTES", "9000000000G", "is out of range");
	expect_refused("TUTTI_WINDOW_BYTES", "99999999999999999999", "is out of range");
	expect_refused("TUTTI_TIMEOUT_MS", "1K", "is not a number");
}

static void what_is_no_number_is_refused(void **state)
{
	static const char *const wrong[] = {"",     " 1",  "1 ", "+1", "abc", "1.5",
					    "0x10", "1e3", "-",  "-K", "1\n"};

	for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
		expect_refused("TUTTI_TIMEOUT_MS", wrong[i], "TUTTI_TIMEOUT_MS=");
	expect_refused("TUTTI_TIMEOUT_MS", "soon",
		       "TUTTI_TIMEOUT_MS=soon is not a number: it is a number of ms from 1 to "
		       "86400000 (default 300000)");
	expect_refused("TUTTI_WINDOW", "yes", "it is 0 or 1");
}

static void choices_are_checked(void **state)
{
	struct env env;

	expect_refused("TUTTI_LOG", "loud", "TUTTI_LOG=loud is not one of off|info|debug");
	expect_refused("TUTTI_LOG", "inf", "is not one of");
	expect_refused("TUTTI_LOG", "off|info", "is not one of");
	assert_int_equal(env_load(&env), TUTTI_OK);
	assert_true(log_at(LOG_NOTICE));
	assert_false(log_at(LOG_INFO));
	setenv("TUTTI_LOG", "info", 1);
	assert_int_equal(env_load(&env), TUTTI_OK);
	assert_string_equal(env.log, "info");
	assert_true(log_at(LOG_INFO));
	assert_false(log_at(LOG_DEBUG));
	setenv("TUTTI_LOG", "debug", 1);
	assert_int_equal(env_load(&env), TUTTI_OK);
	assert_true(log_at(LOG_DEBUG));
	setenv("TUTTI_LOG", "off", 1);
	assert_int_equal(env_load(&env), TUTTI_OK);
	assert_false(log_at(LOG_NOTICE));
}

static void an_empty_secret_is_not_no_secret(void **state)
{
	expect_refused("TUTTI_SECRET", "", "TUTTI_SECRET is set but empty");
	expect_refused("TUTTI_ALGO", "", "TUTTI_ALGO is set but empty");
}

static void secrets_are_not_printed(void **state)
{
	setenv("TUTTI_SECRET", "hunter2", 1);
	expect_refused("TUTTI_SECRTE", "hunter2", "did you mean");
	assert_null(strstr(last_error(), "hunter2"));
	expect_refused("TUTTI_PORT", "x", "TUTTI_PORT");
	assert_null(strstr(last_error(), "hunter2"));
}

static void print_size(FILE *file, int64_t v, bool is_bytes)
{
	static const char *const letters[] = {"", "K", "M", "G"};
	int i = 0;

	while (is_bytes && i < 3 && v >= 1024 && v % 1024 == 0) {
		v /= 1024;
		i++;
	}
	fprintf(file, "%lld%s", (long long)v, letters[i]);
}

static void print_number(FILE *file, const char *unit, int64_t min, int64_t max, int64_t init)
{
	bool is_bytes = strcmp(unit, "bytes") == 0;

	fprintf(file, " [%s, ", unit);
	print_size(file, min, is_bytes);
	fprintf(file, " to ");
	print_size(file, max, is_bytes);
	fprintf(file, ", default ");
	print_size(file, init, is_bytes);
	fprintf(file, "]\n");
}

static void print_table(FILE *file)
{
#define PRINT(field, name, unit, min, max, init, help)                                             \
	fprintf(file, "%-24s %s", name, help);                                                     \
	print_number(file, unit, min, max, init);
	ENV_NUMBERS(PRINT)
#undef PRINT
#define PRINT(field, name, choices, help)                                                          \
	fprintf(file, "%-24s %s", name, help);                                                     \
	fprintf(file, *choices ? " [%s]\n" : "%s\n", choices);
	ENV_TEXTS(PRINT)
#undef PRINT
}

/* docs/environment.md is written by hand around this table, and must hold it as it is. */
static void the_table_is_documented(void **state)
{
	const char *root = getenv("SOURCE_DIR");
	char *table = NULL, path[512], page[16384] = "";
	size_t bytes = 0;
	FILE *file = open_memstream(&table, &bytes);

	print_table(file);
	fclose(file);
	snprintf(path, sizeof path, "%s/docs/environment.md", root ? root : ".");
	file = fopen(path, "r");
	assert_non_null(file);
	page[fread(page, 1, sizeof page - 1, file)] = '\0';
	fclose(file);
	for (char *line = strtok(table, "\n"); line; line = strtok(NULL, "\n"))
		if (!strstr(page, line))
			fail_msg("docs/environment.md lacks this line: %s", line);
	free(table);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup(name, clean)
	const struct CMUnitTest tests[] = {
		TEST(defaults_are_the_tables),
		TEST(every_number_takes_its_limits),
		TEST(a_misspelt_name_gets_a_suggestion),
		TEST(a_long_name_does_no_harm),
		TEST(other_programs_variables_are_theirs),
		TEST(bytes_take_suffixes),
		TEST(what_is_no_number_is_refused),
		TEST(choices_are_checked),
		TEST(an_empty_secret_is_not_no_secret),
		TEST(secrets_are_not_printed),
		TEST(the_table_is_documented),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
