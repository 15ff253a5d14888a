/* Would break: an endpoint that is not used takes more than its listener, or one that gets no
 * further descriptor waits for ever. */
#include "tests/transport/hand.h"

#include "core/clock.h"
#include "tests/entries.h"

#include <poll.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

static struct tcp_endpoint *endpoint_of(struct world *w, int rank)
{
	return (struct tcp_endpoint *)w->endpoints[rank];
}

static struct rlimit whole;

/* Until give_back. */
static void take_all(void)
{
	int lowest = dup(STDERR_FILENO);
	struct rlimit none;

	assert_true(lowest >= 0);
	close(lowest);
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &whole), 0);
	none = (struct rlimit){(rlim_t)lowest, whole.rlim_max};
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
}

static void give_back(void)
{
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &whole), 0);
}

static void test_as_few_as_needed(void **state)
{
	enum { PEERS = 2 };
	int before = open_descriptors();
	uint64_t deadline = deadline_after_ms(WORLD_TIMEOUT_MS);
	struct world w;

	world_open(&w, PEERS);
	assert_int_equal(open_descriptors() - before, PEERS);
	world_pump_for(&w, 100);
	assert_int_equal(open_descriptors() - before, PEERS);
	hand_expect_talk(&w);
	while (endpoint_of(&w, 0)->is_ticking || endpoint_of(&w, 1)->is_ticking) {
		world_pump(&w);
		assert_true(clock_now_ns() < deadline);
	}
	/* Of each: listener, epoll and connection. */
	assert_int_equal(open_descriptors() - before, 3 * PEERS);
	world_close(&w);
	assert_int_equal(open_descriptors() - before, 0);
}

/* A rank that is in no call, where no connection is ever made again. */
static void test_callers_wake_it(void **state)
{
	uint8_t proof[AUTH_PROOF_BYTES];
	struct pollfd callers = {.fd = -1, .events = POLLIN};
	int before = open_descriptors(), fd;
	struct world w;

	world_open(&w, 2);
	endpoint_of(&w, 0)->reconnect = 1;
	assert_int_equal(subject->transport->mend(w.endpoints[0], &callers.fd), 0);
	assert_int_equal(open_descriptors() - before, 2);
	assert_int_equal(poll(&callers, 1, 0), 0);
	fd = hand_dial(&w, 0);
	assert_int_equal(poll(&callers, 1, WORLD_TIMEOUT_MS), 1);
	subject->transport->mend(w.endpoints[0], &callers.fd);
	assert_int_equal(endpoint_of(&w, 0)->pending.count, 1);
	assert_true(hand_greet(&w, fd, 1, 0, 0, proof));
	close(fd);
	world_close(&w);
}

/* Sleeps as a rank in a call does. */
static void sleep_until_done(struct world *w, const struct post *post)
{
	uint64_t deadline = deadline_after_ms(WORLD_TIMEOUT_MS);
	struct tutti_endpoint *ep = w->endpoints[0];

	while (!post->is_done && clock_now_ns() < deadline) {
		struct pollfd pollfd = {.events = POLLIN};
		if (!subject->transport->arm(ep)) {
			pollfd.fd = subject->transport->event_fd(ep);
			poll(&pollfd, 1, deadline_poll_ms(deadline, WORLD_TIMEOUT_MS));
		}
		world_pump_only(w, 0, 1);
	}
	assert_true(post->is_done);
}

static void test_none_to_connect(void **state)
{
	struct post recv;
	uint64_t word = 0;
	struct world w;

	for (int has_epoll = 0; has_epoll < 2; has_epoll++) {
		world_open(&w, 2);
		if (has_epoll)
			assert_true(subject->transport->event_fd(w.endpoints[0]) >= 0);
		take_all();
		post_recv(&recv, world_conn(&w, 0, 1, 0), &word, sizeof word, 1);
		sleep_until_done(&w, &recv);
		give_back();
		assert_int_equal(recv.io.status, TUTTI_ERR_SYSTEM);
		assert_non_null(strstr(w.conns[0][1][0]->error, "rank 0 cannot connect to rank 1"));
		assert_non_null(strstr(w.conns[0][1][0]->error, "Too many open files"));
		world_close(&w);
	}
}

/* One descriptor, which the epoll would need that watches what was accepted. */
static void test_none_to_accept(void **state)
{
	uint8_t proof[AUTH_PROOF_BYTES];
	struct world w;
	int fd;

	world_open(&w, 2);
	fd = hand_dial(&w, 0);
	take_all();
	assert_int_equal(subject->transport->event_fd(w.endpoints[0]), -1);
	assert_non_null(strstr(last_error(), "rank 0 cannot watch its tcp sockets"));
	world_pump_for(&w, 20);
	assert_int_equal(endpoint_of(&w, 0)->pending.count, 0);
	assert_int_equal(subject->transport->arm(w.endpoints[0]), 1);
	give_back();
	assert_true(hand_greet(&w, fd, 1, 0, 0, proof));
	close(fd);
	world_close(&w);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_as_few_as_needed),
		cmocka_unit_test(test_callers_wake_it),
		cmocka_unit_test(test_none_to_connect),
		cmocka_unit_test(test_none_to_accept),
	};

	hand_setup();
	return cmocka_run_group_tests_name("tcp_descriptors", tests, NULL, NULL);
}
