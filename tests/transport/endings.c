/* Cases of the suite: how connections end. Mismatch, close, peers that go away or never come. */
#include "tests/transport/cases.h"
#include "tests/transport/world.h"

#include "core/clock.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The conn has failed with status, and its message names the peer. */
static void expect_failed(const struct tutti_conn *conn, tutti_status status)
{
	char name[32];

	snprintf(name, sizeof name, "rank %d", conn->peer);
	assert_int_equal(conn->status, status);
	if (!strstr(conn->error, name))
		fail_msg("no \"%s\" in: \"%s\"", name, conn->error);
}

static void mismatch(size_t sent, uint32_t sent_tag, size_t received, uint32_t received_tag)
{
	struct world w;
	struct post send, recvs[2];
	char *out = calloc(1, sent), *in = calloc(1, received);

	world_open(&w, 2);
	world_pair(&w, 0, 1, 0);
	post_send(&send, w.conns[0][1][0], out, sent, sent_tag);
	post_recv(&recvs[0], w.conns[1][0][0], in, received, received_tag);
	post_recv(&recvs[1], w.conns[1][0][0], in, received, received_tag);
	world_finish(&w, recvs, 2);
	assert_int_equal(recvs[0].io.status, TUTTI_ERR_MISMATCH);
	assert_int_equal(recvs[1].io.status, TUTTI_ERR_MISMATCH);
	assert_true(recvs[0].when < recvs[1].when);
	expect_failed(w.conns[1][0][0], TUTTI_ERR_MISMATCH);
	world_close(&w);
	free(out);
	free(in);
}

void test_mismatch_bytes(void **state)
{
	mismatch(100, 5, 200, 5);
	mismatch(200, 5, 100, 5);
	mismatch(300000, 5, 8, 5);
	mismatch(8, 5, 300000, 5);
}

void test_mismatch_tag(void **state)
{
	mismatch(64, 5, 64, 6);
	mismatch(300000, 5, 300000, 6);
}

/* After close no buffer and no io of the conn is touched: they are overwritten, and stay as they
 * are although the peer sends what they were posted for. */
void test_close_forgets(void **state)
{
	enum { N = 8 };
	const size_t bytes = 100000;
	struct world w;
	static struct post recvs[N], sends[N], peer_sends[N], before[N];
	uint8_t *in = calloc(N, bytes), *out = calloc(N, bytes), *peer_out = calloc(N, bytes);

	world_open(&w, 2);
	world_pair(&w, 0, 1, 0);
	for (uint32_t i = 0; i < N; i++) {
		post_recv(&recvs[i], w.conns[0][1][0], in + i * bytes, bytes, i);
		post_send(&sends[i], w.conns[0][1][0], out + i * bytes, bytes, i);
	}
	world_pump_for(&w, 3);
	world_hang_up(&w, 0, 1, 0);
	memset(in, 0x5a, N * bytes);
	memset(recvs, 0x5a, sizeof recvs);
	memset(sends, 0x5a, sizeof sends);
	memcpy(before, recvs, sizeof recvs);
	free(out);
	for (uint32_t i = 0; i < N; i++) {
		post_send(&peer_sends[i], w.conns[1][0][0], peer_out + i * bytes, bytes, i);
		world_pump_for(&w, 200);
	}
	for (size_t i = 0; i < N * bytes; i++)
		if (in[i] != 0x5a)
			fail_msg("byte %zu was written after close", i);
	assert_memory_equal(recvs, before, sizeof recvs);
	assert_memory_equal(sends, before, sizeof sends);
	world_close(&w);
	free(in);
	free(peer_out);
}

/* What was sent and had completed before close still arrives, even when the one that closes had not
 * read what its peer sent. */
void test_close_delivers(void **state)
{
	enum { N = 40 };
	const size_t bytes = 50000;
	struct world w;
	static struct post sends[N], recvs[N], unread[2];
	uint8_t *out[N], *in = malloc(bytes), *other = calloc(1, bytes);
	int completed = 0;

	world_open(&w, 2);
	world_pair(&w, 0, 1, 0);
	post_send(&unread[0], w.conns[1][0][0], other, bytes, 1);
	post_send(&unread[1], w.conns[1][0][0], other, bytes, 1);
	for (int i = 0; i < N; i++) {
		out[i] = malloc(bytes);
		bytes_fill(out[i], bytes, (uint64_t)i + 1);
		post_send(&sends[i], w.conns[0][1][0], out[i], bytes, 1);
	}
	world_pump_for(&w, 3000);
	while (completed < N && sends[completed].is_done)
		completed++;
	world_hang_up(&w, 0, 1, 0);
	for (int i = 0; i < N; i++)
		free(out[i]);
	for (int i = 0; i < completed; i++) {
		post_recv(&recvs[i], w.conns[1][0][0], in, bytes, 1);
		world_expect_ok(&w, &recvs[i], 1);
		expect_bytes(in, bytes, (uint64_t)i + 1);
	}
	world_hang_up(&w, 1, 0, 0);
	free(in);
	free(other);
	world_close(&w);
}

/* A rank sends a last notice of 640 bytes on one of its channels, and leaves with everything else
 * unread that its peer has sent it on all of them. The peer, which goes on sending, still gets the
 * notice: whether it had connected that channel before or does so only now. */
static void last_notice(int closer, bool is_late, int unread)
{
	enum { CHANNELS = 3, NOTICE = 640, BYTES = 300000 };
	static uint8_t out[BYTES], notice[NOTICE], in[NOTICE];
	static struct post before[CHANNELS][8], after[CHANNELS], sends[CHANNELS], recvs[2];
	int peer = 1 - closer;
	struct tutti_endpoint gone;
	struct tutti_conn **conn;
	struct world w;

	world_open(&w, 2);
	gone = *w.endpoints[closer];
	conn = &w.conns[peer][closer][CHANNELS - 1];
	bytes_fill(notice, sizeof notice, test_seed);
	memset(in, 0, sizeof in);
	for (int c = 0; c < CHANNELS; c++) {
		world_conn(&w, closer, peer, c);
		if (c < CHANNELS - 1 || !is_late)
			world_conn(&w, peer, closer, c);
		for (int i = 0; i < unread && w.conns[peer][closer][c]; i++)
			post_send(&before[c][i], w.conns[peer][closer][c], out, BYTES, 5);
	}
	for (int i = 0; i < 2000; i++)
		world_pump(&w);
	for (int c = CHANNELS - 1; c >= 0; c--)
		post_send(&sends[c], w.conns[closer][peer][c], notice, NOTICE, 6);
	for (int i = 0; i < 2000 && !sends[CHANNELS - 1].is_done; i++)
		world_pump_only(&w, closer, 1);
	for (int c = 0; c < CHANNELS; c++)
		world_hang_up(&w, closer, peer, c);
	subject->transport->destroy(w.endpoints[closer]);
	w.endpoints[closer] = NULL;
	/* What it sends now meets a socket that is gone. */
	for (int c = 0; c < CHANNELS; c++)
		if (w.conns[peer][closer][c])
			post_send(&after[c], w.conns[peer][closer][c], out, BYTES, 7);
	world_pump_for(&w, 200);
	if (is_late)
		assert_int_equal(subject->transport->connect(w.endpoints[peer], closer,
							     CHANNELS - 1, gone.address,
							     gone.address_bytes, conn),
				 TUTTI_OK);
	for (int i = 0; i < 2; i++)
		post_recv(&recvs[i], *conn, in, NOTICE, 6);
	world_finish(&w, recvs, 2);
	if (sends[CHANNELS - 1].is_done) {
		assert_int_equal(recvs[0].io.status, TUTTI_OK);
		expect_bytes(in, sizeof in, test_seed);
	}
	assert_int_equal(recvs[1].io.status, TUTTI_ERR_PEER);
	expect_failed(*conn, TUTTI_ERR_PEER);
	world_close(&w);
}

void test_last_notice(void **state)
{
	for (int n = 0; n < 12; n++)
		last_notice(n % 2, n / 2 % 2, n / 4 * 4);
}

void test_close_ends_peer(void **state)
{
	const size_t bytes = (size_t)32 << 20;
	struct world w;
	struct post recvs[2], send, first;
	uint8_t *out = calloc(1, bytes), *in = calloc(1, bytes), one = 1, got = 0;

	world_open(&w, 3);
	world_pair(&w, 0, 1, 0);
	world_pair(&w, 1, 2, 0);
	post_recv(&first, w.conns[1][0][0], &got, 1, 1);
	post_send(&send, w.conns[0][1][0], &one, 1, 1);
	world_expect_ok(&w, &first, 1);
	world_expect_ok(&w, &send, 1);
	post_recv(&recvs[0], w.conns[1][0][0], in, bytes, 1);
	post_recv(&recvs[1], w.conns[1][0][0], in, bytes, 1);
	post_send(&send, w.conns[1][0][0], out, bytes, 1);
	world_pump_for(&w, 20);
	world_hang_up(&w, 0, 1, 0);
	world_finish(&w, recvs, 2);
	world_finish(&w, &send, 1);
	assert_int_equal(recvs[0].io.status, TUTTI_ERR_PEER);
	assert_int_equal(recvs[1].io.status, TUTTI_ERR_PEER);
	expect_failed(w.conns[1][0][0], TUTTI_ERR_PEER);

	/* Other conns of that endpoint go on. */
	post_recv(&first, w.conns[1][2][0], &got, 1, 1);
	post_send(&send, world_conn(&w, 2, 1, 0), &one, 1, 1);
	world_expect_ok(&w, &first, 1);
	free(out);
	free(in);
	world_close(&w);
}

/* One end hangs up while the two are still connecting, or before the other begins. */
void test_closed_early(void **state)
{
	for (int way = 0; way < 6; way++)
		for (int passes = 0; passes < 40; passes += 1 + passes / (subject->costs ? 1 : 4)) {
			struct world w;
			struct post recv, send;
			uint64_t in = 0, out = 7;
			int closer = way % 2, other = 1 - closer;

			world_open(&w, 2);
			world_conn(&w, closer, other, 0);
			if (way < 4)
				post_recv(&recv, world_conn(&w, other, closer, 0), &in, sizeof in,
					  1);
			if (way < 2)
				post_send(&send, w.conns[other][closer][0], &out, sizeof out, 1);
			world_pump_for(&w, passes);
			world_hang_up(&w, closer, other, 0);
			if (way >= 4)
				post_recv(&recv, world_conn(&w, other, closer, 0), &in, sizeof in,
					  1);
			world_finish(&w, &recv, 1);
			assert_int_equal(recv.io.status, TUTTI_ERR_PEER);
			expect_failed(w.conns[other][closer][0], TUTTI_ERR_PEER);
			world_close(&w);
		}
}

/* Many peers send a last message and hang up at once: the message arrives, then the end shows. */
void test_close_ends_many(void **state)
{
	enum { PEERS = WORLD_RANKS - 1 };
	struct world w;
	struct post first[PEERS + 1], sends[PEERS + 1], recvs[PEERS + 1][2];
	struct tutti_endpoint *busy;
	uint64_t out = 7, in[PEERS + 1][2] = {{0}};

	world_open(&w, WORLD_RANKS);
	for (int p = 1; p <= PEERS; p++) {
		world_pair(&w, 0, p, 0);
		post_recv(&first[p], w.conns[0][p][0], &in[p][0], sizeof in[p][0], 1);
		post_send(&sends[p], w.conns[p][0][0], &out, sizeof out, 1);
	}
	world_expect_ok(&w, first + 1, PEERS);
	world_expect_ok(&w, sends + 1, PEERS);
	for (int p = 1; p <= PEERS; p++) {
		post_recv(&recvs[p][0], w.conns[0][p][0], &in[p][0], sizeof in[p][0], 1);
		post_recv(&recvs[p][1], w.conns[0][p][0], &in[p][1], sizeof in[p][1], 1);
	}
	world_pump_for(&w, 10);
	busy = w.endpoints[0];
	w.endpoints[0] = NULL;
	for (int p = 1; p <= PEERS; p++)
		post_send(&sends[p], w.conns[p][0][0], &out, sizeof out, 1);
	world_pump_for(&w, 10);
	for (int p = 1; p <= PEERS; p++)
		world_hang_up(&w, p, 0, 0);
	w.endpoints[0] = busy;
	for (int p = 1; p <= PEERS; p++) {
		world_finish(&w, recvs[p], 2);
		if (sends[p].is_done)
			assert_int_equal(recvs[p][0].io.status, TUTTI_OK);
		assert_int_equal(recvs[p][1].io.status, TUTTI_ERR_PEER);
		expect_failed(w.conns[0][p][0], TUTTI_ERR_PEER);
	}
	world_close(&w);
}

void test_post_on_failed(void **state)
{
	struct world w;
	struct post posts[3];
	uint8_t byte = 0x77;

	world_open(&w, 2);
	world_pair(&w, 0, 1, 0);
	post_recv(&posts[0], w.conns[0][1][0], &byte, 1, 1);
	world_pump_for(&w, 100);
	world_hang_up(&w, 1, 0, 0);
	world_finish(&w, posts, 1);
	post_send(&posts[1], w.conns[0][1][0], &byte, 1, 1);
	post_recv(&posts[2], w.conns[0][1][0], &byte, 1, 1);
	assert_false(posts[1].is_done || posts[2].is_done);
	world_finish(&w, posts, 3);
	for (int i = 0; i < 3; i++)
		assert_int_equal(posts[i].io.status, TUTTI_ERR_PEER);
	assert_int_equal(byte, 0x77);

	/* An io that has failed but was not reported yet is forgotten by close, too. */
	post_recv(&posts[2], w.conns[0][1][0], &byte, 1, 1);
	world_hang_up(&w, 0, 1, 0);
	world_pump_for(&w, 100);
	assert_false(posts[2].is_done);
	world_close(&w);
}

void test_unused_endpoints(void **state)
{
	struct world w;

	subject->transport->close(NULL);
	subject->transport->destroy(NULL);
	for (int size = 1; size <= 3; size++) {
		world_open(&w, size);
		world_pump_for(&w, 5);
		world_close(&w);
	}
	/* Conns that never carried anything, closed before and after they are up. */
	for (int passes = 0; passes < 30; passes += 30 / (int)world_part(30)) {
		world_open(&w, 3);
		world_pair(&w, 0, 1, 0);
		world_pair(&w, 2, 1, 1);
		world_conn(&w, 0, 2, 0);
		world_pump_for(&w, passes);
		world_close(&w);
	}
}

/* False: one of the two did not come to the other within so many ms, and says so. */
static bool waits_for_peer(int rank, int timeout_ms)
{
	uint64_t deadline, words[2] = {0, 0}, out = 12345;
	int peer = 1 - rank;
	struct post posts[4];
	struct world w;
	bool is_late;

	world_open_with(&w, 2, timeout_ms);
	post_recv(&posts[0], world_conn(&w, rank, peer, 0), &words[0], sizeof out, 1);
	post_send(&posts[1], w.conns[rank][peer][0], &out, sizeof out, 1);
	deadline = deadline_after_ms(2 * timeout_ms + 100);
	while (clock_now_ns() < deadline)
		world_pump(&w);
	is_late = w.conns[rank][peer][0]->status == TUTTI_ERR_TIMEOUT;
	if (!is_late) {
		assert_false(posts[0].is_done);
		assert_int_equal(w.conns[rank][peer][0]->status, TUTTI_OK);
		post_send(&posts[2], world_conn(&w, peer, rank, 0), &out, sizeof out, 1);
		post_recv(&posts[3], w.conns[peer][rank][0], &words[1], sizeof out, 1);
		world_finish(&w, posts, 4);
		/* On a machine that is busy elsewhere it may take either too long to connect. */
		is_late = w.conns[peer][rank][0]->status == TUTTI_ERR_TIMEOUT ||
			  w.conns[rank][peer][0]->status == TUTTI_ERR_TIMEOUT;
	}
	if (!is_late) {
		world_expect_ok(&w, posts, 4);
		assert_true(words[0] == out && words[1] == out);
	}
	world_close(&w);
	return !is_late;
}

/* The peer is alive but has no use for this conn, for longer than connecting may take: the conn
 * waits, and works when the peer connects after all. On a machine that is busy elsewhere connecting
 * itself may take that long. */
void test_never_connected(void **state)
{
	for (int rank = 0; rank < 2; rank++)
		for (int ms = 150; !waits_for_peer(rank, ms); ms *= 2)
			assert_true(ms < 5000);
}

/* The peer is alive and has no use for this conn, and then it leaves. */
void test_left_before_connect(void **state)
{
	for (int rank = 0; rank < 2; rank++) {
		struct post posts[2];
		uint64_t word = 0;
		struct world w;
		world_open(&w, 2);
		post_recv(&posts[0], world_conn(&w, rank, 1 - rank, 0), &word, sizeof word, 1);
		post_send(&posts[1], w.conns[rank][1 - rank][0], &word, sizeof word, 1);
		world_pump_for(&w, (int)(test_seed % 2) * 500);
		subject->transport->destroy(w.endpoints[1 - rank]);
		w.endpoints[1 - rank] = NULL;
		world_finish(&w, posts, 2);
		assert_int_equal(posts[0].io.status, TUTTI_ERR_PEER);
		expect_failed(w.conns[rank][1 - rank][0], TUTTI_ERR_PEER);
		world_close(&w);
	}
}

/* The peer is stopped: the ios end by the endpoint's timeout. */
void test_stopped(void **state)
{
	for (int rank = 0; rank < 2; rank++) {
		struct world w;
		struct post posts[2];
		struct tutti_endpoint *stopped;
		uint64_t word = 0;
		world_open_with(&w, 2, 300);
		post_recv(&posts[0], world_conn(&w, rank, 1 - rank, 0), &word, sizeof word, 1);
		post_send(&posts[1], w.conns[rank][1 - rank][0], &word, sizeof word, 1);
		stopped = w.endpoints[1 - rank];
		w.endpoints[1 - rank] = NULL;
		world_finish(&w, posts, 2);
		w.endpoints[1 - rank] = stopped;
		assert_int_equal(posts[0].io.status, TUTTI_ERR_TIMEOUT);
		expect_failed(w.conns[rank][1 - rank][0], TUTTI_ERR_TIMEOUT);
		world_close(&w);
	}
}

/* The peer's endpoint is gone before we connect to it. */
void test_gone_before_connect(void **state)
{
	for (int rank = 0; rank < 2; rank++) {
		struct world w;
		struct post recv;
		struct tutti_endpoint gone;
		uint64_t word = 0;
		tutti_status status;

		world_open_with(&w, 2, 300);
		gone = *w.endpoints[1 - rank];
		subject->transport->destroy(w.endpoints[1 - rank]);
		w.endpoints[1 - rank] = NULL;
		status = subject->transport->connect(w.endpoints[rank], 1 - rank, 0, gone.address,
						     gone.address_bytes,
						     &w.conns[rank][1 - rank][0]);
		assert_int_equal(status, TUTTI_OK);
		post_recv(&recv, w.conns[rank][1 - rank][0], &word, sizeof word, 1);
		world_finish(&w, &recv, 1);
		assert_true(recv.io.status == TUTTI_ERR_PEER ||
			    recv.io.status == TUTTI_ERR_TIMEOUT);
		expect_failed(w.conns[rank][1 - rank][0], recv.io.status);
		world_close(&w);
	}
}

/* A rank of a simulated world dies in the middle of an exchange. */
void test_killed_in_world(void **state)
{
	enum { N = 10 };
	struct world w;
	struct post sends[N], recvs[N];
	uint8_t out[N] = {0}, in[N];

	world_open(&w, 3);
	world_pair(&w, 0, 1, 0);
	world_pair(&w, 0, 2, 0);
	for (int i = 0; i < N; i++) {
		post_send(&sends[i], w.conns[0][1][0], &out[i], 1, 1);
		post_recv(&recvs[i], w.conns[0][1][0], &in[i], 1, 1);
	}
	world_pump_for(&w, 4);
	subject->world_kill(w.context, 1);
	world_finish(&w, recvs, N);
	world_finish(&w, sends, N);
	for (int i = 0; i < N; i++)
		assert_int_equal(recvs[i].io.status, TUTTI_ERR_PEER);
	expect_failed(w.conns[0][1][0], TUTTI_ERR_PEER);
	assert_int_equal(w.conns[0][2][0]->status, TUTTI_OK);
	world_close(&w);
}
