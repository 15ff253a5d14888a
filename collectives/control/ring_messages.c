/* The messages that the ring's neighbours send, and what they make this rank decide. Call records
 * are compared in ring_calls.c. */
#include "collectives/control/control_internal.h"

#include "core/clock.h"
#include "core/log.h"
#include "core/machine.h"
#include "transport/guarded.h"

#include <stdio.h>
#include <string.h>

static void ring_messages_take_failure(struct control_link *l, struct control_message *m)
{
	char text[ERROR_BYTES];

	m->text[ERROR_BYTES - 1] = '\0';
	struct failure theirs = {.status = (tutti_status)m->status,
				 .rank = m->rank,
				 .sequence = m->first,
				 .is_common = m->is_common,
				 .message = m->text};
	struct failure failure = failure_of_peer(m->origin, &theirs, text);
	control_decide(l->ring, &failure);
}

/* Passed on once round the ring. */
static void take_lost(struct control_link *l, struct control_message *m)
{
	struct control_ring *c = l->ring;
	if (m->rank < 0 || m->rank >= c->config.size)
		return;
	c->known[m->rank].is_gone = true;
	if (c->lost >= 0)
		return;
	m->text[ERROR_BYTES - 1] = '\0';
	c->lost = m->rank;
	c->lost_ns = clock_now_ns();
	memcpy(c->lost_message, m->text, sizeof c->lost_message);
	log_info("%s", c->lost_message);
	for (int i = 0; i < c->link_count; i++)
		if (&c->links[i] != l)
			control_post(&c->links[i], m);
}

/* The end of a connection proves no death: a living rank may have closed it, or the network. */
static const char *what_happened(const struct control_ring *c, int rank)
{
	const struct control_peer *peer = &c->config.peers[rank];
	return peer->is_visible && process_has_ended(peer->process) ? "has died" : "is lost";
}

/* If a later neighbour cannot be reached, it has left or died before: those that were its
 * neighbours then have said so. */
static void connection_ended(struct control_link *l)
{
	struct control_ring *c = l->ring;
	const struct tutti_conn *conn = l->conn;
	struct control_message m = {
		.kind = CONTROL_LOST, .origin = c->config.rank, .rank = l->peer};
	char who[128];
	size_t end = strlen(conn->error);

	l->is_cut = true;
	if (c->has_failed || c->is_leaving || (l->is_later && !l->is_up))
		return;
	end -= end > 0 && conn->error[end - 1] == '.';
	snprintf(m.text, sizeof m.text, "%s %s: %.*s.", control_who(c, l->peer, who, sizeof who),
		 what_happened(c, l->peer), (int)end, conn->error);
	if (conn->status == TUTTI_ERR_PEER)
		take_lost(l, &m);
	else
		control_decide(c, &(struct failure){.status = conn->status,
						    .rank = FAILURE_NO_RANK,
						    .message = conn->error});
}

static void ring_messages_take_leave(struct control_link *l, struct control_message *m)
{
	struct control_ring *c = l->ring;
	struct control_known *known = &c->known[l->peer];

	known->has_left = c->some_have_left = true;
	known->left_at = m->issued;
	l->is_cut = true;
	if (m->count)
		control_take_calls(l, m);
}

/* A later neighbour has not been told, or asked, what the one before it was. */
static void ring_messages_greet(struct control_link *l)
{
	struct control_ring *c = l->ring;

	l->is_up = true;
	if (l->is_later) {
		c->slow_told = 0;
		c->question.is_posted = false;
	}
}

/* Ranks that are none would take no message from the ring, and a status that is none would end in
 * the caller's hands. */
static bool ring_messages_is_sound(const struct control_ring *c, const struct control_message *m)
{
	int size = c->config.size, least = m->kind == CONTROL_LOST ? 0 : -1;

	if (m->origin < 0 || m->origin >= size || m->rank < least || m->rank >= size)
		return false;
	return m->kind != CONTROL_FAILED || status_is_error(m->status);
}

static void take_ring_message(struct control_link *l)
{
	struct control_message *m = &l->received;

	if (!ring_messages_is_sound(l->ring, m)) {
		log_info("rank %d dropped a message of the control ring: rank %d sent kind %u, "
			 "origin %d, rank %d and status %d, of which one is out of range",
			 l->ring->config.rank, l->peer, m->kind, m->origin, m->rank, m->status);
		return;
	}
	l->is_awaited = false;
	l->asker = -1;
	if (m->failed_first > 0 && !l->ring->heard_first)
		l->ring->heard_first = m->failed_first;
	switch ((enum control_message_kind)m->kind) {
	case CONTROL_HELLO:
		ring_messages_greet(l);
		break;
	case CONTROL_CALLS:
		control_take_calls(l, m);
		break;
	case CONTROL_WHO:
		control_take_question(l, m);
		break;
	case CONTROL_LOST:
		take_lost(l, m);
		break;
	case CONTROL_FAILED:
		ring_messages_take_failure(l, m);
		break;
	case CONTROL_LEAVING:
		ring_messages_take_leave(l, m);
		break;
	case CONTROL_WATCH:
		control_take_watch(l, m);
		break;
	case CONTROL_HERE:
	case CONTROL_FIRST:
		break;
	}
}

bool control_pass(struct control_ring *c)
{
	struct tutti_io *io;
	bool moved = false;

	transport_progress(c->config.endpoint, &c->done);
	while ((io = tutti_done_pop(&c->done))) {
		struct control_link *l = &c->links[0];
		if (io != &l->in && io != &l->out)
			l = &c->links[1];
		moved = true;
		if (!l->conn || l->is_cut)
			continue; /* of a connection that has ended */
		if (io->status != TUTTI_OK) {
			connection_ended(l);
			continue;
		}
		if (io == &l->out) {
			l->is_sending = false;
		} else {
			take_ring_message(l);
			control_listen(l);
		}
		control_flush(l);
	}
	control_repair(c);
	return moved;
}

void control_settle(struct control_ring *c)
{
	struct tutti_endpoint *ep = c->config.endpoint;
	for (int tries = 0; tries < 64; tries++) {
		bool moved = control_pass(c);
		if ((!ep->transport->arm || !transport_arm(ep)) && !moved)
			return;
	}
	c->needs_helper = true;
}

void control_unlock(struct control_ring *c)
{
	bool is_due = c->has_failed && !c->is_delivered, wakes = c->needs_helper;
	int first = c->heard_first;
	c->heard_first = 0;
	if (is_due)
		c->is_delivered = true;
	c->needs_helper = false;
	pthread_mutex_unlock(&c->lock);
	if (first)
		job_note(&c->base.job, first);
	if (wakes && c->base.wake)
		c->base.wake();
	if (is_due && c->base.on_failure)
		c->base.on_failure(c->base.arg, &c->decided);
}
