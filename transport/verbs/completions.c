/* The completion queues of a conn: what of its sends the peer has received, and what has come. */
#include "transport/verbs/verbs.h"

#include <arpa/inet.h>
#include <string.h>

#define BATCH 16

/* The peer's end of the wire does not answer, or refuses; or this end's device has failed. */
static bool completions_is_peers(enum ibv_wc_status status)
{
	switch (status) {
	case IBV_WC_RETRY_EXC_ERR:
	case IBV_WC_RNR_RETRY_EXC_ERR:
	case IBV_WC_REM_ACCESS_ERR:
	case IBV_WC_REM_INV_REQ_ERR:
	case IBV_WC_REM_OP_ERR:
	case IBV_WC_REM_ABORT_ERR:
	case IBV_WC_BAD_RESP_ERR:
		return true;
	default:
		return false;
	}
}

/* Completions of flushed requests come behind the one that tells why. */
static void verbs_break_off(struct verbs_conn *conn, int r, enum ibv_wc_status status)
{
	if (conn->rails[r].state != VERBS_RAIL_WORKS)
		return;
	const struct verbs_port *port = conn->rails[r].port;
	int rank = verbs_endpoint_of(conn)->rank;
	const char *words = port->device->library->wc_status_str(status);
	bool is_active;
	const char *state = verbs_port_state(port, &is_active);
	char name[80];

	verbs_port_name(port, name);
	if (completions_is_peers(status) && is_active)
		verbs_rail_lost(
			conn, r, TUTTI_ERR_PEER,
			"rank %d (verbs, channel %d) does not take what rank %d sends by %s: "
			"%s",
			conn->base.peer, conn->base.channel, rank, name, words);
	else
		verbs_rail_lost(conn, r, TUTTI_ERR_DEVICE,
				"rank %d cannot reach rank %d by %s (%s; verbs, channel %d): %s",
				rank, conn->base.peer, name, state, conn->base.channel, words);
}

static void verbs_acknowledge(struct verbs_conn *conn, struct verbs_rail *rail)
{
	const struct verbs_asked *asked = &rail->asked.of[rail->asked.first++ % VERBS_ASKED];

	if (asked->is_frame)
		conn->frames_acked = asked->frame;
	if (!asked->is_piece)
		return;
	conn->flights[asked->piece % VERBS_CHUNKS].is_acked = true;
	rail->pieces--;
	verbs_conn_complete_acked(conn);
}

static void verbs_damaged(struct verbs_conn *conn)
{
	verbs_conn_end(conn, TUTTI_ERR_INTERNAL,
		       "what rank %d sends to rank %d (verbs, channel %d) has a form that no rank "
		       "sends",
		       conn->base.peer, verbs_endpoint_of(conn)->rank, conn->base.channel);
}

/* By another rail it may have come before its turn. */
static void verbs_take_piece(struct verbs_conn *conn, uint32_t number, uint64_t bytes)
{
	uint32_t ahead = (number - conn->pieces_in.first) & VERBS_NUMBER_BITS;
	struct verbs_piece *piece =
		&conn->pieces_in.of[(conn->pieces_in.first + ahead) % VERBS_CHUNKS];
	bool is_placed = number & VERBS_IS_PLACED;

	if (ahead >= VERBS_CHUNKS || piece->is_here ||
	    bytes > (is_placed ? VERBS_IN_PLACE : conn->memory.chunk_bytes)) {
		verbs_damaged(conn);
		return;
	}
	*piece = (struct verbs_piece){true, is_placed, (uint32_t)bytes};
}

static void completions_take_grant(struct verbs_conn *conn, const uint8_t *payload, uint32_t bytes)
{
	struct verbs_grant grant;

	if (bytes != sizeof grant) {
		verbs_damaged(conn);
		return;
	}
	memcpy(&grant, payload, sizeof grant);
	conn->grants[grant.number % VERBS_GRANTS] = grant;
}

/* Completions of other rails may come behind it. */
static void completions_take_bye(struct verbs_conn *conn, uint32_t pieces)
{
	conn->pieces_in.has_end = true;
	conn->pieces_in.end = pieces;
}

static void completions_end_if_all_came(struct verbs_conn *conn)
{
	if (!conn->pieces_in.has_end)
		return;
	for (uint32_t n = conn->pieces_in.first; n != conn->pieces_in.end; n++)
		if (!conn->pieces_in.of[n % VERBS_CHUNKS].is_here)
			return;
	verbs_conn_end(conn, TUTTI_ERR_PEER,
		       "rank %d (verbs, channel %d) closed its connection to rank %d",
		       conn->base.peer, conn->base.channel, verbs_endpoint_of(conn)->rank);
}

/* Its slot is the receiver's until the message has been received, or free at once. */
static void completions_take_frame(struct verbs_conn *conn, int rail, uint32_t slot, uint32_t bytes)
{
	const uint8_t *at = verbs_slot(conn, rail, slot);
	struct verbs_frame frame;

	if (bytes < sizeof frame) {
		verbs_damaged(conn);
		return;
	}
	memcpy(&frame, at, sizeof frame);
	conn->frames_received++;
	conn->slots += frame.slots;
	conn->chunks += frame.chunks;
	if (conn->slots > VERBS_SLOTS || conn->chunks > VERBS_CHUNKS) {
		verbs_damaged(conn);
		return;
	}
	if (frame.kind == VERBS_DATA || frame.kind == VERBS_BULK || frame.kind == VERBS_ASKS) {
		conn->arrived.arrivals[conn->arrived.end++ % VERBS_ARRIVALS] =
			(struct verbs_arrival){(uint8_t)rail, (uint8_t)slot, bytes};
		return;
	}
	if (frame.kind == VERBS_GRANT || frame.kind == VERBS_OWED)
		completions_take_grant(conn, at + sizeof frame, bytes - (uint32_t)sizeof frame);
	conn->due.slots += frame.kind == VERBS_GRANT;
	verbs_post_receive(conn, rail, slot);
	if (frame.kind == VERBS_PIECE)
		verbs_take_piece(conn, frame.number, frame.bytes);
	else if (frame.kind == VERBS_BYE)
		completions_take_bye(conn, frame.number);
	else if (frame.kind < VERBS_GRANT || frame.kind > VERBS_BYE)
		verbs_damaged(conn);
}

static void completions_take_completion(struct verbs_conn *conn, int r, const struct ibv_wc *wc)
{
	bool is_receive = wc->wr_id != VERBS_SENT;

	conn->rails[r].receives -= is_receive;
	if (wc->status != IBV_WC_SUCCESS) {
		verbs_break_off(conn, r, wc->status);
	} else if (!is_receive) {
		verbs_acknowledge(conn, &conn->rails[r]);
	} else if (wc->opcode == IBV_WC_RECV_RDMA_WITH_IMM) {
		verbs_post_receive(conn, r, (uint32_t)wc->wr_id);
		verbs_take_piece(conn, ntohl(wc->imm_data), wc->byte_len);
	} else {
		completions_take_frame(conn, r, (uint32_t)wc->wr_id, wc->byte_len);
	}
}

static bool completions_take_of_rail(struct verbs_conn *conn, int r)
{
	struct ibv_wc wcs[BATCH];
	int count = ibv_poll_cq(conn->rails[r].cq, BATCH, wcs);

	if (count < 0) {
		verbs_conn_end(conn, TUTTI_ERR_DEVICE,
			       "the completion queue of rank %d's connection to rank %d (verbs, "
			       "channel %d) has failed",
			       verbs_endpoint_of(conn)->rank, conn->base.peer, conn->base.channel);
		return true;
	}
	for (int i = 0; i < count; i++)
		completions_take_completion(conn, r, &wcs[i]);
	return count > 0;
}

bool verbs_take_completions(struct verbs_conn *conn)
{
	bool is_any = false;

	for (int r = 0; r < conn->rail_count; r++)
		if (conn->rails[r].state != VERBS_RAIL_DEAD)
			is_any |= completions_take_of_rail(conn, r);
	completions_end_if_all_came(conn);
	return is_any;
}
