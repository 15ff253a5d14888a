/* Would break: which socket of a connection is believed, and that both streams go on at the byte at
 * which the last socket left them. The other end is made by hand. */
#include "tests/limit.h"
#include "tests/transport/hand.h"

#include "transport/registry.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static struct tcp_conn *conn_of(struct world *w)
{
	return (struct tcp_conn *)w->conns[0][1][0];
}

/* Rank 0 of a world of two, and a socket that is its rank 1. */
static int hand_peer(struct world *w, uint32_t epoch)
{
	uint64_t has = 1;
	int fd;

	world_open(w, 2);
	world_conn(w, 0, 1, 0);
	fd = hand_dial(w, 0);
	assert_true(hand_resume(w, fd, 1, 0, 0, epoch, 0, &has));
	assert_int_equal(has, 0);
	while (conn_of(w)->state != CONN_UP)
		world_pump(w);
	return fd;
}

/* Both streams are cut at this byte, and the old socket is open when the new one comes. */
static void expect_to_go_on(size_t cut)
{
	enum { BYTES = 300, STREAM = TCP_HEADER_BYTES + BYTES };
	uint8_t stream[STREAM], got[STREAM], out[BYTES], in[BYTES];
	struct post send, recv;
	uint64_t has = 0;
	struct world w;
	int first = hand_peer(&w, 0), second;

	bytes_fill(out, BYTES, cut);
	hand_header(stream, BYTES, 1, 0);
	bytes_fill(stream + TCP_HEADER_BYTES, BYTES, cut + 1);
	post_send(&send, w.conns[0][1][0], out, BYTES, 1);
	world_expect_ok(&w, &send, 1);
	memset(out, 0, BYTES);
	assert_true(hand_read(&w, first, got, cut));
	/* What is not posted for when the socket goes lies in the kernel till then. */
	if (cut % 2)
		post_recv(&recv, w.conns[0][1][0], in, BYTES, 1);
	hand_write(first, stream, cut);
	world_pump_for(&w, 5);
	second = hand_dial(&w, 0);
	assert_true(hand_resume(&w, second, 1, 0, 0, 1, cut, &has));
	assert_int_equal(has, cut);
	if (cut % 2 == 0)
		post_recv(&recv, w.conns[0][1][0], in, BYTES, 1);
	hand_write(second, stream + cut, STREAM - cut);
	world_expect_ok(&w, &recv, 1);
	expect_bytes(in, BYTES, cut + 1);
	assert_true(hand_read(&w, second, got + cut, STREAM - cut));
	expect_bytes(got + TCP_HEADER_BYTES, BYTES, cut);
	close(first);
	close(second);
	world_close(&w);
}

static void test_every_cut(void **state)
{
	for (size_t cut = 0; cut <= TCP_HEADER_BYTES + 2; cut++)
		expect_to_go_on(cut);
	for (size_t cut = TCP_HEADER_BYTES + 299; cut <= TCP_HEADER_BYTES + 300; cut++)
		expect_to_go_on(cut);
}

/* A greeting that was made for a socket which is no more does nothing to the one in use. */
static void test_old_epochs(void **state)
{
	static const uint32_t old[] = {5, 4, 0, 1};
	uint8_t byte = 0, message[TCP_HEADER_BYTES + 1] = {0};
	uint64_t has = 0;
	struct post recv;
	struct world w;
	int fd = hand_peer(&w, 5), next;

	for (size_t i = 0; i < sizeof old / sizeof *old; i++) {
		next = hand_dial(&w, 0);
		assert_false(hand_resume(&w, next, 1, 0, 0, old[i], 0, &has));
		close(next);
	}
	post_recv(&recv, w.conns[0][1][0], &byte, 1, 1);
	hand_header(message, 1, 1, 0);
	message[TCP_HEADER_BYTES] = 9;
	hand_write(fd, message, sizeof message);
	world_expect_ok(&w, &recv, 1);
	assert_int_equal(byte, 9);
	next = hand_dial(&w, 0);
	assert_true(hand_resume(&w, next, 1, 0, 0, 6, 0, &has));
	assert_int_equal(has, sizeof message);
	close(fd);
	close(next);
	world_close(&w);
}

/* Nor does one that is older than what this end has proved since: the peer may yet find that proof,
 * in a socket that is broken, and would end the one in use for it. */
static void test_older_than_own_proof(void **state)
{
	uint64_t has = 0;
	struct world w;
	int fd = hand_peer(&w, 0), next;

	conn_of(&w)->resend.next_epoch = 7;
	for (uint32_t epoch = 1; epoch < 7; epoch += 5) {
		next = hand_dial(&w, 0);
		assert_false(hand_resume(&w, next, 1, 0, 0, epoch, 0, &has));
		close(next);
	}
	next = hand_dial(&w, 0);
	assert_true(hand_resume(&w, next, 1, 0, 0, 7, 0, &has));
	assert_int_equal(conn_of(&w)->resend.next_epoch, 8);
	close(fd);
	close(next);
	world_close(&w);
}

/* One that stops before its proof changes nothing either. */
static void test_no_proof(void **state)
{
	struct tcp_endpoint as = {.header_bytes = TCP_HEADER_BYTES};
	uint8_t context[AUTH_CONTEXT_BYTES], hello[AUTH_HELLO_BYTES], answer[AUTH_ANSWER_BYTES];
	uint8_t wrong[AUTH_PROOF_BYTES + TCP_POSITION_BYTES] = {0};
	struct auth auth;
	struct world w;
	int fd = hand_peer(&w, 0), next = hand_dial(&w, 0);

	memcpy(as.comm_id, w.configs[0].comm_id, sizeof as.comm_id);
	tcp_context(context, &as, 1, 0, 0, tcp_terms(&as, true, 1));
	auth_hello(&auth, w.configs[0].key, context, hello);
	hand_write(next, hello, sizeof hello);
	assert_true(hand_read(&w, next, answer, sizeof answer));
	hand_write(next, wrong, sizeof wrong);
	hand_expect_end(&w, next);
	assert_int_equal(conn_of(&w)->state, CONN_UP);
	assert_int_equal(conn_of(&w)->resend.epoch, 0);
	close(fd);
	world_close(&w);
}

/* Positions that no socket of ours can have led to: the conn fails, nothing is made up. */
static void test_impossible_positions(void **state)
{
	enum { BYTES = 100000, N = 8 };
	uint8_t *out = calloc(1, BYTES), *got = malloc(BYTES + TCP_HEADER_BYTES);

	for (int i = 0; i < 2; i++) {
		struct post sends[N];
		uint64_t has = 0;
		struct world w;
		int first = hand_peer(&w, 0), second;
		for (int k = 0; k < N; k++) {
			post_send(&sends[k], w.conns[0][1][0], out, BYTES, 1);
			assert_true(hand_read(&w, first, got, BYTES + TCP_HEADER_BYTES));
		}
		world_expect_ok(&w, sends, N);
		second = hand_dial(&w, 0);
		hand_resume(&w, second, 1, 0, 0, 1, i ? N * (BYTES + TCP_HEADER_BYTES) + 1 : 0,
			    &has);
		while (w.conns[0][1][0]->status == TUTTI_OK)
			world_pump(&w);
		assert_int_equal(w.conns[0][1][0]->status, TUTTI_ERR_PEER);
		assert_non_null(strstr(w.conns[0][1][0]->error, "from rank 0 to rank 1"));
		assert_non_null(strstr(w.conns[0][1][0]->error, "cannot go on"));
		close(first);
		close(second);
		world_close(&w);
	}
	free(out);
	free(got);
}

/* A rank that comes back to a connection that was closed is told that it is over. */
static void test_over(void **state)
{
	uint64_t has = 0;
	struct world w;
	int fd = hand_peer(&w, 0), next;

	world_hang_up(&w, 0, 1, 0);
	close(fd);
	next = hand_dial(&w, 0);
	assert_true(hand_resume(&w, next, 1, 0, 0, 1, 0, &has));
	assert_true(has == TCP_STREAM_CLOSED);
	hand_expect_end(&w, next);
	world_close(&w);
}

/* Its end is seen though nothing is posted: the peer may wait for what it has lost. */
static void test_idle_end(void **state)
{
	struct linger reset = {1, 0};
	struct world w;
	int fd = hand_peer(&w, 0);

	setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
	close(fd);
	for (int pass = 0; pass < 5000 && conn_of(&w)->state == CONN_UP; pass++)
		world_pump(&w);
	/* It dials the endpoint of rank 1, which accepts it, or is still about to. */
	assert_true(conn_of(&w)->state != CONN_UP || conn_of(&w)->resend.epoch > 0);
	world_close(&w);
}

int main(void)
{
	static const struct conformance reconnecting = {.transport = &transport_tcp,
							.reconnect = 2};
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_older_than_own_proof),
		cmocka_unit_test(test_every_cut),
		cmocka_unit_test(test_old_epochs),
		cmocka_unit_test(test_no_proof),
		cmocka_unit_test(test_impossible_positions),
		cmocka_unit_test(test_over),
		cmocka_unit_test(test_idle_end),
	};

	hand_setup();
	subject = &reconnecting;
	test_limit(2 * WORLD_TIMEOUT_MS / 1000);
	return cmocka_run_group_tests_name("tcp_epochs", tests, NULL, NULL);
}
