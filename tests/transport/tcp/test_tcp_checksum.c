/* slow: 2 s */
/* Would break: that a byte which changes on its way is found, wherever it is, and who is told what
 * of it. */
#include "tests/transport/hand.h"

#include "core/crc32c.h"
#include "transport/registry.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SMALL 40
#define LARGE 100000 /* goes where it belongs without being read ahead */

static int hand_peer(struct world *w)
{
	int fd;

	world_open(w, 2);
	world_conn(w, 0, 1, 3);
	fd = hand_dial(w, 0);
	assert_true(hand_prove(w, fd, 1, 0, 3));
	while (((struct tcp_conn *)w->conns[0][1][3])->state != CONN_UP)
		world_pump(w);
	return fd;
}

static void test_format(void **state)
{
	uint8_t expected[3 * TCP_SUMMED_BYTES + 5], got[sizeof expected];
	struct world w;
	struct post sends[3];
	int fd = hand_peer(&w);

	post_send(&sends[0], w.conns[0][1][3], "abc", 3, 0xdeadbeef);
	post_send(&sends[1], w.conns[0][1][3], NULL, 0, 7);
	post_send(&sends[2], w.conns[0][1][3], "de", 2, 8);
	hand_summed_header(expected, "abc", 3, 0xdeadbeef, 0);
	memcpy(expected + 24, "abc", 3);
	hand_summed_header(expected + 27, NULL, 0, 7, 1);
	hand_summed_header(expected + 51, "de", 2, 8, 2);
	memcpy(expected + 75, "de", 2);
	assert_true(hand_read(&w, fd, got, sizeof got));
	assert_memory_equal(got, expected, sizeof got);
	close(fd);
	world_close(&w);
}

/* A good message, then this one with one bit of it changed. */
static void expect_found(uint8_t *message, size_t bytes, size_t bit)
{
	uint8_t *in = calloc(1, bytes), good[TCP_SUMMED_BYTES + 2];
	struct tutti_piece pieces[3] = {
		{in, 1}, {in + 1, bytes / 2}, {in + 1 + bytes / 2, bytes - 1 - bytes / 2}};
	const char *part = bit < 8 * TCP_SUMMED_BYTES ? "header" : "payload";
	struct world w;
	struct post recvs[2] = {{.io.bytes = 0}};
	int fd = hand_peer(&w);
	const char *error = w.conns[0][1][3]->error;

	hand_summed_header(good, "ok", 2, 5, 0);
	memcpy(good + TCP_SUMMED_BYTES, "ok", 2);
	message[bit / 8] ^= (uint8_t)(1u << bit % 8);
	hand_write(fd, good, sizeof good);
	post_recv(&recvs[0], w.conns[0][1][3], in, 2, 5);
	world_expect_ok(&w, recvs, 1);
	recvs[1].io = (struct tutti_io){.bytes = bytes, .tag = 6, .buf = in};
	if (bit % 2) {
		recvs[1].io.pieces = pieces;
		recvs[1].io.piece_count = 3;
	}
	subject->transport->recv(w.conns[0][1][3], &recvs[1].io);
	hand_write(fd, message, TCP_SUMMED_BYTES + bytes);
	world_finish(&w, recvs, 2);
	message[bit / 8] ^= (uint8_t)(1u << bit % 8);
	if (recvs[1].io.status != TUTTI_ERR_SYSTEM || !strstr(error, part) ||
	    !strstr(error, "message 1 from rank 1 to rank 0 (tcp 127.0.0.1:") ||
	    !strstr(error, "channel 3) was damaged"))
		fail_msg("bit %zu of %zu bytes: %d: %s", bit, bytes, recvs[1].io.status, error);
	close(fd);
	world_close(&w);
	free(in);
}

static void test_every_byte(void **state)
{
	uint8_t message[TCP_SUMMED_BYTES + SMALL];

	bytes_fill(message + TCP_SUMMED_BYTES, SMALL, test_seed);
	hand_summed_header(message, message + TCP_SUMMED_BYTES, SMALL, 6, 1);
	for (size_t byte = 0; byte < sizeof message; byte++)
		expect_found(message, SMALL, 8 * byte + (test_seed >> byte % 8) % 8);
}

static void test_large(void **state)
{
	uint8_t *message = malloc(TCP_SUMMED_BYTES + LARGE);
	uint64_t random = test_seed;

	bytes_fill(message + TCP_SUMMED_BYTES, LARGE, test_seed);
	hand_summed_header(message, message + TCP_SUMMED_BYTES, LARGE, 6, 1);
	for (int i = 0; i < 20; i++)
		expect_found(message, LARGE,
			     8 * TCP_SUMMED_BYTES + random_below(&random, (size_t)8 * LARGE));
	free(message);
}

/* A rank without checksums is no peer of a rank that has them. */
static void test_settings_differ(void **state)
{
	struct world w;

	world_open_with(&w, 2, 300);
	((struct tcp_endpoint *)w.endpoints[0])->header_bytes = TCP_HEADER_BYTES;
	hand_expect_apart(&w);
	world_close(&w);
}

int main(void)
{
	static const struct conformance summed = {.transport = &transport_tcp,
						  .has_checksums = true};
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_format),
		cmocka_unit_test(test_every_byte),
		cmocka_unit_test(test_large),
		cmocka_unit_test(test_settings_differ),
	};

	hand_setup();
	subject = &summed;
	return cmocka_run_group_tests_name("tcp_checksum", tests, NULL, NULL);
}
