/* Would break: the fake takes what hardware refuses, so what passes on it proves nothing. Each
 * wrong order of its calls is refused, or counted as a violation. */
#include "tests/verbs/fake/fake_verbs.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>

#include "tests/unit.h"

/* The header's macro calls another where the access is no constant. */
#undef ibv_reg_mr

#define SENDS 8
#define RECVS 4
#define BYTES 8192

#define TO_INIT (IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS)
#define TO_RTR                                                                                     \
	(IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |            \
	 IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER)
#define TO_RTS                                                                                     \
	(IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |     \
	 IBV_QP_MAX_QP_RD_ATOMIC)

/* Two queue pairs, each with a completion queue, and memory of both. */
static struct {
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_comp_channel *channel;
	struct ibv_cq *cq[2];
	struct ibv_qp *qp[2];
	struct ibv_mr *mr[2];
	uint8_t bytes[2][BYTES];
} it;

static void open_all(const struct fake_config *config, int entries)
{
	struct ibv_device **list;

	memset(&it, 0, sizeof it);
	fake_start(config);
	list = ibv_get_device_list(NULL);
	assert_non_null(list);
	it.context = ibv_open_device(list[0]);
	ibv_free_device_list(list);
	assert_non_null(it.context);
	it.pd = ibv_alloc_pd(it.context);
	it.channel = ibv_create_comp_channel(it.context);
	fcntl(it.channel->fd, F_SETFL, O_NONBLOCK);
	for (int i = 0; i < 2; i++) {
		struct ibv_qp_init_attr attr = {.qp_type = IBV_QPT_RC,
						.cap = {.max_send_wr = SENDS,
							.max_recv_wr = RECVS,
							.max_send_sge = 2,
							.max_recv_sge = 1,
							.max_inline_data = 64}};
		it.cq[i] = ibv_create_cq(it.context, entries, &it, it.channel, 0);
		assert_non_null(it.cq[i]);
		attr.send_cq = attr.recv_cq = it.cq[i];
		it.qp[i] = ibv_create_qp(it.pd, &attr);
		assert_non_null(it.qp[i]);
		it.mr[i] = ibv_reg_mr(it.pd, it.bytes[i], BYTES,
				      IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
		assert_non_null(it.mr[i]);
	}
}

static void setup(void)
{
	struct fake_config config;

	fake_config_roce(&config, 20261125);
	open_all(&config, 64);
}

static void close_all(void)
{
	for (int i = 0; i < 2; i++) {
		assert_int_equal(ibv_destroy_qp(it.qp[i]), 0);
		assert_int_equal(ibv_destroy_cq(it.cq[i]), 0);
		assert_int_equal(ibv_dereg_mr(it.mr[i]), 0);
	}
	assert_int_equal(ibv_destroy_comp_channel(it.channel), 0);
	assert_int_equal(ibv_dealloc_pd(it.pd), 0);
	assert_int_equal(ibv_close_device(it.context), 0);
}

static struct ibv_qp_attr values(int to)
{
	struct ibv_qp_attr attr = {.port_num = 1,
				   .qp_access_flags = IBV_ACCESS_REMOTE_WRITE,
				   .path_mtu = IBV_MTU_1024,
				   .dest_qp_num = it.qp[to]->qp_num,
				   .rq_psn = 5,
				   .sq_psn = 5,
				   .rnr_retry = 2,
				   .retry_cnt = 6,
				   .ah_attr = {.is_global = 1, .port_num = 1}};

	attr.ah_attr.grh.sgid_index = 3;
	attr.ah_attr.grh.hop_limit = 64;
	attr.ah_attr.grh.dgid.raw[10] = attr.ah_attr.grh.dgid.raw[11] = 0xff;
	attr.ah_attr.grh.dgid.raw[12] = 10;
	attr.ah_attr.grh.dgid.raw[15] = 1;
	return attr;
}

static int step(int which, enum ibv_qp_state state, int mask)
{
	struct ibv_qp_attr attr = values(1 - which);

	attr.qp_state = state;
	return ibv_modify_qp(it.qp[which], &attr, mask);
}

static void connect_with(int which, struct ibv_qp_attr attr)
{
	attr.qp_state = IBV_QPS_INIT;
	assert_int_equal(ibv_modify_qp(it.qp[which], &attr, TO_INIT), 0);
	attr.qp_state = IBV_QPS_RTR;
	assert_int_equal(ibv_modify_qp(it.qp[which], &attr, TO_RTR), 0);
	attr.qp_state = IBV_QPS_RTS;
	assert_int_equal(ibv_modify_qp(it.qp[which], &attr, TO_RTS), 0);
}

static void connect_all(void)
{
	connect_with(0, values(1));
	connect_with(1, values(0));
}

static int post_to(int which, enum ibv_wr_opcode opcode, size_t bytes, unsigned flags)
{
	struct ibv_sge sge = {(uintptr_t)it.bytes[which], (uint32_t)bytes, it.mr[which]->lkey};
	struct ibv_send_wr wr = {.wr_id = 100,
				 .sg_list = &sge,
				 .num_sge = 1,
				 .opcode = opcode,
				 .send_flags = flags,
				 .imm_data = 77,
				 .wr.rdma = {.remote_addr = (uintptr_t)it.bytes[1 - which],
					     .rkey = it.mr[1 - which]->rkey}},
			   *bad;

	return ibv_post_send(it.qp[which], &wr, &bad);
}

static int post_receive(int which, size_t bytes)
{
	struct ibv_sge sge = {(uintptr_t)it.bytes[which], (uint32_t)bytes, it.mr[which]->lkey};
	struct ibv_recv_wr wr = {.wr_id = 200, .sg_list = &sge, .num_sge = 1}, *bad;

	return ibv_post_recv(it.qp[which], &wr, &bad);
}

static struct ibv_wc next(int which)
{
	struct ibv_wc wc;

	fake_settle();
	assert_int_equal(ibv_poll_cq(it.cq[which], 1, &wc), 1);
	return wc;
}

static void expect_status(int which, enum ibv_wc_status status)
{
	struct ibv_wc wc = next(which);

	if (wc.status != status)
		print_error("%s where %s is expected\n", ibv_wc_status_str(wc.status),
			    ibv_wc_status_str(status));
	assert_int_equal(wc.status, status);
}

static void expect_nothing(int which)
{
	struct ibv_wc wc;

	fake_settle();
	assert_int_equal(ibv_poll_cq(it.cq[which], 1, &wc), 0);
}

static void test_states(void **state)
{
	setup();
	assert_int_equal(post_receive(0, 8), EINVAL);
	assert_int_equal(step(0, IBV_QPS_RTR, TO_RTR), EINVAL);
	assert_int_equal(step(0, IBV_QPS_INIT, TO_INIT & ~IBV_QP_PORT), EINVAL);
	assert_int_equal(step(0, IBV_QPS_INIT, TO_INIT | IBV_QP_SQ_PSN), EINVAL);
	assert_int_equal(step(0, IBV_QPS_INIT, TO_INIT), 0);
	assert_int_equal(post_receive(0, 8), 0);
	assert_int_equal(post_to(0, IBV_WR_SEND, 8, 0), EINVAL);
	assert_int_equal(step(0, IBV_QPS_RTR, TO_RTR & ~IBV_QP_AV), EINVAL);
	assert_int_equal(step(0, IBV_QPS_RTS, TO_RTS), EINVAL);
	assert_int_equal(step(0, IBV_QPS_RTR, TO_RTR), 0);
	assert_int_equal(post_to(0, IBV_WR_SEND, 8, 0), EINVAL);
	assert_int_equal(step(0, IBV_QPS_RTS, TO_RTS & ~IBV_QP_TIMEOUT), EINVAL);
	assert_int_equal(step(0, IBV_QPS_RTS, TO_RTS), 0);
	assert_int_equal(step(0, IBV_QPS_INIT, TO_INIT), EINVAL);
	assert_int_equal(step(0, IBV_QPS_ERR, IBV_QP_STATE), 0);
	expect_status(0, IBV_WC_WR_FLUSH_ERR);
	assert_int_equal(post_to(0, IBV_WR_SEND, 8, 0), 0);
	expect_status(0, IBV_WC_WR_FLUSH_ERR);
	close_all();
	assert_true(fake_is_clean());
}

static void test_path(void **state)
{
	struct ibv_qp_attr attr;

	setup();
	attr = values(1);
	attr.qp_state = IBV_QPS_INIT;
	attr.port_num = 2;
	assert_int_equal(ibv_modify_qp(it.qp[0], &attr, TO_INIT), EINVAL);
	attr.port_num = 1;
	assert_int_equal(ibv_modify_qp(it.qp[0], &attr, TO_INIT), 0);
	attr.qp_state = IBV_QPS_RTR;
	attr.path_mtu = IBV_MTU_4096; /* its port has 1024 */
	assert_int_equal(ibv_modify_qp(it.qp[0], &attr, TO_RTR), EINVAL);
	attr.path_mtu = IBV_MTU_1024;
	attr.ah_attr.grh.sgid_index = FAKE_GIDS - 1;
	assert_int_equal(ibv_modify_qp(it.qp[0], &attr, TO_RTR), EINVAL);
	attr.ah_attr.is_global = 0; /* RoCE has no LIDs */
	attr.ah_attr.dlid = 1;
	assert_int_equal(ibv_modify_qp(it.qp[0], &attr, TO_RTR), EINVAL);
	close_all();
	assert_true(fake_is_clean());
}

/* A path to a GID that no port has, or of another type, and a packet number that the peer does not
 * expect: nobody answers. */
static void test_nobody_answers(void **state)
{
	for (int i = 0; i < 4; i++) {
		struct ibv_qp_attr attr;
		setup();
		attr = values(1);
		attr.ah_attr.grh.dgid.raw[15] = i == 0 ? 9 : 1;
		attr.ah_attr.grh.sgid_index = i == 1 ? 2 : 3;
		attr.sq_psn = i == 2 ? 6 : 5;
		connect_with(0, attr);
		if (i < 3)
			connect_with(1, values(0));
		assert_int_equal(post_to(0, IBV_WR_RDMA_WRITE, 8, 0), 0);
		assert_int_equal(post_to(0, IBV_WR_RDMA_WRITE, 8, 0), 0);
		expect_status(0, IBV_WC_RETRY_EXC_ERR);
		expect_status(0, IBV_WC_WR_FLUSH_ERR);
		close_all();
		assert_true(fake_is_clean());
	}
}

static void test_messages(void **state)
{
	struct ibv_wc wc;

	setup();
	connect_all();
	assert_int_equal(post_receive(1, BYTES), 0);
	memset(it.bytes[0], 42, BYTES);
	assert_int_equal(post_to(0, IBV_WR_SEND, 5000, IBV_SEND_SIGNALED), 0);
	wc = next(1);
	assert_int_equal(wc.status, IBV_WC_SUCCESS);
	assert_int_equal(wc.opcode, IBV_WC_RECV);
	assert_int_equal(wc.wr_id, 200);
	assert_int_equal(wc.byte_len, 5000);
	assert_int_equal(it.bytes[1][4999], 42);
	assert_int_equal(it.bytes[1][5000], 0);
	assert_int_equal(next(0).opcode, IBV_WC_SEND);
	assert_int_equal(post_receive(1, 0), 0);
	assert_int_equal(post_to(0, IBV_WR_RDMA_WRITE_WITH_IMM, BYTES, 0), 0);
	wc = next(1);
	assert_int_equal(wc.opcode, IBV_WC_RECV_RDMA_WITH_IMM);
	assert_int_equal(wc.byte_len, BYTES);
	assert_int_equal(wc.imm_data, 77);
	assert_int_equal(it.bytes[1][BYTES - 1], 42);
	expect_nothing(0);
	close_all();
	assert_true(fake_is_clean());
}

/* What is sent inline is read at once, all else when it is moved. */
static void test_inline(void **state)
{
	setup();
	connect_all();
	fake_hold_work(true);
	memset(it.bytes[0], 1, 64);
	assert_int_equal(post_to(0, IBV_WR_RDMA_WRITE, 65, IBV_SEND_INLINE), EINVAL);
	assert_int_equal(post_to(0, IBV_WR_RDMA_WRITE, 64, IBV_SEND_INLINE), 0);
	memset(it.bytes[0], 2, 64);
	fake_hold_work(false);
	fake_settle();
	assert_int_equal(it.bytes[1][63], 1);
	fake_hold_work(true);
	assert_int_equal(post_to(0, IBV_WR_RDMA_WRITE, 64, 0), 0);
	memset(it.bytes[0], 3, 64);
	fake_hold_work(false);
	fake_settle();
	assert_int_equal(it.bytes[1][63], 3);
	close_all();
	assert_true(fake_is_clean());
}

/* Slots come back when a completion behind them is polled, and not before. */
static void test_slots(void **state)
{
	setup();
	connect_all();
	for (int i = 0; i < SENDS; i++)
		assert_int_equal(
			post_to(0, IBV_WR_RDMA_WRITE, 8, i == SENDS / 2 ? IBV_SEND_SIGNALED : 0),
			0);
	fake_settle();
	assert_int_equal(post_to(0, IBV_WR_RDMA_WRITE, 8, 0), ENOMEM);
	expect_status(0, IBV_WC_SUCCESS);
	for (int i = 0; i <= SENDS / 2; i++)
		assert_int_equal(post_to(0, IBV_WR_RDMA_WRITE, 8, 0), 0);
	assert_int_equal(post_to(0, IBV_WR_RDMA_WRITE, 8, 0), ENOMEM);
	for (int i = 0; i < RECVS; i++)
		assert_int_equal(post_receive(0, 8), 0);
	assert_int_equal(post_receive(0, 8), ENOMEM);
	close_all();
	assert_true(fake_is_clean());
}

static void register_again(int which, struct ibv_pd *pd, size_t bytes, int access)
{
	assert_int_equal(ibv_dereg_mr(it.mr[which]), 0);
	it.mr[which] = ibv_reg_mr(pd, it.bytes[which], bytes, access);
	assert_non_null(it.mr[which]);
}

static void test_keys(void **state)
{
	const int all = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;

	for (int i = 0; i < 4; i++) {
		struct ibv_pd *other;
		setup();
		other = ibv_alloc_pd(it.context);
		connect_all();
		if (i < 2)
			register_again(i, it.pd, 7, all);
		else if (i == 2)
			register_again(1, other, BYTES, all);
		else
			register_again(1, it.pd, BYTES, IBV_ACCESS_LOCAL_WRITE);
		it.bytes[0][0] = 1;
		assert_int_equal(post_to(0, IBV_WR_RDMA_WRITE, 8, 0), 0);
		expect_status(0, i == 0 ? IBV_WC_LOC_PROT_ERR : IBV_WC_REM_ACCESS_ERR);
		assert_int_equal(it.bytes[1][0], 0);
		register_again(1, it.pd, BYTES, all);
		assert_int_equal(ibv_dealloc_pd(other), 0);
		close_all();
		assert_true(fake_is_clean());
	}
}

static void test_receives(void **state)
{
	setup();
	connect_all();
	assert_int_equal(post_to(0, IBV_WR_SEND, 8, 0), 0);
	expect_status(0, IBV_WC_RNR_RETRY_EXC_ERR); /* it asks for two tries more */
	assert_int_equal(fake_count().not_ready, 1);
	close_all();
	setup();
	connect_all();
	assert_int_equal(post_receive(1, 7), 0);
	assert_int_equal(post_to(0, IBV_WR_SEND, 8, 0), 0);
	expect_status(0, IBV_WC_REM_INV_REQ_ERR);
	expect_status(1, IBV_WC_LOC_LEN_ERR);
	close_all();
	assert_true(fake_is_clean());
}

static void test_overrun(void **state)
{
	struct fake_config config;
	struct ibv_wc wc;

	fake_config_roce(&config, 1);
	open_all(&config, 2);
	connect_all();
	for (int i = 0; i < 3; i++)
		assert_int_equal(post_to(0, IBV_WR_RDMA_WRITE, 8, IBV_SEND_SIGNALED), 0);
	fake_settle();
	assert_true(ibv_poll_cq(it.cq[0], 1, &wc) < 0);
	assert_int_equal(fake_count().violations, 1);
	close_all();
}

/* One event for each time that it is asked for, and only for what comes after that. */
static void test_events(void **state)
{
	struct ibv_cq *cq;
	void *context;

	setup();
	connect_all();
	assert_int_equal(post_to(0, IBV_WR_RDMA_WRITE, 8, IBV_SEND_SIGNALED), 0);
	fake_settle();
	assert_int_equal(ibv_req_notify_cq(it.cq[0], 0), 0);
	assert_int_equal(ibv_get_cq_event(it.channel, &cq, &context), -1);
	for (int i = 0; i < 2; i++)
		assert_int_equal(post_to(0, IBV_WR_RDMA_WRITE, 8, IBV_SEND_SIGNALED), 0);
	fake_settle();
	assert_int_equal(ibv_get_cq_event(it.channel, &cq, &context), 0);
	assert_ptr_equal(cq, it.cq[0]);
	assert_ptr_equal(context, &it);
	assert_int_equal(ibv_get_cq_event(it.channel, &cq, &context), -1);
	ibv_ack_cq_events(cq, 1);
	close_all();
	assert_true(fake_is_clean());
}

static void test_in_use(void **state)
{
	setup();
	assert_int_equal(ibv_dealloc_pd(it.pd), EBUSY);
	assert_int_equal(ibv_destroy_cq(it.cq[0]), EBUSY);
	assert_int_equal(ibv_destroy_comp_channel(it.channel), EBUSY);
	close_all();
	assert_true(fake_is_clean());
}

static void test_no_immediate(void **state)
{
	struct fake_config config;

	fake_config_roce(&config, 1);
	config.device[0].has_no_immediate = true;
	open_all(&config, 64);
	connect_all();
	assert_int_equal(post_to(0, IBV_WR_RDMA_WRITE_WITH_IMM, 8, 0), EINVAL);
	assert_int_equal(post_to(0, IBV_WR_RDMA_WRITE, 8, 0), 0);
	close_all();
	assert_true(fake_is_clean());
}

/* The bytes of a write are there when its completion is. */
static void test_bytes_before_completion(void **state)
{
	struct ibv_wc wc;

	setup();
	connect_all();
	for (int round = 1; round < 200; round++) {
		memset(it.bytes[0], round, BYTES);
		assert_int_equal(post_to(0, IBV_WR_RDMA_WRITE, BYTES, IBV_SEND_SIGNALED), 0);
		while (ibv_poll_cq(it.cq[0], 1, &wc) == 0)
			;
		assert_int_equal(wc.status, IBV_WC_SUCCESS);
		assert_memory_equal(it.bytes[0], it.bytes[1], BYTES);
	}
	close_all();
	assert_true(fake_is_clean());
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_states),
		cmocka_unit_test(test_path),
		cmocka_unit_test(test_nobody_answers),
		cmocka_unit_test(test_messages),
		cmocka_unit_test(test_inline),
		cmocka_unit_test(test_slots),
		cmocka_unit_test(test_keys),
		cmocka_unit_test(test_receives),
		cmocka_unit_test(test_overrun),
		cmocka_unit_test(test_events),
		cmocka_unit_test(test_in_use),
		cmocka_unit_test(test_no_immediate),
		cmocka_unit_test(test_bytes_before_completion),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
