/* Cases of the suite: what is sent arrives, once, in order and whole, whatever its size. */
#include "tests/transport/cases.h"
#include "tests/transport/world.h"

#include <stdlib.h>
#include <string.h>

static void *bytes_new(size_t bytes, uint64_t seed)
{
	void *buf = malloc(bytes + !bytes);

	assert_non_null(buf);
	if (seed)
		bytes_fill(buf, bytes, seed);
	else
		memset(buf, 0xee, bytes);
	return buf;
}

/* n messages from rank 0 to rank 1 and their buffers. */
struct stream {
	int n;
	size_t *bytes;
	void **out, **in;
	struct post *sends, *recvs;
};

static void stream_init(struct stream *s, int n, size_t max_bytes, uint64_t *random)
{
	static const size_t odd[] = {0, 1, 7, 15, 16, 17, 4095, 4096, 65519, 65520, 65536, 65537};

	s->n = n;
	s->bytes = calloc((size_t)n, sizeof *s->bytes);
	s->out = calloc((size_t)n, sizeof *s->out);
	s->in = calloc((size_t)n, sizeof *s->in);
	s->sends = calloc((size_t)n, sizeof *s->sends);
	s->recvs = calloc((size_t)n, sizeof *s->recvs);
	for (int i = 0; i < n; i++) {
		if (random_below(random, 3) == 0)
			s->bytes[i] = random_below(random, max_bytes);
		else
			s->bytes[i] = odd[random_below(random, sizeof odd / sizeof *odd)];
		s->out[i] = bytes_new(s->bytes[i], (uint64_t)i + 1000);
		s->in[i] = bytes_new(s->bytes[i], 0);
	}
}

static void stream_check(struct stream *s)
{
	for (int i = 0; i < s->n; i++) {
		expect_bytes(s->in[i], s->bytes[i], (uint64_t)i + 1000);
		if (i > 0) {
			assert_true(s->sends[i].when > s->sends[i - 1].when);
			assert_true(s->recvs[i].when > s->recvs[i - 1].when);
		}
		free(s->out[i]);
		free(s->in[i]);
	}
	free(s->bytes);
	free(s->out);
	free(s->in);
	free(s->sends);
	free(s->recvs);
}

void test_order_and_sizes(void **state)
{
	const int messages = (int)world_part(300);
	uint64_t random = test_seed;
	struct world w;
	struct stream to, from;
	int next[4] = {0, 0, 0, 0};

	world_open(&w, 2);
	world_pair(&w, 0, 1, 0);
	stream_init(&to, messages, 300000, &random);
	stream_init(&from, messages, 300000, &random);
	while (next[0] + next[1] + next[2] + next[3] < 4 * messages) {
		size_t kind = random_below(&random, 5);
		struct stream *s = kind < 2 ? &to : &from;
		int i = kind < 4 ? next[kind] : 0;
		if (kind == 4 || i == messages)
			world_pump_for(&w, (int)random_below(&random, 4));
		else if (kind % 2 == 0)
			post_send(&s->sends[i], w.conns[s == &from][s == &to][0], s->out[i],
				  s->bytes[i], (uint32_t)i);
		else
			post_recv(&s->recvs[i], w.conns[s == &to][s == &from][0], s->in[i],
				  s->bytes[i], (uint32_t)i);
		if (kind < 4 && i < messages)
			next[kind]++;
	}
	world_expect_ok(&w, to.recvs, messages);
	world_expect_ok(&w, from.recvs, messages);
	world_expect_ok(&w, to.sends, messages);
	world_expect_ok(&w, from.sends, messages);
	stream_check(&to);
	stream_check(&from);
	world_close(&w);
}

void test_empty_messages(void **state)
{
	struct world w;
	struct post sends[20], recvs[20];

	world_open(&w, 2);
	world_pair(&w, 0, 1, 0);
	for (uint32_t i = 0; i < 20; i++) {
		post_send(&sends[i], w.conns[0][1][0], NULL, 0, i);
		post_recv(&recvs[i], w.conns[1][0][0], NULL, 0, i);
	}
	world_expect_ok(&w, recvs, 20);
	world_expect_ok(&w, sends, 20);

	/* An empty message is not there before it was sent. */
	post_recv(&recvs[0], w.conns[1][0][0], NULL, 0, 7);
	world_pump_for(&w, 300);
	assert_false(recvs[0].is_done);
	post_send(&sends[0], w.conns[0][1][0], NULL, 0, 7);
	world_expect_ok(&w, recvs, 1);
	world_close(&w);
}

void test_unaligned(void **state)
{
	enum { BYTES = 100003 };
	struct world w;
	uint8_t *out = bytes_new(BYTES + 8, 0), *in = bytes_new(BYTES + 16, 0);

	world_open(&w, 2);
	world_pair(&w, 0, 1, 0);
	for (size_t shift = 0; shift < 8; shift++) {
		struct post send, recv;
		memset(in, 0xaa, BYTES + 16);
		bytes_fill(out + shift, BYTES, shift + 1);
		post_send(&send, w.conns[0][1][0], out + shift, BYTES, 1);
		post_recv(&recv, w.conns[1][0][0], in + 8 - shift, BYTES, 1);
		world_expect_ok(&w, &recv, 1);
		world_expect_ok(&w, &send, 1);
		expect_bytes(in + 8 - shift, BYTES, shift + 1);
		for (size_t i = 0; i < 8 - shift; i++)
			assert_int_equal(in[i], 0xaa);
		for (size_t i = 8 - shift + BYTES; i < BYTES + 16; i++)
			assert_int_equal(in[i], 0xaa);
	}
	free(out);
	free(in);
	world_close(&w);
}

void test_small_messages(void **state)
{
	enum { MESSAGES = 10000 };
	struct world w;
	struct post *sends = calloc(MESSAGES, sizeof *sends),
		    *recvs = calloc(MESSAGES, sizeof *recvs);
	uint32_t *out = calloc(MESSAGES, sizeof *out), *in = calloc(MESSAGES, sizeof *in);

	world_open(&w, 2);
	world_pair(&w, 0, 1, 0);
	for (uint32_t i = 0; i < MESSAGES; i++) {
		out[i] = i * 2654435761u;
		post_send(&sends[i], w.conns[0][1][0], &out[i], sizeof out[i], i);
	}
	for (uint32_t i = 0; i < MESSAGES; i++)
		post_recv(&recvs[i], w.conns[1][0][0], &in[i], sizeof in[i], i);
	world_expect_ok(&w, recvs, MESSAGES);
	world_expect_ok(&w, sends, MESSAGES);
	assert_memory_equal(in, out, MESSAGES * sizeof *in);
	free(sends);
	free(recvs);
	free(out);
	free(in);
	world_close(&w);
}

/* Both directions at once, each message far larger than any buffer on the way. */
void test_huge_exchange(void **state)
{
	const size_t bytes = world_part((size_t)64 << 20) + 3;
	struct world w;
	struct post sends[2], recvs[2];
	void *out[2], *in[2];

	world_open(&w, 2);
	world_pair(&w, 0, 1, 0);
	for (int r = 0; r < 2; r++) {
		out[r] = bytes_new(bytes, (uint64_t)r + 1);
		in[r] = bytes_new(bytes, 0);
		post_send(&sends[r], w.conns[r][1 - r][0], out[r], bytes, 9);
		post_recv(&recvs[r], w.conns[r][1 - r][0], in[r], bytes, 9);
	}
	world_expect_ok(&w, recvs, 2);
	world_expect_ok(&w, sends, 2);
	for (int r = 0; r < 2; r++) {
		expect_bytes(in[r], bytes, (uint64_t)(1 - r) + 1);
		free(out[r]);
		free(in[r]);
	}
	world_close(&w);
}

/* Both ranks send more than fits anywhere before either posts a recv; then a recv gets through
 * although this rank's own send is stuck. */
void test_sends_before_recvs(void **state)
{
	const size_t bytes = world_part((size_t)24 << 20);
	struct world w;
	struct post sends[2], recvs[2];
	void *out[2], *in[2];

	world_open(&w, 2);
	world_pair(&w, 0, 1, 0);
	for (int r = 0; r < 2; r++) {
		out[r] = bytes_new(bytes, (uint64_t)r + 1);
		in[r] = bytes_new(bytes, 0);
		post_send(&sends[r], w.conns[r][1 - r][0], out[r], bytes, 9);
	}
	world_pump_for(&w, 2000);
	post_recv(&recvs[0], w.conns[0][1][0], in[0], bytes, 9);
	world_expect_ok(&w, recvs, 1);
	post_recv(&recvs[1], w.conns[1][0][0], in[1], bytes, 9);
	world_expect_ok(&w, recvs, 2);
	world_expect_ok(&w, sends, 2);
	for (int r = 0; r < 2; r++) {
		expect_bytes(in[r], bytes, (uint64_t)(1 - r) + 1);
		free(out[r]);
		free(in[r]);
	}
	world_close(&w);
}

void test_recvs_before_sends(void **state)
{
	static const size_t bytes[] = {8, 0, 70000, 3 << 20};
	struct world w;
	struct post send, recvs[4];
	void *out, *in[4];

	world_open(&w, 2);
	world_pair(&w, 0, 1, 0);
	for (int i = 0; i < 4; i++) {
		in[i] = bytes_new(bytes[i], 0);
		post_recv(&recvs[i], w.conns[1][0][0], in[i], bytes[i], 3);
	}
	for (int i = 0; i < 4; i++) {
		world_pump_for(&w, 300);
		assert_false(recvs[i].is_done);
		out = bytes_new(bytes[i], (uint64_t)i + 5);
		post_send(&send, w.conns[0][1][0], out, bytes[i], 3);
		world_expect_ok(&w, &send, 1);
		world_expect_ok(&w, &recvs[i], 1);
		expect_bytes(in[i], bytes[i], (uint64_t)i + 5);
		free(in[i]);
		free(out);
	}
	world_close(&w);
}

/* Every rank to every other at once, several rounds. */
void test_many_peers(void **state)
{
	enum { RANKS = WORLD_RANKS, ROUNDS = 5, BYTES = 50021 };
	struct world w;
	static struct post sends[ROUNDS][RANKS][RANKS], recvs[ROUNDS][RANKS][RANKS];
	uint8_t *in = bytes_new((size_t)ROUNDS * RANKS * RANKS * BYTES, 0), *out[RANKS];

	world_open(&w, RANKS);
	for (int r = 0; r < RANKS; r++)
		out[r] = bytes_new(BYTES, (uint64_t)r + 1);
	for (int n = 0; n < ROUNDS * RANKS * RANKS; n++) {
		int round = n / (RANKS * RANKS), a = n / RANKS % RANKS, b = n % RANKS;
		if (a == b)
			continue;
		post_send(&sends[round][a][b], world_conn(&w, a, b, 0), out[a], BYTES, 1);
		post_recv(&recvs[round][a][b], world_conn(&w, a, b, 0), in + (size_t)n * BYTES,
			  BYTES, 1);
	}
	for (int n = 0; n < ROUNDS * RANKS * RANKS; n++) {
		int round = n / (RANKS * RANKS), a = n / RANKS % RANKS, b = n % RANKS;
		if (a == b)
			continue;
		world_expect_ok(&w, &recvs[round][a][b], 1);
		world_expect_ok(&w, &sends[round][a][b], 1);
		expect_bytes(in + (size_t)n * BYTES, BYTES, (uint64_t)b + 1);
	}
	for (int r = 0; r < RANKS; r++)
		free(out[r]);
	free(in);
	world_close(&w);
}

static void ping_pong(struct world *w, int a, int b, int times)
{
	struct post sends[2], recvs[2];
	uint64_t out[2] = {1, 2}, in[2];

	for (int i = 0; i < times; i++) {
		post_recv(&recvs[0], world_conn(w, a, b, 0), &in[0], sizeof in[0], 1);
		post_recv(&recvs[1], world_conn(w, b, a, 0), &in[1], sizeof in[1], 1);
		post_send(&sends[0], world_conn(w, a, b, 0), &out[0], sizeof out[0], 1);
		post_send(&sends[1], world_conn(w, b, a, 0), &out[1], sizeof out[1], 1);
		world_expect_ok(w, recvs, 2);
		world_expect_ok(w, sends, 2);
		assert_true(in[0] == out[1] && in[1] == out[0]);
	}
}

/* A long talk with one peer, which a transport may get used to; then with it a message that does
 * not fit anywhere, and then all peers at once. */
void test_change_of_habit(void **state)
{
	const size_t bytes = world_part((size_t)16 << 20);
	struct world w;
	struct post send, recvs[WORLD_RANKS], sends[WORLD_RANKS];
	void *out = bytes_new(bytes, 4), *in = bytes_new(bytes, 0);
	uint64_t words[WORLD_RANKS] = {0};

	world_open(&w, WORLD_RANKS);
	ping_pong(&w, 0, 1, 300);
	post_send(&send, w.conns[0][1][0], out, bytes, 5);
	world_pump_for(&w, 500);
	post_recv(&recvs[0], w.conns[1][0][0], in, bytes, 5);
	world_expect_ok(&w, recvs, 1);
	world_expect_ok(&w, &send, 1);
	expect_bytes(in, bytes, 4);

	ping_pong(&w, 0, 1, 300);
	for (int p = 1; p < WORLD_RANKS; p++) {
		world_conn(&w, p, 0, 0);
		post_recv(&recvs[p], world_conn(&w, 0, p, 0), &words[p], sizeof words[p], 6);
	}
	world_pump_for(&w, 500);
	for (int p = 1; p < WORLD_RANKS; p++) {
		post_send(&sends[p], w.conns[p][0][0], out, sizeof words[p], 6);
		world_expect_ok(&w, &recvs[p], 1);
		world_expect_ok(&w, &sends[p], 1);
	}
	for (int p = 1; p < WORLD_RANKS; p++)
		expect_bytes(&words[p], sizeof words[p], 4);
	free(out);
	free(in);
	world_close(&w);
}

/* Channels are independent: one without a receive holds up no other. */
void test_channels(void **state)
{
	const size_t bytes = world_part((size_t)12 << 20);
	struct world w;
	struct post stuck, stuck_recv, sends[WORLD_CHANNELS], recvs[WORLD_CHANNELS];
	uint64_t in[WORLD_CHANNELS] = {0}, out[WORLD_CHANNELS];
	void *big = bytes_new(bytes, 77), *big_in = bytes_new(bytes, 0);

	world_open(&w, 2);
	for (int c = 0; c < WORLD_CHANNELS; c++)
		world_conn(&w, 1, 0, c);
	world_pump_for(&w, 300);
	for (int c = WORLD_CHANNELS - 1; c >= 0; c--)
		world_conn(&w, 0, 1, c);
	post_send(&stuck, w.conns[0][1][0], big, bytes, 1);
	world_pump_for(&w, 500);
	for (int c = 1; c < WORLD_CHANNELS; c++) {
		out[c] = (uint64_t)c * 1000003;
		post_recv(&recvs[c], w.conns[1][0][c], &in[c], sizeof in[c], (uint32_t)c);
		post_send(&sends[c], w.conns[0][1][c], &out[c], sizeof out[c], (uint32_t)c);
		world_expect_ok(&w, &recvs[c], 1);
		world_expect_ok(&w, &sends[c], 1);
		assert_int_equal(in[c], out[c]);
	}
	post_recv(&stuck_recv, w.conns[1][0][0], big_in, bytes, 1);
	world_expect_ok(&w, &stuck_recv, 1);
	world_expect_ok(&w, &stuck, 1);
	expect_bytes(big_in, bytes, 77);
	free(big);
	free(big_in);
	world_close(&w);
}

/* A channel that the peer has not opened yet holds up no other, however much is posted on it; what
 * was posted then still arrives. The channels are opened in different orders at both ends. */
void test_channels_unopened(void **state)
{
	const size_t bytes = (size_t)3 << 20;
	uint8_t *big = bytes_new(bytes, 7), *big_in[2] = {bytes_new(bytes, 0), bytes_new(bytes, 0)};

	for (int n = 0; n < 6; n++) {
		int late = n / 2, early = (late + 1) % 3, rank = n % 2, peer = 1 - rank;
		uint64_t out[3] = {1, 2, 3}, in[3] = {0};
		struct post stuck[4], recvs[3], sends[3];
		struct world w;
		world_open(&w, 2);
		for (int c = 0; c < 3; c++)
			world_conn(&w, rank, peer, (early + c) % 3);
		post_send(&stuck[0], w.conns[rank][peer][late], big, bytes, 1);
		post_recv(&stuck[1], w.conns[rank][peer][late], big_in[0], bytes, 2);
		world_pump_for(&w, 200);
		for (int c = 2; c >= 0; c--) {
			if (c == late)
				continue;
			post_recv(&recvs[c], world_conn(&w, peer, rank, c), &in[c], 8, 3);
			post_send(&sends[c], w.conns[rank][peer][c], &out[c], 8, 3);
			world_expect_ok(&w, &recvs[c], 1);
			world_expect_ok(&w, &sends[c], 1);
			assert_int_equal(in[c], out[c]);
		}
		assert_false(stuck[1].is_done);
		post_recv(&stuck[2], world_conn(&w, peer, rank, late), big_in[1], bytes, 1);
		post_send(&stuck[3], w.conns[peer][rank][late], big, bytes, 2);
		world_expect_ok(&w, stuck, 4);
		for (int i = 0; i < 2; i++) {
			expect_bytes(big_in[i], bytes, 7);
			memset(big_in[i], 0, bytes);
		}
		world_close(&w);
	}
	free(big);
	free(big_in[0]);
	free(big_in[1]);
}

/* Both ends connect and post at about the same time, and only one of them is given time now and
 * then: there is one conn in the end, and it loses nothing. */
void test_both_connect(void **state)
{
	enum { N = 3 };
	const int rounds = (int)world_part(60);
	uint64_t random = test_seed;

	for (int round = 0; round < rounds; round++) {
		int first = (int)random_below(&random, 2);
		struct post sends[2][N], recvs[2][N];
		uint64_t out[2][N], in[2][N] = {{0}};
		struct world w;
		world_open(&w, 2);
		for (int n = 0; n < 2; n++) {
			int rank = n ? 1 - first : first;
			for (int i = 0; i < N; i++) {
				struct tutti_conn *conn = world_conn(&w, rank, 1 - rank, 0);
				out[rank][i] = random_next(&random);
				post_send(&sends[rank][i], conn, &out[rank][i], 8, 1);
				post_recv(&recvs[rank][i], conn, &in[rank][i], 8, 1);
			}
			world_pump_only(&w, rank, (int)random_below(&random, 20));
		}
		for (int i = 0; i < 20; i++)
			world_pump_only(&w, (int)random_below(&random, 2),
					(int)random_below(&random, 4));
		for (int rank = 0; rank < 2; rank++) {
			world_expect_ok(&w, recvs[rank], N);
			world_expect_ok(&w, sends[rank], N);
			assert_memory_equal(in[rank], out[1 - rank], sizeof in[rank]);
		}
		world_close(&w);
	}
}

/* Several communicators of the same ranks in one process do not hear each other. */
void test_communicators(void **state)
{
	enum { WORLDS = 3 };
	struct world w[WORLDS];
	struct post sends[WORLDS], recvs[WORLDS];
	uint64_t out[WORLDS], in[WORLDS];

	for (int i = 0; i < WORLDS; i++)
		world_open(&w[i], 2);
	for (int i = WORLDS - 1; i >= 0; i--) {
		out[i] = (uint64_t)i + 42;
		in[i] = 0;
		post_recv(&recvs[i], world_conn(&w[i], 0, 1, 0), &in[i], sizeof in[i], 5);
		post_send(&sends[i], world_conn(&w[i], 1, 0, 0), &out[i], sizeof out[i], 5);
	}
	for (int i = 0; i < WORLDS; i++) {
		world_expect_ok(&w[i], &recvs[i], 1);
		world_expect_ok(&w[i], &sends[i], 1);
		assert_int_equal(in[i], out[i]);
	}
	for (int i = 0; i < WORLDS; i++)
		world_close(&w[i]);
}

/* One side connects and posts long before the other side connects; both ways round. */
void test_early_connect(void **state)
{
	const size_t bytes = (size_t)1 << 20;

	for (int early = 0; early < 2; early++) {
		int late = 1 - early;
		struct world w;
		struct post sends[2], recvs[2];
		void *out = bytes_new(bytes, 11),
		     *in[2] = {bytes_new(bytes, 0), bytes_new(bytes, 0)};

		world_open(&w, 2);
		post_send(&sends[0], world_conn(&w, early, late, 0), out, bytes, 1);
		post_recv(&recvs[0], w.conns[early][late][0], in[0], bytes, 2);
		world_pump_for(&w, 2000);
		assert_false(recvs[0].is_done);
		post_recv(&recvs[1], world_conn(&w, late, early, 0), in[1], bytes, 1);
		post_send(&sends[1], w.conns[late][early][0], out, bytes, 2);
		world_expect_ok(&w, recvs, 2);
		world_expect_ok(&w, sends, 2);
		expect_bytes(in[0], bytes, 11);
		expect_bytes(in[1], bytes, 11);
		free(out);
		free(in[0]);
		free(in[1]);
		world_close(&w);
	}
}
