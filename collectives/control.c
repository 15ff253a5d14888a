/* The control ring: its connections, messages and notices. What is compared is in control_notes.c.
 */
#include "collectives/control_internal.h"

#include "core/clock.h"
#include "core/log.h"

#include <assert.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GOODBYE_MS       500 /* how long destroy waits for its last words to be on their way */
#define CONTROL_BLIND_MS 10  /* between two looks at a transport that cannot be slept on     */

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
	if (!l->conn || l->has_left || l->queued == CONTROL_QUEUE)
		return;
	l->queue[(l->queue_at + l->queued++) % CONTROL_QUEUE] = *m;
	flush(l);
}

/* What waited to be said before does not matter any more. */
static void post_last(struct control_link *l, const struct control_message *m)
{
	l->queued = 0;
	control_post(l, m);
}

static void listen_to(struct control_link *l)
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
	return c->link_count < 2 ? NULL : &c->links[l == &c->links[0]];
}

/* ---- notices ------------------------------------------------------------------------------- */

void control_decide(struct control *c, const struct notice *notice)
{
	struct control_message m = {.kind = CONTROL_FAILED,
				    .origin = c->config.rank,
				    .status = (int32_t)notice->status,
				    .dead = notice->dead,
				    .first = notice->sequence};

	if (c->has_failed)
		return;
	c->has_failed = true;
	snprintf(c->sentence, sizeof c->sentence, "%s", notice->sentence);
	c->verdict = *notice;
	c->verdict.sentence = c->sentence;
	memcpy(m.sentence, c->sentence, sizeof m.sentence);
	for (int i = 0; i < c->link_count; i++)
		post_last(&c->links[i], &m);
}

tutti_status control_hearsay(int rank, tutti_status status, const char *sentence, char *text)
{
	if (status == TUTTI_ERR_MISMATCH || status == TUTTI_ERR_PEER ||
	    status == TUTTI_ERR_ABORTED) {
		snprintf(text, ERROR_BYTES, "%s", sentence);
		return status;
	}
	snprintf(text, ERROR_BYTES, "Rank %d has failed: %.480s", rank, sentence);
	return TUTTI_ERR_PEER;
}

static void take_failure(struct control_link *l, struct control_message *m)
{
	char text[ERROR_BYTES];
	m->sentence[ERROR_BYTES - 1] = '\0';
	tutti_status status =
		control_hearsay(m->origin, (tutti_status)m->status, m->sentence, text);
	control_decide(l->control, &(struct notice){status, m->dead, m->first, text});
}

/* Passed on once round the ring. */
static void take_death(struct control_link *l, struct control_message *m)
{
	struct control *c = l->control;
	if (c->dead >= 0)
		return;
	m->sentence[ERROR_BYTES - 1] = '\0';
	c->dead = m->dead;
	memcpy(c->death, m->sentence, sizeof c->death);
	log_info("%s", c->death);
	for (int i = 0; i < c->link_count; i++)
		if (&c->links[i] != l)
			control_post(&c->links[i], m);
}

static void connection_ended(struct control_link *l)
{
	struct control *c = l->control;
	struct control_message m = {
		.kind = CONTROL_DEAD, .origin = c->config.rank, .dead = l->peer};
	struct tutti_conn *conn = l->conn;
	tutti_status status = conn->status;

	snprintf(m.sentence, sizeof m.sentence, "Rank %d has died: %s.", l->peer, conn->error);
	l->conn = NULL;
	l->is_sending = false;
	l->queued = 0;
	if (!l->has_left && !c->has_failed) {
		if (status == TUTTI_ERR_PEER)
			take_death(l, &m);
		else
			control_decide(c, &(struct notice){status, -1, 0, conn->error});
	}
	conn->endpoint->transport->close(conn);
}

/* Whoever has not made the call puts its name on it; at home it is the answer. */
static void take_question(struct control_link *l, struct control_message *m)
{
	struct control *c = l->control;
	struct control_link *on = control_other(l);

	if (m->count > CONTROL_MISSING)
		return;
	if (m->origin == c->config.rank) {
		memcpy(c->missing, m->ranks, m->count * sizeof c->missing[0]);
		c->missing_count = m->count;
		c->answer_to = m->first + 1;
		return;
	}
	if (recorder_issued(c->config.recorder) <= m->first && m->count < CONTROL_MISSING)
		m->ranks[m->count++] = c->config.rank;
	control_post(on ? on : l, m);
}

static void take(struct control_link *l)
{
	struct control_message *m = &l->received;

	switch ((enum control_kind)m->kind) {
	case CONTROL_HELLO:
		l->is_up = true;
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
		l->has_left = true;
		l->left_at = m->issued;
		l->queued = 0;
		if (m->count)
			control_take_notes(l, m);
		break;
	}
}

static bool pass(struct control *c)
{
	struct tutti_io *io;
	bool moved = false;

	c->config.endpoint->transport->progress(c->config.endpoint, &c->done);
	while ((io = tutti_done_pop(&c->done))) {
		struct control_link *l = &c->links[0];
		if (io != &l->in && io != &l->out)
			l = &c->links[1];
		moved = true;
		if (!l->conn)
			continue; /* of a connection that has ended */
		if (io->status != TUTTI_OK) {
			connection_ended(l);
			continue;
		}
		if (io == &l->out) {
			l->is_sending = false;
		} else {
			take(l);
			listen_to(l);
		}
		flush(l);
	}
	return moved;
}

/* Whoever has used the endpoints leaves them armed, since another thread may be asleep on them. */
static void settle(struct control *c)
{
	const struct tutti_transport *t = c->config.endpoint->transport;
	for (int tries = 0; tries < 64; tries++) {
		bool moved = pass(c);
		if ((!t->arm || !t->arm(c->config.endpoint)) && !moved)
			return;
	}
	c->needs_helper = true;
}

/* Hands out what was decided, and was sent before. */
static void unlock(struct control *c)
{
	bool is_due = c->has_failed && !c->is_delivered, wakes = c->needs_helper;
	if (is_due)
		c->is_delivered = true;
	c->needs_helper = false;
	pthread_mutex_unlock(&c->lock);
	if (wakes && c->wake)
		c->wake();
	if (is_due && c->heed)
		c->heed(c->arg, &c->verdict);
}

void control_progress(struct control *c)
{
	pthread_mutex_lock(&c->lock);
	settle(c);
	control_look(c);
	if (c->has_failed && !c->is_delivered)
		settle(c);
	unlock(c);
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
		if (c->links[i].is_keeping)
			due_ms = CONTROL_LOOK_MS;
	pthread_mutex_unlock(&c->lock);
	if (due_ms >= 0 && (*timeout_ms < 0 || due_ms < *timeout_ms))
		*timeout_ms = due_ms;
	return n;
}

/* ---- what the engine says ------------------------------------------------------------------ */

/* A neighbour that has left made no more calls: whoever waits in a later one waits in vain. */
static void look_for_leavers(struct control *c, uint64_t sequence)
{
	for (int i = 0; i < c->link_count; i++) {
		const struct control_link *l = &c->links[i];
		char text[ERROR_BYTES];
		if (!l->has_left || l->left_at > sequence)
			continue;
		snprintf(text, sizeof text,
			 "Rank %d has left the communicator after %llu calls, and rank %d waits in "
			 "call #%llu.",
			 l->peer, (unsigned long long)l->left_at, c->config.rank,
			 (unsigned long long)sequence);
		control_decide(c, &(struct notice){TUTTI_ERR_PEER, l->peer, sequence, text});
	}
}

void control_slow(struct control *c, uint64_t sequence, bool is_bad)
{
	pthread_mutex_lock(&c->lock);
	settle(c);
	control_look(c);
	if (sequence != NO_CALL)
		look_for_leavers(c, sequence);
	if (c->dead >= 0 && is_bad)
		control_decide(c, &(struct notice){TUTTI_ERR_PEER, c->dead, sequence, c->death});
	if (sequence != NO_CALL && c->slow_told != sequence + 1 && !c->has_failed) {
		uint64_t first = sequence > CONTROL_BEFORE ? sequence - CONTROL_BEFORE : 0;
		c->slow_told = sequence + 1;
		for (int i = 0; i < c->link_count; i++)
			control_send_notes(&c->links[i], first, first + CONTROL_NOTES - 1);
	}
	settle(c);
	unlock(c);
}

void control_ask(struct control *c, uint64_t sequence)
{
	struct control_message m = {
		.kind = CONTROL_WHO, .origin = c->config.rank, .first = sequence};

	pthread_mutex_lock(&c->lock);
	if (c->asked != sequence + 1) {
		c->asked = sequence + 1;
		control_post(&c->links[c->link_count - 1], &m);
		settle(c);
	}
	unlock(c);
}

const char *control_missing(struct control *c, uint64_t sequence, char *text, size_t text_bytes)
{
	size_t at = 0;
	text[0] = '\0';
	pthread_mutex_lock(&c->lock);
	settle(c);
	uint32_t n = c->answer_to == sequence + 1 ? c->missing_count : 0;
	for (uint32_t i = 0; i < n && at + 16 < text_bytes; i++)
		at += (size_t)snprintf(text + at, text_bytes - at, "%s%d",
				       i       ? ", "
				       : n > 1 ? "ranks "
					       : "rank ",
				       (int)c->missing[i]);
	unlock(c);
	return text;
}

void control_tell(struct control *c, tutti_status status, int dead, int pending,
		  const char *sentence)
{
	struct notice notice = {status, dead, recorder_issued(c->config.recorder), sentence};

	notice.sequence -=
		(uint64_t)pending < notice.sequence ? (uint64_t)pending : notice.sequence;
	pthread_mutex_lock(&c->lock);
	control_decide(c, &notice);
	c->is_delivered = true;
	settle(c);
	unlock(c);
}

/* ---- making and ending --------------------------------------------------------------------- */

static tutti_status connect_link(struct control *c, int i)
{
	struct tutti_endpoint *ep = c->config.endpoint;
	struct control_message hello = {.kind = CONTROL_HELLO, .origin = c->config.rank};
	struct control_link *l = &c->links[i];

	l->control = c;
	l->peer = (c->config.rank + (i ? 1 : c->config.size - 1)) % c->config.size;
	l->is_up = !c->config.neighbours[i].address;
	if (l->is_up)
		return TUTTI_OK;
	TRY(ep->transport->connect(ep, l->peer, CONTROL_CHANNEL, c->config.neighbours[i].address,
				   c->config.neighbours[i].address_bytes, &l->conn));
	listen_to(l);
	control_post(l, &hello);
	return TUTTI_OK;
}

tutti_status control_create(struct control **out, const struct control_config *config)
{
	struct control *c = calloc(1, sizeof *c);
	tutti_status status = TUTTI_OK;

	assert(config->size > 1);
	if (!c) {
		config->endpoint->transport->destroy(config->endpoint);
		return fail(TUTTI_ERR_MEMORY, "rank %d: no memory for its neighbours",
			    config->rank);
	}
	c->config = *config;
	c->link_count = config->size > 2 ? 2 : 1;
	c->dead = -1;
	pthread_mutex_init(&c->lock, NULL);
	tutti_done_init(&c->done);
	for (int i = 0; i < c->link_count && status == TUTTI_OK; i++)
		status = connect_link(c, i);
	if (status != TUTTI_OK) {
		c->has_failed = true; /* nobody to say goodbye to */
		control_destroy(c);
		return status;
	}
	*out = c;
	return TUTTI_OK;
}

void control_bind(struct control *c, void (*heed)(void *arg, const struct notice *notice),
		  void (*wake)(void), void *arg)
{
	c->heed = heed;
	c->wake = wake;
	c->arg = arg;
}

/* Whether both neighbours are there, or never will be. */
static bool is_settled(struct control *c, tutti_status *status)
{
	bool all_up = true;

	pthread_mutex_lock(&c->lock);
	for (int i = 0; i < c->link_count; i++)
		all_up &= c->links[i].is_up;
	*status = all_up || !c->has_failed ? TUTTI_OK : c->verdict.status;
	if (*status == TUTTI_OK && !all_up && c->dead >= 0)
		*status = fail(TUTTI_ERR_PEER, "%s", c->death);
	else if (*status != TUTTI_OK)
		fail(*status, "%s", c->sentence);
	pthread_mutex_unlock(&c->lock);
	return all_up || *status != TUTTI_OK;
}

tutti_status control_wait(struct control *c, uint64_t deadline_ns)
{
	tutti_status status;

	for (;;) {
		struct pollfd fd;
		int ms = 5, n;
		control_progress(c);
		if (is_settled(c, &status))
			return status;
		if (clock_now_ns() >= deadline_ns)
			return fail(TUTTI_ERR_TIMEOUT,
				    "rank %d was not connected to its neighbours in time",
				    c->config.rank);
		if ((n = control_arm(c, &fd, &ms)) >= 0)
			poll(&fd, (nfds_t)n, ms);
	}
}

/* Whether all that was said is on its way. */
static bool is_silent(struct control *c)
{
	bool silent = true;
	pass(c);
	for (int i = 0; i < c->link_count; i++)
		silent &= !c->links[i].conn || !(c->links[i].is_sending || c->links[i].queued);
	return silent;
}

static void say_goodbye(struct control *c)
{
	struct control_message m = {.kind = CONTROL_LEAVING,
				    .origin = c->config.rank,
				    .issued = recorder_issued(c->config.recorder)};
	uint64_t deadline = deadline_after_ms(GOODBYE_MS);

	m.first = m.issued > CONTROL_NOTES ? m.issued - CONTROL_NOTES : 0;
	while (m.first + m.count < m.issued &&
	       recorder_find(c->config.recorder, m.first + m.count, &m.notes[m.count]))
		m.count++;
	if (!c->has_failed)
		for (int i = 0; i < c->link_count; i++)
			post_last(&c->links[i], &m);
	while (!is_silent(c) && clock_now_ns() < deadline) {
		struct pollfd none;
		poll(&none, 0, 1);
	}
}

void control_destroy(struct control *c)
{
	if (!c)
		return;
	c->heed = NULL;
	say_goodbye(c);
	for (int i = 0; i < c->link_count; i++)
		if (c->links[i].conn)
			c->links[i].conn->endpoint->transport->close(c->links[i].conn);
	c->config.endpoint->transport->destroy(c->config.endpoint);
	pthread_mutex_destroy(&c->lock);
	free(c);
}
