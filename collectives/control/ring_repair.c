/* The control ring's connections: to the two neighbours, and, where one of these has left or died,
 * to the next rank in that direction. Both ends of the gap see it and connect to each other, so the
 * ring closes without a word. */
#include "collectives/control/control_internal.h"

/* A rank that does not reach the other is not reached either: the ring is open there. */
tutti_status control_connect(struct control_link *l)
{
	struct control_ring *c = l->ring;
	const struct control_peer *peer = &c->config.peers[l->peer];
	struct tutti_endpoint *ep = c->config.endpoint;
	struct control_message hello = {.kind = CONTROL_HELLO, .origin = c->config.rank};

	l->is_up = peer->address_bytes == 0;
	if (l->is_up)
		return TUTTI_OK;
	TRY(ep->transport->connect(ep, l->peer, CONTROL_CHANNEL, peer->address, peer->address_bytes,
				   &l->conn));
	control_listen(l);
	control_post(l, &hello);
	return TUTTI_OK;
}

/* The next rank in the link's direction that is not known to be gone; this one: there is none. */
static int next_living(const struct control_link *l)
{
	const struct control_ring *c = l->ring;
	int n = c->config.size, step = l == &c->links[0] ? n - 1 : 1, rank = l->peer;

	do
		rank = (rank + step) % n;
	while (rank != c->config.rank && c->known[rank].is_gone);
	return rank;
}

static void close_conn(struct control_link *l)
{
	struct tutti_conn *conn = l->conn;

	l->conn = NULL;
	l->is_cut = l->is_sending = l->is_awaited = false;
	l->queued = 0;
	conn->endpoint->transport->close(conn);
}

/* What waits for the neighbour that is gone (a failure, perhaps) is for the next one. */
static void move_on(struct control_link *l)
{
	struct control_ring *c = l->ring;
	const struct control_link *other = control_other(l);
	int next = next_living(l);

	l->is_later = true;
	l->told = l->answered = 0;
	l->peer = -1;
	l->is_up = true;
	if (next == c->config.rank || (other && next == other->peer))
		return;
	l->peer = next;
	if (control_connect(l) == TUTTI_OK && c->has_failed)
		control_post_failure(l);
}

/* If this rank or a neighbour leaves after it has passed the failure on, a cut link needs no new
 * neighbour. */
void control_repair(struct control_ring *c)
{
	for (int i = 0; i < c->link_count; i++) {
		struct control_link *l = &c->links[i];
		if (!l->is_cut)
			continue;
		bool is_over = c->is_leaving || (c->has_failed && c->known[l->peer].has_left);
		c->known[l->peer].is_gone = true;
		close_conn(l);
		if (!is_over && c->config.size > 2)
			move_on(l);
	}
}
