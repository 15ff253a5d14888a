/* How two ends find each other, and what their sockets say afterwards. */
#include "transport/shm/shm.h"

#include "core/clock.h"
#include "core/forks.h"
#include "core/log.h"
#include "core/net.h"
#include "core/status.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define EVENTS 16 /* taken from epoll at once */

static struct shm_endpoint *endpoint_of(const struct shm_conn *conn)
{
	return (struct shm_endpoint *)conn->base.endpoint;
}

tutti_status shm_watch_add(struct shm_endpoint *endpoint, struct shm_watch *watch)
{
	struct epoll_event event = {.events = EPOLLIN, .data.ptr = watch};

	if (epoll_ctl(endpoint->epoll_fd, EPOLL_CTL_ADD, watch->fd, &event) < 0)
		return fail_errno("Cannot watch a descriptor");
	forks_own(watch->fd);
	return TUTTI_OK;
}

/* While another process has a copy of the descriptor (a forked child) an epoll keeps it. */
void shm_watch_close(struct shm_endpoint *endpoint, struct shm_watch *watch)
{
	forks_disown(watch->fd);
	if (watch->fd >= 0) {
		epoll_ctl(endpoint->epoll_fd, EPOLL_CTL_DEL, watch->fd, NULL);
		close(watch->fd);
	}
	watch->fd = -1;
}

bool shm_socket_drain(int fd, bool *is_anything)
{
	char bytes[256];

	for (;;) {
		ssize_t n = recv(fd, bytes, sizeof bytes, MSG_DONTWAIT);
		if (n > 0) {
			*is_anything = true;
			continue;
		}
		return n < 0 && (errno == EAGAIN || errno == EINTR);
	}
}

/* When the socket is full of bells the peer has enough of them. */
void shm_ring_doorbell(int fd)
{
	ssize_t n = fd < 0 ? 0 : send(fd, "", 1, MSG_DONTWAIT | MSG_NOSIGNAL);
	(void)n;
}

/* ---- dialling --------------------------------------------------------------------------- */

/* A socket to the peer's listener, or -1 with errno. On this machine connecting does not wait: it
 * is refused, or the backlog is full (EAGAIN), or done. */
static int dial_socket(const char *name)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	size_t n = strlen(name);
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	if (fd < 0)
		return -1;
	memcpy(address.sun_path + 1, name, n);
	socklen_t length = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + n);
	if (connect(fd, (struct sockaddr *)&address, length) == 0)
		return fd;
	int error = errno;
	close(fd);
	errno = error;
	return -1;
}

static tutti_status send_hello(struct shm_conn *conn, enum shm_purpose purpose)
{
	const struct shm_endpoint *endpoint = endpoint_of(conn);
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
	TRY(lane_memory_create(&conn->lane, endpoint->ring_bytes, &memfd));
	lane_memory_rings(conn->lane, true, &conn->out, &conn->in);
	tutti_status status = net_send_fds(conn->watch.fd, &hello, sizeof hello, &memfd, 1, 0);
	close(memfd);
	return status;
}

/* Of this user, else AUTH. Its process is not known where it is another container's. */
static tutti_status check_peer(struct shm_conn *conn)
{
	int pid = 0;

	TRY(net_unix_check(conn->watch.fd, &pid));
	if (pid > 0)
		snprintf(conn->base.where, sizeof conn->base.where, "process %d", pid);
	else
		snprintf(conn->base.where, sizeof conn->base.where, "a process");
	return TUTTI_OK;
}

/* The sentence is this thread's last error. */
static void fail_dial(struct shm_conn *conn, tutti_status status)
{
	char why[200];

	snprintf(why, sizeof why, "%s", last_error());
	shm_conn_fail(conn, status, "No shared memory with rank %d: %.180s", conn->base.peer, why);
}

static void dial(struct shm_conn *conn)
{
	struct shm_endpoint *endpoint = endpoint_of(conn);
	bool is_dialer = endpoint->rank > conn->base.peer;
	tutti_status status;

	conn->watch.fd = dial_socket(conn->name);
	if (conn->watch.fd < 0 && errno == EAGAIN)
		return;
	if (conn->watch.fd < 0 && errno == ECONNREFUSED) {
		/* The listener was there before its address was known: the peer has left. */
		conn->peer_left = true;
		return;
	}
	if (conn->watch.fd < 0)
		status = fail_errno("cannot dial");
	else if ((status = check_peer(conn)) == TUTTI_OK &&
		 (status = shm_watch_add(endpoint, &conn->watch)) == TUTTI_OK)
		status = send_hello(conn, is_dialer ? SHM_LANE : SHM_AWAIT);
	if (status == TUTTI_ERR_PEER)
		conn->peer_left = true;
	else if (status != TUTTI_OK)
		fail_dial(conn, status);
	else if (is_dialer)
		shm_conn_opened(conn);
	else
		conn->state = SHM_WAITING;
}

void shm_connect_begin(struct shm_conn *conn)
{
	struct shm_endpoint *endpoint = endpoint_of(conn);
	struct shm_accepted *accepted =
		shm_accepted_find(endpoint, conn->base.peer, conn->base.channel);

	endpoint->unsettled++;
	if (accepted)
		shm_accepted_adopt(conn, accepted);
	else
		dial(conn);
}

void shm_conn_settle(struct shm_conn *conn)
{
	if (!conn->is_settled)
		endpoint_of(conn)->unsettled--;
	conn->is_settled = true;
}

/* The peer has left before there was a lane: unsettled_look sees what remains to be done. */
static void peer_left(struct shm_conn *conn)
{
	conn->peer_left = true;
	if (conn->is_settled)
		endpoint_of(conn)->unsettled++;
	conn->is_settled = false;
}

/* The peer's lane has come. */
void shm_accepted_adopt(struct shm_conn *conn, struct shm_accepted *accepted)
{
	struct shm_endpoint *endpoint = endpoint_of(conn);
	struct epoll_event event = {.events = EPOLLIN, .data.ptr = &conn->watch};
	bool is_watched = accepted->is_watched;

	shm_watch_close(endpoint, &conn->watch);
	conn->watch.fd = accepted->watch.fd;
	conn->lane = accepted->lane;
	accepted->watch.fd = -1;
	accepted->lane = NULL;
	shm_accepted_drop(endpoint, accepted);
	lane_memory_rings(conn->lane, false, &conn->out, &conn->in);
	shm_conn_settle(conn);
	shm_conn_opened(conn);
	if (conn->watch.fd < 0) {
		snprintf(conn->base.where, sizeof conn->base.where, "a process");
		shm_conn_ended(conn);
		return;
	}
	tutti_status status = check_peer(conn);
	if (status == TUTTI_OK && !is_watched)
		status = shm_watch_add(endpoint, &conn->watch);
	else if (status == TUTTI_OK &&
		 epoll_ctl(endpoint->epoll_fd, EPOLL_CTL_MOD, conn->watch.fd, &event) < 0)
		status = fail_errno("cannot watch a descriptor");
	if (status != TUTTI_OK)
		fail_dial(conn, status);
}

/* ---- looking ---------------------------------------------------------------------------- */

static void conn_event(struct shm_conn *conn)
{
	bool has_bytes = false;
	bool is_there = shm_socket_drain(conn->watch.fd, &has_bytes);

	if (has_bytes)
		shm_conn_settle(conn);
	if (is_there)
		return;
	shm_watch_close(endpoint_of(conn), &conn->watch);
	if (conn->state == SHM_OPEN)
		shm_conn_ended(conn);
	else
		peer_left(conn);
}

/* watch may be closed by what came before it in the same look. */
static void event(struct shm_endpoint *endpoint, struct shm_watch *watch)
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
		conn_event((struct shm_conn *)((char *)watch - offsetof(struct shm_conn, watch)));
		break;
	}
}

/* Conns without a lane: dial again, give up, or learn that the peer has left. */
static bool unsettled_look(struct shm_endpoint *endpoint, uint64_t now_ns)
{
	int before = endpoint->unsettled;

	for (struct shm_conn *conn = endpoint->conns; conn; conn = conn->next) {
		if (conn->is_settled)
			continue;
		if (conn->state == SHM_DIALING && !conn->peer_left)
			dial(conn);
		/* What the peer did before it left lies in our backlog: its lane, perhaps. */
		if (conn->peer_left)
			shm_accept_backlog(endpoint);
		if (conn->is_settled)
			continue;
		if (conn->peer_left)
			shm_conn_fail(conn, TUTTI_ERR_PEER,
				      "Lost rank %d: it left before it was connected to rank %d "
				      "(shared memory).",
				      conn->base.peer, endpoint->rank);
		else if (now_ns >= conn->deadline_ns)
			shm_conn_fail(
				conn, TUTTI_ERR_TIMEOUT,
				"No answer from rank %d within %d ms when rank %d connects to "
				"it (shared memory).",
				conn->base.peer, endpoint->timeout_ms, endpoint->rank);
	}
	return endpoint->unsettled != before;
}

bool shm_look(struct shm_endpoint *endpoint)
{
	struct epoll_event events[EVENTS];
	int n = epoll_wait(endpoint->epoll_fd, events, EVENTS, 0);
	bool is_anything = n > 0;

	for (int i = 0; i < n; i++)
		event(endpoint, events[i].data.ptr);
	if (endpoint->unsettled || endpoint->pending) {
		uint64_t now_ns = clock_now_ns();
		is_anything |= unsettled_look(endpoint, now_ns);
		is_anything |= shm_accepted_look(endpoint);
		is_anything |= shm_accepted_expire(endpoint, now_ns);
	}
	if (endpoint->has_failed)
		shm_accepted_drop_failed(endpoint);
	while (endpoint->closed) {
		struct shm_accepted *closed = endpoint->closed;
		endpoint->closed = closed->next;
		free(closed);
	}
	return is_anything;
}

uint64_t shm_due_ns(const struct shm_endpoint *endpoint)
{
	uint64_t due_ns = DEADLINE_NONE;

	for (const struct shm_conn *c = endpoint->unsettled ? endpoint->conns : NULL; c;
	     c = c->next) {
		if (c->is_settled)
			continue;
		if (c->deadline_ns < due_ns)
			due_ns = c->deadline_ns;
		if (c->state == SHM_DIALING && deadline_after_ms(SHM_REDIAL_MS) < due_ns)
			due_ns = deadline_after_ms(SHM_REDIAL_MS);
	}
	for (const struct shm_accepted *g = endpoint->pending ? endpoint->accepted : NULL; g;
	     g = g->next) {
		if (g->is_known)
			continue;
		if (g->deadline_ns < due_ns)
			due_ns = g->deadline_ns;
		if (!g->is_watched && deadline_after_ms(SHM_REDIAL_MS) < due_ns)
			due_ns = deadline_after_ms(SHM_REDIAL_MS);
	}
	return due_ns;
}
