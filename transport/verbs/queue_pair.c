/* The part of a conn that is the devices': its memory, and its rails, each with a completion queue
 * and a queue pair. */
#include "transport/verbs/verbs.h"

#include "core/auth.h"
#include "core/status.h"

#include <assert.h>
#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#define MAGIC 0x31717276u /* "vrq1" */

/* 4.096 us * 2^15 = 134 ms without an acknowledgement, and then six times again (soft-RoCE takes
 * seven for no bound): no peer that runs is taken for dead because packets were lost. */
#define ACK_TIMEOUT 15
#define RETRIES     6
#define RNR_RETRIES 7  /* no bound; receives are always posted */
#define RNR_TIMER   12 /* 0.64 ms */

_Static_assert(VERBS_ARRIVALS >= VERBS_RECEIVES && (VERBS_ARRIVALS & (VERBS_ARRIVALS - 1)) == 0,
	       "each receive may wait");
_Static_assert(VERBS_ASKED >= VERBS_SENDS + VERBS_CHUNKS && (VERBS_ASKED & (VERBS_ASKED - 1)) == 0,
	       "each completion that was asked for is noted");
_Static_assert(sizeof(struct verbs_tally) <= OOB_TEXT_BYTES && VERBS_RAILS + 2 <= OOB_NOTES,
	       "each rail may fail");

static const struct verbs_library *verbs_library_of(const struct verbs_rail *rail)
{
	return rail->port->device->library;
}

static tutti_status queue_pair_fail_device(const struct verbs_conn *conn,
					   const struct verbs_rail *rail, const char *what, int why)
{
	char name[80], limit[VERBS_MEMLOCK_BYTES];

	verbs_port_name(rail->port, name);
	verbs_memlock_text(why, limit);
	return fail(why == ENOMEM ? TUTTI_ERR_MEMORY : TUTTI_ERR_DEVICE,
		    "verbs: rank %d cannot connect to rank %d by %s: %s: %s%s%s",
		    verbs_endpoint_of(conn)->rank, conn->base.peer, name, what, strerror(why),
		    limit[0] ? "; " : "", limit);
}

static tutti_status queue_pair_open_memory(struct verbs_conn *conn)
{
	struct verbs_memory *m = &conn->memory;
	size_t chunks = (size_t)VERBS_CHUNKS * verbs_endpoint_of(conn)->chunk_bytes;
	size_t slots = VERBS_SENDS + VERBS_RECEIVES * (size_t)conn->rail_count;
	uint8_t *at;

	m->chunk_bytes = verbs_endpoint_of(conn)->chunk_bytes;
	m->slot_bytes = m->chunk_bytes / VERBS_CHUNK_SLOTS;
	m->bytes = slots * m->slot_bytes + 2 * chunks;
	at = mmap(NULL, m->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (at == MAP_FAILED)
		return fail(TUTTI_ERR_MEMORY, "verbs: no memory (%zu KiB) to connect to rank %d",
			    m->bytes >> 10, conn->base.peer);
	m->base = m->chunks_in = at;
	m->chunks_out = m->chunks_in + chunks;
	m->sends = m->chunks_out + chunks;
	m->receives = m->sends + (size_t)VERBS_SENDS * m->slot_bytes;
	return TUTTI_OK;
}

/* A rail before this one with the same device; NULL: none. */
static const struct verbs_rail *queue_pair_find_twin(const struct verbs_conn *conn,
						     const struct verbs_rail *rail)
{
	for (const struct verbs_rail *r = conn->rails; r < rail; r++)
		if (r->port->device == rail->port->device)
			return r;
	return NULL;
}

static tutti_status queue_pair_register_memory(struct verbs_conn *conn, struct verbs_rail *rail)
{
	const struct verbs_rail *twin = queue_pair_find_twin(conn, rail);
	struct verbs_memory *m = &conn->memory;
	size_t chunks = (size_t)VERBS_CHUNKS * m->chunk_bytes;

	if (twin) {
		rail->remote = twin->remote;
		rail->local = twin->local;
		return TUTTI_OK;
	}
	TRY(verbs_register(&rail->remote, rail->port->device, m->chunks_in, chunks,
			   IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE));
	return verbs_register(&rail->local, rail->port->device, m->chunks_out, m->bytes - chunks,
			      IBV_ACCESS_LOCAL_WRITE);
}

static tutti_status verbs_open_queue(struct verbs_conn *conn, int r)
{
	const int most = (int)(VERBS_RECEIVES + VERBS_SENDS + 2 * VERBS_CHUNKS);
	struct verbs_rail *rail = &conn->rails[r];

	rail->cq = verbs_library_of(rail)->create_cq(rail->port->device->context, most, conn,
						     verbs_endpoint_of(conn)->channels[r], 0);
	if (!rail->cq)
		return queue_pair_fail_device(conn, rail, "ibv_create_cq", errno);
	return TUTTI_OK;
}

static tutti_status queue_pair_create_pair(struct verbs_conn *conn, struct verbs_rail *rail)
{
	static const uint32_t inlines[] = {VERBS_INLINE, 64, 0};
	struct ibv_qp_init_attr attr;

	for (size_t i = 0; i < sizeof inlines / sizeof *inlines && !rail->qp; i++) {
		attr = (struct ibv_qp_init_attr){
			.send_cq = rail->cq,
			.recv_cq = rail->cq,
			.qp_type = IBV_QPT_RC,
			.cap = {.max_send_wr = VERBS_SENDS + 2 * VERBS_CHUNKS,
				.max_recv_wr = VERBS_RECEIVES,
				.max_send_sge = 1,
				.max_recv_sge = 1,
				.max_inline_data = inlines[i]}};
		rail->qp = verbs_library_of(rail)->create_qp(rail->port->device->pd, &attr);
	}
	if (!rail->qp)
		return queue_pair_fail_device(conn, rail, "ibv_create_qp", errno);
	rail->inline_bytes = attr.cap.max_inline_data;
	return TUTTI_OK;
}

static tutti_status verbs_modify(struct verbs_conn *conn, struct verbs_rail *rail,
				 struct ibv_qp_attr *attr, int mask, const char *what)
{
	int why = verbs_library_of(rail)->modify_qp(rail->qp, attr, mask);

	return why == 0 ? TUTTI_OK : queue_pair_fail_device(conn, rail, what, why);
}

/* Returns errno's value. */
static int queue_pair_post_receive(struct verbs_conn *conn, struct verbs_rail *rail, uint32_t slot)
{
	struct ibv_sge at = {
		.addr = (uintptr_t)(rail->slots + (size_t)slot * conn->memory.slot_bytes),
		.length = conn->memory.slot_bytes,
		.lkey = rail->local->lkey};
	struct ibv_recv_wr wr = {.wr_id = slot, .sg_list = &at, .num_sge = 1}, *bad;
	int why = ibv_post_recv(rail->qp, &wr, &bad);

	rail->receives += why == 0;
	return why;
}

void verbs_post_receive(struct verbs_conn *conn, int r, uint32_t slot)
{
	struct verbs_rail *rail = &conn->rails[r];

	if (rail->state != VERBS_RAIL_WORKS)
		return;
	int why = queue_pair_post_receive(conn, rail, slot);
	if (why != 0)
		verbs_rail_lost(conn, r, TUTTI_ERR_DEVICE,
				"rank %d cannot receive from rank %d any more (verbs, channel %d; "
				"ibv_post_recv): %s",
				verbs_endpoint_of(conn)->rank, conn->base.peer, conn->base.channel,
				strerror(why));
}

static tutti_status queue_pair_open_rail(struct verbs_conn *conn, int r)
{
	struct verbs_rail *rail = &conn->rails[r];
	struct ibv_qp_attr init = {.qp_state = IBV_QPS_INIT,
				   .port_num = rail->port->number,
				   .qp_access_flags =
					   IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE};

	rail->slots = conn->memory.receives + (size_t)r * VERBS_RECEIVES * conn->memory.slot_bytes;
	TRY(queue_pair_register_memory(conn, rail));
	TRY(verbs_open_queue(conn, r));
	TRY(queue_pair_create_pair(conn, rail));
	TRY(verbs_modify(conn, rail, &init,
			 IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS,
			 "ibv_modify_qp to INIT"));
	for (uint32_t slot = 0; slot < VERBS_RECEIVES; slot++) {
		int why = queue_pair_post_receive(conn, rail, slot);
		if (why != 0)
			return queue_pair_fail_device(conn, rail, "ibv_post_recv", why);
	}
	auth_random(&rail->packet_number, sizeof rail->packet_number);
	rail->packet_number &= 0xffffff;
	return TUTTI_OK;
}

/* Devices without immediate data tell of pieces by frames, which have to take the same way. */
static int queue_pair_count_rails(const struct verbs_endpoint *endpoint)
{
	for (int i = 0; i < endpoint->port_count; i++)
		if (!endpoint->ports[i].device->has_immediate)
			return 1;
	return endpoint->port_count;
}

tutti_status verbs_pair_open(struct verbs_conn *conn)
{
	const struct verbs_endpoint *endpoint = verbs_endpoint_of(conn);

	conn->rail_count = queue_pair_count_rails(endpoint);
	for (int r = 0; r < conn->rail_count; r++)
		conn->rails[r].port = &endpoint->ports[r];
	TRY(queue_pair_open_memory(conn));
	for (int r = 0; r < conn->rail_count; r++)
		TRY(queue_pair_open_rail(conn, r));
	return TUTTI_OK;
}

static bool queue_pair_has_immediate(const struct verbs_conn *conn)
{
	for (int r = 0; r < conn->rail_count; r++)
		if (!conn->rails[r].port->device->has_immediate)
			return false;
	return true;
}

void verbs_pair_hello(const struct verbs_conn *conn, struct verbs_hello *hello)
{
	*hello = (struct verbs_hello){.magic = MAGIC,
				      .rails = (uint32_t)conn->rail_count,
				      .chunk_bytes = conn->memory.chunk_bytes,
				      .has_immediate = queue_pair_has_immediate(conn),
				      .chunks_at = (uintptr_t)conn->memory.chunks_in};
	for (int r = 0; r < conn->rail_count; r++) {
		const struct verbs_rail *rail = &conn->rails[r];
		hello->rail[r] = (struct verbs_rail_hello){.qp_number = rail->qp->qp_num,
							   .packet_number = rail->packet_number,
							   .chunks_key = rail->remote->rkey,
							   .lid = rail->port->lid,
							   .mtu = (uint8_t)rail->port->mtu,
							   .wire = (uint8_t)rail->port->wire};
		memcpy(hello->rail[r].gid, rail->port->gid.raw, sizeof hello->rail[r].gid);
	}
}

static struct ibv_ah_attr queue_pair_path_to(const struct verbs_rail *rail)
{
	const struct verbs_port *port = rail->port;
	struct ibv_ah_attr path = {.port_num = port->number, .dlid = rail->peer.lid};

	if (port->wire != VERBS_INFINIBAND) {
		path.is_global = 1;
		path.grh.sgid_index = port->gid_index;
		path.grh.hop_limit = 64;
		memcpy(path.grh.dgid.raw, rail->peer.gid, sizeof rail->peer.gid);
	}
	return path;
}

static tutti_status queue_pair_connect_rail(struct verbs_conn *conn, struct verbs_rail *rail)
{
	uint8_t mtu = (uint8_t)rail->port->mtu;
	struct ibv_qp_attr receive = {.qp_state = IBV_QPS_RTR,
				      .path_mtu = rail->peer.mtu < mtu ? rail->peer.mtu : mtu,
				      .dest_qp_num = rail->peer.qp_number,
				      .rq_psn = rail->peer.packet_number,
				      .max_dest_rd_atomic = 1,
				      .min_rnr_timer = RNR_TIMER,
				      .ah_attr = queue_pair_path_to(rail)};
	struct ibv_qp_attr send = {.qp_state = IBV_QPS_RTS,
				   .timeout = ACK_TIMEOUT,
				   .retry_cnt = RETRIES,
				   .rnr_retry = RNR_RETRIES,
				   .sq_psn = rail->packet_number,
				   .max_rd_atomic = 1};

	TRY(verbs_modify(conn, rail, &receive,
			 IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
				 IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER,
			 "ibv_modify_qp to RTR"));
	return verbs_modify(conn, rail, &send,
			    IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
				    IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC,
			    "ibv_modify_qp to RTS");
}

static void queue_pair_close_rail(struct verbs_conn *conn, struct verbs_rail *rail)
{
	const struct verbs_library *library = verbs_library_of(rail);

	if (rail->qp)
		library->destroy_qp(rail->qp);
	if (rail->cq)
		library->destroy_cq(rail->cq);
	if (rail->local && !queue_pair_find_twin(conn, rail))
		library->dereg_mr(rail->local);
	if (rail->remote && !queue_pair_find_twin(conn, rail))
		library->dereg_mr(rail->remote);
	*rail = (struct verbs_rail){.port = rail->port};
}

/* Packets go from one port to the other. */
static bool queue_pair_is_alike(const struct verbs_rail_hello *a, const struct verbs_rail_hello *b)
{
	return a->wire == b->wire &&
	       (a->wire != VERBS_INFINIBAND || memcmp(a->gid, b->gid, sizeof a->gid / 2) == 0);
}

/* Each port of the lower rank goes with the first one of the higher rank that is alike and free: so
 * both ends come to the same rails, in the same order. Ports that are left over are closed. */
static void queue_pair_match_rails(struct verbs_conn *conn, const struct verbs_hello *peer)
{
	bool is_low = verbs_endpoint_of(conn)->rank < conn->base.peer;
	struct verbs_rail rails[VERBS_RAILS];
	uint32_t high_used = 0, used = 0;
	struct verbs_hello own;
	int count = 0, end;

	verbs_pair_hello(conn, &own);
	memcpy(rails, conn->rails, sizeof rails);
	const struct verbs_hello *low = is_low ? &own : peer, *high = is_low ? peer : &own;
	for (uint32_t l = 0; l < low->rails; l++) {
		uint32_t h = 0;
		while (h < high->rails &&
		       (high_used >> h & 1 || !queue_pair_is_alike(&low->rail[l], &high->rail[h])))
			h++;
		if (h == high->rails)
			continue;
		high_used |= 1u << h;
		used |= 1u << (is_low ? l : h);
		conn->rails[count] = rails[is_low ? l : h];
		conn->rails[count++].peer = peer->rail[is_low ? h : l];
	}
	end = count;
	for (int r = 0; r < conn->rail_count; r++)
		if (!(used >> r & 1))
			conn->rails[end++] = rails[r];
	while (conn->rail_count > count)
		queue_pair_close_rail(conn, &conn->rails[--conn->rail_count]);
}

tutti_status verbs_pair_connect(struct verbs_conn *conn, const struct verbs_hello *peer)
{
	uint32_t wire = conn->rails[0].port->wire;
	bool is_same = peer->magic == MAGIC && peer->rails <= VERBS_RAILS &&
		       peer->chunk_bytes == conn->memory.chunk_bytes;

	if (is_same)
		queue_pair_match_rails(conn, peer);
	if (!is_same || conn->rail_count == 0)
		return fail(TUTTI_ERR_MISMATCH,
			    "verbs: rank %d wants to connect in another way (%u, %u KiB) than rank "
			    "%d (%u, %u KiB): all ranks need the same Tutti",
			    conn->base.peer, peer->rail[0].wire, peer->chunk_bytes >> 10,
			    verbs_endpoint_of(conn)->rank, wire, conn->memory.chunk_bytes >> 10);
	for (int r = 0; r < conn->rail_count; r++)
		TRY(queue_pair_connect_rail(conn, &conn->rails[r]));
	conn->has_immediate = queue_pair_has_immediate(conn) && peer->has_immediate;
	conn->peer_chunks = peer->chunks_at;
	conn->slots = VERBS_SLOTS;
	conn->chunks = VERBS_CHUNKS;
	return TUTTI_OK;
}

void verbs_pair_close(struct verbs_conn *conn)
{
	while (conn->rail_count > 0)
		queue_pair_close_rail(conn, &conn->rails[--conn->rail_count]);
	if (conn->memory.base)
		munmap(conn->memory.base, conn->memory.bytes);
	conn->memory = (struct verbs_memory){0};
}
