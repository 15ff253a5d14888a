/* Would break: a conn that has several rails: messages by all of them, and when one fails, in any
 * moment and any way, the others carry on and nothing is lost, doubled or torn; when all fail, an
 * error that says so. */
#include "tests/transport/verbs/fake/on_fake.h"
#include "tests/whole.h"

#include "core/known_memory.h"
#include "transport/registry.h"
#include "transport/verbs/verbs.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define N      24 /* messages of a direction */
#define MOST   ((size_t)2500000)
#define ROUNDS whole_or(60, 20, 9)

static const struct conformance verbs = {.transport = &transport_verbs, .is_one_process = true};
static struct world w;
static uint8_t *block; /* registered; the first half for out, the other for in */
static struct post sends[2][N], recvs[2][N];
static size_t bytes[2][N];
static uint8_t *out[2][N], *in[2][N];

/* delays: how far one rail may be behind another. */
static void start(uint64_t seed, int devices, unsigned delays)
{
	struct fake_config config;

	fake_config_roce(&config, seed);
	for (int d = 1; d < devices; d++)
		config.device[d] = config.device[0];
	config.devices = devices;
	config.delays = delays;
	fake_start(&config);
	world_open(&w, 2);
}

/* Message i of a rank: every third is long, every second of these from or into registered memory.
 */
static uint8_t *place(int rank, int i, bool is_in)
{
	bool is_registered = i % 6 == 2 - is_in;
	uint8_t *at = block + (((size_t)is_in * 2 + (size_t)rank) * N + (size_t)i) * MOST;

	return is_registered ? at : malloc(MOST);
}

static bool is_registered(const uint8_t *at)
{
	return at >= block && at < block + 4 * N * MOST;
}

static void post_all(uint64_t *random)
{
	for (int r = 0; r < 2; r++)
		for (int i = 0; i < N; i++) {
			bytes[r][i] = i % 3 ? MOST - random_below(random, 2000000)
					    : random_below(random, 9000);
			out[r][i] = place(r, i, false);
			in[r][i] = place(r, i, true);
			assert_true(out[r][i] && in[r][i]);
			bytes_fill(out[r][i], bytes[r][i], (uint64_t)(r * N + i));
			memset(in[r][i], 0, bytes[r][i]);
		}
	for (int i = 0; i < N; i++)
		for (int r = 0; r < 2; r++) {
			post_recv(&recvs[r][i], world_conn(&w, 1 - r, r, 0), in[r][i], bytes[r][i],
				  1);
			post_send(&sends[r][i], world_conn(&w, r, 1 - r, 0), out[r][i], bytes[r][i],
				  1);
		}
}

/* What is sent is overwritten as soon as it is done. */
static void finish_all(void)
{
	for (int r = 0; r < 2; r++)
		for (int i = 0; i < N; i++) {
			world_expect_ok(&w, &sends[r][i], 1);
			memset(out[r][i], 0, bytes[r][i]);
		}
	for (int r = 0; r < 2; r++)
		for (int i = 0; i < N; i++) {
			world_expect_ok(&w, &recvs[r][i], 1);
			expect_bytes(in[r][i], bytes[r][i], (uint64_t)(r * N + i));
		}
}

static void free_all(void)
{
	for (int r = 0; r < 2; r++)
		for (int i = 0; i < N; i++) {
			if (!is_registered(out[r][i]))
				free(out[r][i]);
			if (!is_registered(in[r][i]))
				free(in[r][i]);
		}
}

static void break_rail(uint64_t *random, int device)
{
	switch (random_below(random, 4)) {
	case 0:
		fake_set_port(device, 1, IBV_PORT_DOWN);
		break;
	case 1:
		fake_break_pairs(device);
		break;
	case 2:
		fake_fail_work(IBV_WR_RDMA_WRITE_WITH_IMM, (long)random_below(random, 30),
			       IBV_WC_RETRY_EXC_ERR);
		break;
	default:
		fake_fail_work(IBV_WR_SEND, (long)random_below(random, 10), IBV_WC_RETRY_EXC_ERR);
	}
}

/* Meanwhile completions of sends, or of receives, are late. */
static void break_rail_and_pump(uint64_t *random, int device)
{
	size_t late = random_below(random, 3);

	fake_hold_sent(late == 1);
	fake_hold_received(late == 2);
	world_pump_for(&w, (int)random_below(random, 10));
	break_rail(random, device);
	world_pump_for(&w, (int)random_below(random, 400));
	fake_hold_sent(false);
	fake_hold_received(false);
}

/* Two or three rails, of which one breaks, and then maybe another. */
static void test_one_breaks(void **state)
{
	const uint64_t rounds = (uint64_t)ROUNDS;

	for (uint64_t round = 0; round < rounds; round++) {
		uint64_t random = test_seed + round;
		int rails = 2 + (int)(round % 2);
		start(random, rails, 8);
		post_all(&random);
		world_pump_for(&w, (int)random_below(&random, 60));
		for (int broken = 1; broken < rails; broken++)
			break_rail_and_pump(&random, (int)(round + (uint64_t)broken) % rails);
		finish_all();
		free_all();
		fake_repair();
		assert_int_equal(fake_count().not_ready, 0);
		world_close(&w);
		assert_true(fake_is_clean());
	}
}

/* Closing at once delivers what is done, by whichever rail it went. */
static void test_close_behind(void **state)
{
	const uint64_t rounds = (uint64_t)ROUNDS;

	for (uint64_t round = 0; round < rounds; round++) {
		uint64_t random = test_seed + round;
		struct post send, recv;
		uint8_t *copied = malloc(MOST);
		assert_true(copied);
		start(random, 3, 500);
		bytes_fill(copied, MOST, round);
		post_recv(&recv, world_conn(&w, 1, 0, 0), block, MOST, 1);
		post_send(&send, world_conn(&w, 0, 1, 0), copied, MOST, 1);
		if (round % 3 == 0)
			break_rail(&random, (int)round % 2);
		world_expect_ok(&w, &send, 1);
		world_hang_up(&w, 0, 1, 0);
		free(copied);
		world_expect_ok(&w, &recv, 1);
		expect_bytes(block, MOST, round);
		fake_repair();
		world_close(&w);
		assert_true(fake_is_clean());
	}
}

/* All may have arrived before. */
static const struct tutti_conn *fail_for_certain(int rank)
{
	struct tutti_conn *conn = w.conns[rank][1 - rank][0];
	struct post posts[2];
	uint64_t word = 0;

	while (conn->status == TUTTI_OK) {
		post_send(&posts[0], conn, &word, sizeof word, 1);
		post_recv(&posts[1], conn, &word, sizeof word, 1);
		world_finish(&w, posts, 2);
	}
	return conn;
}

static void test_all_break(void **state)
{
	const uint64_t rounds = (uint64_t)whole_or(8, 4, 2);

	for (uint64_t round = 0; round < rounds; round++) {
		uint64_t random = test_seed + round;
		start(random, 2, 8);
		post_all(&random);
		world_pump_for(&w, (int)random_below(&random, 60));
		fake_set_port((int)round % 2, 1, IBV_PORT_DOWN);
		world_pump_for(&w, (int)random_below(&random, 200));
		fake_set_port(1 - (int)round % 2, 1, IBV_PORT_DOWN);
		for (int r = 0; r < 2; r++) {
			world_finish(&w, sends[r], N);
			world_finish(&w, recvs[r], N);
		}
		for (int r = 0; r < 2; r++) {
			const struct tutti_conn *conn = fail_for_certain(r);
			if (!strstr(conn->error, "rank 0") || !strstr(conn->error, "rank 1"))
				fail_msg("it does not say who: %s", conn->error);
		}
		free_all();
		fake_repair();
		world_close(&w);
		assert_true(fake_is_clean());
	}
}

/* While a message is on its way into a granted buffer, as many receives as there are grants are
 * posted, the last into memory of another registration: what is sent again goes into the first. */
static void test_grants_ahead(void **state)
{
	enum { LAST = VERBS_GRANTS };
	struct post to[LAST + 1], from[LAST + 1];
	uint64_t words[LAST], got[LAST];
	uint8_t *other = malloc(MOST);

	assert_non_null(other);
	assert_int_equal(known_memory_add(other, MOST), TUTTI_OK);
	start(test_seed, 2, 8);
	post_recv(&to[1], world_conn(&w, 1, 0, 0), got, sizeof *got, 1);
	post_send(&from[1], world_conn(&w, 0, 1, 0), words, sizeof *words, 1);
	world_expect_ok(&w, &from[1], 1);
	world_expect_ok(&w, &to[1], 1);
	const struct verbs_conn *sender = (struct verbs_conn *)w.conns[0][1][0];
	const struct verbs_conn *receiver = (struct verbs_conn *)w.conns[1][0][0];
	bytes_fill(block + MOST, MOST, test_seed);
	post_recv(&to[0], w.conns[1][0][0], block, MOST, 1);
	while (sender->grants[1].bytes == 0)
		world_pump(&w);
	fake_hold_work(true);
	post_send(&from[0], w.conns[0][1][0], block + MOST, MOST, 1);
	assert_true(sender->rails[1].pieces > 0);
	fake_set_port(1, 1, IBV_PORT_DOWN);
	fake_hold_work(false);
	while (!receiver->in_payload[1])
		world_pump_only(&w, 1, 1);
	for (int i = 1; i < LAST; i++)
		post_recv(&to[i], w.conns[1][0][0], &got[i], sizeof *got, 1);
	post_recv(&to[LAST], w.conns[1][0][0], other, MOST, 1);
	world_expect_ok(&w, to, 1);
	expect_bytes(block, MOST, test_seed);
	for (int i = 1; i < LAST; i++)
		post_send(&from[i], w.conns[0][1][0], &words[i], sizeof *words, 1);
	post_send(&from[LAST], w.conns[0][1][0], block, MOST, 1);
	world_expect_ok(&w, from, LAST + 1);
	world_expect_ok(&w, to, LAST + 1);
	expect_bytes(other, MOST, test_seed);
	fake_repair();
	world_close(&w);
	assert_true(fake_is_clean());
	known_memory_remove(other);
	free(other);
}

/* A conn that ends while a rail is failing keeps nobody awake, though messages wait in it. */
static void test_ends_meanwhile(void **state)
{
	struct post sends_out[3], answer, recv;
	struct verbs_conn *conn;
	uint64_t word = 1, got = 0;

	start(test_seed, 2, 8);
	for (int i = 0; i < 3; i++)
		post_send(&sends_out[i], world_conn(&w, 0, 1, 0), &word, sizeof word, 1);
	world_conn(&w, 1, 0, 0);
	world_expect_ok(&w, sends_out, 3);
	fake_settle();
	post_recv(&recv, w.conns[1][0][0], &got, sizeof got, 1);
	world_expect_ok(&w, &recv, 1);
	conn = (struct verbs_conn *)w.conns[1][0][0];
	assert_int_not_equal(conn->arrived.first, conn->arrived.end);
	fake_hold_received(true);
	fake_break_pairs(0);
	post_send(&answer, &conn->base, &word, sizeof word, 1);
	for (int i = 0; i < 100000 && !conn->failing; i++)
		world_pump(&w);
	assert_int_equal(conn->failing, 1);
	fake_fail_call(FAKE_POLL_CQ, 0, EIO);
	world_pump_only(&w, 1, 10);
	assert_int_equal(conn->state, VERBS_ENDED);
	assert_int_equal(transport_verbs.arm(w.endpoints[1]), 0);
	fake_repair();
	world_close(&w);
	assert_true(fake_is_clean());
}

/* Both devices carry about half of the bytes. */
static void test_both_carry(void **state)
{
	uint64_t random = test_seed;
	const struct verbs_conn *conn;
	uint32_t ends[2];

	start(test_seed, 2, 8);
	post_all(&random);
	finish_all();
	conn = (const struct verbs_conn *)w.conns[0][1][0];
	for (int r = 0; r < 2; r++)
		ends[r] = conn->rails[r].asked.end;
	free_all();
	world_close(&w);
	assert_true(fake_is_clean());
	assert_true(ends[0] > ends[1] / 4 && ends[1] > ends[0] / 4);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_one_breaks), cmocka_unit_test(test_close_behind),
		cmocka_unit_test(test_all_break),  cmocka_unit_test(test_ends_meanwhile),
		cmocka_unit_test(test_both_carry), cmocka_unit_test(test_grants_ahead),
	};

	subject = &verbs;
	test_seed = on_fake_seed();
	block = malloc(4 * N * MOST);
	if (!block || known_memory_add(block, 4 * N * MOST) != TUTTI_OK)
		return 1;
	int failed = cmocka_run_group_tests(tests, NULL, NULL);
	known_memory_remove(block);
	free(block);
	return failed;
}
