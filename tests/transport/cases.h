/* The suite's test cases, by file. */
#ifndef TESTS_TRANSPORT_CASES_H
#define TESTS_TRANSPORT_CASES_H

/* messages.c: what is sent arrives, in order, whatever its size */
void test_order_and_sizes(void **state);
void test_empty_messages(void **state);
void test_unaligned(void **state);
void test_small_messages(void **state);
void test_huge_exchange(void **state);
void test_sends_before_recvs(void **state);
void test_recvs_before_sends(void **state);
void test_many_peers(void **state);
void test_change_of_habit(void **state);
void test_channels(void **state);
void test_channels_unopened(void **state);
void test_both_connect(void **state);
void test_communicators(void **state);
void test_early_connect(void **state);

/* opening.c: what open and reach do where a transport cannot work */
void test_few_descriptors(void **state);
void test_reach(void **state);

/* pieces.c: messages whose bytes lie in many places */
void test_pieces_random(void **state);
void test_pieces_of_one_byte(void **state);
void test_pieces_huge(void **state);
void test_pieces_mismatch(void **state);

/* endings.c: mismatch, close, peers that go away or never come */
void test_mismatch_bytes(void **state);
void test_mismatch_tag(void **state);
void test_close_forgets(void **state);
void test_close_delivers(void **state);
void test_last_notice(void **state);
void test_close_ends_peer(void **state);
void test_close_ends_many(void **state);
void test_closed_early(void **state);
void test_post_on_failed(void **state);
void test_unused_endpoints(void **state);
void test_never_connected(void **state);
void test_left_before_connect(void **state);
void test_stopped(void **state);
void test_gone_before_connect(void **state);
void test_killed_in_world(void **state);

/* sleeping.c: event_fd and arm; several threads */
void test_idle_uses_no_cpu(void **state);
void test_wakes_for_message(void **state);
void test_threads_never_miss(void **state);

/* processes.c: ranks in processes of their own */
void test_processes_exchange(void **state);
void test_process_killed(void **state);
void test_killed_leave_nothing(void **state);
void test_process_leaves(void **state);

#endif
