/* Would break: memory that the CPU may not touch (mapped by a dma-buf, as a GPU's): a byte that is
 * copied by hand, a message that waits for a grant which does not come, ends of which one is not
 * mapped, two grants that are taken for each other, and bytes that go astray when rails fail. */
#include "tests/core/memory/proof_kind.h"
#include "tests/transport/verbs/fake/on_fake.h"
#include "tests/whole.h"

#include "transport/registry.h"
#include "transport/verbs/verbs.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define N      40 /* messages of a direction */
#define MOST   ((size_t)1200000)
#define AREA   (N * MOST)
#define ROUNDS whole_or(24, 6, 3)

struct message {
	struct post send, recv;
	size_t bytes;
	bool is_mapped[2]; /* out, in */
	uint8_t *out, *in;
};

static const struct conformance verbs = {.transport = &transport_verbs, .is_one_process = true};
static struct world w;
static uint8_t *areas[2][2]; /* protected: of each rank, for out and for in */
static void *maps[2][2];
static struct message messages[2][N];

static void start_with(struct fake_config *config)
{
	fake_start(config);
	world_open(&w, 2);
	for (int r = 0; r < 2; r++)
		for (int i = 0; i < 2; i++)
			assert_int_equal(transport_verbs.map(w.endpoints[r], PROOF_KIND,
							     areas[r][i], AREA, &maps[r][i]),
					 TUTTI_OK);
}

static void start(uint64_t seed, int devices, bool has_immediate)
{
	struct fake_config config;

	fake_config_roce(&config, seed);
	config.device[0].has_no_immediate = !has_immediate;
	for (int d = 1; d < devices; d++)
		config.device[d] = config.device[0];
	config.devices = devices;
	config.delays = 8;
	start_with(&config);
}

static void end(void)
{
	fake_repair();
	for (int rank = 0; rank < 2; rank++)
		if (w.conns[rank][1 - rank][0])
			world_hang_up(&w, rank, 1 - rank, 0);
	for (int r = 0; r < 2; r++)
		for (int i = 0; i < 2; i++)
			transport_verbs.unmap(w.endpoints[r], maps[r][i]);
	world_close(&w);
	assert_true(fake_is_clean());
}

static void post(struct post *post, int rank, bool is_send, void *buf, size_t bytes, void *map)
{
	on_fake_post(post, world_conn(&w, rank, 1 - rank, 0), is_send, buf, bytes, map);
}

/* Memory of the host, where the other end's may be mapped. */
static void post_asking(struct post *post, int rank, bool is_send, void *buf, size_t bytes)
{
	memset(post, 0, sizeof *post);
	post->io = (struct tutti_io){.buf = buf, .bytes = bytes, .tag = 1, .asks = 1};
	(is_send ? transport_verbs.send : transport_verbs.recv)(world_conn(&w, rank, 1 - rank, 0),
								&post->io);
}

static size_t draw_bytes(uint64_t *random)
{
	static const size_t most[] = {2, 100, 9000, 100000, MOST};

	return random_below(random, most[random_below(random, sizeof most / sizeof *most)]);
}

/* Odd places, so that pages and words do not help. */
static void draw(int rank, int i, uint64_t *random)
{
	struct message *m = &messages[rank][i];
	size_t at = (size_t)i * MOST + random_below(random, 64);
	uint8_t *bytes = malloc(MOST), *zeros = calloc(1, MOST);

	assert_non_null(bytes);
	assert_non_null(zeros);
	m->bytes = draw_bytes(random);
	for (int side = 0; side < 2; side++)
		m->is_mapped[side] = random_below(random, 3) > 0;
	bytes_fill(bytes, m->bytes, (uint64_t)(rank * N + i));
	m->out = m->is_mapped[0] ? areas[rank][0] + at : bytes;
	m->in = m->is_mapped[1] ? areas[1 - rank][1] + at : zeros;
	if (m->is_mapped[0]) {
		proof_write(m->out, bytes, m->bytes);
		free(bytes);
	}
	if (m->is_mapped[1]) {
		proof_write(areas[1 - rank][1] + (size_t)i * MOST, zeros, MOST - 64);
		free(zeros);
	}
}

static void post_one(int rank, int i, bool is_send)
{
	struct message *m = &messages[rank][i];

	if (!is_send && m->is_mapped[0] && !m->is_mapped[1])
		post_asking(&m->recv, 1 - rank, false, m->in, m->bytes);
	else if (!is_send)
		post(&m->recv, 1 - rank, false, m->in, m->bytes,
		     m->is_mapped[1] ? maps[1 - rank][1] : NULL);
	else if (m->is_mapped[0] || !m->is_mapped[1])
		post(&m->send, rank, true, m->out, m->bytes,
		     m->is_mapped[0] ? maps[rank][0] : NULL);
	else
		post_asking(&m->send, rank, true, m->out, m->bytes);
}

/* In any order that keeps each queue's own; breaks is called once in between. */
static void post_all(uint64_t *random, void (*breaks)(uint64_t *random))
{
	int next[2][2] = {{0}};

	for (int left = 4 * N; left > 0;) {
		int rank = (int)random_below(random, 2), side = (int)random_below(random, 2);
		for (size_t n = random_below(random, 15); n > 0 && next[rank][side] < N; n--) {
			post_one(rank, next[rank][side]++, side == 0);
			left--;
		}
		world_pump_for(&w, (int)random_below(random, 30));
		if (breaks && left < 2 * N) {
			breaks(random);
			breaks = NULL;
		}
	}
}

static void check(int rank, int i)
{
	struct message *m = &messages[rank][i];
	uint8_t *bytes = malloc(MOST);
	bool is_touched = false;

	assert_non_null(bytes);
	world_expect_ok(&w, &m->send, 1);
	world_expect_ok(&w, &m->recv, 1);
	if (m->is_mapped[1]) {
		size_t rest = MOST - 64 - m->bytes % (MOST - 64);
		proof_read(bytes, m->in, m->bytes);
		expect_bytes(bytes, m->bytes, (uint64_t)(rank * N + i));
		proof_read(bytes, m->in + m->bytes, rest < 64 ? rest : 64);
		for (size_t b = 0; b < (rest < 64 ? rest : 64); b++)
			is_touched |= bytes[b] != 0;
		assert_false(is_touched);
	} else {
		expect_bytes(m->in, m->bytes, (uint64_t)(rank * N + i));
		free(m->in);
	}
	if (!m->is_mapped[0])
		free(m->out);
	free(bytes);
}

static void round_of(uint64_t seed, void (*breaks)(uint64_t *random))
{
	uint64_t random = seed;

	for (int r = 0; r < 2; r++)
		for (int i = 0; i < N; i++)
			draw(r, i, &random);
	post_all(&random, breaks);
	for (int r = 0; r < 2; r++)
		for (int i = 0; i < N; i++)
			check(r, i);
	assert_int_equal(fake_count().not_ready, 0);
	end();
}

static void test_messages(void **state)
{
	for (int round = 0; round < ROUNDS; round++) {
		int devices = 1 + round % 3;
		start(test_seed + (uint64_t)round, devices, devices != 1 || round % 2);
		round_of(test_seed + (uint64_t)round, NULL);
	}
}

static void break_one(uint64_t *random)
{
	if (random_below(random, 2))
		fake_break_pairs((int)random_below(random, 2));
	else
		fake_fail_work(IBV_WR_RDMA_WRITE_WITH_IMM, (long)random_below(random, 10),
			       IBV_WC_RETRY_EXC_ERR);
}

static void test_a_rail_breaks(void **state)
{
	for (int round = 0; round < ROUNDS; round++) {
		start(test_seed + (uint64_t)round, 2, true);
		round_of(test_seed + (uint64_t)round, break_one);
	}
}

/* More messages of the host are on their way than there are slots: the first receive's grant comes
 * all the same. */
static void test_grant_without_slot(void **state)
{
	struct post hosts[VERBS_SLOTS + 8], late[VERBS_SLOTS + 8], send, recv;
	uint64_t word = 5, got = 0;

	start(test_seed, 1, true);
	proof_write(areas[1][0], &word, sizeof word);
	for (size_t i = 0; i < VERBS_SLOTS + 8; i++)
		post(&hosts[i], 0, true, &word, sizeof word, NULL);
	world_conn(&w, 1, 0, 0);
	world_expect_ok(&w, hosts, VERBS_SLOTS);
	post(&recv, 0, false, areas[0][1], sizeof word, maps[0][1]);
	post(&send, 1, true, areas[1][0], sizeof word, maps[1][0]);
	world_expect_ok(&w, &send, 1);
	world_expect_ok(&w, &recv, 1);
	proof_read(&got, areas[0][1], sizeof got);
	assert_int_equal(got, word);
	for (size_t i = 0; i < VERBS_SLOTS + 8; i++)
		post(&late[i], 1, false, &got, sizeof got, NULL);
	world_expect_ok(&w, late, VERBS_SLOTS + 8);
	world_expect_ok(&w, hosts, VERBS_SLOTS + 8);
	end();
}

/* Memory of the host that does not ask, into mapped memory; and lengths that differ. */
static void test_mismatch(void **state)
{
	uint8_t host[64] = {0};

	for (int i = 0; i < 3; i++) {
		struct post send, recv;
		bool is_from = i == 2;
		size_t bytes = i == 0 ? 64 : 48;
		start(test_seed, 1, true);
		post(&recv, 1, false, is_from ? host : areas[1][1], 64,
		     is_from ? NULL : maps[1][1]);
		post(&send, 0, true, is_from ? areas[0][0] : host, bytes,
		     is_from ? maps[0][0] : NULL);
		world_finish(&w, &recv, 1);
		assert_int_equal(recv.io.status, TUTTI_ERR_MISMATCH);
		world_finish(&w, &send, 1);
		if (i == 0)
			EXPECT_WORDS(w.conns[1][0][0]->error, "rank 0", "rank 1", "64 bytes",
				     "from host memory");
		else
			EXPECT_WORDS(w.conns[1][0][0]->error, "48 bytes", "64 bytes");
		end();
	}
}

/* A mapped send of several places goes to a mapped receive, and a receive of several places of the
 * host gets what a mapped send carries. */
static void test_pieces(void **state)
{
	uint8_t bytes[9000], got[9000], host[9000];
	struct tutti_piece out[] = {
		{areas[0][0] + 5, 3}, {areas[0][0] + 70001, 8000}, {areas[0][0] + 10, 997}};
	struct tutti_piece in[] = {{host + 8990, 10}, {host, 8990}};
	struct post send[2], recv[2];

	bytes_fill(bytes, sizeof bytes, 1);
	start(test_seed, 2, true);
	for (size_t i = 0, at = 0; i < 3; at += out[i++].bytes)
		proof_write(out[i].buf, bytes + at, out[i].bytes);
	memset(send, 0, sizeof send);
	memset(recv, 0, sizeof recv);
	for (int i = 0; i < 2; i++) {
		send[i].io = (struct tutti_io){.pieces = out,
					       .piece_count = 3,
					       .tag = 1,
					       .bytes = sizeof bytes,
					       .map = maps[0][0]};
		recv[i].io = (struct tutti_io){.bytes = sizeof bytes, .tag = 1};
		transport_verbs.send(world_conn(&w, 0, 1, 0), &send[i].io);
	}
	recv[0].io.buf = areas[1][1] + 3;
	recv[0].io.map = maps[1][1];
	recv[1].io.pieces = in;
	recv[1].io.piece_count = 2;
	for (int i = 0; i < 2; i++)
		transport_verbs.recv(world_conn(&w, 1, 0, 0), &recv[i].io);
	world_expect_ok(&w, send, 2);
	world_expect_ok(&w, recv, 2);
	proof_read(got, areas[1][1] + 3, sizeof got);
	assert_memory_equal(got, bytes, sizeof got);
	assert_memory_equal(host + 8990, bytes, 10);
	assert_memory_equal(host, bytes + 10, 8990);
	end();
}

/* After close neither end's memory is touched. */
static void test_closed(void **state)
{
	for (int round = 0; round < ROUNDS; round++) {
		uint64_t random = test_seed + (uint64_t)round, before = 7, after = 0;
		struct post send, recv;
		int closer = round % 2;
		start(random, 2, true);
		post(&recv, 1, false, areas[1][1], MOST, maps[1][1]);
		post(&send, 0, true, areas[0][0], MOST, maps[0][0]);
		world_pump_for(&w, (int)random_below(&random, 40));
		world_hang_up(&w, closer, 1 - closer, 0);
		for (size_t at = 0; at + sizeof before <= MOST; at += 50000)
			proof_write(areas[1][closer ? 1 : 0] + at, &before, sizeof before);
		world_finish(&w, closer ? &send : &recv, 1);
		fake_settle();
		for (size_t at = 0; closer && at + sizeof after <= MOST; at += 50000) {
			proof_read(&after, areas[1][1] + at, sizeof after);
			assert_int_equal(after, before);
		}
		end();
	}
}

/* What cannot be mapped is UNSUPPORTED, with a reason, and leaves nothing open. */
static void test_refusals(void **state)
{
	struct fake_config config;
	uint8_t host[64];
	void *map;

	fake_config_roce(&config, test_seed);
	config.devices = 2;
	config.device[1] = config.device[0];
	start_with(&config);
	assert_int_equal(transport_verbs.map(w.endpoints[0], PROOF_KIND, NULL, 0, &map), TUTTI_OK);
	assert_int_equal(transport_verbs.map(w.endpoints[0], TUTTI_MEMORY_HOST, host, 64, &map),
			 TUTTI_ERR_UNSUPPORTED);
	EXPECT_WORDS(last_error(), "no dma-buf of host memory");
	fake_fail_call(FAKE_REG_MR, 1, ENOMEM);
	assert_int_equal(transport_verbs.map(w.endpoints[0], PROOF_KIND, areas[0][0], 64, &map),
			 TUTTI_ERR_MEMORY);
	end();
	config.device[1].has_no_dma_buf = true;
	fake_start(&config);
	world_open(&w, 2);
	assert_int_equal(transport_verbs.map(w.endpoints[0], PROOF_KIND, areas[0][0], 64, &map),
			 TUTTI_ERR_UNSUPPORTED);
	EXPECT_WORDS(last_error(), "rank 0", "fake_1", "ibv_reg_dmabuf_mr", "not supported");
	assert_int_equal(transport_verbs.map(w.endpoints[0], PROOF_KIND, NULL, 0, &map),
			 TUTTI_ERR_UNSUPPORTED);
	EXPECT_WORDS(last_error(), "rank 0", "fake_1", "ibv_reg_dmabuf_mr", "not supported");
	world_close(&w);
	assert_true(fake_is_clean());
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_messages),
		cmocka_unit_test(test_a_rail_breaks),
		cmocka_unit_test(test_grant_without_slot),
		cmocka_unit_test(test_mismatch),
		cmocka_unit_test(test_pieces),
		cmocka_unit_test(test_closed),
		cmocka_unit_test(test_refusals),
	};

	subject = &verbs;
	test_seed = on_fake_seed();
	if (proof_kind_use(test_seed) != TUTTI_OK)
		return 1;
	for (int r = 0; r < 2; r++)
		for (int i = 0; i < 2; i++)
			if (!(areas[r][i] = proof_alloc(AREA)))
				return 1;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
