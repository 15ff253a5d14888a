/* Dialing the peer. The higher rank of a pair passes the memory of the rings with its hello. */
#include "transport/shm/shm.h"

#include "core/net.h"
#include "core/status.h"

#include <errno.h>
#include <stdio.h>
#include <unistd.h>

static tutti_status send_hello(struct shm_conn *conn, enum shm_purpose purpose)
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
	tutti_status status = net_send_fds(conn->watch.fd, &hello, sizeof hello, &memfd, 1, 0);
	close(memfd);
	return status;
}

/* The process is not known where it is another container's. */
tutti_status shm_connect_check(struct shm_conn *conn)
{
	int pid = 0;

	TRY(net_unix_check(conn->watch.fd, &pid));
	if (pid > 0)
		snprintf(conn->base.where, sizeof conn->base.where, "process %d", pid);
	else
		snprintf(conn->base.where, sizeof conn->base.where, "a process");
	return TUTTI_OK;
}

void shm_connect_fail(struct shm_conn *conn, tutti_status status, const char *why)
{
	shm_conn_fail(conn, status,
		      "rank %d cannot connect to rank %d (shared memory, channel %d): %.200s",
		      shm_endpoint_of(conn)->rank, conn->base.peer, conn->base.channel, why);
}

void shm_connect_refuse_all(struct shm_endpoint *endpoint, const char *why, bool is_lost)
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
		status = send_hello(conn, passes_rings ? SHM_RINGS : SHM_AWAIT);
	if (status == TUTTI_ERR_PEER)
		conn->peer_left = true;
	else if (status != TUTTI_OK)
		shm_connect_fail(conn, status, last_error());
	else if (passes_rings)
		shm_conn_opened(conn);
	else
		conn->state = SHM_WAITING;
}
