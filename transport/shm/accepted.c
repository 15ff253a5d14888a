/* Accepted connections that belong to no conn yet: pending until their hello, then known. One of
 * another user, or that says nonsense or nothing for too long, is dropped and does no harm. */
#include "transport/shm/shm.h"

#include "core/log.h"
#include "core/net.h"
#include "core/resource_limits.h"
#include "core/status.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

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

static struct shm_conn *find_conn(const struct shm_endpoint *endpoint, int peer, int channel)
{
	struct shm_conn *conn = endpoint->conns;

	while (conn && (conn->base.peer != peer || conn->base.channel != channel))
		conn = conn->next;
	return conn;
}

/* Here this conn has ended, and its peer may not know. */
static bool shm_has_ended(const struct shm_endpoint *endpoint, int peer, int channel)
{
	const struct shm_conn *conn = find_conn(endpoint, peer, channel);
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
static tutti_status read_hello(int fd, struct shm_hello *hello, int *memfd)
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

static bool is_for_us(const struct shm_endpoint *endpoint, const struct shm_hello *hello)
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
	struct shm_conn *conn = find_conn(endpoint, hello->from, hello->channel);

	if (!is_for_us(endpoint, hello) ||
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

static void pending_event(struct shm_endpoint *endpoint, struct shm_accepted *accepted)
{
	struct shm_hello hello;
	int memfd = -1;
	tutti_status status = read_hello(accepted->watch.fd, &hello, &memfd);

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

void shm_accepted_event(struct shm_endpoint *endpoint, struct shm_accepted *accepted)
{
	bool has_bytes = false;

	if (!accepted->is_known)
		pending_event(endpoint, accepted);
	else if (shm_socket_drain(accepted->watch.fd, &has_bytes))
		return;
	else if (accepted->purpose == SHM_RINGS) /* what it sent waits for our connect */
		shm_watch_close(endpoint, &accepted->watch);
	else
		shm_accepted_drop(endpoint, accepted);
}
