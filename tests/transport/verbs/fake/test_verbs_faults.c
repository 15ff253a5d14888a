/* Would break: what goes wrong on an RDMA device ends in a hang, a leak, a buffer that is touched
 * after its call, or an error that does not say which rank, port and status it was. */
#include "tests/transport/verbs/fake/on_fake.h"

#include "core/known_memory.h"
#include "core/status.h"
#include "transport/registry.h"
#include "transport/verbs/verbs.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#define LONG  ((size_t)3 << 20)
#define SHORT 100

static const struct conformance verbs = {.transport = &transport_verbs, .is_one_process = true};
static uint64_t seed;
static struct world w;
static uint8_t *out, *in;

static void start(void)
{
	struct fake_config config;

	fake_config_roce(&config, seed);
	fake_start(&config);
	last_error_clear();
}

/* Nothing is left open. */
static void expect_clean(void)
{
	assert_true(fake_is_clean());
}

static void pass(size_t bytes)
{
	struct post posts[2];

	bytes_fill(out, bytes, seed);
	post_recv(&posts[1], world_conn(&w, 1, 0, 0), in, bytes, 1);
	post_send(&posts[0], world_conn(&w, 0, 1, 0), out, bytes, 1);
	world_expect_ok(&w, posts, 2);
	expect_bytes(in, bytes, seed);
}

/* Two ranks that have talked. */
static void start_pair(void)
{
	start();
	world_open(&w, 2);
	pass(SHORT);
}

static void end_pair(void)
{
	fake_repair();
	world_close(&w);
	expect_clean();
}

static const char *conn_error(int rank)
{
	return w.conns[rank][1 - rank][0]->error;
}

/* Rank 0 sends so much to rank 1, and both ends fail. Returns rank 0's status. */
static tutti_status fail_pass(size_t bytes)
{
	struct post posts[2];

	post_recv(&posts[1], w.conns[1][0][0], in, bytes, 1);
	post_send(&posts[0], w.conns[0][1][0], out, bytes, 1);
	world_finish(&w, posts, 2);
	/* A short send is done when it is copied: what fails is the next one. */
	while (posts[0].io.status == TUTTI_OK) {
		post_send(&posts[0], w.conns[0][1][0], out, bytes, 1);
		world_finish(&w, posts, 1);
	}
	assert_int_not_equal(posts[1].io.status, TUTTI_OK);
	assert_int_equal(posts[0].io.status, w.conns[0][1][0]->status);
	return posts[0].io.status;
}

static void test_statuses(void **state)
{
	static const struct {
		enum ibv_wr_opcode opcode;
		enum ibv_wc_status status;
		tutti_status means;
		const char *words;
	} cases[] = {
		{IBV_WR_SEND, IBV_WC_RETRY_EXC_ERR, TUTTI_ERR_PEER,
		 "transport retry counter exceeded"},
		{IBV_WR_SEND, IBV_WC_RNR_RETRY_EXC_ERR, TUTTI_ERR_PEER,
		 "RNR retry counter exceeded"},
		{IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WC_REM_ACCESS_ERR, TUTTI_ERR_PEER,
		 "remote access error"},
		{IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WC_REM_OP_ERR, TUTTI_ERR_PEER,
		 "remote operation error"},
		{IBV_WR_SEND, IBV_WC_REM_INV_REQ_ERR, TUTTI_ERR_PEER,
		 "remote invalid request error"},
		{IBV_WR_SEND, IBV_WC_LOC_PROT_ERR, TUTTI_ERR_DEVICE, "local protection error"},
		{IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WC_LOC_LEN_ERR, TUTTI_ERR_DEVICE,
		 "local length error"},
		{IBV_WR_SEND, IBV_WC_FATAL_ERR, TUTTI_ERR_DEVICE, "fatal error"},
		{IBV_WR_SEND, IBV_WC_GENERAL_ERR, TUTTI_ERR_DEVICE, "general error"},
	};
	uint64_t random = seed;

	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		bool is_write = cases[i].opcode != IBV_WR_SEND;
		start_pair();
		fake_fail_work(cases[i].opcode, is_write ? (long)random_below(&random, 10) : 0,
			       cases[i].status);
		assert_int_equal(fail_pass(is_write ? LONG : SHORT), cases[i].means);
		EXPECT_WORDS(conn_error(0), "rank 0", "rank 1", "fake_0, port 1", cases[i].words);
		assert_int_equal(w.conns[1][0][0]->status, TUTTI_ERR_PEER);
		EXPECT_WORDS(conn_error(1), "rank 0", "rank 1");
		end_pair();
	}
}

/* The only message is lost while its sender, which is done with it, sleeps: it wakes, and the peer
 * that waits is told. */
static void test_failure_wakes(void **state)
{
	struct pollfd event;
	struct post posts[2];

	start_pair();
	fake_hold_work(true);
	post_recv(&posts[1], w.conns[1][0][0], in, SHORT, 1);
	post_send(&posts[0], w.conns[0][1][0], out, SHORT, 1);
	world_expect_ok(&w, posts, 1);
	while (transport_verbs.arm(w.endpoints[0]) != 0)
		world_pump_only(&w, 0, 1);
	fake_fail_work(IBV_WR_SEND, 0, IBV_WC_RETRY_EXC_ERR);
	fake_hold_work(false);
	event = (struct pollfd){.fd = transport_verbs.event_fd(w.endpoints[0]), .events = POLLIN};
	assert_int_equal(poll(&event, 1, WORLD_TIMEOUT_MS), 1);
	world_finish(&w, &posts[1], 1);
	assert_int_equal(posts[1].io.status, TUTTI_ERR_PEER);
	EXPECT_WORDS(conn_error(1), "rank 0", "rank 1", "transport retry counter exceeded");
	end_pair();
}

/* The end that says so: rank 0 may hear of rank 1 first that it has failed. */
static int who_failed(void)
{
	int who = w.conns[0][1][0]->status == TUTTI_ERR_DEVICE ? 0 : 1;

	assert_int_equal(w.conns[who][1 - who][0]->status, TUTTI_ERR_DEVICE);
	assert_int_not_equal(w.conns[1 - who][who][0]->status, TUTTI_OK);
	return who;
}

static void test_port_down(void **state)
{
	start_pair();
	fake_set_port(0, 1, IBV_PORT_DOWN);
	fail_pass(LONG);
	EXPECT_WORDS(conn_error(who_failed()), "rank 0", "rank 1", "fake_0, port 1", "down",
		     "transport retry counter exceeded");
	end_pair();
}

static void test_pairs_break(void **state)
{
	start_pair();
	fake_break_pairs(0);
	fail_pass(LONG);
	EXPECT_WORDS(conn_error(who_failed()), "rank 0", "rank 1", "fake_0, port 1", "active",
		     "Work Request Flushed Error");
	end_pair();
}

static void test_device_gone(void **state)
{
	struct post posts[2];

	start_pair();
	fake_move_only(3);
	post_recv(&posts[1], w.conns[1][0][0], in, LONG, 1);
	post_send(&posts[0], w.conns[0][1][0], out, LONG, 1);
	world_pump_for(&w, 10);
	fake_remove_device(0);
	world_finish(&w, posts, 2);
	for (int r = 0; r < 2; r++)
		assert_int_not_equal(posts[r].io.status, TUTTI_OK);
	EXPECT_WORDS(conn_error(who_failed()), "fake_0, port 1", "gone",
		     "Work Request Flushed Error");
	end_pair();
}

/* Posting or polling that fails is DEVICE, with errno's words where there are some. */
static void test_posting_fails(void **state)
{
	static const struct {
		enum fake_call call;
		int error;
		const char *words, *function;
	} cases[] = {
		{FAKE_POST_SEND, ENOMEM, "Cannot allocate memory", "ibv_post_send"},
		{FAKE_POST_RECV, EINVAL, "Invalid argument", "ibv_post_recv"},
		{FAKE_POLL_CQ, EIO, "completion queue", "has failed"},
	};

	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct post posts[2];
		start_pair();
		fake_fail_call(cases[i].call, 0, cases[i].error);
		post_recv(&posts[1], w.conns[1][0][0], in, LONG, 1);
		post_send(&posts[0], w.conns[0][1][0], out, LONG, 1);
		world_finish(&w, posts, 2);
		EXPECT_WORDS(conn_error(who_failed()), "rank 0", "rank 1", cases[i].words,
			     cases[i].function);
		end_pair();
	}
}

static tutti_status connect_once(void)
{
	struct tutti_conn *conn;

	return transport_verbs.connect(w.endpoints[0], 1, 0, w.endpoints[1]->address,
				       w.endpoints[1]->address_bytes, &conn);
}

static void test_connect_fails(void **state)
{
	static const struct {
		enum fake_call call;
		long after;
		int error;
		tutti_status status;
		const char *words, *reason;
	} cases[] = {
		{FAKE_REG_MR, 0, EFAULT, TUTTI_ERR_DEVICE, "fake_0", "Bad address"},
		{FAKE_REG_MR, 1, EFAULT, TUTTI_ERR_DEVICE, "fake_0", "Bad address"},
		{FAKE_REG_MR, 1, ENOMEM, TUTTI_ERR_MEMORY, "may lock 64 KiB", "ulimit -l"},
		{FAKE_CREATE_CQ, 0, ENOMEM, TUTTI_ERR_MEMORY, "ibv_create_cq", "rank 1"},
		{FAKE_CREATE_QP, 0, EINVAL, TUTTI_ERR_DEVICE, "ibv_create_qp", "rank 1"},
		{FAKE_CREATE_QP, 0, ENOMEM, TUTTI_ERR_MEMORY, "may lock 64 KiB", "ulimit -l"},
		{FAKE_MODIFY_QP, 0, EINVAL, TUTTI_ERR_DEVICE, "ibv_modify_qp to INIT", "rank 1"},
		{FAKE_POST_RECV, 0, EINVAL, TUTTI_ERR_DEVICE, "ibv_post_recv", "rank 1"},
	};
	struct rlimit before, little;

	assert_int_equal(getrlimit(RLIMIT_MEMLOCK, &before), 0);
	little = before;
	little.rlim_cur = 64 << 10;
	assert_int_equal(setrlimit(RLIMIT_MEMLOCK, &little), 0);
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		start();
		world_open(&w, 2);
		int regions = fake_count().regions; /* the two buffers */
		fake_fail_call(cases[i].call, cases[i].after, cases[i].error);
		assert_int_equal(connect_once(), cases[i].status);
		EXPECT_WORDS(last_error(), "verbs", cases[i].words, cases[i].reason);
		assert_null(strstr(last_error(), "overcommit"));
		assert_int_equal(fake_count().regions, regions);
		assert_int_equal(fake_count().queues, 0);
		fake_repair();
		pass(LONG);
		end_pair();
	}
	assert_int_equal(setrlimit(RLIMIT_MEMLOCK, &before), 0);
}

/* The peer's hello is here, and the queue pair does not connect. */
static void test_greeting_fails(void **state)
{
	for (long after = 2; after < 4; after++) {
		struct post posts[2];
		start();
		world_open(&w, 2);
		fake_fail_call(FAKE_MODIFY_QP, after, EINVAL);
		post_send(&posts[0], world_conn(&w, 0, 1, 0), out, SHORT, 1);
		post_recv(&posts[1], world_conn(&w, 1, 0, 0), in, SHORT, 1);
		world_finish(&w, posts, 2);
		EXPECT_WORDS(conn_error(who_failed()), "rank 0", "rank 1", "fake_0, port 1",
			     "ibv_modify_qp to RT");
		end_pair();
	}
}

/* A peer that is slow to post receives is waited for. */
static void test_not_ready(void **state)
{
	start_pair();
	fake_refuse_receives(20);
	pass(SHORT);
	pass(LONG);
	assert_true(fake_count().not_ready > 0);
	end_pair();
}

/* Completions that come late, for more messages than there are slots: what is on its way is not
 * overwritten, and all arrives. */
static void test_late_completions(void **state)
{
	enum { N = 200 };
	static struct post sends[N], recvs[N];

	for (int kind = 0; kind < 3; kind++) {
		start_pair();
		if (kind == 0)
			fake_hold_sent(true);
		else if (kind == 1)
			fake_hold_received(true);
		else
			fake_hold_work(true);
		bytes_fill(out, N * SHORT, seed);
		for (int i = 0; i < N; i++) {
			post_recv(&recvs[i], w.conns[1][0][0], in + i * SHORT, SHORT, 1);
			post_send(&sends[i], w.conns[0][1][0], out + i * SHORT, SHORT, 1);
		}
		for (int i = 0; i < 50; i++) {
			fake_settle();
			world_pump_for(&w, 4);
		}
		assert_int_equal(sends[VERBS_SLOTS + 1].is_done, kind == 0);
		assert_false(sends[N - 1].is_done);
		assert_false(recvs[N - 1].is_done);
		/* Those that are done have been copied. */
		for (int i = 0; i < N; i++)
			if (sends[i].is_done)
				memset(out + i * SHORT, 0, SHORT);
		fake_repair();
		world_expect_ok(&w, sends, N);
		world_expect_ok(&w, recvs, N);
		expect_bytes(in, N * SHORT, seed);
		assert_int_equal(fake_count().not_ready, 0);
		end_pair();
	}
}

/* Two messages from registered memory, moved one work request at a time: the first arrives though
 * its sender closes as soon as it is done, while the second is read. */
static void close_when_done(bool has_no_immediate)
{
	const size_t bytes = LONG / 2;
	struct fake_config config;
	struct post sends[2], recvs[2];

	fake_config_roce(&config, seed);
	config.device[0].has_no_immediate = has_no_immediate;
	fake_start(&config);
	world_open(&w, 2);
	pass(SHORT);
	bytes_fill(out, bytes, seed);
	fake_hold_work(true);
	for (int i = 0; i < 2; i++) {
		post_recv(&recvs[i], w.conns[1][0][0], in + (size_t)i * bytes, bytes, 1);
		post_send(&sends[i], w.conns[0][1][0], out + (size_t)i * bytes, bytes, 1);
	}
	for (int moves = 0; !sends[0].is_done; moves++) {
		assert_true(moves < 1000);
		fake_move_only(1);
		fake_settle();
		world_pump_for(&w, 2);
	}
	world_hang_up(&w, 0, 1, 0);
	fake_repair();
	world_finish(&w, recvs, 2);
	if (recvs[0].io.status != TUTTI_OK)
		fail_msg("a message that was done: %s", conn_error(1));
	expect_bytes(in, bytes, seed);
	end_pair();
}

static void test_close_when_done(void **state)
{
	close_when_done(false);
	close_when_done(true);
}

/* The receiver closes while its registered buffer is written: from then on it is its own. A short
 * message that it had sent still arrives, unless the device is slow. */
static void test_close_while_written(void **state)
{
	int arrived = 0;

	for (int round = 0; round < 30; round++) {
		struct post posts[4];
		uint64_t got;
		start_pair();
		post_recv(&posts[1], w.conns[1][0][0], in, LONG, 1);
		world_pump_for(&w, round);
		if (round % 2) {
			post_recv(&posts[3], w.conns[0][1][0], &got, sizeof got, 1);
			world_pump_for(&w, 4);
			fake_settle();
			world_pump_for(&w, 4); /* rank 0 knows that it may write */
			fake_hold_work(round % 4 == 1);
		}
		post_send(&posts[0], w.conns[0][1][0], out, LONG, 1);
		world_pump_for(&w, 3 * round);
		/* Closing waits for this one. */
		if (round % 2) {
			post_send(&posts[2], w.conns[1][0][0], &seed, sizeof seed, 1);
			world_finish(&w, &posts[2], 1);
		}
		world_hang_up(&w, 1, 0, 0);
		bytes_fill(in, LONG, seed + 1);
		fake_repair();
		fake_settle();
		expect_bytes(in, LONG, seed + 1);
		if (round % 4 == 3) {
			world_finish(&w, &posts[3], 1);
			arrived += posts[3].io.status == TUTTI_OK;
		}
		world_finish(&w, posts, 1);
		fake_settle();
		expect_bytes(in, LONG, seed + 1);
		end_pair();
	}
	assert_true(arrived > 0);
}

/* The sender closes when all of a registered buffer is posted, and none of it read yet: the peer
 * gets the bytes as they were, or an error. */
static void test_close_before_read(void **state)
{
	const size_t bytes = 4 * VERBS_CHUNK_BYTES;
	struct post posts[2];

	start_pair();
	pass(LONG);
	fake_settle();
	world_pump_for(&w, 4);
	bytes_fill(out, bytes, seed);
	fake_hold_work(true);
	post_send(&posts[0], w.conns[0][1][0], out, bytes, 1);
	world_pump_for(&w, 4);
	assert_false(posts[0].is_done);
	world_hang_up(&w, 0, 1, 0);
	memset(out, 0, bytes);
	fake_repair();
	post_recv(&posts[1], w.conns[1][0][0], in, bytes, 1);
	world_finish(&w, &posts[1], 1);
	if (posts[1].io.status == TUTTI_OK)
		expect_bytes(in, bytes, seed);
	end_pair();
}

/* Memory that cannot be registered is copied. */
static void test_unregistered(void **state)
{
	known_memory_remove(out);
	known_memory_remove(in);
	start();
	fake_fail_call(FAKE_REG_MR, 0, ENOMEM);
	world_open(&w, 2);
	assert_int_equal(known_memory_add(out, LONG), TUTTI_OK);
	assert_int_equal(known_memory_add(in, LONG), TUTTI_OK);
	fake_repair();
	pass(LONG);
	assert_true(fake_count().writes > (long)(LONG / VERBS_CHUNK_BYTES) / 2);
	end_pair();
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_statuses),
		cmocka_unit_test(test_failure_wakes),
		cmocka_unit_test(test_port_down),
		cmocka_unit_test(test_pairs_break),
		cmocka_unit_test(test_device_gone),
		cmocka_unit_test(test_posting_fails),
		cmocka_unit_test(test_connect_fails),
		cmocka_unit_test(test_greeting_fails),
		cmocka_unit_test(test_not_ready),
		cmocka_unit_test(test_late_completions),
		cmocka_unit_test(test_close_when_done),
		cmocka_unit_test(test_close_while_written),
		cmocka_unit_test(test_close_before_read),
		cmocka_unit_test(test_unregistered),
	};

	subject = &verbs;
	seed = test_seed = on_fake_seed();
	out = on_fake_registered(LONG);
	in = on_fake_registered(LONG);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
