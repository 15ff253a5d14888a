/* The endpoint of ucx: its address, sleeping, one pass over its active conns, and the table of
 * functions. */
#include "core/clock.h"
#include "core/log.h"
#include "core/status.h"
#include "transport/done_list.h"
#include "transport/ucx/ucx.h"

#include <assert.h>
#include <errno.h>
#include <glob.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

/* An endpoint's address: oob's, and behind it what decides how well its peers reach it. */

#define MAGIC 0x31786375u /* "ucx1" */

/* MB/s. More than tcp says, less than verbs. */
#define REACH 8000
/* Without RDMA, tcp and shared memory do without UCX: for those who ask for it by name. */
#define REACH_OTHER 1

struct ucx_trailer {
	uint32_t magic, has_rdma;
	uint64_t host;
};

_Static_assert(sizeof(struct ucx_trailer) <= OOB_ROOM_BYTES, "it fits behind oob's address");

static bool ucx_endpoint_is_active(const char *path)
{
	FILE *file = fopen(path, "re");
	char text[32] = "";

	if (!file)
		return false;
	if (!fgets(text, sizeof text, file))
		text[0] = '\0';
	fclose(file);
	return strstr(text, "ACTIVE") != NULL;
}

static bool ucx_has_rdma(void)
{
	bool has_rdma = false;
	glob_t states;

	if (glob("/sys/class/infiniband/*/ports/*/state", GLOB_NOSORT, NULL, &states) != 0)
		return false;
	for (size_t i = 0; i < states.gl_pathc; i++)
		has_rdma |= ucx_endpoint_is_active(states.gl_pathv[i]);
	globfree(&states);
	return has_rdma;
}

static void ucx_address_make(struct ucx_endpoint *endpoint, const char *host_id)
{
	const struct tutti_endpoint *tcp = oob_tcp(endpoint->oob);
	struct ucx_trailer own = {
		.magic = MAGIC, .has_rdma = endpoint->has_rdma, .host = 0xcbf29ce484222325u};

	for (const char *c = host_id; *c; c++)
		own.host = (own.host ^ (uint8_t)*c) * 0x100000001b3u;
	memcpy(endpoint->base.address, tcp->address, tcp->address_bytes);
	memcpy(endpoint->base.address + tcp->address_bytes, &own, sizeof own);
	endpoint->base.address_bytes = tcp->address_bytes + sizeof own;
}

/* The part of an address that oob connects to. */
static size_t ucx_address_oob(size_t bytes)
{
	return bytes < sizeof(struct ucx_trailer) ? 0 : bytes - sizeof(struct ucx_trailer);
}

static int ucx_address_reach(const struct ucx_endpoint *endpoint, int peer, const uint8_t *address,
			     size_t bytes)
{
	const struct tutti_endpoint *base = &endpoint->base;
	size_t oob_bytes = ucx_address_oob(bytes);
	struct ucx_trailer own, theirs;

	if (base->address_bytes == 0 || oob_bytes == 0)
		return 0;
	memcpy(&own, base->address + ucx_address_oob(base->address_bytes), sizeof own);
	memcpy(&theirs, address + oob_bytes, sizeof theirs);
	if (theirs.magic != MAGIC || !oob_reaches(endpoint->oob, peer, address, oob_bytes))
		return 0;
	return own.has_rdma && theirs.has_rdma && own.host != theirs.host ? REACH : REACH_OTHER;
}

/* Sleeping until a conn has work: an epoll of oob's descriptor and of those of the workers that
 * have something to do. The others' may be readable all the time. */

#define LOOK_NS 100000000 /* between two looks of a rank that is in no call */

static bool ucx_watch(struct ucx_endpoint *endpoint, int fd)
{
	struct epoll_event event = {.events = EPOLLIN, .data.fd = fd};

	return fd >= 0 &&
	       (epoll_ctl(endpoint->epoll_fd, EPOLL_CTL_ADD, fd, &event) == 0 || errno == EEXIST);
}

/* -1: without descriptors to watch. */
static int ucx_event_fd(struct tutti_endpoint *base)
{
	struct ucx_endpoint *endpoint = (struct ucx_endpoint *)base;

	if (endpoint->epoll_fd >= 0)
		return endpoint->epoll_fd;
	endpoint->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	if (endpoint->epoll_fd >= 0 && endpoint->oob &&
	    !ucx_watch(endpoint, oob_event_fd(endpoint->oob))) {
		close(endpoint->epoll_fd);
		endpoint->epoll_fd = -1;
	}
	return endpoint->epoll_fd;
}

/* True: there is work at once. */
static bool ucx_arm_conn(struct ucx_endpoint *endpoint, struct ucx_conn *conn)
{
	if ((!conn->is_active && !ucx_is_in_doubt(conn)) || !conn->wire.worker) {
		ucx_wire_unwatch(conn);
		return conn->is_active;
	}
	if (!conn->wire.is_watched)
		conn->wire.is_watched = ucx_watch(endpoint, conn->wire.fd);
	return !conn->wire.is_watched || conn->wire.broken != UCS_OK || conn->has_left ||
	       ucx_can_receive(conn) || ucx_owes_notice(conn) ||
	       endpoint->library->ucp_worker_arm(conn->wire.worker) != UCS_OK;
}

static int ucx_arm(struct tutti_endpoint *base)
{
	struct ucx_endpoint *endpoint = (struct ucx_endpoint *)base;

	if (ucx_event_fd(base) < 0 || endpoint->done.head)
		return 1;
	if (!endpoint->oob)
		return 0;
	endpoint->passes = 0; /* what wakes may be oob */
	if (ucx_look(endpoint) || oob_arm(endpoint->oob))
		return 1;
	for (struct ucx_conn *conn = endpoint->conns; conn; conn = conn->next_conn)
		if (ucx_arm_conn(endpoint, conn))
			return 1;
	return 0;
}

/* Setting it makes it unreadable. */
static int ucx_next_look(struct ucx_endpoint *endpoint)
{
	const struct itimerspec next = {.it_value.tv_nsec = LOOK_NS};

	if (endpoint->timer_fd < 0)
		endpoint->timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
	if (endpoint->timer_fd >= 0)
		timerfd_settime(endpoint->timer_fd, 0, &next, NULL);
	return endpoint->timer_fd;
}

#define LOOK_PASSES 512 /* passes between two looks at oob, which are system calls */
#define LEAVE_MS    300 /* how long destroy waits for peers to take the last messages */
#define PAUSE_MS    1
#define DESCRIPTORS 16 /* more than a context takes */
#define MEND_PASSES 3  /* in which a conn that is broken ends, and the peer is told */

static void ucx_destroy(struct tutti_endpoint *base)
{
	struct ucx_endpoint *endpoint = (struct ucx_endpoint *)base;
	uint64_t deadline = deadline_after_ms(LEAVE_MS);

	if (!endpoint)
		return;
	while (endpoint->conns && clock_now_ns() < deadline) {
		struct tutti_done none;
		tutti_done_init(&none);
		endpoint->passes = 0;
		if (!base->transport->progress(base, &none))
			poll(NULL, 0, PAUSE_MS);
	}
	while (endpoint->conns) {
		assert(endpoint->conns->is_closing); /* conns are closed first */
		endpoint->conns->deadline_ns = 0;
		ucx_close_on(endpoint->conns);
	}
	if (endpoint->context)
		endpoint->library->ucp_cleanup(endpoint->context);
	oob_destroy(endpoint->oob);
	if (endpoint->epoll_fd >= 0)
		close(endpoint->epoll_fd);
	if (endpoint->timer_fd >= 0)
		close(endpoint->timer_fd);
	free(endpoint);
}

static tutti_status ucx_endpoint_open_context(struct ucx_endpoint *endpoint, int ranks)
{
	const ucp_params_t params = {.field_mask = UCP_PARAM_FIELD_FEATURES,
				     .features = UCP_FEATURE_AM | UCP_FEATURE_WAKEUP};
	ucp_config_t *config;

	TRY(ucx_library(&endpoint->library));
	TRY(ucx_needs_descriptors(DESCRIPTORS));
	const struct ucx_library *library = endpoint->library;
	ucs_status_t status = library->ucp_config_read(NULL, NULL, &config);
	if (status == UCS_OK) {
		ucx_configure_shm(library, config, ranks);
		status = library->ucp_init_version(UCP_API_MAJOR, UCP_API_MINOR, &params, config,
						   &endpoint->context);
		library->ucp_config_release(config);
	}
	if (status == UCS_OK)
		return TUTTI_OK;
	endpoint->context = NULL;
	return fail(ucx_status(status),
		    "ucx: UCX does not start for rank %d (ucp_init): %s; " UCX_SAYS_MORE,
		    endpoint->rank, library->ucs_status_string(status));
}

/* Where it cannot work, or is not wanted, it has no address, and other transports have to do. */
static tutti_status ucx_endpoint_open_oob(struct ucx_endpoint *endpoint,
					  const struct tutti_endpoint_config *config)
{
	endpoint->has_rdma = ucx_has_rdma();
	if (config->tls)
		fail(TUTTI_ERR_UNSUPPORTED, "ucx: UCX does not encrypt, and TUTTI_TLS is 1");
	else if (config->checksum)
		fail(TUTTI_ERR_UNSUPPORTED,
		     "ucx: messages over UCX carry no checksum, and TUTTI_CHECKSUM is 1");
	else if (!endpoint->has_rdma && !config->is_named)
		fail(TUTTI_ERR_UNSUPPORTED,
		     "ucx: no RDMA port works here, and TUTTI_TRANSPORTS does not name ucx");
	else if (ucx_endpoint_open_context(endpoint, config->size) == TUTTI_OK) {
		TRY(oob_open(&endpoint->oob, config, "ucx"));
		ucx_address_make(endpoint, config->host_id);
		return TUTTI_OK;
	}
	log_info("ucx: other transports have to do: %s", last_error());
	return TUTTI_OK;
}

static tutti_status ucx_open(struct tutti_endpoint **out,
			     const struct tutti_endpoint_config *config)
{
	struct ucx_endpoint *endpoint = calloc(1, sizeof *endpoint);

	if (!endpoint)
		return fail(TUTTI_ERR_MEMORY, "Rank %d has no memory for its ucx endpoint.",
			    config->rank);
	endpoint->base.transport = &transport_ucx;
	endpoint->rank = config->rank;
	endpoint->epoll_fd = -1;
	endpoint->timer_fd = -1;
	tutti_done_init(&endpoint->done);
	tutti_status status = ucx_endpoint_open_oob(endpoint, config);
	if (status != TUTTI_OK) {
		ucx_destroy(&endpoint->base);
		return status;
	}
	*out = &endpoint->base;
	return TUTTI_OK;
}

static int ucx_reach(struct tutti_endpoint *endpoint, int peer, const uint8_t *address,
		     size_t address_bytes)
{
	return ucx_address_reach((struct ucx_endpoint *)endpoint, peer, address, address_bytes);
}

static void ucx_send(struct tutti_conn *conn, struct tutti_io *io)
{
	ucx_conn_post((struct ucx_conn *)conn, io, true);
}

static void ucx_recv(struct tutti_conn *conn, struct tutti_io *io)
{
	ucx_conn_post((struct ucx_conn *)conn, io, false);
}

static bool ucx_look_at_idle(struct ucx_endpoint *endpoint)
{
	bool is_moving = false;

	for (struct ucx_conn *conn = endpoint->conns; conn; conn = conn->next_conn) {
		if (!ucx_is_in_doubt(conn))
			continue;
		is_moving |= ucx_wire_progress(conn);
		if (conn->wire.broken != UCS_OK)
			ucx_conn_activate(conn);
	}
	return is_moving;
}

static int ucx_progress(struct tutti_endpoint *base, struct tutti_done *done)
{
	struct ucx_endpoint *endpoint = (struct ucx_endpoint *)base;
	bool is_moving = false;

	if (!endpoint->oob)
		return 0;
	if (endpoint->unsettled || endpoint->passes++ % LOOK_PASSES == 0)
		is_moving = ucx_look(endpoint) | ucx_look_at_idle(endpoint);
	for (struct ucx_conn *conn = LIST_FIRST(&endpoint->active), *next; conn; conn = next) {
		next = LIST_NEXT(conn, active);
		is_moving |= ucx_conn_move(conn);
		if (conn->is_closing)
			ucx_close_on(conn);
	}
	return done_list_take(done, &endpoint->done) || is_moving;
}

/* A message whose send is done may be lost when UCX's connection breaks. UCX tells the sender, and
 * not always the receiver: so the sender looks, also while it is in no call. UCX's own descriptors
 * would wake it at each message, so it looks now and then. */
static int ucx_mend(struct tutti_endpoint *base, int *fd)
{
	struct ucx_endpoint *endpoint = (struct ucx_endpoint *)base;

	*fd = -1;
	if (!endpoint->oob)
		return 0;
	for (int pass = 0; pass < MEND_PASSES; pass++) {
		ucx_look(endpoint);
		ucx_look_at_idle(endpoint);
		for (struct ucx_conn *conn = LIST_FIRST(&endpoint->active), *next; conn;
		     conn = next) {
			next = LIST_NEXT(conn, active);
			if (conn->wire.broken != UCS_OK || conn->state == UCX_ENDED)
				ucx_conn_move(conn);
		}
	}
	*fd = ucx_next_look(endpoint);
	return 0;
}

/* It is never sent again, and closing waits for the peer to have it. */
static int ucx_in_doubt(struct tutti_endpoint *base)
{
	(void)base;
	return 0;
}

static tutti_status ucx_connect_peer(struct tutti_endpoint *endpoint, int peer, int channel,
				     const uint8_t *address, size_t address_bytes,
				     struct tutti_conn **conn)
{
	return ucx_connect(endpoint, peer, channel, address, ucx_address_oob(address_bytes), conn);
}

const struct tutti_transport transport_ucx = {
	.abi = TUTTI_TRANSPORT_ABI,
	.name = "ucx",
	.kinds = 1u << TUTTI_MEMORY_HOST,
	.open = ucx_open,
	.reach = ucx_reach,
	.connect = ucx_connect_peer,
	.send = ucx_send,
	.recv = ucx_recv,
	.progress = ucx_progress,
	.close = ucx_close,
	.destroy = ucx_destroy,
	.event_fd = ucx_event_fd,
	.arm = ucx_arm,
	.mend = ucx_mend,
	.in_doubt = ucx_in_doubt,
};
