/* Breaks when a setting that cannot mean anything is passed over in silence, in a world of one as
 * well. */
#include "collectives/select/select.h"
#include "core/status.h"
#include "core/memory/reduce.h"
#include "core/simd.h"
#include "transport/registry.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit.h"

static void expect_message(const char *says)
{
	if (!strstr(tutti_comm_error(NULL), says))
		fail_msg("\"%s\" does not say \"%s\"", tutti_comm_error(NULL), says);
}

static void algorithms_are_read(void **state)
{
	struct select s = {0};

	assert_int_equal(select_parse(&s, "all_reduce:64K-1M=ring,broadcast=direct"), TUTTI_OK);
	assert_int_equal(s.rules, 2);
	assert_int_equal(s.rule[0].first, 64 << 10);
	assert_int_equal(s.rule[0].last, 1 << 20);
	assert_string_equal(s.rule[0].algorithm->name, "ring");
	assert_int_equal(s.rule[1].collective, COLL_BROADCAST);
	assert_int_equal(s.rule[1].last, SIZE_MAX);
}

static void other_algorithms_are_refused(void **state)
{
	static const char *const wrong[] = {"ring",
					    "all_reduce",
					    "all_reduce=",
					    "=ring",
					    "all_redcue=ring",
					    "all_reduce=ring,",
					    "all_reduce=ring;broadcast=ring",
					    "all_reduce=ring:3",
					    "all_reduce=ring:64K-1M",
					    "all_reduce:8=ring:4",
					    "all_reduce:1M-64K=ring",
					    "all_reduce:-=ring",
					    "all_reduce:x=ring",
					    "all_reduce:1T=ring",
					    "barrier=ring"};
	struct select s;

	for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
		last_error_clear();
		if (select_parse(&s, wrong[i]) != TUTTI_ERR_INVALID)
			fail_msg("TUTTI_ALGO=%s was taken", wrong[i]);
		expect_message("TUTTI_ALGO: ");
	}
}

/* A world of one uses neither, and says all the same what is wrong. */
static void refused_alone(const char *name, const char *value, const char *says)
{
	tutti_comm *comm = NULL;

	setenv(name, value, 1);
	if (tutti_init(&comm, NULL) != TUTTI_ERR_INVALID)
		fail_msg("%s=%s was taken", name, value);
	unsetenv(name);
	assert_null(comm);
	expect_message(says);
}

/* "^" and the names of all transports. */
static const char *all_left_out(char *text, size_t bytes)
{
	const struct tutti_transport *list[TRANSPORTS_MAX];
	int count;

	assert_int_equal(transport_list(list, &count, NULL, NULL), TUTTI_OK);
	text[0] = '^';
	transport_names(list, count, text + 1, bytes - 1);
	return text;
}

static void one_rank_alone_looks_at_its_settings(void **state)
{
	char text[200];

	refused_alone("TUTTI_ALGO", "all_reduce=oak", "names no algorithm of all_reduce");
	refused_alone("TUTTI_TRANSPORTS", "shm,tpc", "there is no transport \"tpc\"");
	refused_alone("TUTTI_TRANSPORTS", all_left_out(text, sizeof text), "leaves no transport");
	refused_alone("TUTTI_TRANSPORT_PLUGIN", "/there/is/no/such.so", "/there/is/no/such.so");
}

/* Those of the list are taken, and used; the others are refused, and nothing changes. */
static void instructions_are_chosen_by_name(void **state)
{
	static const char *const names[] = {"base", "avx2", "avx512", "avx512_bf16", "avx512_fp16"};
	int taken = 0;
	tutti_comm *comm;

	refused_alone("TUTTI_SIMD", "avx3", "TUTTI_SIMD=avx3 is not one of base|avx2|");
	for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
		enum simd_level before = simd_level();

		setenv("TUTTI_SIMD", names[i], 1);
		if (tutti_init_all(&comm, 1, NULL) == TUTTI_OK) {
			tutti_comm_destroy(comm);
			assert_string_equal(simd_name(simd_level()), names[i]);
			taken++;
		} else {
			expect_message("this CPU");
			assert_int_equal(simd_level(), before);
		}
	}
	assert_int_equal(taken, simd_highest() + 1);
	unsetenv("TUTTI_SIMD");
	assert_int_equal(tutti_init_all(&comm, 1, NULL), TUTTI_OK);
	tutti_comm_destroy(comm);
	assert_int_equal(simd_level(), simd_highest());
	assert_int_equal(simd_use("avx512_fp32"), TUTTI_ERR_INVALID);
	expect_message("there are base");
}

static void refused_config(tutti_config config, const char *says)
{
	tutti_comm *comms[2] = {NULL, NULL};

	assert_int_equal(tutti_init(comms, &config), TUTTI_ERR_INVALID);
	expect_message(says);
	assert_int_equal(tutti_init_all(comms, 2, &config), TUTTI_ERR_INVALID);
	expect_message(says);
	assert_null(comms[0]);
}

static void configs_are_checked(void **state)
{
	tutti_config config = {.transports = "shm,tpc"};

	refused_config(config, "there is no transport \"tpc\"");
	refused_config((tutti_config){.timeout_ms = -1}, "timeout_ms is -1");
	refused_config((tutti_config){.deterministic = 2}, "deterministic is 2");
	for (int i = 0; i < 6; i++) {
		config = (tutti_config){0};
		config.reserved[i] = 1;
		refused_config(config, "config.reserved is not zero");
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(algorithms_are_read),
		cmocka_unit_test(other_algorithms_are_refused),
		cmocka_unit_test(one_rank_alone_looks_at_its_settings),
		cmocka_unit_test(instructions_are_chosen_by_name),
		cmocka_unit_test(configs_are_checked),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
