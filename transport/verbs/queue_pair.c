/* The part of a conn that is the device's: its memory, its completion queue and its queue pair. */
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
_Static_assert(VERBS_MARKS >= VERBS_SENDS + VERBS_CHUNKS && (VERBS_MARKS & (VERBS_MARKS - 1)) == 0,
	       "each completion that was asked for has a mark");

static const struct verbs_library *library_of(const struct verbs_conn *conn)
{
	return conn->port->device->library;
}

static tutti_status fail_device(const struct verbs_conn *conn, const char *what, int why)
{
	char name[80];

	verbs_port_name(conn->port, name);
	return fail(why == ENOMEM ? TUTTI_ERR_MEMORY : TUTTI_ERR_DEVICE,
		    "verbs: rank %d cannot connect to rank %d by %s: %s: %s",
		    verbs_endpoint_of(conn)->rank, conn->base.peer, name, what, strerror(why));
}

static tutti_status open_memory(struct verbs_conn *conn)
{
	struct verbs_memory *m = &conn->memory;
	size_t chunks = (size_t)VERBS_CHUNKS * verbs_endpoint_of(conn)->chunk_bytes;
	uint8_t *at;

	m->chunk_bytes = verbs_endpoint_of(conn)->chunk_bytes;
	m->slot_bytes = m->chunk_bytes / VERBS_CHUNK_SLOTS;
	m->bytes = (size_t)(VERBS_RECEIVES + VERBS_SENDS) * m->slot_bytes + 2 * chunks;
	at = mmap(NULL, m->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (at == MAP_FAILED)
		return fail(TUTTI_ERR_MEMORY, "verbs: no memory (%zu KiB) to connect to rank %d",
			    m->bytes >> 10, conn->base.peer);
	m->base = m->chunks_in = at;
	m->chunks_out = m->chunks_in + chunks;
	m->sends = m->chunks_out + chunks;
	m->receives = m->sends + (size_t)VERBS_SENDS * m->slot_bytes;
	TRY(verbs_register(&m->remote, conn->port->device, m->chunks_in, chunks,
			   IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE));
	return verbs_register(&m->local, conn->port->device, m->chunks_out, m->bytes - chunks,
			      IBV_ACCESS_LOCAL_WRITE);
}

static tutti_status open_queue(struct verbs_conn *conn)
{
	const int most = (int)(VERBS_RECEIVES + VERBS_SENDS + 2 * VERBS_CHUNKS);

	conn->cq = library_of(conn)->create_cq(conn->port->device->context, most, conn,
					       verbs_endpoint_of(conn)->channel, 0);
	if (!conn->cq)
		return fail_device(conn, "ibv_create_cq", errno);
	return TUTTI_OK;
}

static tutti_status create_pair(struct verbs_conn *conn)
{
	static const uint32_t inlines[] = {VERBS_INLINE, 64, 0};
	struct ibv_qp_init_attr attr;

	for (size_t i = 0; i < sizeof inlines / sizeof *inlines && !conn->qp; i++) {
		attr = (struct ibv_qp_init_attr){
			.send_cq = conn->cq,
			.recv_cq = conn->cq,
			.qp_type = IBV_QPT_RC,
			.cap = {.max_send_wr = VERBS_SENDS + 2 * VERBS_CHUNKS,
				.max_recv_wr = VERBS_RECEIVES,
				.max_send_sge = 1,
				.max_recv_sge = 1,
				.max_inline_data = inlines[i]}};
		conn->qp = library_of(conn)->create_qp(conn->port->device->pd, &attr);
	}
	if (!conn->qp)
		return fail_device(conn, "ibv_create_qp", errno);
	conn->inline_bytes = attr.cap.max_inline_data;
	return TUTTI_OK;
}

static tutti_status modify(struct verbs_conn *conn, struct ibv_qp_attr *attr, int mask,
			   const char *what)
{
	int why = library_of(conn)->modify_qp(conn->qp, attr, mask);

	return why == 0 ? TUTTI_OK : fail_device(conn, what, why);
}

void verbs_post_receive(struct verbs_conn *conn, uint32_t slot)
{
	struct verbs_memory *m = &conn->memory;
	struct ibv_sge at = {.addr = (uintptr_t)m->receives + (uint64_t)slot * m->slot_bytes,
			     .length = m->slot_bytes,
			     .lkey = m->local->lkey};
	struct ibv_recv_wr wr = {.wr_id = slot, .sg_list = &at, .num_sge = 1}, *bad;
	int why = ibv_post_recv(conn->qp, &wr, &bad);

	if (why != 0)
		verbs_conn_end(conn, TUTTI_ERR_DEVICE,
			       "rank %d cannot receive from rank %d any more (verbs, channel %d; "
			       "ibv_post_recv): %s",
			       verbs_endpoint_of(conn)->rank, conn->base.peer, conn->base.channel,
			       strerror(why));
}

tutti_status verbs_pair_open(struct verbs_conn *conn)
{
	struct ibv_qp_attr init = {.qp_state = IBV_QPS_INIT,
				   .port_num = conn->port->number,
				   .qp_access_flags =
					   IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE};

	TRY(open_memory(conn));
	TRY(open_queue(conn));
	TRY(create_pair(conn));
	TRY(modify(conn, &init,
		   IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS,
		   "ibv_modify_qp to INIT"));
	for (uint32_t slot = 0; slot < VERBS_RECEIVES; slot++)
		verbs_post_receive(conn, slot);
	auth_random(&conn->packet_number, sizeof conn->packet_number);
	conn->packet_number &= 0xffffff;
	return TUTTI_OK;
}

void verbs_pair_hello(const struct verbs_conn *conn, struct verbs_hello *hello)
{
	const struct verbs_port *port = conn->port;

	*hello = (struct verbs_hello){.magic = MAGIC,
				      .qp_number = conn->qp->qp_num,
				      .packet_number = conn->packet_number,
				      .lid = port->lid,
				      .mtu = (uint8_t)port->mtu,
				      .wire = (uint8_t)port->wire,
				      .chunk_bytes = conn->memory.chunk_bytes,
				      .chunks_key = conn->memory.remote->rkey,
				      .chunks_at = (uintptr_t)conn->memory.chunks_in};
	memcpy(hello->gid, port->gid.raw, sizeof hello->gid);
}

static struct ibv_ah_attr path_to(const struct verbs_conn *conn, const struct verbs_hello *peer)
{
	const struct verbs_port *port = conn->port;
	struct ibv_ah_attr path = {.port_num = port->number, .dlid = peer->lid};

	if (port->wire != VERBS_INFINIBAND) {
		path.is_global = 1;
		path.grh.sgid_index = port->gid_index;
		path.grh.hop_limit = 64;
		memcpy(path.grh.dgid.raw, peer->gid, sizeof peer->gid);
	}
	return path;
}

tutti_status verbs_pair_connect(struct verbs_conn *conn, const struct verbs_hello *peer)
{
	uint8_t mtu = (uint8_t)conn->port->mtu;
	struct ibv_qp_attr receive = {.qp_state = IBV_QPS_RTR,
				      .path_mtu = peer->mtu < mtu ? peer->mtu : mtu,
				      .dest_qp_num = peer->qp_number,
				      .rq_psn = peer->packet_number,
				      .max_dest_rd_atomic = 1,
				      .min_rnr_timer = RNR_TIMER,
				      .ah_attr = path_to(conn, peer)};
	struct ibv_qp_attr send = {.qp_state = IBV_QPS_RTS,
				   .timeout = ACK_TIMEOUT,
				   .retry_cnt = RETRIES,
				   .rnr_retry = RNR_RETRIES,
				   .sq_psn = conn->packet_number,
				   .max_rd_atomic = 1};

	if (peer->magic != MAGIC || peer->chunk_bytes != conn->memory.chunk_bytes ||
	    peer->wire != conn->port->wire)
		return fail(TUTTI_ERR_MISMATCH,
			    "verbs: rank %d wants to connect in another way (%u, %u KiB) than rank "
			    "%d (%u, %u KiB): all ranks need the same Tutti",
			    conn->base.peer, peer->wire, peer->chunk_bytes >> 10,
			    verbs_endpoint_of(conn)->rank, conn->port->wire,
			    conn->memory.chunk_bytes >> 10);
	TRY(modify(conn, &receive,
		   IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
			   IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER,
		   "ibv_modify_qp to RTR"));
	TRY(modify(conn, &send,
		   IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
			   IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC,
		   "ibv_modify_qp to RTS"));
	conn->peer = *peer;
	conn->slots = VERBS_SLOTS;
	conn->chunks = VERBS_CHUNKS;
	return TUTTI_OK;
}

void verbs_pair_revoke(struct verbs_conn *conn)
{
	struct ibv_qp_attr none = {.qp_access_flags = 0};

	library_of(conn)->modify_qp(conn->qp, &none, IBV_QP_ACCESS_FLAGS);
}

void verbs_pair_close(struct verbs_conn *conn)
{
	const struct verbs_library *library = library_of(conn);
	struct verbs_memory *m = &conn->memory;

	if (conn->qp)
		library->destroy_qp(conn->qp);
	if (conn->cq)
		library->destroy_cq(conn->cq);
	if (m->local)
		library->dereg_mr(m->local);
	if (m->remote)
		library->dereg_mr(m->remote);
	if (m->base)
		munmap(m->base, m->bytes);
	conn->qp = NULL;
	conn->cq = NULL;
	*m = (struct verbs_memory){0};
}
