/* One look at all that can happen outside of the rings: events of sockets, connections that the
 * peer has not answered yet, deadlines. */
#include "transport/shm/shm.h"

#include "core/clock.h"

#include <sys/epoll.h>
#include <unistd.h>

#define EVENTS 16 /* taken from epoll at once */

/* The peer has left before there were rings: unsettled_look sees what remains to be done. */
static void peer_left(struct shm_conn *conn)
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
		peer_left(conn);
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
static bool unsettled_look(struct shm_endpoint *endpoint, uint64_t now_ns)
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

static bool look_at_sockets(struct shm_endpoint *endpoint)
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
	bool is_anything = look_at_sockets(endpoint);

	if (endpoint->unsettled || endpoint->pending.count) {
		uint64_t now_ns = clock_now_ns();
		is_anything |= unsettled_look(endpoint, now_ns);
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
