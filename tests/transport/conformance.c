/* The list of the suite's cases. */
#include "tests/transport/conformance.h"
#include "tests/transport/cases.h"
#include "tests/transport/world.h"

#include "core/clock.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

const struct conformance *subject;
uint64_t test_seed;

static const struct CMUnitTest everywhere[] = {
	cmocka_unit_test(test_order_and_sizes),     cmocka_unit_test(test_empty_messages),
	cmocka_unit_test(test_unaligned),           cmocka_unit_test(test_small_messages),
	cmocka_unit_test(test_huge_exchange),       cmocka_unit_test(test_sends_before_recvs),
	cmocka_unit_test(test_recvs_before_sends),  cmocka_unit_test(test_many_peers),
	cmocka_unit_test(test_change_of_habit),     cmocka_unit_test(test_channels),
	cmocka_unit_test(test_communicators),       cmocka_unit_test(test_early_connect),
	cmocka_unit_test(test_pieces_random),       cmocka_unit_test(test_pieces_of_one_byte),
	cmocka_unit_test(test_pieces_huge),         cmocka_unit_test(test_pieces_mismatch),
	cmocka_unit_test(test_mismatch_bytes),      cmocka_unit_test(test_mismatch_tag),
	cmocka_unit_test(test_close_forgets),       cmocka_unit_test(test_close_delivers),
	cmocka_unit_test(test_close_ends_peer),     cmocka_unit_test(test_close_ends_many),
	cmocka_unit_test(test_closed_early),        cmocka_unit_test(test_post_on_failed),
	cmocka_unit_test(test_unused_endpoints),    cmocka_unit_test(test_channels_unopened),
	cmocka_unit_test(test_both_connect),        cmocka_unit_test(test_never_connected),
	cmocka_unit_test(test_left_before_connect), cmocka_unit_test(test_last_notice),
};

static const struct CMUnitTest real[] = {
	cmocka_unit_test(test_few_descriptors),
	cmocka_unit_test(test_reach),
	cmocka_unit_test(test_gone_before_connect),
	cmocka_unit_test(test_threads_never_miss),
};

static const struct CMUnitTest sleeping[] = {
	cmocka_unit_test(test_idle_uses_no_cpu),
	cmocka_unit_test(test_wakes_for_message),
};

static const struct CMUnitTest processes[] = {
	cmocka_unit_test(test_stopped),        cmocka_unit_test(test_processes_exchange),
	cmocka_unit_test(test_process_killed), cmocka_unit_test(test_killed_leave_nothing),
	cmocka_unit_test(test_process_leaves),
};

static const struct CMUnitTest simulated[] = {
	cmocka_unit_test(test_killed_in_world),
};

int conformance_main(const struct conformance *tested)
{
	const char *seed = getenv("TEST_SEED");
	int failed;

	subject = tested;
	test_seed = seed ? strtoull(seed, NULL, 0) : clock_now_ns() ^ (unsigned)getpid();
	printf("%s: TEST_SEED=%llu\n", subject->transport->name, (unsigned long long)test_seed);
	failed = cmocka_run_group_tests_name("everywhere", everywhere, NULL, NULL);
	if (subject->world_create)
		return failed + cmocka_run_group_tests_name("simulated", simulated, NULL, NULL);
	failed += cmocka_run_group_tests_name("real", real, NULL, NULL);
	if (subject->transport->event_fd)
		failed += cmocka_run_group_tests_name("sleeping", sleeping, NULL, NULL);
	if (subject->is_one_process)
		printf("%s: %zu cases are left out, since they need processes\n",
		       subject->transport->name, sizeof processes / sizeof *processes);
	else
		failed += cmocka_run_group_tests_name("processes", processes, NULL, NULL);
	return failed;
}
