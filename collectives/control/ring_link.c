/* Used by all of the ring's files: the failure that is decided once, and its connections, each
 * with a queue of messages, to the two neighbours. Where one of these has left or died, the next
 * rank in that direction follows. Both ends of the gap see it and connect to each other, so the
 * ring closes without a word. */
#include "collectives/control/control_internal.h"
#include "transport/guarded.h"

#include <stdio.h>
#include <string.h>

void control_flush(struct control_link *l)
{
	if (l->is_sending || l->queued == 0 || !l->conn)
		return;
	l->sending = l->queue[l->queue_at];
	l->sending.failed_first = job_first(&l->ring->base.job);
	l->queue_at = (l->queue_at + 1) % CONTROL_QUEUE;
	l->queued--;
	l->is_sending = true;
	l->out = (struct tutti_io){
		.buf = &l->sending, .bytes = sizeof l->sending, .tag = CONTROL_TAG};
	transport_send(l->conn, &l->out);
}

void control_post(struct control_link *l, const struct control_message *m)
{
	if (!l->conn || l->is_cut || l->queued == CONTROL_QUEUE)
		return;
	l->queue[(l->queue_at + l->queued++) % CONTROL_QUEUE] = *m;
	control_flush(l);
}

void control_post_last(struct control_link *l, const struct control_message *m)
{
	l->queued = 0;
	control_post(l, m);
}

void control_listen(struct control_link *l)
{
	if (!l->conn)
		return;
	l->in = (struct tutti_io){
		.buf = &l->received, .bytes = sizeof l->received, .tag = CONTROL_TAG};
	transport_recv(l->conn, &l->in);
}

struct control_link *control_other(struct control_link *l)
{
	struct control_ring *c = l->ring;
	struct control_link *other = &c->links[l == &c->links[0]];
	return c->link_count < 2 || other->peer < 0 ? NULL : other;
}

const char *control_who(const struct control_ring *c, int rank, char *text, size_t text_bytes)
{
	const struct control_peer *peer = &c->config.peers[rank];
	char number[JOB_WHO_BYTES];

	snprintf(text, text_bytes, "Rank %d (%sprocess %d on %s)", rank,
		 job_who(&c->base.job, rank, number), peer->process, peer->host);
	return text;
}

static void post_failure(struct control_link *l)
{
	const struct control_ring *c = l->ring;
	struct control_message m = {.kind = CONTROL_FAILED,
				    .origin = c->config.rank,
				    .status = (int32_t)c->decided.status,
				    .rank = c->decided.rank,
				    .is_common = c->decided.is_common,
				    .first = c->decided.sequence};

	memcpy(m.text, c->message, sizeof m.text);
	control_post_last(l, &m);
}

void control_decide(struct control_ring *c, const struct failure *failure)
{
	if (c->has_failed)
		return;
	c->has_failed = true;
	snprintf(c->message, sizeof c->message, "%s", failure->message);
	c->decided = *failure;
	c->decided.message = c->message;
	for (int i = 0; i < c->link_count; i++)
		post_failure(&c->links[i]);
}

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
	TRY(transport_connect(ep, l->peer, CONTROL_CHANNEL, peer->address, peer->address_bytes,
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
	l->asker = -1;
	l->queued = 0;
	transport_close(conn);
}

/* Messages that wait for the neighbour that is gone, such as a failure, go to the next one. */
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
		post_failure(l);
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
