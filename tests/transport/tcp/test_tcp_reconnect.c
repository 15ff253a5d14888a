/* slow: 3 s */
/* no_tsan: both ends are in one thread */
/* Would break: that ranks do not notice when the network resets their connections, however often
 * and wherever in the streams; and what they are told when it stays broken. In a network of its
 * own. */
#include "tests/transport/network.h"
#include "tests/transport/world.h"
#include "tests/openssl.h"

#include "core/clock.h"
#include "transport/registry.h"
#include "transport/tcp/conn.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define RANKS    3
#define MESSAGES 40 /* of each pair and direction, in a round */
#define LONGEST  300000

struct exchange {
	struct post sends[MESSAGES], recvs[MESSAGES];
	uint8_t *out[MESSAGES], *in[MESSAGES];
	size_t bytes[MESSAGES];
	int sent, received; /* posted */
};

static struct tcp_conn *conn_at(struct world *w, int rank, int peer, int channel)
{
	return (struct tcp_conn *)w->conns[rank][peer][channel];
}

static void exchange_fill(struct exchange *e, uint64_t *random)
{
	memset(e, 0, sizeof *e);
	for (int i = 0; i < MESSAGES; i++) {
		static const size_t limits[] = {1, 20, 3000, 9000, LONGEST};
		e->bytes[i] = random_below(random, limits[random_below(random, 5)]);
		e->out[i] = malloc(e->bytes[i] + 1);
		e->in[i] = calloc(1, e->bytes[i] + 1);
		bytes_fill(e->out[i], e->bytes[i], *random + (uint64_t)i);
	}
}

static void exchange_check(struct exchange *e, int from, int to)
{
	for (int i = 0; i < MESSAGES; i++) {
		const struct post *ends[2] = {&e->sends[i], &e->recvs[i]};
		for (int k = 0; k < 2; k++)
			if (ends[k]->io.status != TUTTI_OK)
				fail_msg("message %d from %d to %d: %s", i, from, to,
					 ends[k]->io.conn->error);
		if (memcmp(e->out[i], e->in[i], e->bytes[i]) != 0)
			fail_msg("message %d from %d to %d (%zu bytes) is wrong; seed %llu", i,
				 from, to, e->bytes[i], (unsigned long long)test_seed);
		free(e->out[i]);
		free(e->in[i]);
	}
}

/* A send's buffer is the caller's again when it is done, and is used for something else. */
static void spoil_sent(struct exchange *e, uint8_t *copies[MESSAGES])
{
	for (int i = 0; i < e->sent; i++)
		if (e->sends[i].is_done && !copies[i]) {
			copies[i] = e->out[i];
			e->out[i] = malloc(e->bytes[i] + 1);
			memcpy(e->out[i], copies[i], e->bytes[i]);
			memset(copies[i], 0xa5, e->bytes[i]);
		}
}

static void post_next(struct world *w, struct exchange *e, int from, int to, bool is_send)
{
	int i = is_send ? e->sent : e->received;

	if (i == MESSAGES)
		return;
	if (is_send) {
		post_send(&e->sends[i], w->conns[from][to][0], e->out[i], e->bytes[i], (uint32_t)i);
		e->sent++;
	} else {
		post_recv(&e->recvs[i], w->conns[to][from][0], e->in[i], e->bytes[i], (uint32_t)i);
		e->received++;
	}
}

static bool is_over(const struct exchange *e)
{
	for (int i = 0; i < MESSAGES; i++)
		if (!e->sends[i].is_done || !e->recvs[i].is_done)
			return false;
	return true;
}

/* One of the sockets of any conn, in whatever state; in one of three cases those of both ends. */
static int reset_one(struct world *w, uint64_t *random)
{
	int a = (int)random_below(random, RANKS),
	    b = (a + 1 + (int)random_below(random, 2)) % RANKS;
	int resets = 0;

	for (int i = 0; i < 2; i++) {
		const struct tcp_conn *c = i ? conn_at(w, b, a, 0) : conn_at(w, a, b, 0);
		if (c->watch.fd >= 0 && (i == 0 || random_below(random, 3) == 0))
			resets += network_reset(c->watch.fd);
	}
	return resets;
}

/* Returns how often a connection was reset. */
static int run_round(struct world *w, uint64_t *random, size_t rarity)
{
	static struct exchange all[RANKS][RANKS];
	static uint8_t *copies[RANKS][RANKS][MESSAGES];
	uint64_t deadline = deadline_after_ms(WORLD_TIMEOUT_MS);
	int resets = 0, left = 1;

	memset(copies, 0, sizeof copies);
	for (int a = 0; a < RANKS; a++)
		for (int b = 0; b < RANKS; b++)
			if (a != b)
				exchange_fill(&all[a][b], random);
	while (left > 0) {
		left = 0;
		for (int a = 0; a < RANKS; a++)
			for (int b = 0; b < RANKS; b++) {
				if (a == b)
					continue;
				if (random_below(random, 3) == 0)
					post_next(w, &all[a][b], a, b, random_below(random, 2));
				spoil_sent(&all[a][b], copies[a][b]);
				left += !is_over(&all[a][b]);
			}
		world_pump_only(w, (int)random_below(random, RANKS), 1);
		if (random_below(random, rarity) == 0)
			resets += reset_one(w, random);
		if (clock_now_ns() > deadline)
			fail_msg("a round never ended; seed %llu", (unsigned long long)test_seed);
	}
	for (int a = 0; a < RANKS; a++)
		for (int b = 0; b < RANKS; b++)
			if (a != b) {
				exchange_check(&all[a][b], a, b);
				for (int i = 0; i < MESSAGES; i++)
					free(copies[a][b][i]);
			}
	return resets;
}

static void expect_unnoticed(int least)
{
	uint64_t random = test_seed;
	int resets = 0, before = network_descriptors();
	struct world w;

	world_open(&w, RANKS);
	for (int a = 0; a < RANKS; a++)
		for (int b = 0; b < a; b++)
			world_pair(&w, a, b, 0);
	for (int round = 0; round < 200 && resets < least; round++)
		resets += run_round(&w, &random, 4 + random_below(&random, 60));
	printf("%d resets\n", resets);
	assert_true(resets >= least);
	world_close(&w);
	assert_int_equal(network_descriptors(), before);
}

static void test_resets(void **state)
{
	expect_unnoticed(400);
}

static void test_resets_summed(void **state)
{
	const struct conformance *before = subject;
	struct conformance summed = *subject;

	summed.has_checksums = true;
	subject = &summed;
	expect_unnoticed(100);
	subject = before;
}

/* A sender that has nothing to receive and is not in the library any more; the receiver gets all.
 */
static void test_completed_sends(void **state)
{
	enum { N = 5, BYTES = 200000 };
	uint8_t *out = malloc(BYTES), *in = malloc(BYTES);
	uint64_t random = test_seed;

	for (int i = 0; i < 20; i++) {
		struct post sends[N], recvs[N];
		struct world w;
		world_open(&w, 2);
		world_pair(&w, 0, 1, 0);
		while (conn_at(&w, 0, 1, 0)->state != CONN_UP ||
		       conn_at(&w, 1, 0, 0)->state != CONN_UP)
			world_pump(&w);
		for (uint64_t k = 0; k < N; k++) {
			bytes_fill(out, BYTES, k);
			post_send(&sends[k], w.conns[i % 2][1 - i % 2][0], out, BYTES, 1);
			for (int pass = 0; pass < 1000 && !sends[k].is_done; pass++)
				world_pump_only(&w, i % 2, 1);
			memset(out, 0xa5, sends[k].is_done ? BYTES : 0);
			if (!sends[k].is_done || random_below(&random, 4) == 0)
				network_reset(conn_at(&w, 0, 1, 0)->watch.fd);
			post_recv(&recvs[k], w.conns[1 - i % 2][i % 2][0], in, BYTES, 1);
			world_expect_ok(&w, &recvs[k], 1);
			world_expect_ok(&w, &sends[k], 1);
			expect_bytes(in, BYTES, k);
			while (conn_at(&w, 0, 1, 0)->state != CONN_UP)
				world_pump(&w);
		}
		world_close(&w);
	}
	free(out);
	free(in);
}

/* Before the peer has called connect: what its kernel had of the first socket is not sent again. */
static void test_before_connect(void **state)
{
	static uint8_t out[3][50000], in[3][50000];
	struct post sends[3], recvs[3];
	struct world w;

	world_open(&w, 2);
	world_conn(&w, 1, 0, 0);
	for (uint64_t k = 0; k < 3; k++) {
		bytes_fill(out[k], sizeof out[k], k);
		post_send(&sends[k], w.conns[1][0][0], out[k], sizeof out[k], 1);
		world_expect_ok(&w, &sends[k], 1);
		memset(out[k], 0xa5, sizeof out[k]);
		assert_true(network_reset(conn_at(&w, 1, 0, 0)->watch.fd));
		world_pump_for(&w, 50);
	}
	for (int k = 0; k < 3; k++)
		post_recv(&recvs[k], world_conn(&w, 0, 1, 0), in[k], sizeof in[k], 1);
	world_expect_ok(&w, recvs, 3);
	for (uint64_t k = 0; k < 3; k++)
		expect_bytes(in[k], sizeof in[k], k);
	world_close(&w);
}

/* The link goes down for a while and the connection with it, as some machines do it. */
static void test_flap(void **state)
{
	struct post sends[2], recvs[2];
	uint64_t word = 7, got[2] = {0, 0}, deadline;
	struct world w;

	world_open(&w, 2);
	world_pair(&w, 0, 1, 0);
	post_send(&sends[0], w.conns[0][1][0], &word, sizeof word, 1);
	post_recv(&recvs[0], w.conns[1][0][0], &got[0], sizeof word, 1);
	world_expect_ok(&w, recvs, 1);
	assert_true(network_reset(conn_at(&w, 0, 1, 0)->watch.fd));
	network_up(false);
	post_send(&sends[1], w.conns[0][1][0], &word, sizeof word, 1);
	post_recv(&recvs[1], w.conns[1][0][0], &got[1], sizeof word, 1);
	deadline = deadline_after_ms(300);
	while (clock_now_ns() < deadline)
		world_pump(&w);
	assert_false(recvs[1].is_done);
	network_up(true);
	world_expect_ok(&w, recvs, 2);
	assert_true(got[0] == 7 && got[1] == 7);
	world_close(&w);
}

static void expect_limit(struct world *w, const char *attempts, int least_ms)
{
	struct post recvs[2];
	uint64_t words[2], begun;
	int ms = 0;

	world_pair(w, 0, 1, 0);
	for (int r = 0; r < 2; r++)
		post_recv(&recvs[r], w->conns[r][1 - r][0], &words[r], sizeof words[r], 1);
	while (conn_at(w, 0, 1, 0)->state != CONN_UP || conn_at(w, 1, 0, 0)->state != CONN_UP)
		world_pump(w);
	begun = clock_now_ns();
	assert_true(network_reset(conn_at(w, 0, 1, 0)->watch.fd));
	network_up(false);
	world_finish(w, recvs, 2);
	assert_true(clock_now_ns() - begun >= (uint64_t)least_ms * 1000000u);
	network_up(true);
	for (int r = 0; r < 2; r++) {
		char start[80];
		const char *error = w->conns[r][1 - r][0]->error, *at;
		snprintf(start, sizeof start, "rank %d (tcp 127.0.0.1:", 1 - r);
		at = strstr(error, "attempts in ");
		assert_int_equal(recvs[r].io.status, TUTTI_ERR_TIMEOUT);
		if (!strstr(error, start) || !strstr(error, attempts) || !at ||
		    sscanf(at, "attempts in %d ms", &ms) != 1 || ms < least_ms)
			fail_msg("rank %d: %s", r, error);
	}
	world_close(w);
}

static void set_limits(struct world *w, int ms, int tries)
{
	for (int r = 0; r < w->size; r++) {
		struct tcp_endpoint *ep = (struct tcp_endpoint *)w->endpoints[r];
		ep->reconnect_ms = ms;
		ep->reconnect_tries = tries;
	}
}

static void test_limits(void **state)
{
	struct world w;

	world_open(&w, 2);
	set_limits(&w, 60000, 2);
	expect_limit(&w, "; 2 attempts in ", 0);
	world_open(&w, 2);
	set_limits(&w, 300, 1000000);
	expect_limit(&w, " attempts in ", 300);
}

/* A peer that is there and busy elsewhere is waited for, whatever the limits. */
static void test_busy_peer(void **state)
{
	uint64_t word = 7, got = 0, deadline;
	struct post send, recv;
	struct world w;

	for (int busy = 0; busy < 2; busy++) {
		struct tutti_endpoint *other;
		world_open(&w, 2);
		set_limits(&w, 100, 2);
		world_pair(&w, 0, 1, 0);
		while (conn_at(&w, 0, 1, 0)->state != CONN_UP ||
		       conn_at(&w, 1, 0, 0)->state != CONN_UP)
			world_pump(&w);
		assert_true(network_reset(conn_at(&w, 0, 1, 0)->watch.fd));
		other = w.endpoints[busy];
		w.endpoints[busy] = NULL;
		post_recv(&recv, w.conns[1 - busy][busy][0], &got, sizeof got, 1);
		deadline = deadline_after_ms(500);
		while (clock_now_ns() < deadline)
			world_pump(&w);
		assert_false(recv.is_done);
		w.endpoints[busy] = other;
		post_send(&send, w.conns[busy][1 - busy][0], &word, sizeof word, 1);
		world_expect_ok(&w, &recv, 1);
		assert_int_equal(got, 7);
		world_close(&w);
	}
}

/* The peer's process is dead: no process listens, and its kernel answers with resets. */
static void test_dead_peer(void **state)
{
	for (int dead = 0; dead < 2; dead++) {
		struct post recv, send;
		uint64_t word;
		clock_t begun;
		struct world w;
		world_open(&w, 2);
		world_pair(&w, 0, 1, 0);
		while (conn_at(&w, 0, 1, 0)->state != CONN_UP ||
		       conn_at(&w, 1, 0, 0)->state != CONN_UP)
			world_pump(&w);
		/* It leaves this unread, so that its end is a reset. */
		post_send(&send, w.conns[1 - dead][dead][0], "unread", 6, 1);
		world_pump_only(&w, 1 - dead, 20);
		post_recv(&recv, w.conns[1 - dead][dead][0], &word, sizeof word, 1);
		close(((struct tcp_endpoint *)w.endpoints[dead])->listener.fd);
		((struct tcp_endpoint *)w.endpoints[dead])->listener.fd = -1;
		close(conn_at(&w, dead, 1 - dead, 0)->watch.fd);
		conn_at(&w, dead, 1 - dead, 0)->watch.fd = -1;
		begun = clock();
		while (!recv.is_done)
			world_pump_only(&w, 1 - dead, 1);
		assert_int_equal(recv.io.status, TUTTI_ERR_PEER);
		/* A tenth of a second; the promise is one. It looked all the time: what it has
		 * computed is how long that was, beside busy processes too. */
		assert_true(clock() - begun < CLOCKS_PER_SEC);
		if (!strstr(w.conns[1 - dead][dead][0]->error, "refuses the connection"))
			fail_msg("%s", w.conns[1 - dead][dead][0]->error);
		world_close(&w);
	}
}

/* Closed on the other side while this one had no connection: it is told, and does not wait. */
static void test_closed_meanwhile(void **state)
{
	for (int closer = 0; closer < 2; closer++) {
		struct post recv;
		uint64_t word;
		struct world w;
		world_open(&w, 2);
		world_pair(&w, 0, 1, 0);
		while (conn_at(&w, 0, 1, 0)->state != CONN_UP ||
		       conn_at(&w, 1, 0, 0)->state != CONN_UP)
			world_pump(&w);
		assert_true(network_reset(conn_at(&w, 0, 1, 0)->watch.fd));
		world_hang_up(&w, closer, 1 - closer, 0);
		post_recv(&recv, w.conns[1 - closer][closer][0], &word, sizeof word, 1);
		world_finish(&w, &recv, 1);
		assert_int_equal(recv.io.status, TUTTI_ERR_PEER);
		assert_non_null(strstr(w.conns[1 - closer][closer][0]->error, "closed"));
		world_close(&w);
	}
}

/* --tls: with TLS. */
int main(int argc, char **argv)
{
	static struct conformance tcp = {.transport = &transport_tcp, .reconnect = 2};
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_resets_summed),
		cmocka_unit_test(test_resets),
		cmocka_unit_test(test_completed_sends),
		cmocka_unit_test(test_before_connect),
		cmocka_unit_test(test_flap),
		cmocka_unit_test(test_limits),
		cmocka_unit_test(test_busy_peer),
		cmocka_unit_test(test_dead_peer),
		cmocka_unit_test(test_closed_meanwhile),
	};
	const char *seed = getenv("TEST_SEED");

	tcp.has_tls = argc > 1 && strcmp(argv[1], "--tls") == 0;
	if (!network_enter() || (tcp.has_tls && !openssl_is_here()))
		return 77;
	subject = &tcp;
	test_seed = seed ? strtoull(seed, NULL, 0) : clock_now_ns();
	printf("TEST_SEED=%llu\n", (unsigned long long)test_seed);
	return cmocka_run_group_tests_name("tcp_reconnect", tests, NULL, NULL);
}
