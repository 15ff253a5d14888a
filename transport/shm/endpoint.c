/* The endpoint of shm: its address, one pass over its active conns, sleeping, and the table of
 * functions. */
#include "core/auth.h"
#include "core/clock.h"
#include "core/forks.h"
#include "core/log.h"
#include "core/machine.h"
#include "core/net.h"
#include "core/status.h"
#include "transport/done_list.h"
#include "transport/shm/shm.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <unistd.h>

/* The address that a shm endpoint gives its peers, and which peers share its node: the same machine
 * since the same boot, network namespace (it holds the abstract sockets), user, and host id (which
 * tests and users set to make one machine count as several). */

struct shm_address {
	uint64_t identity[2];
	char name[40];
};

_Static_assert(sizeof(struct shm_address) <= TUTTI_ADDRESS_BYTES, "an address fits");

/* FNV-1a, twice with different starts: against chance only; other users are kept out elsewhere. */
static void shm_endpoint_identity_add(uint64_t identity[2], const void *bytes, size_t n)
{
	const uint8_t *p = bytes;

	for (size_t i = 0; i < n; i++)
		for (int k = 0; k < 2; k++)
			identity[k] = (identity[k] ^ p[i]) * 0x100000001b3u;
}

/* A half that cannot be read stays zero: then the host id alone tells machines apart. */
static tutti_status shm_endpoint_identity_of(uint64_t identity[2], const char *host_id)
{
	char boot[MACHINE_BOOT_BYTES] = "";
	uint64_t network = machine_namespace("net");
	uid_t uid = geteuid();

	TRY(machine_boot(boot));
	identity[0] = 0xcbf29ce484222325u;
	identity[1] = 0x84222325cbf29ce4u;
	shm_endpoint_identity_add(identity, boot, strlen(boot));
	shm_endpoint_identity_add(identity, &network, sizeof network);
	shm_endpoint_identity_add(identity, &uid, sizeof uid);
	if (host_id)
		shm_endpoint_identity_add(identity, host_id, strlen(host_id));
	return TUTTI_OK;
}

static tutti_status shm_address_make(struct tutti_endpoint *endpoint, const char *host_id,
				     const char *name)
{
	struct shm_address address = {0};

	TRY(shm_endpoint_identity_of(address.identity, host_id));
	snprintf(address.name, sizeof address.name, "%s", name);
	memcpy(endpoint->address, &address, sizeof address);
	endpoint->address_bytes = sizeof address;
	return TUTTI_OK;
}

bool shm_address_read(const struct tutti_endpoint *endpoint, const uint8_t *bytes,
		      size_t address_bytes, char name[40])
{
	struct shm_address mine, theirs;

	if (address_bytes != sizeof theirs)
		return false;
	memcpy(&mine, endpoint->address, sizeof mine);
	memcpy(&theirs, bytes, sizeof theirs);
	if (memcmp(mine.identity, theirs.identity, sizeof mine.identity) != 0)
		return false;
	theirs.name[sizeof theirs.name - 1] = '\0';
	memcpy(name, theirs.name, sizeof theirs.name);
	return true;
}

#define SHM_REACH 20000

static size_t shm_endpoint_ring_bytes_for(int size)
{
	size_t bytes = SHM_RING_BYTES;

	while (bytes > RING_BYTES_MIN && 2 * bytes * (size_t)size > SHM_RINGS_BYTES)
		bytes /= 2;
	return bytes;
}

static tutti_status shm_endpoint_listen_somewhere(struct shm_endpoint *endpoint,
						  const char *host_id)
{
	uint64_t random[2];
	char name[40];

	/* Every user can read the names of abstract sockets: nothing of ours is in it. */
	auth_random(random, sizeof random);
	snprintf(name, sizeof name, "tutti-%016llx%016llx", (unsigned long long)random[0],
		 (unsigned long long)random[1]);
	TRY(net_unix_listen(name, SHM_BACKLOG, &endpoint->listener.fd));
	return shm_address_make(&endpoint->base, host_id, name);
}

/* Without shared memory this endpoint has no address and reaches no rank: both ends come to the
 * same, and another transport has to do. */
static tutti_status shm_endpoint_open_door(struct shm_endpoint *endpoint, const char *host_id)
{
	if (ring_pair_try(endpoint->ring_bytes) != TUTTI_OK) {
		log_info("shm: other transports have to do: %s", last_error());
		return TUTTI_OK;
	}
	TRY(shm_endpoint_listen_somewhere(endpoint, host_id));
	forks_own(endpoint->listener.fd);
	return TUTTI_OK;
}

static void shm_destroy(struct tutti_endpoint *base)
{
	struct shm_endpoint *endpoint = (struct shm_endpoint *)base;

	if (!endpoint)
		return;
	assert(!endpoint->conns); /* conns are closed first */
	while (endpoint->accepted)
		shm_accepted_drop(endpoint, endpoint->accepted);
	shm_accepted_free_closed(endpoint);
	while (endpoint->ended) {
		struct shm_ended *ended = endpoint->ended;
		endpoint->ended = ended->next;
		free(ended);
	}
	free(endpoint->spare);
	shm_watch_close(endpoint, &endpoint->listener);
	shm_watch_close(endpoint, &endpoint->timer);
	if (endpoint->epoll_fd >= 0)
		close(endpoint->epoll_fd);
	free(endpoint);
}

static tutti_status shm_open(struct tutti_endpoint **out,
			     const struct tutti_endpoint_config *config)
{
	struct shm_endpoint *endpoint = calloc(1, sizeof(*endpoint));

	if (!endpoint)
		return fail(TUTTI_ERR_MEMORY,
			    "Rank %d has no memory for its shared memory endpoint.", config->rank);
	endpoint->base.transport = &transport_shm;
	endpoint->rank = config->rank;
	endpoint->size = config->size;
	endpoint->timeout_ms = config->timeout_ms;
	memcpy(endpoint->comm_id, config->comm_id, sizeof endpoint->comm_id);
	endpoint->ring_bytes = shm_endpoint_ring_bytes_for(config->size);
	endpoint->epoll_fd = -1;
	endpoint->listener = (struct shm_watch){SHM_LISTENER, -1};
	endpoint->timer = (struct shm_watch){SHM_TIMER, -1};
	tutti_done_init(&endpoint->done);
	admission_init(&endpoint->pending, SHM_PENDING, SHM_PENDING_MS);
	tutti_status status = shm_endpoint_open_door(endpoint, config->host_id);
	if (status != TUTTI_OK) {
		shm_destroy(&endpoint->base);
		return status;
	}
	*out = &endpoint->base;
	return TUTTI_OK;
}

static int shm_reach(struct tutti_endpoint *endpoint, int peer, const uint8_t *address,
		     size_t address_bytes)
{
	char name[40];

	if (peer == ((struct shm_endpoint *)endpoint)->rank ||
	    !shm_address_read(endpoint, address, address_bytes, name))
		return 0;
	return SHM_REACH;
}

/* False: there is none. */
static bool shm_endpoint_set_timer(struct shm_endpoint *endpoint, uint64_t due_ns)
{
	struct itimerspec when = {0};

	if (due_ns == DEADLINE_NONE && !endpoint->is_timed)
		return true;
	if (!shm_timer_open(endpoint))
		return false;
	endpoint->is_timed = due_ns != DEADLINE_NONE;
	if (endpoint->is_timed) {
		when.it_value.tv_sec = (time_t)(due_ns / 1000000000u);
		when.it_value.tv_nsec = (long)(due_ns % 1000000000u);
		if (due_ns == 0)
			when.it_value.tv_nsec = 1; /* zero would stop it */
	}
	int rc = timerfd_settime(endpoint->timer.fd, TFD_TIMER_ABSTIME, &when, NULL);
	assert(rc == 0);
	return true;
}

static void shm_disarm(struct shm_endpoint *endpoint)
{
	endpoint->is_armed = false;
	endpoint->passes = 0; /* what woke us may be a socket */
	for (struct shm_conn *conn = LIST_FIRST(&endpoint->active); conn;
	     conn = LIST_NEXT(conn, active))
		shm_conn_sleeps(conn, false);
}

/* A thread may sleep on event_fd, and what it was armed for has changed. */
static void shm_kick(struct shm_endpoint *endpoint)
{
	if (!endpoint->is_armed)
		return;
	shm_disarm(endpoint);
	shm_endpoint_set_timer(endpoint, 0);
}

static int shm_event_fd(struct tutti_endpoint *base)
{
	struct shm_endpoint *endpoint = (struct shm_endpoint *)base;

	return shm_epoll_open(endpoint) == TUTTI_OK ? endpoint->epoll_fd : -1;
}

static int shm_arm(struct tutti_endpoint *base)
{
	struct shm_endpoint *endpoint = (struct shm_endpoint *)base;
	bool is_work = endpoint->done.head != NULL;

	endpoint->is_armed = true;
	for (struct shm_conn *conn = LIST_FIRST(&endpoint->active); conn && !is_work;
	     conn = LIST_NEXT(conn, active)) {
		shm_conn_sleeps(conn, true);
		is_work = shm_conn_has_work(conn);
	}
	/* Doorbells that are left from earlier would keep event_fd readable. Without a descriptor
	 * to sleep on the caller looks again and again. */
	if (is_work || shm_look(endpoint) || shm_epoll_open(endpoint) != TUTTI_OK ||
	    !shm_endpoint_set_timer(endpoint, shm_due_ns(endpoint))) {
		shm_disarm(endpoint);
		return 1;
	}
	return 0;
}

static tutti_status shm_connect(struct tutti_endpoint *base, int peer, int channel,
				const uint8_t *address, size_t address_bytes,
				struct tutti_conn **out)
{
	struct shm_endpoint *endpoint = (struct shm_endpoint *)base;
	struct shm_conn *conn = calloc(1, sizeof(*conn));
	struct shm_ended *ended = calloc(1, sizeof(*ended));
	struct shm_accepted *accepted;

	assert(peer != endpoint->rank);
	if (!conn || !ended) {
		free(conn);
		free(ended);
		return fail(TUTTI_ERR_MEMORY, "Rank %d has no memory for a connection to rank %d.",
			    endpoint->rank, peer);
	}
	if (!shm_address_read(base, address, address_bytes, conn->name)) {
		free(conn);
		free(ended);
		return fail(TUTTI_ERR_UNSUPPORTED,
			    "Rank %d shares no memory with rank %d: it is on another node, which "
			    "needs another transport.",
			    peer, endpoint->rank);
	}
	conn->base.endpoint = base;
	conn->base.peer = peer;
	conn->base.channel = channel;
	conn->watch = (struct shm_watch){SHM_CONN, -1};
	conn->ended = ended;
	conn->deadline_ns = channel == TUTTI_CHANNEL_PATIENT
				    ? DEADLINE_NONE
				    : deadline_after_ms(endpoint->timeout_ms);
	tutti_done_init(&conn->sends);
	tutti_done_init(&conn->recvs);
	conn->next = endpoint->conns;
	endpoint->conns = conn;
	shm_kick(endpoint);
	endpoint->unsettled++;
	accepted = shm_accepted_find(endpoint, peer, channel);
	if (accepted)
		shm_accepted_adopt(conn, accepted);
	else
		shm_connect_dial(conn);
	*out = &conn->base;
	return TUTTI_OK;
}

static void shm_send(struct tutti_conn *conn, struct tutti_io *io)
{
	shm_kick((struct shm_endpoint *)conn->endpoint);
	shm_conn_post((struct shm_conn *)conn, io, true);
}

static void shm_recv(struct tutti_conn *conn, struct tutti_io *io)
{
	shm_kick((struct shm_endpoint *)conn->endpoint);
	shm_conn_post((struct shm_conn *)conn, io, false);
}

bool shm_mail_send(struct tutti_conn *base, const struct mail *mail, const void *data)
{
	struct shm_conn *conn = (struct shm_conn *)base;

	if (base->endpoint->transport != &transport_shm || conn->state != SHM_OPEN ||
	    !mailbox_send(&conn->mail_out, mail, data))
		return false;
	if (byte_ring_claim_wake(&conn->out))
		shm_ring_doorbell(conn->watch.fd);
	return true;
}

struct mailbox_reader *shm_mail_reader(struct tutti_conn *base)
{
	struct shm_conn *conn = (struct shm_conn *)base;

	return base->endpoint->transport == &transport_shm && conn->mail_in.shared ? &conn->mail_in
										   : NULL;
}

bool shm_mail_await(struct tutti_conn *conn, struct tutti_io *io)
{
	if (conn->endpoint->transport != &transport_shm)
		return false;
	shm_kick((struct shm_endpoint *)conn->endpoint);
	shm_conn_await_mail((struct shm_conn *)conn, io);
	return true;
}

static int shm_progress(struct tutti_endpoint *base, struct tutti_done *done)
{
	struct shm_endpoint *endpoint = (struct shm_endpoint *)base;
	bool is_moving = false;

	if (endpoint->is_armed)
		shm_disarm(endpoint);
	if (endpoint->unsettled || endpoint->passes++ % SHM_LOOK_PASSES == 0)
		is_moving = shm_look(endpoint);
	for (struct shm_conn *conn = LIST_FIRST(&endpoint->active), *next; conn; conn = next) {
		next = LIST_NEXT(conn, active);
		is_moving |= shm_conn_move(conn);
	}
	return done_list_take(done, &endpoint->done) || is_moving;
}

/* The peer may come for it only now. */
static void shm_remember_ended(struct shm_endpoint *endpoint, struct shm_conn *conn)
{
	if (conn->state == SHM_OPEN || conn->state == SHM_ENDED)
		return;
	*conn->ended = (struct shm_ended){endpoint->ended, conn->base.peer, conn->base.channel};
	endpoint->ended = conn->ended;
	conn->ended = NULL;
	shm_accepted_drop_ended(endpoint);
}

static void shm_close(struct tutti_conn *base)
{
	struct shm_conn *conn = (struct shm_conn *)base;

	if (!conn)
		return;
	struct shm_endpoint *endpoint = (struct shm_endpoint *)base->endpoint;
	struct shm_conn **at = &endpoint->conns;
	while (*at != conn)
		at = &(*at)->next;
	*at = conn->next;
	shm_conn_deactivate(conn);
	shm_conn_settle(conn);
	shm_watch_close(endpoint, &conn->watch);
	shared_memory_close(conn->rings);
	done_list_forget(&endpoint->done, base);
	shm_remember_ended(endpoint, conn);
	free(conn->ended);
	free(conn);
}

const struct tutti_transport transport_shm = {
	.abi = TUTTI_TRANSPORT_ABI,
	.name = "shm",
	.kinds = 1u << TUTTI_MEMORY_HOST,
	.open = shm_open,
	.reach = shm_reach,
	.connect = shm_connect,
	.send = shm_send,
	.recv = shm_recv,
	.progress = shm_progress,
	.close = shm_close,
	.destroy = shm_destroy,
	.event_fd = shm_event_fd,
	.arm = shm_arm,
};
