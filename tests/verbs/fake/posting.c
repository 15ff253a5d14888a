/* Posted work requests of the fake. What is wrong with one shows here, or when it runs: as it does
 * with hardware. */
#include "tests/verbs/fake/fake.h"

#include <errno.h>
#include <string.h>

static bool is_full(const struct fake_ring *ring)
{
	return ring->posted - ring->done >= ring->most;
}

static size_t sum(const struct ibv_sge *sges, int count)
{
	size_t bytes = 0;

	for (int i = 0; i < count; i++)
		bytes += sges[i].length;
	return bytes;
}

static bool has_immediate(const struct ibv_send_wr *wr)
{
	return wr->opcode == IBV_WR_SEND_WITH_IMM || wr->opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
}

static int check_send(const struct fake_pair *pair, const struct ibv_send_wr *wr)
{
	bool is_known =
		wr->opcode == IBV_WR_SEND || wr->opcode == IBV_WR_RDMA_WRITE || has_immediate(wr);

	if (pair->base.state != IBV_QPS_RTS && pair->base.state != IBV_QPS_ERR)
		return EINVAL;
	if (!is_known || wr->num_sge < 0 || wr->num_sge > (int)pair->cap.max_send_sge)
		return EINVAL;
	if (has_immediate(wr) && fake_device_of(pair->base.context)->config.has_no_immediate)
		return EINVAL;
	if (wr->send_flags & IBV_SEND_INLINE &&
	    sum(wr->sg_list, wr->num_sge) > pair->cap.max_inline_data)
		return EINVAL;
	return is_full(&pair->sends) ? ENOMEM : 0;
}

/* Inline bytes are read now, all others when the request runs. */
static void keep_send(struct fake_pair *pair, const struct ibv_send_wr *wr)
{
	struct fake_work *work = fake_work_at(&pair->sends, pair->sends.posted++);
	size_t at = 0;

	work->send = *wr;
	work->bytes = sum(wr->sg_list, wr->num_sge);
	for (int i = 0; i < wr->num_sge; i++) {
		work->sges[i] = wr->sg_list[i];
		if (!(wr->send_flags & IBV_SEND_INLINE))
			continue;
		memcpy(work->inlined + at, (const void *)(uintptr_t)wr->sg_list[i].addr,
		       wr->sg_list[i].length);
		at += wr->sg_list[i].length;
	}
	if (pair->base.state == IBV_QPS_ERR)
		fake_pair_break(pair);
	else
		fake_activate(pair);
}

int fake_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	struct fake_pair *pair = (struct fake_pair *)qp;
	int error = 0;

	fake_lock();
	for (; wr && error == 0; wr = wr->next) {
		*bad = wr;
		error = fake_call_error(FAKE_POST_SEND, NULL);
		if (error == 0)
			error = check_send(pair, wr);
		if (error == 0)
			keep_send(pair, wr);
	}
	fake_unlock();
	return error;
}

static int check_recv(const struct fake_pair *pair, const struct ibv_recv_wr *wr)
{
	if (pair->base.state == IBV_QPS_RESET || wr->num_sge < 0 ||
	    wr->num_sge > (int)pair->cap.max_recv_sge)
		return EINVAL;
	return is_full(&pair->recvs) ? ENOMEM : 0;
}

static void keep_recv(struct fake_pair *pair, const struct ibv_recv_wr *wr)
{
	struct fake_work *work = fake_work_at(&pair->recvs, pair->recvs.posted++);

	work->recv = *wr;
	work->bytes = sum(wr->sg_list, wr->num_sge);
	for (int i = 0; i < wr->num_sge; i++)
		work->sges[i] = wr->sg_list[i];
	if (pair->base.state == IBV_QPS_ERR)
		fake_pair_break(pair);
}

int fake_post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	struct fake_pair *pair = (struct fake_pair *)qp;
	int error = 0;

	fake_lock();
	for (; wr && error == 0; wr = wr->next) {
		*bad = wr;
		error = fake_call_error(FAKE_POST_RECV, NULL);
		if (error == 0)
			error = check_recv(pair, wr);
		if (error == 0)
			keep_recv(pair, wr);
	}
	fake_unlock();
	return error;
}
