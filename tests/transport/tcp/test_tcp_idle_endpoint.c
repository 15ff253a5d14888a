/* Would break: that an endpoint whose rank is in no call gives its peers what a broken connection
 * took, and wakes no thread while nothing is broken. In a network of its own. */
#include "tests/transport/network.h"
#include "tests/transport/world.h"
#include "tests/openssl.h"

#include "core/clock.h"
#include "transport/registry.h"
#include "transport/tcp/conn.h"

#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* More than the receiver's kernel takes of one who does not read, less than both kernels take. */
enum { N = 4, BYTES = 150000 };

static uint8_t out[N][BYTES], in[N][BYTES];

static struct tcp_conn *conn_at(struct world *w, int rank)
{
	return (struct tcp_conn *)w->conns[rank][1 - rank][0];
}

static bool is_up(struct world *w)
{
	return conn_at(w, 0)->state == CONN_UP && conn_at(w, 1)->state == CONN_UP;
}

/* Serves rank's endpoint like a thread that sleeps on the descriptor of transport->mend. False:
 * nothing woke it. */
static bool resend_idle(struct world *w, int rank, int ms)
{
	struct pollfd pollfd = {.fd = -1, .events = POLLIN};

	if (subject->transport->mend(w->endpoints[rank], &pollfd.fd))
		return true;
	assert_true(pollfd.fd >= 0);
	return poll(&pollfd, 1, ms) > 0;
}

static void open_pair(struct world *w)
{
	world_open(w, 2);
	world_pair(w, 0, 1, 0);
	while (!is_up(w))
		world_pump(w);
	for (int r = 0; r < 2; r++)
		while (resend_idle(w, r, 0))
			;
}

/* All of it is the kernel's business, and the receiver has not looked. */
static void send_all(struct world *w, struct post sends[N])
{
	for (uint64_t i = 0; i < N; i++) {
		bytes_fill(out[i], BYTES, i);
		post_send(&sends[i], w->conns[0][1][0], out[i], BYTES, 1);
	}
	for (int pass = 0; pass < 100000 && !sends[N - 1].is_done; pass++)
		world_pump_only(w, 0, 1);
	assert_true(sends[N - 1].is_done);
	memset(out, 0xa5, sizeof out);
	assert_true(subject->transport->in_doubt(w->endpoints[0]));
}

static bool are_done(const struct post posts[N])
{
	return posts[N - 1].is_done;
}

/* Rank 0 is in no call from here on. */
static void receive_all(struct world *w)
{
	uint64_t deadline = deadline_after_ms(WORLD_TIMEOUT_MS);
	struct post recvs[N];

	for (int i = 0; i < N; i++)
		post_recv(&recvs[i], w->conns[1][0][0], in[i], BYTES, 1);
	while (!are_done(recvs)) {
		resend_idle(w, 0, 1);
		world_pump_only(w, 1, 1);
		if (clock_now_ns() > deadline)
			fail_msg("the receiver waits for what its peer has to send again");
	}
	world_expect_ok(w, recvs, N);
	for (uint64_t i = 0; i < N; i++)
		expect_bytes(in[i], BYTES, i);
}

static void expect_no_doubt(struct world *w, int rank)
{
	uint64_t deadline = deadline_after_ms(WORLD_TIMEOUT_MS);

	while (subject->transport->in_doubt(w->endpoints[rank])) {
		resend_idle(w, rank, 1);
		resend_idle(w, 1 - rank, 0);
		if (clock_now_ns() > deadline)
			fail_msg("rank %d never learns that all of it has arrived", rank);
	}
}

static void test_sent_again(void **state)
{
	for (int round = 0; round < 10; round++) {
		struct post sends[N];
		struct world w;
		open_pair(&w);
		send_all(&w, sends);
		assert_true(network_reset(conn_at(&w, round % 2)->watch.fd));
		assert_true(resend_idle(&w, 0, WORLD_TIMEOUT_MS));
		receive_all(&w);
		expect_no_doubt(&w, 0);
		world_close(&w);
	}
}

/* And when it breaks again and again while it is repaired. */
static void test_many_resets(void **state)
{
	uint64_t random = test_seed, deadline = deadline_after_ms(WORLD_TIMEOUT_MS);
	struct post sends[N], recvs[N];
	struct world w;

	open_pair(&w);
	send_all(&w, sends);
	for (int i = 0; i < N; i++)
		post_recv(&recvs[i], w.conns[1][0][0], in[i], BYTES, 1);
	for (int pass = 0; !are_done(recvs); pass++) {
		int fd = conn_at(&w, pass % 2)->watch.fd;
		if (fd >= 0 && random_below(&random, 20) == 0 && pass < 4000)
			network_reset(fd);
		resend_idle(&w, 0, 0);
		if (random_below(&random, 3) == 0)
			world_pump_only(&w, 1, 1);
		if (clock_now_ns() > deadline)
			fail_msg("it never ends; seed %llu", (unsigned long long)test_seed);
	}
	world_expect_ok(&w, recvs, N);
	for (uint64_t i = 0; i < N; i++)
		expect_bytes(in[i], BYTES, i);
	world_close(&w);
}

/* Neither end is in a call: nothing is read, and yet both learn that nothing is lost. */
static void test_both_idle(void **state)
{
	uint64_t word = 7, got = 0;
	struct post send, recv;
	struct world w;

	open_pair(&w);
	post_send(&send, w.conns[0][1][0], &word, sizeof word, 1);
	world_pump_only(&w, 0, 5);
	assert_true(network_reset(conn_at(&w, 0)->watch.fd));
	assert_true(resend_idle(&w, 0, WORLD_TIMEOUT_MS));
	assert_true(subject->transport->in_doubt(w.endpoints[0]));
	expect_no_doubt(&w, 0);
	expect_no_doubt(&w, 1);
	assert_true(is_up(&w));
	post_recv(&recv, w.conns[1][0][0], &got, sizeof got, 1);
	world_expect_ok(&w, &recv, 1);
	assert_int_equal(got, 7);
	world_close(&w);
}

/* Messages come and go, and the thread that resends sleeps on. */
static void test_nobody_is_woken(void **state)
{
	struct pollfd alarms[2];
	struct world w;

	open_pair(&w);
	for (int r = 0; r < 2; r++) {
		alarms[r] = (struct pollfd){.events = POLLIN};
		assert_false(subject->transport->mend(w.endpoints[r], &alarms[r].fd));
	}
	for (uint64_t i = 0; i < 500; i++) {
		struct post send, recv;
		uint64_t got = 0;
		int from = (int)(i % 2);
		post_send(&send, w.conns[from][1 - from][0], &i, sizeof i, 1);
		world_pump_only(&w, from, 3);
		assert_int_equal(poll(alarms, 2, 0), 0);
		post_recv(&recv, w.conns[1 - from][from][0], &got, sizeof got, 1);
		world_expect_ok(&w, &recv, 1);
		assert_true(got == i);
		assert_int_equal(poll(alarms, 2, 0), 0);
	}
	/* By now they are looked at without epoll, and still somebody hears of their end. */
	assert_false(conn_at(&w, 0)->is_watched);
	assert_true(network_reset(conn_at(&w, 1)->watch.fd));
	for (int r = 0; r < 2; r++)
		assert_true(resend_idle(&w, r, WORLD_TIMEOUT_MS));
	world_close(&w);
}

/* A rank that has closed its end wants nothing more: no doubt is left, whatever became of the
 * bytes. */
static void test_peer_has_closed(void **state)
{
	for (int breaks = 0; breaks < 2; breaks++) {
		struct post sends[N];
		struct world w;
		open_pair(&w);
		send_all(&w, sends);
		if (breaks)
			assert_true(network_reset(conn_at(&w, 0)->watch.fd));
		world_hang_up(&w, 1, 0, 0);
		expect_no_doubt(&w, 0);
		world_close(&w);
	}
}

/* What the kernel does with the sockets of a process that was killed. */
static void kill_rank(struct world *w, int rank)
{
	int nothing = open("/dev/null", O_RDONLY | O_CLOEXEC);

	assert_true(nothing >= 0);
	assert_true(dup2(nothing, ((struct tcp_endpoint *)w->endpoints[rank])->listener.fd) >= 0);
	assert_true(dup2(nothing, conn_at(w, rank)->watch.fd) >= 0);
	close(nothing);
}

/* Bytes are on their way to a process that has been killed, or come after its end: it has them not,
 * and will not have them, and nobody waits for that. */
static void test_peer_was_killed(void **state)
{
	for (int is_late = 0; is_late < 2; is_late++) {
		uint64_t deadline = deadline_after_ms(WORLD_TIMEOUT_MS);
		struct post sends[N];
		struct world w;
		open_pair(&w);
		if (is_late) {
			kill_rank(&w, 1);
			post_send(&sends[0], w.conns[0][1][0], out, 1, 1);
			world_pump_only(&w, 0, 1);
			assert_true(sends[0].is_done);
		} else {
			send_all(&w, sends);
			kill_rank(&w, 1);
		}
		while (subject->transport->in_doubt(w.endpoints[0])) {
			resend_idle(&w, 0, 1);
			if (clock_now_ns() > deadline)
				fail_msg("it waits for the dead");
		}
		world_close(&w);
	}
}

/* --tls: with TLS. */
int main(int argc, char **argv)
{
	static struct conformance tcp = {.transport = &transport_tcp, .reconnect = 2};
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_sent_again),      cmocka_unit_test(test_many_resets),
		cmocka_unit_test(test_both_idle),       cmocka_unit_test(test_nobody_is_woken),
		cmocka_unit_test(test_peer_has_closed), cmocka_unit_test(test_peer_was_killed),
	};
	const char *seed = getenv("TEST_SEED");

	tcp.has_tls = argc > 1 && strcmp(argv[1], "--tls") == 0;
	if (!network_enter() || (tcp.has_tls && !openssl_is_here()))
		return 77;
	subject = &tcp;
	test_seed = seed ? strtoull(seed, NULL, 0) : clock_now_ns();
	printf("TEST_SEED=%llu\n", (unsigned long long)test_seed);
	return cmocka_run_group_tests_name("tcp_idle_endpoint", tests, NULL, NULL);
}
