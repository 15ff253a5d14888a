/* The thread of the fake that moves work requests and hands out completions: one queue pair at a
 * time, chosen by chance; each queue pair in its own order. */
#include "tests/verbs/fake/fake.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define NAP_NS  1000000u /* between two tries to reach a peer */
#define FOREVER 7        /* of rnr_retry */
#define STEPS   8        /* that a long message takes, at most about */
#define BLOCKS  64       /* of a message, about */

__attribute__((constructor)) static void init_work(void)
{
	pthread_condattr_t attr;

	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&fake.work, &attr);
	pthread_condattr_destroy(&attr);
}

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

void fake_activate(struct fake_pair *pair)
{
	fake.is_settled = false;
	pthread_cond_signal(&fake.work);
	if (pair->active >= 0)
		return;
	if (fake.active_count == fake.active_room) {
		fake.active_room = fake.active_room ? 2 * fake.active_room : 64;
		fake.active = realloc(fake.active, (size_t)fake.active_room * sizeof *fake.active);
		if (!fake.active)
			abort();
	}
	pair->active = fake.active_count;
	fake.active[fake.active_count++] = pair;
}

void fake_deactivate(struct fake_pair *pair)
{
	if (pair->active < 0)
		return;
	fake.active[pair->active] = fake.active[--fake.active_count];
	fake.active[pair->active]->active = pair->active;
	pair->active = -1;
}

static bool has_gid(const struct fake_pair *pair, const union ibv_gid *gid, enum ibv_gid_type type)
{
	const struct fake_device *device = fake_device_of(pair->base.context);

	for (unsigned i = 0; i < FAKE_GIDS; i++) {
		const struct fake_gid *own = fake_gid_at(device, pair->port, i);
		if (own && own->type == type && memcmp(own->raw, gid->raw, sizeof own->raw) == 0)
			return true;
	}
	return false;
}

static const struct fake_gid *own_gid(const struct fake_pair *pair)
{
	return fake_gid_at(fake_device_of(pair->base.context), pair->port,
			   pair->path.grh.sgid_index);
}

/* Packets that are addressed so come to peer's port, and are of the kind that it awaits. */
static bool is_path_to(const struct fake_pair *pair, const struct fake_pair *peer)
{
	const struct fake_port_config *from =
		&fake_device_of(pair->base.context)->config.port[pair->port - 1];
	const struct fake_port_config *to =
		&fake_device_of(peer->base.context)->config.port[peer->port - 1];

	if (from->is_infiniband != to->is_infiniband)
		return false;
	if (!pair->path.is_global)
		return pair->path.dlid == to->lid;
	const struct fake_gid *source = own_gid(pair), *target = own_gid(peer);
	return source && target && source->type == target->type &&
	       has_gid(peer, &pair->path.grh.dgid, source->type);
}

/* NULL: nobody answers. */
static struct fake_pair *peer_of(const struct fake_pair *pair)
{
	struct fake_pair *peer = fake_pair_numbered(pair->peer_number);

	if (!peer || (peer->base.state != IBV_QPS_RTR && peer->base.state != IBV_QPS_RTS) ||
	    peer->peer_number != pair->base.qp_num || peer->rq_psn != pair->sq_psn ||
	    !fake_port_is_active(fake_device_of(pair->base.context), pair->port) ||
	    !fake_port_is_active(fake_device_of(peer->base.context), peer->port) ||
	    !is_path_to(pair, peer))
		return NULL;
	return peer;
}

static bool takes_receive(enum ibv_wr_opcode opcode)
{
	return opcode != IBV_WR_RDMA_WRITE;
}

static bool is_write(enum ibv_wr_opcode opcode)
{
	return opcode == IBV_WR_RDMA_WRITE || opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
}

static void fail_send(struct fake_pair *pair, enum ibv_wc_status status)
{
	fake_pair_complete(pair, true, pair->sends.next++, status, IBV_WC_SEND, 0);
	fake_pair_break(pair);
}

/* The peer's end sees it too, if it has a receive for it; and its queue pair breaks. */
static void fail_both(struct fake_pair *pair, enum ibv_wc_status status, struct fake_pair *peer,
		      enum ibv_wc_status peers)
{
	if (peers != IBV_WC_SUCCESS)
		fake_pair_complete(peer, false, peer->recvs.next++, peers, IBV_WC_RECV, 0);
	fake_pair_break(peer);
	fail_send(pair, status);
}

static void give_up_later(struct fake_pair *pair)
{
	uint64_t now = now_ns();

	if (pair->moving.gives_up == 0)
		pair->moving.gives_up = now + (uint64_t)fake.config.retry_ms * 1000000u;
	if (now >= pair->moving.gives_up)
		fail_send(pair, IBV_WC_RETRY_EXC_ERR);
	else
		pair->not_before = now + NAP_NS;
}

static bool has_receive(struct fake_pair *peer, const struct fake_work *work)
{
	if (!takes_receive(work->send.opcode))
		return true;
	if (fake.refusals > 0) {
		fake.refusals--;
		return false;
	}
	return peer->recvs.next < peer->recvs.posted;
}

static void refuse(struct fake_pair *pair)
{
	if (pair->moving.refusals++ == 0)
		fake.counts.not_ready++;
	if (pair->rnr_retry != FOREVER && pair->moving.refusals > pair->rnr_retry)
		fail_send(pair, IBV_WC_RNR_RETRY_EXC_ERR);
	else
		pair->not_before = now_ns() + NAP_NS;
}

/* Of bytes that lie in several places, those that lie together from at on. */
static uint8_t *place(const struct ibv_sge *sges, size_t at, size_t *here)
{
	while (at >= sges->length)
		at -= sges++->length;
	*here = sges->length - at;
	return fake_reach(sges->addr + at, sges->lkey, false);
}

static bool are_allowed(const struct ibv_pd *pd, const struct ibv_sge *sges, int count, int access)
{
	for (int i = 0; i < count; i++)
		if (sges[i].length > 0 &&
		    !fake_is_allowed(pd, sges[i].addr, sges[i].length, sges[i].lkey, false, access))
			return false;
	return true;
}

/* False: it has failed. Asked before each step: memory may go meanwhile, and rights. */
static bool may_move(struct fake_pair *pair, struct fake_pair *peer, const struct fake_work *work)
{
	const struct fake_work *into = fake_work_at(&peer->recvs, peer->recvs.next);
	const struct ibv_send_wr *send = &work->send;

	if (!(send->send_flags & IBV_SEND_INLINE) &&
	    !are_allowed(pair->base.pd, work->sges, send->num_sge, 0)) {
		fail_send(pair, IBV_WC_LOC_PROT_ERR);
		return false;
	}
	if (pair->mtu > peer->mtu) {
		fail_both(pair, IBV_WC_REM_INV_REQ_ERR, peer, IBV_WC_SUCCESS);
		return false;
	}
	if (is_write(send->opcode)) {
		bool is_allowed =
			peer->access & IBV_ACCESS_REMOTE_WRITE &&
			fake_is_allowed(peer->base.pd, send->wr.rdma.remote_addr, work->bytes,
					send->wr.rdma.rkey, true, IBV_ACCESS_REMOTE_WRITE);
		if (work->bytes > 0 && !is_allowed)
			fail_both(pair, IBV_WC_REM_ACCESS_ERR, peer, IBV_WC_SUCCESS);
		return work->bytes == 0 || is_allowed;
	}
	if (work->bytes > into->bytes) {
		fail_both(pair, IBV_WC_REM_INV_REQ_ERR, peer, IBV_WC_LOC_LEN_ERR);
		return false;
	}
	if (!are_allowed(peer->base.pd, into->sges, into->recv.num_sge, IBV_ACCESS_LOCAL_WRITE)) {
		fail_both(pair, IBV_WC_REM_OP_ERR, peer, IBV_WC_LOC_PROT_ERR);
		return false;
	}
	return true;
}

static uint32_t common_divisor(uint32_t a, uint32_t b)
{
	while (b) {
		uint32_t rest = a % b;
		a = b;
		b = rest;
	}
	return a;
}

/* Its bytes go in blocks, each once, in an order that the stride gives. */
static void begin(struct fake_pair *pair, const struct fake_work *work)
{
	uint32_t bytes = (uint32_t)work->bytes, block = 64;

	while (block * BLOCKS < bytes)
		block *= 2;
	pair->moving.is_begun = true;
	pair->moving.block_bytes = block;
	pair->moving.blocks = (bytes + block - 1) / block;
	pair->moving.moved = 0;
	pair->moving.stride = 1;
	if (pair->moving.blocks > 1)
		do
			pair->moving.stride = 1 + fake_random(pair->moving.blocks - 1);
		while (common_divisor(pair->moving.stride, pair->moving.blocks) != 1);
}

struct target {
	const struct ibv_sge *sges; /* of a receive */
	uint8_t *at;                /* or of a write */
};

static void move_bytes(const struct fake_work *work, const struct target *to, size_t at, size_t end)
{
	for (size_t n; at < end; at += n) {
		size_t here = end - at, there = end - at;
		bool is_inline = work->send.send_flags & IBV_SEND_INLINE;
		const uint8_t *source =
			is_inline ? work->inlined + at : place(work->sges, at, &here);
		uint8_t *target = to->at ? to->at + at : place(to->sges, at, &there);
		n = here < there ? here : there;
		if (n > end - at)
			n = end - at;
		memcpy(target, source, n);
	}
}

static void move_blocks(struct fake_pair *pair, struct fake_pair *peer,
			const struct fake_work *work)
{
	uint32_t most = 1 + fake_random(pair->moving.blocks / STEPS * 2 + 1);
	struct target to = {.sges = fake_work_at(&peer->recvs, peer->recvs.next)->sges};

	if (is_write(work->send.opcode))
		to.at = fake_reach(work->send.wr.rdma.remote_addr, work->send.wr.rdma.rkey, true);
	for (; most > 0 && pair->moving.moved < pair->moving.blocks; most--) {
		uint64_t block =
			((uint64_t)pair->moving.moved++ * pair->moving.stride + pair->base.qp_num) %
			pair->moving.blocks;
		size_t at = (size_t)block * pair->moving.block_bytes;
		size_t end = at + pair->moving.block_bytes;
		move_bytes(work, &to, at, end < work->bytes ? end : work->bytes);
	}
}

static void count_moved(const struct fake_work *work)
{
	const struct ibv_send_wr *send = &work->send;

	fake.counts.bytes += (long)work->bytes;
	if (send->num_sge && !(send->send_flags & IBV_SEND_INLINE) &&
	    fake_is_dma_buf(work->sges[0].lkey, false))
		fake.counts.from_device += (long)work->bytes;
	if (is_write(send->opcode) && fake_is_dma_buf(send->wr.rdma.rkey, true))
		fake.counts.into_device += (long)work->bytes;
	fake.counts.sends += work->send.opcode == IBV_WR_SEND;
	fake.counts.writes += is_write(work->send.opcode);
	fake.counts.immediates += work->send.opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
	fake.counts.inlines += (work->send.send_flags & IBV_SEND_INLINE) != 0;
}

static void complete(struct fake_pair *pair, struct fake_pair *peer, const struct fake_work *work)
{
	const struct ibv_send_wr *send = &work->send;
	bool is_signaled = send->send_flags & IBV_SEND_SIGNALED || pair->is_all_signaled;

	count_moved(work);
	if (fake.moves_left > 0)
		fake.moves_left--;
	if (takes_receive(send->opcode)) {
		fake_pair_complete(peer, false, peer->recvs.next++, IBV_WC_SUCCESS,
				   is_write(send->opcode) ? IBV_WC_RECV_RDMA_WITH_IMM : IBV_WC_RECV,
				   work->bytes);
		if (send->opcode != IBV_WR_SEND) {
			fake_pair_last(peer)->wc.wc_flags = IBV_WC_WITH_IMM;
			fake_pair_last(peer)->wc.imm_data = send->imm_data;
		}
	}
	if (is_signaled)
		fake_pair_complete(pair, true, pair->sends.next, IBV_WC_SUCCESS,
				   is_write(send->opcode) ? IBV_WC_RDMA_WRITE : IBV_WC_SEND, 0);
	pair->sends.next++;
	memset(&pair->moving, 0, sizeof pair->moving);
}

/* The test has ordered that this one fails. */
static bool is_ordered_to_fail(const struct fake_work *work)
{
	if (!fake.fail.is_set || fake.fail.opcode != work->send.opcode || fake.fail.after-- > 0)
		return false;
	fake.fail.is_set = false;
	return true;
}

static void move(struct fake_pair *pair)
{
	const struct fake_work *work = fake_work_at(&pair->sends, pair->sends.next);
	struct fake_pair *peer = peer_of(pair);

	pair->not_before = 0;
	if (!pair->moving.is_begun && !pair->moving.refusals && !pair->moving.gives_up &&
	    is_ordered_to_fail(work)) {
		fail_send(pair, fake.fail.status);
		return;
	}
	if (!peer) {
		give_up_later(pair);
		return;
	}
	pair->moving.gives_up = 0;
	if (!pair->moving.is_begun && !has_receive(peer, work)) {
		refuse(pair);
		return;
	}
	if (!may_move(pair, peer, work))
		return;
	if (!pair->moving.is_begun)
		begin(pair, work);
	move_blocks(pair, peer, work);
	if (pair->moving.moved == pair->moving.blocks)
		complete(pair, peer, work);
}

static bool can_move(const struct fake_pair *pair)
{
	return pair->base.state == IBV_QPS_RTS && pair->sends.next < pair->sends.posted &&
	       fake.moves_left != 0;
}

/* The first completion that may be handed out; -1: there is none. */
static int first_pending(const struct fake_pair *pair)
{
	for (uint32_t i = 0; i < pair->pending_count; i++) {
		uint32_t at = (pair->pending_first + i) % pair->pending_most;
		if (!(pair->pending[at].is_send ? fake.holds_sent : fake.holds_received))
			return (int)i;
	}
	return -1;
}

static void hand_out(struct fake_pair *pair, int which)
{
	uint32_t most = pair->pending_most, first = pair->pending_first;
	struct fake_completion completion = pair->pending[(first + (uint32_t)which) % most];
	struct ibv_cq *cq = completion.is_send ? pair->base.send_cq : pair->base.recv_cq;

	for (uint32_t i = (uint32_t)which; i > 0; i--)
		pair->pending[(first + i) % most] = pair->pending[(first + i - 1) % most];
	pair->pending_first = (first + 1) % most;
	pair->pending_count--;
	fake_queue_add((struct fake_queue *)cq, &completion);
}

/* One turn of a queue pair. */
static void take_turn(struct fake_pair *pair)
{
	bool is_moving = can_move(pair) && now_ns() >= pair->not_before;
	int which = first_pending(pair);

	if (pair->hold > 0) {
		pair->hold--;
		return;
	}
	if (is_moving && (which < 0 || fake_random(2)))
		move(pair);
	else if (which >= 0)
		hand_out(pair, which);
	if (fake.config.delays > 0 && fake_random(4) == 0)
		pair->hold = fake_random(fake.config.delays);
}

/* When the first of those that are active has something to do: 0 for now, UINT64_MAX for not before
 * something else happens. */
static uint64_t next_ns(void)
{
	uint64_t first = UINT64_MAX;

	for (int i = 0; i < fake.active_count; i++) {
		const struct fake_pair *pair = fake.active[i];
		if (first_pending(pair) >= 0)
			return 0;
		if (can_move(pair) && pair->not_before < first)
			first = pair->not_before;
	}
	return first > now_ns() ? first : 0;
}

static void wait_until(uint64_t ns)
{
	struct timespec until = {.tv_sec = (time_t)(ns / 1000000000u),
				 .tv_nsec = (long)(ns % 1000000000u)};

	if (ns < UINT64_MAX) {
		pthread_cond_timedwait(&fake.work, &fake.lock, &until);
		return;
	}
	fake.is_settled = true;
	pthread_cond_broadcast(&fake.settled);
	pthread_cond_wait(&fake.work, &fake.lock);
}

static void *run(void *arg)
{
	fake_lock();
	while (!fake.is_ending) {
		uint64_t ns = next_ns();
		if (ns > 0) {
			wait_until(ns);
			continue;
		}
		struct fake_pair *pair = fake.active[fake_random((uint32_t)fake.active_count)];
		take_turn(pair);
		if (pair->pending_count == 0 &&
		    (pair->base.state != IBV_QPS_RTS || pair->sends.next == pair->sends.posted))
			fake_deactivate(pair);
		fake_unlock();
		fake_lock();
	}
	fake.is_settled = true;
	pthread_cond_broadcast(&fake.settled);
	fake_unlock();
	return arg;
}

bool fake_wire_begin(void)
{
	fake.is_ending = fake.is_settled = false;
	fake.has_thread = pthread_create(&fake.thread, NULL, run, NULL) == 0;
	return fake.has_thread;
}

void fake_wire_end(void)
{
	fake_lock();
	fake.is_ending = true;
	pthread_cond_broadcast(&fake.work);
	fake_unlock();
	pthread_join(fake.thread, NULL);
	fake_lock();
	fake.has_thread = false;
	free(fake.active);
	fake.active = NULL;
	fake.active_room = fake.active_count = 0;
	fake_unlock();
}
