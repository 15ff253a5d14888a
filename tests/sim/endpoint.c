/* sim as a transport: the table of functions that an engine or a test calls. */
#include "tests/sim/internal.h"

#include "core/status.h"
#include "transport/done_list.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define SIM_REACH 1000

static tutti_status sim_open(struct tutti_endpoint **out,
			     const struct tutti_endpoint_config *config)
{
	struct sim *sim = config->context;
	struct sim_endpoint *endpoint = calloc(1, sizeof(*endpoint));

	assert(sim && config->rank >= 0 && config->rank < sim->config.size);
	if (!endpoint)
		return fail(TUTTI_ERR_MEMORY, "No memory for rank %d's endpoint (sim).",
			    config->rank);
	endpoint->base.transport = &transport_sim;
	endpoint->base.address_bytes = sizeof(config->rank);
	memcpy(endpoint->base.address, &config->rank, sizeof(config->rank));
	endpoint->sim = sim;
	endpoint->rank = config->rank;
	memcpy(endpoint->comm_id, config->comm_id, sizeof endpoint->comm_id);
	tutti_done_init(&endpoint->done);
	endpoint->next = sim->ranks[config->rank].endpoints;
	sim->ranks[config->rank].endpoints = endpoint;
	*out = &endpoint->base;
	return TUTTI_OK;
}

static int sim_reach(struct tutti_endpoint *base, int peer, const uint8_t *address,
		     size_t address_bytes)
{
	const struct sim_endpoint *endpoint = (struct sim_endpoint *)base;
	int rank;

	if (address_bytes != sizeof rank || peer < 0 || peer >= endpoint->sim->config.size ||
	    peer == endpoint->rank)
		return 0;
	memcpy(&rank, address, sizeof rank);
	return rank == peer ? SIM_REACH : 0;
}

static bool is_gone(const struct sim *sim, int rank, const uint64_t comm_id[2])
{
	const struct sim_endpoint *endpoint = sim->ranks[rank].endpoints;

	while (endpoint && memcmp(endpoint->comm_id, comm_id, sizeof endpoint->comm_id) != 0)
		endpoint = endpoint->next;
	return endpoint && endpoint->is_gone;
}

static void leave_callers(struct sim_conn *conn)
{
	if (!conn->caller_link)
		return;
	*conn->caller_link = conn->next_caller;
	if (conn->next_caller)
		conn->next_caller->caller_link = conn->caller_link;
	conn->caller_link = NULL;
}

static void enter_callers(struct sim_rank *peer, struct sim_conn *conn)
{
	conn->next_caller = peer->callers;
	conn->caller_link = &peer->callers;
	if (peer->callers)
		peer->callers->caller_link = &conn->next_caller;
	peer->callers = conn;
}

/* Both ends live in this process: the conn is there at once, or has failed at once. */
static void meet(struct sim *sim, struct sim_conn *conn, int rank)
{
	const struct sim_endpoint *endpoint = (struct sim_endpoint *)conn->base.endpoint;
	int peer = conn->base.peer;

	if (sim->ranks[rank].is_dead || sim->ranks[peer].is_dead)
		sim_conn_fail(conn, TUTTI_ERR_PEER, "rank %d (sim) has died (sim_kill)",
			      sim->ranks[peer].is_dead ? peer : rank);
	else if (conn->in->sender_gone && !conn->in->head)
		sim_conn_fail(conn, TUTTI_ERR_PEER,
			      "rank %d (sim) closed its connection to rank %d", peer, rank);
	else if (conn->in->sender_gone)
		return; /* what it left behind can still be received */
	else if (conn->in->sender)
		leave_callers(conn->in->sender);
	else if (is_gone(sim, peer, endpoint->comm_id))
		sim_conn_fail(conn, TUTTI_ERR_PEER,
			      "rank %d (sim) refuses the connection of rank %d: it has left", peer,
			      rank);
	else
		enter_callers(&sim->ranks[peer], conn);
}

static tutti_status sim_connect(struct tutti_endpoint *base, int peer, int channel,
				const uint8_t *address, size_t address_bytes,
				struct tutti_conn **out)
{
	struct sim_endpoint *endpoint = (struct sim_endpoint *)base;
	struct sim *sim = endpoint->sim;
	struct sim_conn *conn = calloc(1, sizeof(*conn));
	int rank = endpoint->rank;

	assert(sim_reach(base, peer, address, address_bytes));
	if (conn) {
		conn->out = sim_stream_open(sim, rank, peer, endpoint->comm_id, channel);
		conn->in = sim_stream_open(sim, peer, rank, endpoint->comm_id, channel);
	}
	if (!conn || !conn->out || !conn->in) {
		free(conn);
		return fail(TUTTI_ERR_MEMORY, "No memory to connect ranks %d and %d (sim).", rank,
			    peer);
	}
	assert(!conn->out->sender && !conn->out->sender_gone); /* at most once per channel */
	conn->base.endpoint = base;
	conn->base.peer = peer;
	conn->base.channel = channel;
	conn->out->sender = conn;
	conn->in->receiver = conn;
	meet(sim, conn, rank);
	*out = &conn->base;
	return TUTTI_OK;
}

static void sim_send(struct tutti_conn *base, struct tutti_io *io)
{
	struct sim_conn *conn = (struct sim_conn *)base;
	struct sim *sim = sim_of(conn);

	io->conn = base;
	tutti_io_rewind(io);
	if (base->status != TUTTI_OK || conn->out->receiver_gone) {
		sim_conn_complete(conn, io, base->status);
		return;
	}
	if (!sim_stream_push(sim, conn->out, io)) {
		sim_conn_fail(conn, TUTTI_ERR_MEMORY, "No memory for a message to rank %d (sim).",
			      base->peer);
		sim_conn_complete(conn, io, TUTTI_ERR_MEMORY);
		return;
	}
	sim_stream_refresh(sim, conn->out);
}

static void sim_recv(struct tutti_conn *base, struct tutti_io *io)
{
	struct sim_conn *conn = (struct sim_conn *)base;

	io->conn = base;
	tutti_io_rewind(io);
	if (base->status != TUTTI_OK) {
		sim_conn_complete(conn, io, base->status);
		return;
	}
	tutti_done_push(&conn->in->recvs, io, TUTTI_IN_PROGRESS);
	sim_stream_refresh(sim_of(conn), conn->in);
}

static int sim_progress(struct tutti_endpoint *base, struct tutti_done *done)
{
	struct sim_endpoint *endpoint = (struct sim_endpoint *)base;

	return done_list_take(done, &endpoint->done);
}

static void free_if_unused(struct sim *sim, struct sim_stream *stream)
{
	if (stream->sender_gone && stream->receiver_gone && !stream->sender && !stream->receiver)
		sim_stream_free(sim, stream);
}

static void sim_close(struct tutti_conn *base)
{
	struct sim_conn *conn = (struct sim_conn *)base;

	if (!conn)
		return;
	struct sim *sim = sim_of(conn);
	leave_callers(conn);
	sim_conn_leave(conn);
	done_list_forget(&((struct sim_endpoint *)base->endpoint)->done, base);
	conn->out->sender = NULL;
	conn->in->receiver = NULL;
	free_if_unused(sim, conn->out);
	free_if_unused(sim, conn->in);
	free(conn);
}

static void sim_endpoint_destroy(struct tutti_endpoint *base)
{
	struct sim_endpoint *endpoint = (struct sim_endpoint *)base;

	if (!endpoint)
		return;
	endpoint->is_gone = true;
	/* The connects that wait for one of ours fail. */
	for (struct sim_conn *c = endpoint->sim->ranks[endpoint->rank].callers, *next; c;
	     c = next) {
		const struct sim_endpoint *caller = (struct sim_endpoint *)c->base.endpoint;
		next = c->next_caller;
		if (memcmp(caller->comm_id, endpoint->comm_id, sizeof caller->comm_id) != 0)
			continue;
		leave_callers(c);
		if (c->base.status == TUTTI_OK)
			sim_conn_fail(
				c, TUTTI_ERR_PEER,
				"rank %d (sim) closed its connection to rank %d before it was up",
				endpoint->rank, caller->rank);
	}
}

const struct tutti_transport transport_sim = {
	.abi = TUTTI_TRANSPORT_ABI,
	.name = "sim",
	.kinds = 1u << TUTTI_MEMORY_HOST,
	.open = sim_open,
	.reach = sim_reach,
	.connect = sim_connect,
	.send = sim_send,
	.recv = sim_recv,
	.progress = sim_progress,
	.close = sim_close,
	.destroy = sim_endpoint_destroy,
};
