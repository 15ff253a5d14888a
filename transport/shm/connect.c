/* Sockets until they are a conn's: dialing the peer and accepting what it dials. The higher rank of
 * a pair passes the memory of the rings with its hello. */
#include "core/clock.h"
#include "core/log.h"
#include "core/net.h"
#include "core/resource_limits.h"
#include "core/status.h"
#include "transport/shm/shm.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

static tutti_status connect_send_hello(struct shm_conn *conn, enum shm_purpose purpose)
{
	const struct shm_endpoint *endpoint = shm_endpoint_of(conn);
	struct shm_hello hello = {
		.magic = SHM_MAGIC,
		.purpose = purpose,
		.from = endpoint->rank,
		.to = conn->base.peer,
		.channel = conn->base.channel,
		.comm_id = {endpoint->comm_id[0], endpoint->comm_id[1]},
		.ring_bytes = endpoint->ring_bytes,
	};
	int memfd;

	if (purpose == SHM_AWAIT)
		return net_send_all(conn->watch.fd, &hello, sizeof hello, 0);
	TRY(ring_pair_create(&conn->rings, endpoint->ring_bytes, &memfd));
	ring_pair_ends(conn->rings, true, &conn->out, &conn->in);
	ring_pair_mailboxes(conn->rings, true, &conn->mail_out, &conn->mail_in);
	tutti_status status = net_send_fds(conn->watch.fd, &hello, sizeof hello, &memfd, 1, 0);
	close(memfd);
	return status;
}

/* The process is not known where it is another container's. */
static tutti_status shm_connect_check(struct shm_conn *conn)
{
	int pid = 0;

	TRY(net_unix_check(conn->watch.fd, &pid));
	if (pid > 0)
		snprintf(conn->base.where, sizeof conn->base.where, "process %d", pid);
	else
		snprintf(conn->base.where, sizeof conn->base.where, "a process");
	return TUTTI_OK;
}

/* The other end of its socket is a process of this user, else AUTH. */
static void shm_connect_fail(struct shm_conn *conn, tutti_status status, const char *why)
{
	shm_conn_fail(conn, status,
		      "rank %d cannot connect to rank %d (shared memory, channel %d): %.200s",
		      shm_endpoint_of(conn)->rank, conn->base.peer, conn->base.channel, why);
}

/* No connection can be accepted, so all conns that wait for rings fail. is_lost: a peer's rings
 * were lost, and the peer will take this rank for dead. Then all conns fail, so that this rank says
 * why before the peer does. */
static void shm_connect_refuse_all(struct shm_endpoint *endpoint, const char *why, bool is_lost)
{
	char kept[200];

	snprintf(kept, sizeof kept, "%.199s", why);
	for (struct shm_conn *conn = endpoint->conns; conn; conn = conn->next)
		if (conn->state == SHM_WAITING || conn->state == SHM_DIALING ||
		    (is_lost && conn->state == SHM_OPEN))
			shm_connect_fail(conn, TUTTI_ERR_SYSTEM, kept);
}

void shm_connect_dial(struct shm_conn *conn)
{
	struct shm_endpoint *endpoint = shm_endpoint_of(conn);
	bool passes_rings = endpoint->rank > conn->base.peer;
	tutti_status status = net_unix_connect(conn->name, &conn->watch.fd);

	if (status == TUTTI_IN_PROGRESS) {
		/* The listener was there before its address was known: if it refuses, the peer has
		 * left. */
		conn->peer_left = errno == ECONNREFUSED;
		return;
	}
	if (status == TUTTI_OK)
		status = shm_connect_check(conn);
	if (status == TUTTI_OK)
		status = shm_watch_add(endpoint, &conn->watch);
	if (status == TUTTI_OK)
		status = connect_send_hello(conn, passes_rings ? SHM_RINGS : SHM_AWAIT);
	if (status == TUTTI_ERR_PEER)
		conn->peer_left = true;
	else if (status != TUTTI_OK)
		shm_connect_fail(conn, status, last_error());
	else if (passes_rings)
		shm_conn_opened(conn);
	else
		conn->state = SHM_WAITING;
}

/* Accepted connections that belong to no conn yet: pending until their hello, then known. One of
 * another user, or that says nonsense or nothing for too long, is dropped and does no harm. */

void shm_accepted_drop(struct shm_endpoint *endpoint, struct shm_accepted *accepted)
{
	struct shm_accepted **at = &endpoint->accepted;

	while (*at != accepted)
		at = &(*at)->next;
	*at = accepted->next;
	if (accepted->is_known)
		endpoint->accepted_count--;
	admission_remove(&endpoint->pending, &accepted->pending);
	shm_watch_close(endpoint, &accepted->watch);
	shared_memory_close(accepted->rings);
	/* The look that is in flight may still hold an event of it. */
	accepted->next = endpoint->closed;
	endpoint->closed = accepted;
}

void shm_accepted_free_closed(struct shm_endpoint *endpoint)
{
	while (endpoint->closed) {
		struct shm_accepted *closed = endpoint->closed;
		endpoint->closed = closed->next;
		free(closed);
	}
}

struct shm_accepted *shm_accepted_find(const struct shm_endpoint *endpoint, int from, int channel)
{
	struct shm_accepted *accepted = endpoint->accepted;

	while (accepted && (!accepted->is_known || accepted->purpose != SHM_RINGS ||
			    accepted->from != from || accepted->channel != channel))
		accepted = accepted->next;
	return accepted;
}

static struct shm_conn *connect_find_conn(const struct shm_endpoint *endpoint, int peer,
					  int channel)
{
	struct shm_conn *conn = endpoint->conns;

	while (conn && (conn->base.peer != peer || conn->base.channel != channel))
		conn = conn->next;
	return conn;
}

/* Here this conn has ended, and its peer may not know. */
static bool shm_has_ended(const struct shm_endpoint *endpoint, int peer, int channel)
{
	const struct shm_conn *conn = connect_find_conn(endpoint, peer, channel);
	const struct shm_ended *ended = endpoint->ended;

	if (conn)
		return conn->state == SHM_FAILED;
	while (ended && (ended->peer != peer || ended->channel != channel))
		ended = ended->next;
	return ended != NULL;
}

void shm_accepted_drop_ended(struct shm_endpoint *endpoint)
{
	endpoint->has_failed = false;
	for (struct shm_accepted *g = endpoint->accepted, *next; g; g = next) {
		next = g->next;
		if (g->is_known && shm_has_ended(endpoint, g->from, g->channel))
			shm_accepted_drop(endpoint, g);
	}
}

/* IN_PROGRESS: nothing has come yet. */
static tutti_status connect_read_hello(int fd, struct shm_hello *hello, int *memfd)
{
	ssize_t n = recv(fd, hello, sizeof *hello, MSG_DONTWAIT | MSG_PEEK);

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return TUTTI_IN_PROGRESS;
	/* A hello comes in one piece: a shorter one is another program's. */
	if (n != sizeof *hello || hello->magic != SHM_MAGIC)
		return fail(TUTTI_ERR_AUTH, "it does not begin like a connection of this library");
	if (hello->purpose == SHM_RINGS)
		return net_recv_fds(fd, hello, sizeof *hello, memfd, 1, 0);
	return net_recv_all(fd, hello, sizeof *hello, 0);
}

static bool connect_is_for_us(const struct shm_endpoint *endpoint, const struct shm_hello *hello)
{
	bool is_dialer = hello->from > endpoint->rank;

	return hello->comm_id[0] == endpoint->comm_id[0] &&
	       hello->comm_id[1] == endpoint->comm_id[1] && hello->to == endpoint->rank &&
	       hello->from >= 0 && hello->from < endpoint->size && hello->from != hello->to &&
	       hello->purpose == (is_dialer ? SHM_RINGS : SHM_AWAIT);
}

/* The peer's rings have come. */
void shm_accepted_adopt(struct shm_conn *conn, struct shm_accepted *accepted)
{
	struct shm_endpoint *endpoint = shm_endpoint_of(conn);
	struct epoll_event event = {.events = EPOLLIN, .data.ptr = &conn->watch};
	bool is_watched = accepted->is_watched;

	shm_watch_close(endpoint, &conn->watch);
	conn->watch.fd = accepted->watch.fd;
	conn->rings = accepted->rings;
	accepted->watch.fd = -1;
	accepted->rings = NULL;
	shm_accepted_drop(endpoint, accepted);
	ring_pair_ends(conn->rings, false, &conn->out, &conn->in);
	ring_pair_mailboxes(conn->rings, false, &conn->mail_out, &conn->mail_in);
	shm_conn_settle(conn);
	shm_conn_opened(conn);
	if (conn->watch.fd < 0) {
		snprintf(conn->base.where, sizeof conn->base.where, "a process");
		shm_conn_ended(conn);
		return;
	}
	tutti_status status = shm_connect_check(conn);
	if (status == TUTTI_OK && !is_watched)
		status = shm_watch_add(endpoint, &conn->watch);
	else if (status == TUTTI_OK &&
		 epoll_ctl(endpoint->epoll_fd, EPOLL_CTL_MOD, conn->watch.fd, &event) < 0)
		status = fail_errno("cannot watch its socket");
	if (status != TUTTI_OK)
		shm_connect_fail(conn, status, last_error());
}

/* Acts on a hello that is for us. False: drop it. */
static bool shm_take_hello(struct shm_endpoint *endpoint, struct shm_accepted *accepted,
			   const struct shm_hello *hello, int memfd)
{
	struct shm_conn *conn = connect_find_conn(endpoint, hello->from, hello->channel);

	if (!connect_is_for_us(endpoint, hello) ||
	    endpoint->accepted_count >= SHM_ACCEPTED_MOST * endpoint->size) {
		fail(TUTTI_ERR_AUTH, "it is for another communicator or rank");
		return false;
	}
	if (shm_has_ended(endpoint, hello->from, hello->channel)) {
		fail(TUTTI_ERR_PEER, "rank %d's connection to this rank has ended already",
		     hello->from);
		return false;
	}
	accepted->purpose = hello->purpose;
	accepted->from = hello->from;
	accepted->channel = hello->channel;
	if (hello->purpose == SHM_RINGS) {
		bool is_expected = conn ? conn->state == SHM_WAITING || conn->state == SHM_DIALING
					: !shm_accepted_find(endpoint, hello->from, hello->channel);
		if (!is_expected)
			return false;
		tutti_status status = ring_pair_open(&accepted->rings, hello->ring_bytes, memfd);
		if (status == TUTTI_ERR_SYSTEM || status == TUTTI_ERR_MEMORY)
			shm_connect_refuse_all(endpoint, last_error(), true);
		if (status != TUTTI_OK)
			return false;
	}
	accepted->is_known = true;
	admission_remove(&endpoint->pending, &accepted->pending);
	endpoint->accepted_count++;
	shm_ring_doorbell(accepted->watch.fd);
	if (hello->purpose == SHM_RINGS && conn)
		shm_accepted_adopt(conn, accepted);
	return true;
}

static void connect_pending_event(struct shm_endpoint *endpoint, struct shm_accepted *accepted)
{
	struct shm_hello hello;
	int memfd = -1;
	tutti_status status = connect_read_hello(accepted->watch.fd, &hello, &memfd);

	if (status == TUTTI_IN_PROGRESS)
		return;
	if (status == TUTTI_ERR_SYSTEM)
		shm_connect_refuse_all(endpoint, last_error(), true);
	if (status != TUTTI_OK || !shm_take_hello(endpoint, accepted, &hello, memfd)) {
		log_seldom("shm: rank %d dropped a connection: %s", endpoint->rank, last_error());
		shm_accepted_drop(endpoint, accepted);
	}
	if (memfd >= 0)
		close(memfd);
}

static void shm_accepted_event(struct shm_endpoint *endpoint, struct shm_accepted *accepted)
{
	bool has_bytes = false;

	if (!accepted->is_known)
		connect_pending_event(endpoint, accepted);
	else if (shm_socket_drain(accepted->watch.fd, &has_bytes))
		return;
	else if (accepted->purpose == SHM_RINGS) /* what it sent waits for our connect */
		shm_watch_close(endpoint, &accepted->watch);
	else
		shm_accepted_drop(endpoint, accepted);
}

#define ACCEPTS 16 /* in one look */

/* False: there is none. */
static bool shm_drop_oldest(struct shm_endpoint *endpoint)
{
	struct admission_entry *oldest = admission_oldest(&endpoint->pending, false);

	if (oldest)
		shm_accepted_drop(endpoint, shm_accepted_of(oldest));
	return oldest != NULL;
}

/* There is a spare one. A socket that epoll does not take (fs.epoll.max_user_watches) is pending
 * for a moment only: dialers say hello at once, and rings that can then not be watched say so. */
static void shm_add_pending(struct shm_endpoint *endpoint, int fd)
{
	struct shm_accepted *accepted = endpoint->spare;
	tutti_status status = net_unix_check(fd, NULL);

	if (status != TUTTI_OK) {
		log_seldom("shm: rank %d dropped a connection: %s", endpoint->rank, last_error());
		close(fd);
		if (status == TUTTI_ERR_SYSTEM)
			shm_connect_refuse_all(endpoint, last_error(), false);
		return;
	}
	endpoint->spare = NULL;
	while (!admission_has_room(&endpoint->pending))
		shm_drop_oldest(endpoint);
	accepted->watch = (struct shm_watch){.kind = SHM_ACCEPTED, .fd = fd};
	accepted->next = endpoint->accepted;
	endpoint->accepted = accepted;
	admission_add(&endpoint->pending, &accepted->pending);
	accepted->is_watched = shm_watch_add(endpoint, &accepted->watch) == TUTTI_OK;
	shm_accepted_event(endpoint, accepted);
}

/* Asked before a connection is accepted: a rank that is hung up on would take this rank for dead.
 */
static bool shm_has_room(struct shm_endpoint *endpoint)
{
	if (!endpoint->spare)
		endpoint->spare = calloc(1, sizeof *endpoint->spare);
	if (!endpoint->spare && net_has_caller(endpoint->listener.fd))
		shm_connect_refuse_all(endpoint, "there is no memory for it", false);
	return endpoint->spare != NULL;
}

static bool shm_accept_one(struct shm_endpoint *endpoint)
{
	int fd;

	if (!shm_has_room(endpoint))
		return false;
	fd = accept4(endpoint->listener.fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	if (fd >= 0)
		shm_add_pending(endpoint, fd);
	else if ((errno == EMFILE || errno == ENFILE) && net_has_caller(endpoint->listener.fd) &&
		 shm_drop_oldest(endpoint))
		return true; /* its descriptor will do */
	else if (errno != EAGAIN && errno != EINTR && errno != ECONNABORTED) {
		fail_errno("rank %d cannot accept connections (accept4)", endpoint->rank);
		log_seldom("shm: %s", last_error());
		shm_connect_refuse_all(endpoint, last_error(), false);
	}
	return fd >= 0;
}

static void shm_accept_some(struct shm_endpoint *endpoint)
{
	for (int i = 0; i < ACCEPTS && shm_accept_one(endpoint); i++)
		continue;
}

/* Everything that came before now has been seen. */
static void shm_accept_backlog(struct shm_endpoint *endpoint)
{
	for (int i = 0; i < SHM_BACKLOG && shm_accept_one(endpoint); i++)
		continue;
	for (struct shm_accepted *g = endpoint->accepted, *next; g; g = next) {
		next = g->next;
		if (!g->is_known)
			shm_accepted_event(endpoint, g);
	}
}

/* Looks for the hello of accepted connections that epoll does not watch. */
static bool shm_accepted_look(struct shm_endpoint *endpoint)
{
	int before = endpoint->pending.count;

	for (struct shm_accepted *g = endpoint->accepted, *next; g; g = next) {
		next = g->next;
		if (!g->is_known && !g->is_watched)
			shm_accepted_event(endpoint, g);
	}
	return endpoint->pending.count != before;
}

static bool shm_accepted_are_unwatched(const struct shm_endpoint *endpoint)
{
	const struct shm_accepted *g = endpoint->pending.count ? endpoint->accepted : NULL;

	while (g && (g->is_known || g->is_watched))
		g = g->next;
	return g != NULL;
}

/* There are such. */
static bool shm_accepted_expire(struct shm_endpoint *endpoint, uint64_t now_ns)
{
	struct admission_entry *late;
	bool is_anything = false;

	while ((late = admission_late(&endpoint->pending, now_ns))) {
		log_seldom("shm: dropped a connection that said nothing");
		shm_accepted_drop(endpoint, shm_accepted_of(late));
		is_anything = true;
	}
	return is_anything;
}

/* One look at all that can happen outside of the rings: events of sockets, connections that the
 * peer has not answered yet, deadlines. */

#define EVENTS 16 /* taken from epoll at once */

/* The peer has left before there were rings: connect_unsettled_look sees what remains to be done.
 */
static void connect_peer_left(struct shm_conn *conn)
{
	conn->peer_left = true;
	if (conn->is_settled)
		shm_endpoint_of(conn)->unsettled++;
	conn->is_settled = false;
}

static void shm_conn_event(struct shm_conn *conn)
{
	bool has_bytes = false;
	bool is_there = shm_socket_drain(conn->watch.fd, &has_bytes);

	if (has_bytes)
		shm_conn_settle(conn);
	if (is_there)
		return;
	shm_watch_close(shm_endpoint_of(conn), &conn->watch);
	if (conn->state == SHM_OPEN)
		shm_conn_ended(conn);
	else
		connect_peer_left(conn);
}

/* watch may be closed by what came before it in the same look. */
static void shm_event(struct shm_endpoint *endpoint, struct shm_watch *watch)
{
	uint64_t expirations;

	if (watch->fd < 0)
		return;
	switch (watch->kind) {
	case SHM_LISTENER:
		shm_accept_some(endpoint);
		break;
	case SHM_TIMER:
		if (read(watch->fd, &expirations, sizeof expirations) < 0)
			break; /* it was set anew in the meantime */
		break;
	case SHM_ACCEPTED:
		shm_accepted_event(endpoint, (struct shm_accepted *)watch);
		break;
	case SHM_CONN:
		shm_conn_event(
			(struct shm_conn *)((char *)watch - offsetof(struct shm_conn, watch)));
		break;
	}
}

/* Conns without rings: dial again, give up, or learn that the peer has left. */
static bool connect_unsettled_look(struct shm_endpoint *endpoint, uint64_t now_ns)
{
	int before = endpoint->unsettled;

	for (struct shm_conn *conn = endpoint->conns; conn; conn = conn->next) {
		if (conn->is_settled)
			continue;
		if (conn->state == SHM_DIALING && !conn->peer_left)
			shm_connect_dial(conn);
		/* Our backlog may have connections that the peer made before it left, with its
		 * rings. */
		if (conn->peer_left)
			shm_accept_backlog(endpoint);
		if (conn->is_settled)
			continue;
		if (conn->peer_left)
			shm_conn_fail(
				conn, TUTTI_ERR_PEER,
				"rank %d (shared memory, channel %d) closed its connection to "
				"rank %d before it was up",
				conn->base.peer, conn->base.channel, endpoint->rank);
		else if (now_ns >= conn->deadline_ns)
			shm_conn_fail(
				conn, TUTTI_ERR_TIMEOUT,
				"rank %d (shared memory, channel %d) did not accept the connection "
				"of rank %d within %d ms: is that process stopped?",
				conn->base.peer, conn->base.channel, endpoint->rank,
				endpoint->timeout_ms);
	}
	return endpoint->unsettled != before;
}

static bool connect_look_at_sockets(struct shm_endpoint *endpoint)
{
	struct epoll_event events[EVENTS];
	int n;

	if (endpoint->epoll_fd < 0) {
		if (endpoint->listener.fd >= 0)
			shm_accept_some(endpoint);
		return endpoint->epoll_fd >= 0; /* for what has come */
	}
	n = epoll_wait(endpoint->epoll_fd, events, EVENTS, 0);
	for (int i = 0; i < n; i++)
		shm_event(endpoint, events[i].data.ptr);
	return n > 0;
}

bool shm_look(struct shm_endpoint *endpoint)
{
	bool is_anything = connect_look_at_sockets(endpoint);

	if (endpoint->unsettled || endpoint->pending.count) {
		uint64_t now_ns = clock_now_ns();
		is_anything |= connect_unsettled_look(endpoint, now_ns);
		is_anything |= shm_accepted_look(endpoint);
		is_anything |= shm_accepted_expire(endpoint, now_ns);
	}
	if (endpoint->has_failed)
		shm_accepted_drop_ended(endpoint);
	shm_accepted_free_closed(endpoint);
	return is_anything;
}

uint64_t shm_due_ns(const struct shm_endpoint *endpoint)
{
	uint64_t due_ns = admission_due_ns(&endpoint->pending);

	for (const struct shm_conn *c = endpoint->unsettled ? endpoint->conns : NULL; c;
	     c = c->next) {
		if (c->is_settled)
			continue;
		if (c->deadline_ns < due_ns)
			due_ns = c->deadline_ns;
		if (c->state == SHM_DIALING && deadline_after_ms(SHM_REDIAL_MS) < due_ns)
			due_ns = deadline_after_ms(SHM_REDIAL_MS);
	}
	if (shm_accepted_are_unwatched(endpoint) && deadline_after_ms(SHM_REDIAL_MS) < due_ns)
		due_ns = deadline_after_ms(SHM_REDIAL_MS);
	return due_ns;
}
