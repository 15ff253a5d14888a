/* Queue pairs of the fake: their states, and what completes on them. */
#include "tests/verbs/fake/fake.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static void ring_free(struct fake_ring *ring)
{
	free(ring->work);
}

static bool ring_init(struct fake_ring *ring, uint32_t most)
{
	ring->most = most ? most : 1;
	ring->work = calloc(ring->most, sizeof *ring->work);
	return ring->work != NULL;
}

static void pair_free(struct fake_pair *pair)
{
	if (!pair)
		return;
	ring_free(&pair->sends);
	ring_free(&pair->recvs);
	free(pair->pending);
	free(pair);
}

static bool is_possible(const struct ibv_pd *pd, const struct ibv_qp_init_attr *attr)
{
	const struct ibv_qp_cap *cap = &attr->cap;

	return attr->qp_type == IBV_QPT_RC && attr->send_cq && attr->recv_cq && !attr->srq &&
	       attr->send_cq->context == pd->context && attr->recv_cq->context == pd->context &&
	       cap->max_send_wr <= FAKE_WORK_MOST && cap->max_recv_wr <= FAKE_WORK_MOST &&
	       cap->max_send_sge <= FAKE_SGES && cap->max_recv_sge <= FAKE_SGES &&
	       cap->max_inline_data <= FAKE_INLINE &&
	       cap->max_inline_data <= fake_device_of(pd->context)->config.max_inline;
}

static struct fake_pair *pair_new(struct ibv_pd *pd, const struct ibv_qp_init_attr *attr)
{
	struct fake_pair *pair = calloc(1, sizeof *pair);

	if (!pair)
		return NULL;
	pair->base = (struct ibv_qp){.context = pd->context,
				     .qp_context = attr->qp_context,
				     .pd = pd,
				     .send_cq = attr->send_cq,
				     .recv_cq = attr->recv_cq,
				     .state = IBV_QPS_RESET,
				     .qp_type = IBV_QPT_RC};
	pair->cap = attr->cap;
	pair->is_all_signaled = attr->sq_sig_all;
	pair->active = -1;
	pair->pending_most = attr->cap.max_send_wr + attr->cap.max_recv_wr + 2;
	pair->pending = calloc(pair->pending_most, sizeof *pair->pending);
	if (!pair->pending || !ring_init(&pair->sends, attr->cap.max_send_wr) ||
	    !ring_init(&pair->recvs, attr->cap.max_recv_wr)) {
		pair_free(pair);
		return NULL;
	}
	return pair;
}

static void count_pair(struct fake_pair *pair, int change)
{
	((struct fake_domain *)pair->base.pd)->users += change;
	((struct fake_queue *)pair->base.send_cq)->users += change;
	((struct fake_queue *)pair->base.recv_cq)->users += change;
	fake_context_of(pair->base.context)->pairs += change;
	fake.counts.pairs += change;
}

struct ibv_qp *ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
	struct fake_pair *pair = NULL;
	int error = is_possible(pd, attr) ? 0 : EINVAL;

	if (error == 0 && !(pair = pair_new(pd, attr)))
		error = ENOMEM;
	fake_lock();
	if (error == 0)
		error = fake_call_error(FAKE_CREATE_QP, fake_device_of(pd->context));
	if (error == 0) {
		pair->base.qp_num = fake.numbers += 1 + fake_random(20);
		pair->next = fake.pairs;
		fake.pairs = pair;
		count_pair(pair, 1);
	}
	fake_unlock();
	if (error == 0)
		return &pair->base;
	pair_free(pair);
	errno = error;
	return NULL;
}

int ibv_destroy_qp(struct ibv_qp *qp)
{
	struct fake_pair *pair = (struct fake_pair *)qp, **at = &fake.pairs;

	fake_lock();
	while (*at != pair)
		at = &(*at)->next;
	*at = pair->next;
	fake_deactivate(pair);
	fake_queue_forget((struct fake_queue *)qp->send_cq, pair);
	fake_queue_forget((struct fake_queue *)qp->recv_cq, pair);
	count_pair(pair, -1);
	fake_unlock();
	pair_free(pair);
	return 0;
}

struct fake_pair *fake_pair_numbered(uint32_t number)
{
	struct fake_pair *pair = fake.pairs;

	while (pair && pair->base.qp_num != number)
		pair = pair->next;
	return pair;
}

struct fake_completion *fake_pair_last(struct fake_pair *pair)
{
	return &pair->pending[(pair->pending_first + pair->pending_count - 1) % pair->pending_most];
}

void fake_pair_complete(struct fake_pair *pair, bool is_send, uint64_t number,
			enum ibv_wc_status status, enum ibv_wc_opcode opcode, size_t bytes)
{
	const struct fake_ring *ring = is_send ? &pair->sends : &pair->recvs;
	const struct fake_work *work = fake_work_at(ring, number);
	struct ibv_wc wc;

	/* Of one that failed only these are valid. */
	memset(&wc, 0xa5, sizeof wc);
	wc.wr_id = is_send ? work->send.wr_id : work->recv.wr_id;
	wc.status = status;
	wc.vendor_err = 0;
	wc.qp_num = pair->base.qp_num;
	if (status == IBV_WC_SUCCESS) {
		wc.opcode = opcode;
		wc.wc_flags = 0;
		if (!is_send) {
			wc.byte_len = (uint32_t)bytes;
			wc.src_qp = pair->peer_number;
		}
	}
	pair->pending_count++;
	*fake_pair_last(pair) = (struct fake_completion){wc, pair, is_send, number};
	fake_activate(pair);
}

static void flush(struct fake_pair *pair, struct fake_ring *ring, bool is_send)
{
	for (; ring->next < ring->posted; ring->next++)
		fake_pair_complete(pair, is_send, ring->next, IBV_WC_WR_FLUSH_ERR, IBV_WC_SEND, 0);
}

void fake_pair_break(struct fake_pair *pair)
{
	pair->base.state = IBV_QPS_ERR;
	memset(&pair->moving, 0, sizeof pair->moving);
	pair->not_before = 0;
	flush(pair, &pair->sends, true);
	flush(pair, &pair->recvs, false);
}

static void reset(struct fake_pair *pair)
{
	fake_deactivate(pair);
	fake_queue_forget((struct fake_queue *)pair->base.send_cq, pair);
	fake_queue_forget((struct fake_queue *)pair->base.recv_cq, pair);
	pair->pending_count = 0;
	pair->sends.done = pair->sends.next = pair->sends.posted = 0;
	pair->recvs.done = pair->recvs.next = pair->recvs.posted = 0;
	memset(&pair->moving, 0, sizeof pair->moving);
	pair->not_before = 0;
	pair->base.state = IBV_QPS_RESET;
}

/* What ibv_modify_qp must be told for each step, and what it may be told. */
static const struct transition {
	enum ibv_qp_state from, to;
	int needed, optional;
} transitions[] = {
	{IBV_QPS_RESET, IBV_QPS_INIT, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS, 0},
	{IBV_QPS_INIT, IBV_QPS_INIT, 0, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS},
	{IBV_QPS_INIT, IBV_QPS_RTR,
	 IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
		 IBV_QP_MIN_RNR_TIMER,
	 IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX},
	{IBV_QPS_RTR, IBV_QPS_RTS,
	 IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
		 IBV_QP_MAX_QP_RD_ATOMIC,
	 IBV_QP_CUR_STATE | IBV_QP_ACCESS_FLAGS | IBV_QP_MIN_RNR_TIMER},
	{IBV_QPS_RTS, IBV_QPS_RTS, 0,
	 IBV_QP_CUR_STATE | IBV_QP_ACCESS_FLAGS | IBV_QP_MIN_RNR_TIMER},
};

static bool is_allowed(enum ibv_qp_state from, enum ibv_qp_state to, int mask)
{
	mask &= ~IBV_QP_STATE;
	if (to == IBV_QPS_ERR || to == IBV_QPS_RESET)
		return mask == 0;
	for (size_t i = 0; i < sizeof transitions / sizeof *transitions; i++) {
		const struct transition *t = &transitions[i];
		if (t->from == from && t->to == to)
			return (mask & t->needed) == t->needed &&
			       (mask & ~(t->needed | t->optional)) == 0;
	}
	return false;
}

static bool is_ipv4(const uint8_t gid[16])
{
	static const uint8_t mapped[12] = {[10] = 0xff, 0xff};

	return memcmp(gid, mapped, sizeof mapped) == 0;
}

static bool path_is_possible(const struct fake_pair *pair, const struct ibv_ah_attr *path)
{
	const struct fake_device *device = fake_device_of(pair->base.context);
	bool is_infiniband = device->config.port[pair->port - 1].is_infiniband;

	if (path->port_num != pair->port)
		return false;
	if (!path->is_global)
		return is_infiniband && path->dlid != 0;
	const struct fake_gid *own = fake_gid_at(device, pair->port, path->grh.sgid_index);
	/* The kernel does not route between IPv4 and IPv6. */
	return path->grh.hop_limit > 0 && own &&
	       (own->type != IBV_GID_TYPE_ROCE_V2 ||
		is_ipv4(own->raw) == is_ipv4(path->grh.dgid.raw));
}

static int check_values(const struct fake_pair *pair, const struct ibv_qp_attr *attr, int mask)
{
	const struct fake_device *device = fake_device_of(pair->base.context);

	if (mask & IBV_QP_PORT && (attr->port_num < 1 || attr->port_num > device->config.ports))
		return EINVAL;
	if (mask & IBV_QP_PKEY_INDEX && attr->pkey_index != 0)
		return EINVAL;
	if (mask & IBV_QP_AV && !path_is_possible(pair, &attr->ah_attr))
		return EINVAL;
	if (mask & IBV_QP_PATH_MTU && (attr->path_mtu < IBV_MTU_256 ||
				       attr->path_mtu > device->config.port[pair->port - 1].mtu))
		return EINVAL;
	if (mask & (IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY) &&
	    (attr->retry_cnt > 7 || attr->rnr_retry > 7))
		return EINVAL;
	if ((mask & IBV_QP_RQ_PSN && attr->rq_psn >> 24) ||
	    (mask & IBV_QP_SQ_PSN && attr->sq_psn >> 24))
		return EINVAL;
	return 0;
}

static void set(struct fake_pair *pair, const struct ibv_qp_attr *attr, int mask)
{
	if (mask & IBV_QP_PORT)
		pair->port = attr->port_num;
	/* As irdma and older bnxt_re, which take no right away. */
	if (mask & IBV_QP_ACCESS_FLAGS)
		pair->access |= attr->qp_access_flags;
	if (mask & IBV_QP_AV)
		pair->path = attr->ah_attr;
	if (mask & IBV_QP_PATH_MTU)
		pair->mtu = attr->path_mtu;
	if (mask & IBV_QP_DEST_QPN)
		pair->peer_number = attr->dest_qp_num;
	if (mask & IBV_QP_RQ_PSN)
		pair->rq_psn = attr->rq_psn;
	if (mask & IBV_QP_SQ_PSN)
		pair->sq_psn = attr->sq_psn;
	if (mask & IBV_QP_RETRY_CNT)
		pair->retry_cnt = attr->retry_cnt;
	if (mask & IBV_QP_RNR_RETRY)
		pair->rnr_retry = attr->rnr_retry;
}

/* Under the lock. */
static int modify(struct fake_pair *pair, const struct ibv_qp_attr *attr, int mask)
{
	enum ibv_qp_state to = mask & IBV_QP_STATE ? attr->qp_state : pair->base.state;
	int error = fake_call_error(FAKE_MODIFY_QP, fake_device_of(pair->base.context));

	if (error == 0 && !is_allowed(pair->base.state, to, mask))
		error = EINVAL;
	if (error == 0)
		error = check_values(pair, attr, mask);
	if (error != 0)
		return error;
	if (to == IBV_QPS_ERR) {
		fake_pair_break(pair);
	} else if (to == IBV_QPS_RESET) {
		reset(pair);
	} else {
		set(pair, attr, mask);
		pair->base.state = to;
	}
	return 0;
}

int ibv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask)
{
	fake_lock();
	int error = modify((struct fake_pair *)qp, attr, mask);
	fake_unlock();
	return error;
}
