/* What the ring's files have in common: a link's queue of messages, and the failure that is decided
 * once. */
#include "collectives/control/control_internal.h"

#include <stdio.h>
#include <string.h>

void control_flush(struct control_link *l)
{
	if (l->is_sending || l->queued == 0 || !l->conn)
		return;
	l->sending = l->queue[l->queue_at];
	l->queue_at = (l->queue_at + 1) % CONTROL_QUEUE;
	l->queued--;
	l->is_sending = true;
	l->out = (struct tutti_io){
		.buf = &l->sending, .bytes = sizeof l->sending, .tag = CONTROL_TAG};
	l->conn->endpoint->transport->send(l->conn, &l->out);
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
	l->conn->endpoint->transport->recv(l->conn, &l->in);
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
	snprintf(text, text_bytes, "Rank %d (process %d on %s)", rank, peer->process, peer->host);
	return text;
}

void control_post_failure(struct control_link *l)
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
		control_post_failure(&c->links[i]);
}
