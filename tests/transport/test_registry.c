/* Would break: choosing transports by name, and loading one from a shared object. */
#include "transport/registry.h"

#include "core/status.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit.h"
#undef fail

static const struct tutti_transport *list[TRANSPORTS_MAX];
static int count;

static bool is_listed(const char *name)
{
	for (int i = 0; i < count; i++)
		if (strcmp(list[i]->name, name) == 0)
			return true;
	return false;
}

static void expect_ok(const char *filter, const char *plugin)
{
	struct env env = {.transport_plugin = plugin};
	tutti_status status = transport_list(list, &count, filter, &env);

	if (status != TUTTI_OK)
		print_error("%s\n", last_error());
	assert_int_equal(status, TUTTI_OK);
	assert_in_range(count, 1, TRANSPORTS_MAX);
}

/* INVALID, and the message has this in it. */
static void expect_invalid(const char *filter, const char *plugin, const char *text)
{
	struct env env = {.transport_plugin = plugin};

	count = -7;
	assert_int_equal(transport_list(list, &count, filter, &env), TUTTI_ERR_INVALID);
	assert_int_equal(count, -7);
	if (!strstr(last_error(), text))
		print_error("no \"%s\" in \"%s\"\n", text, last_error());
	assert_non_null(strstr(last_error(), text));
}

static void expect_bad_plugin(const char *how, const char *text)
{
	char path[1024];
	const char *build = getenv("BUILD_DIR");

	assert_non_null(build); /* ctest sets it */
	snprintf(path, sizeof path, "%s/tests/bad_plugin.so", build);
	setenv("BAD_PLUGIN", how, 1);
	expect_invalid(NULL, path, text);
}

static void test_all(void **state)
{
	expect_ok(NULL, NULL);
	assert_true(is_listed("tcp"));
	assert_ptr_equal(list[count - 1], &transport_tcp); /* the best come first */
	assert_false(is_listed("sim"));
	for (int i = 0; i < count; i++)
		assert_int_equal(list[i]->abi, TUTTI_TRANSPORT_ABI);
}

static void test_filter(void **state)
{
	int all;

	expect_ok(NULL, NULL);
	all = count;
	expect_ok("tcp", NULL);
	assert_int_equal(count, 1);
	assert_ptr_equal(list[0], &transport_tcp);
	expect_ok(" tcp , tcp", NULL);
	assert_int_equal(count, 1);
	expect_ok("", NULL);
	assert_int_equal(count, all);
	if (all > 1) {
		expect_ok("^tcp", NULL);
		assert_int_equal(count, all - 1);
		assert_false(is_listed("tcp"));
	} else {
		expect_invalid("^tcp", NULL, "leaves no transport");
	}
}

static void test_bad_filters(void **state)
{
	expect_invalid("tpc", NULL, "did you mean tcp?");
	expect_invalid("tcpp", NULL, "did you mean tcp?");
	expect_invalid("tcp,tp", NULL, "did you mean tcp?");
	expect_invalid("^tcx", NULL, "did you mean tcp?");
	expect_invalid("infiniband", NULL, "\"infiniband\"");
	expect_invalid("infiniband", NULL, "tcp");
	expect_invalid("^", NULL, "there is no transport \"\"");
	expect_invalid("tcp,", NULL, "there is no transport \"\"");
	expect_invalid("sim", NULL, "\"sim\"");
}

static void test_bad_plugins(void **state)
{
	expect_invalid(NULL, "/nowhere/at/all.so", "/nowhere/at/all.so");
	expect_invalid(NULL, "libc.so.6", "tutti_transport_plugin");
	expect_bad_plugin("null", "version 0");
	expect_bad_plugin("old", "version 99");
	expect_bad_plugin("twin", "calls itself tcp");
	expect_bad_plugin("nameless", "leaves out");
	expect_bad_plugin("armless", "leaves out");
}

static void test_abilities(void **state)
{
	expect_ok(NULL, NULL);
	assert_ptr_equal(transport_widest(list, count), &transport_tcp);
	assert_true(transport_shares_memory(list, count));
	expect_ok("shm", NULL);
	assert_ptr_equal(transport_widest(list, count), &transport_shm);
	assert_true(transport_shares_memory(list, count));
	expect_ok("tcp", NULL);
	assert_false(transport_shares_memory(list, count));
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_all),         cmocka_unit_test(test_filter),
		cmocka_unit_test(test_abilities),   cmocka_unit_test(test_bad_filters),
		cmocka_unit_test(test_bad_plugins),
	};

	return cmocka_run_group_tests_name("registry", tests, NULL, NULL);
}
