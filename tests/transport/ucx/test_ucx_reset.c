/* no_tsan: libucp is not instrumented, and its own thread shares memory with ours */
/* Would break: the connection of UCX is reset while a message is on its way whose send is done: the
 * receiver waits for it for ever, or as long as the sender is in no call. Or a rank closes its end
 * while the two connect, and UCX ends the other's process. */
#include "tests/transport/world.h"

#include "transport/registry.h"
#include "transport/tcp/conn.h"
#include "transport/ucx/ucx.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#define FDS    1024
#define PASSES 100000

static const struct conformance ucx = {.transport = &transport_ucx, .is_one_process = true};
static struct world w;

static bool is_of_oob(int fd)
{
	for (int rank = 0; rank < 2; rank++) {
		const struct ucx_conn *conn = (const struct ucx_conn *)w.conns[rank][1 - rank][0];
		if (fd == ((const struct tcp_conn *)conn->oob.tcp)->watch.fd)
			return true;
	}
	return false;
}

/* Of each connection that UCX has, the end with the lower or the higher port. Returns how many. */
static int reset_some(bool is_higher)
{
	const struct sockaddr none = {.sa_family = AF_UNSPEC};
	int count = 0;

	for (int fd = 0; fd < FDS; fd++) {
		struct sockaddr_in own, peer;
		socklen_t bytes = sizeof own, peer_bytes = sizeof peer;
		if (getsockname(fd, (struct sockaddr *)&own, &bytes) != 0 ||
		    own.sin_family != AF_INET ||
		    getpeername(fd, (struct sockaddr *)&peer, &peer_bytes) != 0 || is_of_oob(fd) ||
		    (ntohs(own.sin_port) > ntohs(peer.sin_port)) != is_higher)
			continue;
		assert_int_equal(connect(fd, &none, sizeof none), 0);
		count++;
	}
	return count;
}

/* The sender is in no call meanwhile. */
static void finish_between_calls(int sender, const struct post *recv)
{
	for (int i = 0; i < PASSES && !recv->is_done; i++) {
		int fd;
		transport_ucx.mend(w.endpoints[sender], &fd);
		world_pump_only(&w, 1 - sender, 1);
	}
	assert_true(recv->is_done);
}

static void test_reset(void **state)
{
	uint64_t out = 7, in = 0;
	struct post send, recv;

	for (int round = 0; round < 4; round++) {
		world_open(&w, 2);
		for (int rank = 0; rank < 2; rank++) {
			post_recv(&recv, world_conn(&w, rank, 1 - rank, 0), &in, sizeof in, 1);
			post_send(&send, world_conn(&w, 1 - rank, rank, 0), &out, sizeof out, 1);
			world_expect_ok(&w, &recv, 1);
			world_expect_ok(&w, &send, 1);
		}
		int sender = round / 2;
		post_send(&send, w.conns[sender][1 - sender][0], &out, sizeof out, 1);
		for (int i = 0; i < PASSES && !send.is_done; i++)
			world_pump_only(&w, sender, 1);
		assert_true(send.is_done && send.io.status == TUTTI_OK);
		assert_true(reset_some(round % 2) > 0);
		for (int i = 0; i < 2; i++) { /* the message may have come before */
			post_recv(&recv, w.conns[1 - sender][sender][0], &in, sizeof in, 1);
			finish_between_calls(sender, &recv);
		}
		assert_int_equal(recv.io.status, TUTTI_ERR_PEER);
		world_close(&w);
	}
}

/* Rank 0 closes its end after 0, 1, 2, ... passes. Rank 1 gets an error that names rank 0, and rank
 * 0 keeps its connection while the handshake of UCX is under way. */
static void test_closed_while_connecting(void **state)
{
	enum { MOST = 40 };
	int connecting = 0;

	for (int passes = 0; passes < MOST; passes++) {
		world_open(&w, 2);
		world_pair(&w, 0, 1, 0);
		const struct ucx_conn *conn = (const struct ucx_conn *)w.conns[1][0][0];
		uint64_t in = 0;
		struct post recv;
		post_recv(&recv, w.conns[1][0][0], &in, sizeof in, 1);
		for (int i = 0; i < passes; i++) {
			world_pump_only(&w, i % 2, 1);
			sched_yield();
		}
		bool is_connecting = conn->oob.has_greeted &&
				     ((const struct ucx_conn *)w.conns[0][1][0])->state < UCX_OPEN;
		connecting += is_connecting;
		world_hang_up(&w, 0, 1, 0);
		if (is_connecting)
			assert_non_null(((const struct ucx_endpoint *)w.endpoints[0])->conns);
		world_finish(&w, &recv, 1);
		assert_int_equal(recv.io.status, TUTTI_ERR_PEER);
		assert_non_null(strstr(conn->base.error, "rank 0"));
		world_close(&w);
	}
	assert_true(connecting > 0);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {cmocka_unit_test(test_reset),
						  cmocka_unit_test(test_closed_while_connecting)};

	const struct ucx_library *library;

	setenv("UCX_TLS", "tcp,self", 1);
	if (ucx_library(&library) != TUTTI_OK) {
		printf("%s\n", last_error());
		return 77;
	}
	subject = &ucx;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
