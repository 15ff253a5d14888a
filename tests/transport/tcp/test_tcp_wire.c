/* Would break: tcp's wire format, streams that end or go wrong in the middle, and which of two ends
 * of trouble is reported first. */
#include "tests/transport/hand.h"

#include "transport/registry.h"

#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* Rank 0 of a world of two, and a socket that is its rank 1. */
static int hand_peer(struct world *w)
{
	int fd;

	world_open(w, 2);
	world_conn(w, 0, 1, 0);
	fd = hand_dial(w, 0);
	assert_true(hand_prove(w, fd, 1, 0, 0));
	while (((struct tcp_conn *)w->conns[0][1][0])->state != CONN_UP)
		world_pump(w);
	return fd;
}

static void test_format(void **state)
{
	uint8_t expected[3 * TCP_HEADER_BYTES + 5], got[sizeof expected];
	struct world w;
	struct post sends[3];
	int fd = hand_peer(&w);

	post_send(&sends[0], w.conns[0][1][0], "abc", 3, 0xdeadbeef);
	post_send(&sends[1], w.conns[0][1][0], NULL, 0, 7);
	post_send(&sends[2], w.conns[0][1][0], "de", 2, 8);
	hand_header(expected, 3, 0xdeadbeef, 0);
	memcpy(expected + 16, "abc", 3);
	hand_header(expected + 19, 0, 7, 1);
	hand_header(expected + 35, 2, 8, 2);
	memcpy(expected + 51, "de", 2);
	assert_true(hand_read(&w, fd, got, sizeof got));
	assert_memory_equal(got, expected, sizeof got);
	close(fd);
	world_close(&w);
}

/* Every cut of a stream into two, and into single bytes, means the same. */
static void test_fragments(void **state)
{
	enum { LONG = 9000, BYTES = 3 * TCP_HEADER_BYTES + 5 + LONG };
	uint8_t *stream = calloc(1, BYTES), *in = malloc(LONG);
	char small[5];
	struct world w;
	struct post recvs[3];
	int fd = hand_peer(&w);

	for (uint32_t round = 0; round < 70; round++) {
		size_t at[2] = {round < 58 ? round : BYTES - (round - 50), BYTES};
		hand_header(stream, 5, 1, 3 * round);
		memcpy(stream + 16, "12345", 5);
		hand_header(stream + 21, 0, 2, 3 * round + 1);
		hand_header(stream + 37, LONG, 3, 3 * round + 2);
		bytes_fill(stream + 53, LONG, round + 1);
		memset(small, 0, sizeof small);
		post_recv(&recvs[0], w.conns[0][1][0], small, 5, 1);
		post_recv(&recvs[1], w.conns[0][1][0], NULL, 0, 2);
		post_recv(&recvs[2], w.conns[0][1][0], in, LONG, 3);
		for (size_t i = 0, from = 0; i < 2; from = at[i++]) {
			for (size_t b = from; round == 57 && b + 1 < at[i]; b++, from++) {
				hand_write(fd, stream + b, 1);
				if (b < 100)
					world_pump_for(&w, 3);
			}
			hand_write(fd, stream + from, at[i] - from);
			world_pump_for(&w, 20);
		}
		world_expect_ok(&w, recvs, 3);
		assert_memory_equal(small, "12345", 5);
		expect_bytes(in, LONG, round + 1);
	}
	close(fd);
	free(stream);
	free(in);
	world_close(&w);
}

/* The stream ends before a message, in its header, and in its payload. */
static void test_cut_short(void **state)
{
	static const size_t sent[] = {0, 1, 15, 16, 17, 8000};
	uint8_t message[16 + 10000] = {0}, in[10000];

	hand_header(message, sizeof in, 1, 0);
	for (size_t i = 0; i < 2 * sizeof sent / sizeof *sent; i++) {
		struct linger reset = {1, 0};
		struct world w;
		struct post recv, send;
		int fd = hand_peer(&w);
		post_recv(&recv, w.conns[0][1][0], in, sizeof in, 1);
		hand_write(fd, message, sent[i / 2]);
		world_pump_for(&w, 10);
		if (i % 2)
			setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
		close(fd);
		world_finish(&w, &recv, 1);
		assert_int_equal(recv.io.status, TUTTI_ERR_PEER);
		assert_non_null(strstr(w.conns[0][1][0]->error, "rank 1"));
		assert_non_null(strstr(w.conns[0][1][0]->error, "tcp 127.0.0.1:"));
		post_send(&send, w.conns[0][1][0], message, 1, 1);
		world_finish(&w, &send, 1);
		assert_int_equal(send.io.status, TUTTI_ERR_PEER);
		world_close(&w);
	}
}

static void test_out_of_step(void **state)
{
	uint8_t header[TCP_HEADER_BYTES], byte;
	struct world w;
	struct post recv;
	int fd = hand_peer(&w);

	post_recv(&recv, w.conns[0][1][0], &byte, 1, 1);
	hand_header(header, 1, 1, 1);
	hand_write(fd, header, sizeof header);
	world_finish(&w, &recv, 1);
	assert_int_equal(recv.io.status, TUTTI_ERR_INTERNAL);
	assert_non_null(strstr(w.conns[0][1][0]->error, "rank 1"));
	close(fd);
	world_close(&w);
}

/* The peer sends its last words and is gone. That our own sends now fail must not keep them from
 * us. */
static void test_last_words(void **state)
{
	uint8_t message[TCP_HEADER_BYTES + 3], in[3], *out = calloc(1, 100000);
	struct world w;
	struct post sends[3], recvs[2];
	int fd = hand_peer(&w);

	hand_header(message, 3, 1, 0);
	memcpy(message + TCP_HEADER_BYTES, "bye", 3);
	hand_write(fd, message, sizeof message);
	close(fd);
	for (int i = 0; i < 2; i++) { /* the first of these meets a reset */
		post_send(&sends[i], w.conns[0][1][0], out, 1000, 1);
		world_finish(&w, &sends[i], 1);
		if (sends[i].io.status != TUTTI_OK)
			break;
		if (i == 0) {
			post_recv(&recvs[0], w.conns[0][1][0], in, 3, 1);
			post_recv(&recvs[1], w.conns[0][1][0], in, 3, 1);
			post_send(&sends[2], w.conns[0][1][0], out, 100000, 1);
		}
	}
	world_finish(&w, recvs, 2);
	world_finish(&w, &sends[2], 1);
	assert_int_equal(recvs[0].io.status, TUTTI_OK);
	assert_memory_equal(in, "bye", 3);
	assert_int_equal(recvs[1].io.status, TUTTI_ERR_PEER);
	free(out);
	world_close(&w);
}

/* Once connections are up, nothing is allocated: neither here nor freed. */
static void test_no_allocation(void **state)
{
	enum { N = 50 };
	static uint8_t out[200000], in[200000];
	struct world w;
	struct post sends[N], recvs[N];
	size_t before = 0;

	world_open(&w, 2);
	world_pair(&w, 0, 1, 0);
	for (int round = 0; round < 20; round++) {
		if (round == 1)
			before = mallinfo2().uordblks;
		for (int i = 0; i < N; i++) {
			size_t bytes = i % 10 ? 100 : sizeof out;
			post_recv(&recvs[i], w.conns[1][0][0], in, bytes, 1);
			post_send(&sends[i], w.conns[0][1][0], out, bytes, 1);
		}
		world_expect_ok(&w, recvs, N);
		world_expect_ok(&w, sends, N);
	}
	assert_int_equal(mallinfo2().uordblks, before);
	world_close(&w);
}

/* What a deadline's message says of a peer that never answers, and of one that never comes. */
static void test_timeout_messages(void **state)
{
	struct world w;
	struct post recvs[2];
	char port[32];
	uint64_t word;

	world_open_with(&w, 2, 200);
	snprintf(port, sizeof port, "127.0.0.1:%d", ((struct tcp_endpoint *)w.endpoints[0])->port);
	post_recv(&recvs[1], world_conn(&w, 1, 0, 0), &word, sizeof word, 1);
	while (!recvs[1].is_done) {
		struct tutti_done done;
		tutti_done_init(&done);
		subject->transport->progress(w.endpoints[1], &done);
		recvs[1].is_done = done.head != NULL;
	}
	assert_int_equal(recvs[1].io.status, TUTTI_ERR_TIMEOUT);
	assert_non_null(strstr(w.conns[1][0][0]->error, "rank 0"));
	assert_non_null(strstr(w.conns[1][0][0]->error, port));
	assert_non_null(strstr(w.conns[1][0][0]->error, "200 ms"));
	world_close(&w);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_format),           cmocka_unit_test(test_fragments),
		cmocka_unit_test(test_cut_short),        cmocka_unit_test(test_out_of_step),
		cmocka_unit_test(test_last_words),       cmocka_unit_test(test_no_allocation),
		cmocka_unit_test(test_timeout_messages),
	};

	hand_setup();
	return cmocka_run_group_tests_name("tcp_wire", tests, NULL, NULL);
}
