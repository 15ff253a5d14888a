/* The control ring at work: messages in and out, and what they make it decide. Notes are compared
 * in ring_calls.c. */
#include "collectives/control/control_internal.h"

#include "core/clock.h"
#include "core/log.h"

#include <poll.h>
#include <stdio.h>
#include <string.h>

#define CONTROL_BLIND_MS 10 /* between two looks at a transport that cannot be slept on     */

/* ---- messages ------------------------------------------------------------------------------ */

static void flush(struct control_link *l)
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
	flush(l);
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
	struct control *c = l->control;
	struct control_link *other = &c->links[l == &c->links[0]];
	return c->link_count < 2 || other->peer < 0 ? NULL : other;
}

const char *control_who(const struct control *c, int rank, char *text, size_t text_bytes)
{
	const struct control_peer *peer = &c->config.peers[rank];
	snprintf(text, text_bytes, "Rank %d (process %d on %s)", rank, peer->process, peer->host);
	return text;
}

/* ---- failures ------------------------------------------------------------------------------- */

void control_decide(struct control *c, const struct failure *failure)
{
	struct control_message m = {.kind = CONTROL_FAILED,
				    .origin = c->config.rank,
				    .status = (int32_t)failure->status,
				    .rank = failure->rank,
				    .is_common = failure->is_common,
				    .first = failure->sequence};

	if (c->has_failed)
		return;
	c->has_failed = true;
	snprintf(c->message, sizeof c->message, "%s", failure->message);
	c->decided = *failure;
	c->decided.message = c->message;
	memcpy(m.text, c->message, sizeof m.text);
	for (int i = 0; i < c->link_count; i++)
		control_post_last(&c->links[i], &m);
}

tutti_status control_remote_error(int rank, tutti_status status, const char *message, char *text)
{
	if (status == TUTTI_ERR_MISMATCH || status == TUTTI_ERR_PEER ||
	    status == TUTTI_ERR_ABORTED) {
		snprintf(text, ERROR_BYTES, "%s", message);
		return status;
	}
	snprintf(text, ERROR_BYTES, "Rank %d has failed: %.480s", rank, message);
	return TUTTI_ERR_PEER;
}

static void take_failure(struct control_link *l, struct control_message *m)
{
	char text[ERROR_BYTES];
	struct failure failure = {.status = (tutti_status)m->status,
				  .rank = m->rank,
				  .sequence = m->first,
				  .message = m->text,
				  .is_common = m->is_common};
	m->text[ERROR_BYTES - 1] = '\0';
	if (!failure.is_common) {
		failure.status = control_remote_error(m->origin, failure.status, m->text, text);
		failure.message = text;
	}
	control_decide(l->control, &failure);
}

/* Passed on once round the ring. */
static void take_death(struct control_link *l, struct control_message *m)
{
	struct control *c = l->control;
	if (m->rank < 0 || m->rank >= c->config.size)
		return;
	c->known[m->rank].is_gone = true;
	if (c->dead >= 0)
		return;
	m->text[ERROR_BYTES - 1] = '\0';
	c->dead = m->rank;
	c->dead_ns = clock_now_ns();
	memcpy(c->death, m->text, sizeof c->death);
	log_info("%s", c->death);
	for (int i = 0; i < c->link_count; i++)
		if (&c->links[i] != l)
			control_post(&c->links[i], m);
}

/* A later neighbour that nobody finds has left or died before: those that were its neighbours then
 * have said so. */
static void connection_ended(struct control_link *l)
{
	struct control *c = l->control;
	const struct tutti_conn *conn = l->conn;
	struct control_message m = {
		.kind = CONTROL_DEAD, .origin = c->config.rank, .rank = l->peer};
	char who[128];
	size_t end = strlen(conn->error);

	l->is_cut = true;
	if (c->has_failed || c->is_leaving || (l->is_later && !l->is_up))
		return;
	end -= end > 0 && conn->error[end - 1] == '.';
	snprintf(m.text, sizeof m.text, "%s has died: %.*s.",
		 control_who(c, l->peer, who, sizeof who), (int)end, conn->error);
	if (conn->status == TUTTI_ERR_PEER)
		take_death(l, &m);
	else
		control_decide(c, &(struct failure){.status = conn->status,
						    .rank = FAILURE_NO_RANK,
						    .message = conn->error});
}

static void take_leave(struct control_link *l, struct control_message *m)
{
	struct control *c = l->control;
	struct control_known *known = &c->known[l->peer];

	known->has_left = c->some_have_left = true;
	known->left_at = m->issued;
	l->is_cut = true;
	if (m->count)
		control_take_notes(l, m);
}

/* A later neighbour has not been told, or asked, what the one before it was. */
static void greet(struct control_link *l)
{
	struct control *c = l->control;

	l->is_up = true;
	if (l->is_later)
		c->slow_told = c->asked = 0;
}

/* Whoever has not made the call puts its name on it; at home it is the answer. */
static void take_question(struct control_link *l, struct control_message *m)
{
	struct control *c = l->control;
	struct control_link *on = control_other(l);

	if (m->count > CONTROL_MISSING)
		return;
	control_look(c); /* notes that came before the question are compared before it goes on */
	if (m->origin == c->config.rank) {
		memcpy(c->missing, m->ranks, m->count * sizeof c->missing[0]);
		c->missing_count = m->count;
		c->answer_to = m->first + 1;
		return;
	}
	if (c->known[m->origin].is_gone)
		return; /* nobody waits for the answer, and nobody would stop the question */
	if (recorder_issued(c->config.recorder) <= m->first && m->count < CONTROL_MISSING)
		m->ranks[m->count++] = c->config.rank;
	control_post(on ? on : l, m);
}

/* Ranks that are none would take no message from the ring, and a status that is none would end in
 * the caller's hands. */
static bool is_sound(const struct control *c, const struct control_message *m)
{
	int size = c->config.size, least = m->kind == CONTROL_DEAD ? 0 : -1;

	if (m->origin < 0 || m->origin >= size || m->rank < least || m->rank >= size)
		return false;
	return m->kind != CONTROL_FAILED || status_is_error(m->status);
}

static void take(struct control_link *l)
{
	struct control_message *m = &l->received;

	if (!is_sound(l->control, m)) {
		log_info("rank %d: its neighbour %d says what makes no sense",
			 l->control->config.rank, l->peer);
		return;
	}
	l->is_awaited = false;
	switch ((enum control_kind)m->kind) {
	case CONTROL_HELLO:
		greet(l);
		break;
	case CONTROL_NOTES_OF:
		control_take_notes(l, m);
		break;
	case CONTROL_WHO:
		take_question(l, m);
		break;
	case CONTROL_DEAD:
		take_death(l, m);
		break;
	case CONTROL_FAILED:
		take_failure(l, m);
		break;
	case CONTROL_LEAVING:
		take_leave(l, m);
		break;
	case CONTROL_WATCH:
		control_take_watch(l, m);
		break;
	case CONTROL_HERE:
		break;
	}
}

bool control_pass(struct control *c)
{
	struct tutti_io *io;
	bool moved = false;

	c->config.endpoint->transport->progress(c->config.endpoint, &c->done);
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
			take(l);
			control_listen(l);
		}
		flush(l);
	}
	control_mend(c);
	return moved;
}

void control_settle(struct control *c)
{
	const struct tutti_transport *t = c->config.endpoint->transport;
	for (int tries = 0; tries < 64; tries++) {
		bool moved = control_pass(c);
		if ((!t->arm || !t->arm(c->config.endpoint)) && !moved)
			return;
	}
	c->needs_helper = true;
}

void control_unlock(struct control *c)
{
	bool is_due = c->has_failed && !c->is_delivered, wakes = c->needs_helper;
	if (is_due)
		c->is_delivered = true;
	c->needs_helper = false;
	pthread_mutex_unlock(&c->lock);
	if (wakes && c->wake)
		c->wake();
	if (is_due && c->on_failure)
		c->on_failure(c->arg, &c->decided);
}

void control_progress(struct control *c)
{
	pthread_mutex_lock(&c->lock);
	control_settle(c);
	control_look(c);
	control_tick(c);
	if (c->has_failed && !c->is_delivered)
		control_settle(c);
	control_unlock(c);
}

int control_arm(struct control *c, struct pollfd *fd, int *timeout_ms)
{
	struct tutti_endpoint *ep = c->config.endpoint;
	int n = 1, due_ms = -1;

	pthread_mutex_lock(&c->lock);
	if (!ep->transport->event_fd) {
		n = 0;
		due_ms = CONTROL_BLIND_MS;
	} else if (ep->transport->arm && ep->transport->arm(ep)) {
		n = -1;
	} else {
		*fd = (struct pollfd){.fd = ep->transport->event_fd(ep), .events = POLLIN};
	}
	for (int i = 0; i < c->link_count && due_ms < 0; i++)
		if (c->links[i].is_keeping || c->links[i].is_awaited)
			due_ms = CONTROL_LOOK_MS;
	pthread_mutex_unlock(&c->lock);
	if (due_ms >= 0 && (*timeout_ms < 0 || due_ms < *timeout_ms))
		*timeout_ms = due_ms;
	return n;
}
