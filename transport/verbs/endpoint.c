/* The endpoint of verbs: its address, one pass over its active conns, sleeping, and the table of
 * functions. */
#include "core/clock.h"
#include "core/forks.h"
#include "core/log.h"
#include "core/status.h"
#include "transport/done_list.h"
#include "transport/verbs/verbs.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

/* An endpoint's address: oob's, and behind it how packets reach its ports. */

#define MAGIC 0x31627276u /* "vrb1" */

/* MB/s. More than ucx and tcp say, less than shared memory. */
#define REACH 12000
/* A device that is no InfiniBand and no RoCE (iWARP) is for those who ask for it: its queue pairs
 * may connect by librdmacm alone, which this transport does not use. */
#define REACH_OTHER 500

struct trailer {
	uint32_t magic;
	uint8_t wires;         /* bits 1 << enum verbs_wire */
	uint8_t has_immediate; /* all of its devices */
	uint16_t reserved;
	uint64_t subnet; /* of its first InfiniBand port */
};

_Static_assert(sizeof(struct trailer) <= OOB_ROOM_BYTES, "it fits behind oob's address");

static void verbs_address_make(struct verbs_endpoint *endpoint)
{
	const struct tutti_endpoint *tcp = oob_tcp(endpoint->oob);
	struct trailer own = {.magic = MAGIC, .has_immediate = 1};

	for (int i = endpoint->port_count - 1; i >= 0; i--) {
		const struct verbs_port *port = &endpoint->ports[i];
		own.wires |= (uint8_t)(1u << port->wire);
		own.has_immediate &= port->device->has_immediate;
		if (port->wire == VERBS_INFINIBAND)
			own.subnet = port->gid.global.subnet_prefix;
	}
	memcpy(endpoint->base.address, tcp->address, tcp->address_bytes);
	memcpy(endpoint->base.address + tcp->address_bytes, &own, sizeof own);
	endpoint->base.address_bytes = tcp->address_bytes + sizeof own;
}

/* The part of an address that oob connects to. */
static size_t verbs_address_oob(size_t bytes)
{
	return bytes < sizeof(struct trailer) ? 0 : bytes - sizeof(struct trailer);
}

/* MB/s, roughly; 0: the peer is not reached this way. */
static int verbs_address_reach(const struct verbs_endpoint *endpoint, int peer,
			       const uint8_t *address, size_t bytes)
{
	const struct tutti_endpoint *base = &endpoint->base;
	size_t oob_bytes = verbs_address_oob(bytes);
	struct trailer own, theirs;

	if (base->address_bytes == 0 || oob_bytes == 0)
		return 0;
	memcpy(&own, base->address + verbs_address_oob(base->address_bytes), sizeof own);
	memcpy(&theirs, address + oob_bytes, sizeof theirs);
	if (theirs.magic != MAGIC || !oob_reaches(endpoint->oob, peer, address, oob_bytes))
		return 0;
	uint8_t both = own.wires & theirs.wires;
	if (own.subnet != theirs.subnet)
		both &= (uint8_t) ~(1u << VERBS_INFINIBAND);
	if (!both)
		return 0;
	return own.has_immediate && theirs.has_immediate ? REACH : REACH_OTHER;
}

#define LOOK_PASSES 512  /* passes between two looks at oob, which are system calls */
#define LEAVE_MS    1000 /* how long destroy waits for acknowledgements */
#define PAUSE_MS    1

/* Each conn of a large world gets less, so that all together have VERBS_BYTES (and the slots of
 * further ports). Both ends come to the same. */
static uint32_t verbs_endpoint_chunk_bytes_for(int size)
{
	const size_t parts = 2 * VERBS_CHUNKS + (VERBS_RECEIVES + VERBS_SENDS + VERBS_CHUNK_SLOTS -
						 1) / VERBS_CHUNK_SLOTS;
	size_t bytes = VERBS_CHUNK_BYTES;

	while (bytes > VERBS_CHUNK_LEAST && parts * bytes * (size_t)size > VERBS_BYTES)
		bytes /= 2;
	return (uint32_t)bytes;
}

static void verbs_destroy(struct tutti_endpoint *base)
{
	struct verbs_endpoint *endpoint = (struct verbs_endpoint *)base;
	uint64_t deadline = deadline_after_ms(LEAVE_MS);

	if (!endpoint)
		return;
	while (endpoint->conns && clock_now_ns() < deadline) {
		struct tutti_done none;
		tutti_done_init(&none);
		if (!base->transport->progress(base, &none))
			poll(NULL, 0, PAUSE_MS);
	}
	while (endpoint->conns) {
		assert(endpoint->conns->is_closing); /* conns are closed first */
		endpoint->conns->deadline_ns = 0;
		verbs_close_on(endpoint->conns);
	}
	oob_destroy(endpoint->oob);
	for (int i = 0; i < endpoint->port_count; i++)
		if (endpoint->channels[i]) {
			forks_disown(endpoint->channels[i]->fd);
			endpoint->ports[i].device->library->destroy_comp_channel(
				endpoint->channels[i]);
		}
	verbs_ports_close(endpoint->ports, endpoint->port_count);
	if (endpoint->epoll_fd >= 0)
		close(endpoint->epoll_fd);
	free(endpoint);
}

static tutti_status verbs_endpoint_open_channels(struct verbs_endpoint *endpoint)
{
	for (int i = 0; i < endpoint->port_count; i++) {
		const struct verbs_device *device = endpoint->ports[i].device;
		struct ibv_comp_channel *channel =
			device->library->create_comp_channel(device->context);

		endpoint->channels[i] = channel;
		if (!channel ||
		    fcntl(channel->fd, F_SETFL, fcntl(channel->fd, F_GETFL) | O_NONBLOCK) != 0)
			return fail_errno("verbs: rank %d cannot wait for completions "
					  "(ibv_create_comp_channel)",
					  endpoint->rank);
		forks_own(channel->fd);
	}
	return TUTTI_OK;
}

/* Where it cannot work it has no address, and other transports have to do. */
static tutti_status verbs_endpoint_open_ports(struct verbs_endpoint *endpoint,
					      const struct tutti_endpoint_config *config)
{
	if (config->tls)
		fail(TUTTI_ERR_UNSUPPORTED, "verbs: RDMA cannot encrypt, and TUTTI_TLS is 1");
	else if (verbs_ports_open(endpoint->ports, &endpoint->port_count, config->gid - 1,
				  config->devices) == TUTTI_OK &&
		 verbs_endpoint_open_channels(endpoint) == TUTTI_OK) {
		TRY(oob_open(&endpoint->oob, config, "verbs"));
		verbs_address_make(endpoint);
		return TUTTI_OK;
	}
	log_info("verbs: other transports have to do: %s", last_error());
	return TUTTI_OK;
}

static tutti_status verbs_open(struct tutti_endpoint **out,
			       const struct tutti_endpoint_config *config)
{
	struct verbs_endpoint *endpoint = calloc(1, sizeof *endpoint);

	if (!endpoint)
		return fail(TUTTI_ERR_MEMORY, "Rank %d has no memory for its verbs endpoint.",
			    config->rank);
	endpoint->base.transport = &transport_verbs;
	endpoint->rank = config->rank;
	endpoint->size = config->size;
	endpoint->chunk_bytes = verbs_endpoint_chunk_bytes_for(config->size);
	endpoint->epoll_fd = -1;
	tutti_done_init(&endpoint->done);
	tutti_status status = verbs_endpoint_open_ports(endpoint, config);
	if (status != TUTTI_OK) {
		verbs_destroy(&endpoint->base);
		return status;
	}
	*out = &endpoint->base;
	return TUTTI_OK;
}

static int verbs_reach(struct tutti_endpoint *endpoint, int peer, const uint8_t *address,
		       size_t address_bytes)
{
	return verbs_address_reach((struct verbs_endpoint *)endpoint, peer, address, address_bytes);
}

static bool verbs_watch(struct verbs_endpoint *endpoint, int fd)
{
	struct epoll_event event = {.events = EPOLLIN, .data.fd = fd};

	return fd >= 0 &&
	       (epoll_ctl(endpoint->epoll_fd, EPOLL_CTL_ADD, fd, &event) == 0 || errno == EEXIST);
}

static bool verbs_endpoint_watch_all(struct verbs_endpoint *endpoint)
{
	for (int i = 0; i < endpoint->port_count; i++)
		if (!verbs_watch(endpoint, endpoint->channels[i]->fd))
			return false;
	return verbs_watch(endpoint, oob_event_fd(endpoint->oob));
}

/* -1: without descriptors to watch. */
static int verbs_event_fd(struct tutti_endpoint *base)
{
	struct verbs_endpoint *endpoint = (struct verbs_endpoint *)base;

	if (endpoint->epoll_fd >= 0)
		return endpoint->epoll_fd;
	endpoint->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	if (endpoint->epoll_fd >= 0 && endpoint->oob && !verbs_endpoint_watch_all(endpoint)) {
		close(endpoint->epoll_fd);
		endpoint->epoll_fd = -1;
	}
	return endpoint->epoll_fd;
}

/* Takes the events that have woken a sleeper. */
static void verbs_disarm(struct verbs_endpoint *endpoint)
{
	struct ibv_cq *cq;
	void *conn;

	endpoint->is_armed = false;
	endpoint->passes = 0; /* what woke us may be oob */
	for (int i = 0; i < endpoint->port_count; i++) {
		const struct verbs_library *library = endpoint->ports[i].device->library;
		while (library->get_cq_event(endpoint->channels[i], &cq, &conn) == 0)
			library->ack_cq_events(cq, 1);
	}
}

/* A completion before this is no event. */
static bool verbs_arm_conn(struct verbs_conn *conn)
{
	bool is_work = false;

	for (int r = 0; r < conn->rail_count; r++)
		is_work |= ibv_req_notify_cq(conn->rails[r].cq, 0) != 0;
	return verbs_take_completions(conn) || is_work || conn->state >= VERBS_ENDED ||
	       verbs_can_receive(conn);
}

static int verbs_arm(struct tutti_endpoint *base)
{
	struct verbs_endpoint *endpoint = (struct verbs_endpoint *)base;
	bool is_work = endpoint->done.head != NULL;

	if (!endpoint->oob)
		return verbs_event_fd(base) < 0;
	endpoint->is_armed = true;
	for (struct verbs_conn *conn = endpoint->conns; conn && !is_work; conn = conn->next)
		if (conn->is_active || verbs_conn_may_fail(conn))
			is_work = verbs_arm_conn(conn);
	if (is_work || verbs_look(endpoint) || verbs_event_fd(base) < 0 || oob_arm(endpoint->oob)) {
		verbs_disarm(endpoint);
		return 1;
	}
	return 0;
}

static void verbs_send(struct tutti_conn *conn, struct tutti_io *io)
{
	verbs_conn_post((struct verbs_conn *)conn, io, true);
}

static void verbs_recv(struct tutti_conn *conn, struct tutti_io *io)
{
	verbs_conn_post((struct verbs_conn *)conn, io, false);
}

/* Those that have nothing to do, but something on its way: a failure is told to the peer, which
 * waits for it. */
static bool verbs_look_at_idle(struct verbs_endpoint *endpoint)
{
	bool is_moving = false;

	for (struct verbs_conn *conn = endpoint->conns; conn; conn = conn->next) {
		if (conn->is_active || !verbs_conn_may_fail(conn))
			continue;
		is_moving |= verbs_take_completions(conn);
		if (conn->state == VERBS_ENDED)
			verbs_conn_activate(conn);
	}
	return is_moving;
}

static int verbs_progress(struct tutti_endpoint *base, struct tutti_done *done)
{
	struct verbs_endpoint *endpoint = (struct verbs_endpoint *)base;
	bool is_moving = false;

	if (!endpoint->oob)
		return 0;
	if (endpoint->is_armed)
		verbs_disarm(endpoint);
	if (endpoint->unsettled || endpoint->passes++ % LOOK_PASSES == 0)
		is_moving = verbs_look(endpoint) | verbs_look_at_idle(endpoint);
	for (struct verbs_conn *conn = LIST_FIRST(&endpoint->active), *next; conn; conn = next) {
		next = LIST_NEXT(conn, active);
		is_moving |= verbs_conn_move(conn);
		if (conn->is_closing)
			verbs_close_on(conn);
	}
	return done_list_take(done, &endpoint->done) || is_moving;
}

static tutti_status verbs_connect_peer(struct tutti_endpoint *endpoint, int peer, int channel,
				       const uint8_t *address, size_t address_bytes,
				       struct tutti_conn **conn)
{
	return verbs_connect(endpoint, peer, channel, address, verbs_address_oob(address_bytes),
			     conn);
}

const struct tutti_transport transport_verbs = {
	.abi = TUTTI_TRANSPORT_ABI,
	.name = "verbs",
	.kinds = 1u << TUTTI_MEMORY_HOST,
	.open = verbs_open,
	.reach = verbs_reach,
	.connect = verbs_connect_peer,
	.send = verbs_send,
	.recv = verbs_recv,
	.progress = verbs_progress,
	.close = verbs_close,
	.destroy = verbs_destroy,
	.event_fd = verbs_event_fd,
	.arm = verbs_arm,
	.map = verbs_map,
	.unmap = verbs_unmap,
};
