/* The ring's connections and messages, and what these make this rank decide: the failure that is
 * decided once, and records of calls, which are compared along the ring.
 *
 * A connection to each of the two neighbours has a queue of messages. Where a neighbour has left or
 * died, the next rank in that direction follows. Both ends of the gap see it and connect to each
 * other, so the ring closes without a word. */
#include "collectives/control/control_internal.h"
#include "core/clock.h"
#include "core/log.h"
#include "core/machine.h"
#include "transport/guarded.h"

#include <stdio.h>
#include <string.h>

/* Begins to send the next message that waits, unless one is being sent. */
static void control_flush(struct control_link *l)
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

static void control_listen(struct control_link *l)
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

static void ring_messages_post_failure(struct control_link *l)
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
		ring_messages_post_failure(&c->links[i]);
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
static int ring_messages_next_living(const struct control_link *l)
{
	const struct control_ring *c = l->ring;
	int n = c->config.size, step = l == &c->links[0] ? n - 1 : 1, rank = l->peer;

	do
		rank = (rank + step) % n;
	while (rank != c->config.rank && c->known[rank].is_gone);
	return rank;
}

static void ring_messages_close_conn(struct control_link *l)
{
	struct tutti_conn *conn = l->conn;

	l->conn = NULL;
	l->is_cut = l->is_sending = l->is_awaited = false;
	l->asker = -1;
	l->queued = 0;
	transport_close(conn);
}

/* Messages that wait for the neighbour that is gone, such as a failure, go to the next one. */
static void ring_messages_move_on(struct control_link *l)
{
	struct control_ring *c = l->ring;
	const struct control_link *other = control_other(l);
	int next = ring_messages_next_living(l);

	l->is_later = true;
	l->told = l->answered = 0;
	l->peer = -1;
	l->is_up = true;
	if (next == c->config.rank || (other && next == other->peer))
		return;
	l->peer = next;
	if (control_connect(l) == TUTTI_OK && c->has_failed)
		ring_messages_post_failure(l);
}

/* If this rank or a neighbour leaves after it has passed the failure on, a cut link needs no new
 * neighbour. */
static void control_repair(struct control_ring *c)
{
	for (int i = 0; i < c->link_count; i++) {
		struct control_link *l = &c->links[i];
		if (!l->is_cut)
			continue;
		bool is_over = c->is_leaving || (c->has_failed && c->known[l->peer].has_left);
		c->known[l->peer].is_gone = true;
		ring_messages_close_conn(l);
		if (!is_over && c->config.size > 2)
			ring_messages_move_on(l);
	}
}

static uint64_t ring_calls_end_of(const struct control_message *m)
{
	return m->first + m->count;
}

static bool ring_messages_is_same_call(const struct call_record *a, const struct call_record *b)
{
	return a->what == b->what && a->op == b->op && a->counts == b->counts &&
	       a->count == b->count;
}

/* Our own records of calls first..last, as far as we have them. */
void control_send_calls(struct control_link *l, uint64_t first, uint64_t last)
{
	const struct recorder *r = l->ring->config.recorder;
	struct control_message m = {.kind = CONTROL_CALLS,
				    .origin = l->ring->config.rank,
				    .first = first,
				    .issued = recorder_issued(r)};

	while (first <= last && !recorder_find(r, first, &m.calls[0]))
		first++;
	for (m.first = first; first <= last && m.count < CONTROL_CALLS_MOST; first++, m.count++)
		if (!recorder_find(r, first, &m.calls[m.count]))
			break;
	if (m.count == 0)
		return;
	if (ring_calls_end_of(&m) > l->told)
		l->told = ring_calls_end_of(&m);
	control_post(l, &m);
}

static void ring_calls_report(struct control_ring *c, int rank_a, const struct call_record *a,
			      int rank_b, const struct call_record *b, uint64_t sequence)
{
	char text[ERROR_BYTES];
	call_record_mismatch(rank_a, a, rank_b, b, sequence, text, sizeof text);
	control_decide(c, &(struct failure){.status = TUTTI_ERR_MISMATCH,
					    .rank = FAILURE_NO_RANK,
					    .sequence = sequence,
					    .message = text});
}

enum comparison { ALIKE, UNKNOWN, DIFFER };

/* The first call of theirs that we know differs: either it is the mismatch, or one before it is,
 * and our records of those before go back: the two ranks go back together until they find it. */
static enum comparison ring_calls_compare(struct control_link *l, const struct control_message *m)
{
	struct control_ring *c = l->ring;
	const struct recorder *r = c->config.recorder;
	enum comparison comparison = UNKNOWN;

	for (uint32_t i = 0; i < m->count; i++) {
		uint64_t sequence = m->first + i;
		struct call_record mine, before;
		if (!recorder_find(r, sequence, &mine))
			continue;
		if (mine.fingerprint == m->calls[i].fingerprint) {
			comparison = ALIKE;
			continue;
		}
		if (ring_messages_is_same_call(&mine, &m->calls[i]) && sequence > 0 &&
		    recorder_find(r, sequence - 1, &before)) {
			uint64_t back =
				sequence > CONTROL_CALLS_MOST ? sequence - CONTROL_CALLS_MOST : 0;
			control_send_calls(l, back, sequence - 1);
			return DIFFER;
		}
		ring_calls_report(c, m->origin, &m->calls[i], c->config.rank, &mine, sequence);
		return DIFFER;
	}
	return comparison;
}

/* This rank has made none of the calls that both neighbours have made, and yet knows that they
 * differ. */
static void ring_messages_compare_kept(struct control_ring *c)
{
	const struct control_message *a = &c->links[0].kept, *b = &c->links[1].kept;

	if (c->link_count < 2 || !c->links[0].is_keeping || !c->links[1].is_keeping)
		return;
	for (uint32_t i = 0; i < a->count; i++) {
		uint64_t sequence = a->first + i;
		if (sequence < b->first || sequence >= ring_calls_end_of(b))
			continue;
		const struct call_record *other = &b->calls[sequence - b->first];
		if (a->calls[i].fingerprint == other->fingerprint)
			continue;
		if (a->origin != b->origin && !ring_messages_is_same_call(&a->calls[i], other))
			ring_calls_report(c, a->origin, &a->calls[i], b->origin, other, sequence);
		return;
	}
}

/* So far behind that there is nothing to compare: then they compare with what we did last. */
static void ring_messages_answer_from_behind(struct control_link *l,
					     const struct control_message *m)
{
	uint64_t issued = recorder_issued(l->ring->config.recorder);
	if (issued == 0 || issued > m->first || l->answered == issued)
		return;
	l->answered = issued;
	control_send_calls(l, issued > CONTROL_CALLS_MOST ? issued - CONTROL_CALLS_MOST : 0,
			   issued - 1);
}

/* A rank that has left never makes the call that another rank waits in. */
static void ring_messages_check_leavers(struct control_ring *c, const struct control_message *m)
{
	char text[ERROR_BYTES], call[128], who[128];
	uint64_t last = ring_calls_end_of(m) - 1;
	int r = 0;

	while (r < c->config.size && (!c->known[r].has_left || c->known[r].left_at > last))
		r++;
	if (r == c->config.size)
		return;
	struct call_summary summary = call_record_summary(&m->calls[m->count - 1], last);
	snprintf(text, sizeof text,
		 "%s " FAILURE_HAS_LEFT " after %llu calls, and rank %d called %s.",
		 control_who(c, r, who, sizeof who), (unsigned long long)c->known[r].left_at,
		 m->origin, call_in_words(&summary, call, sizeof call));
	control_decide(
		c, &(struct failure){
			   .status = TUTTI_ERR_PEER, .rank = r, .sequence = last, .message = text});
}

static void ring_calls_keep(struct control_link *l, const struct control_message *m)
{
	if (l->is_keeping && ring_calls_end_of(&l->kept) >= ring_calls_end_of(m))
		return;
	l->kept = *m;
	l->ring->needs_helper |= !l->is_keeping;
	l->is_keeping = true;
}

static void control_take_calls(struct control_link *l, const struct control_message *m)
{
	struct control_ring *c = l->ring;
	struct control_link *on = control_other(l);
	bool is_ours = m->origin == c->config.rank;

	if (m->count == 0 || m->count > CONTROL_CALLS_MOST || is_ours ||
	    ring_calls_compare(l, m) == DIFFER)
		return;
	bool is_behind = recorder_issued(c->config.recorder) < ring_calls_end_of(m);
	if (is_behind) {
		ring_calls_keep(l, m);
		ring_messages_compare_kept(c);
		ring_messages_answer_from_behind(l, m);
	}
	if (m->kind == CONTROL_LEAVING)
		return;
	if (c->some_have_left)
		ring_messages_check_leavers(c, m);
	if (!on || c->known[m->origin].is_gone) /* the records have gone round to where it was */
		return;
	if (is_behind)
		control_post(on, m);
	else if (on->told < ring_calls_end_of(m))
		control_send_calls(on, m->first, ring_calls_end_of(m) - 1);
}

void control_compare_kept(struct control_ring *c)
{
	uint64_t issued = recorder_issued(c->config.recorder);

	for (int i = 0; i < c->link_count; i++) {
		struct control_link *l = &c->links[i];
		if (!l->is_keeping || c->has_failed)
			continue;
		enum comparison comparison = ring_calls_compare(l, &l->kept);
		if (comparison == DIFFER || issued >= ring_calls_end_of(&l->kept))
			l->is_keeping = false;
		else
			ring_messages_answer_from_behind(l, &l->kept);
	}
}

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
static void ring_messages_take_lost(struct control_link *l, struct control_message *m)
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
static const char *ring_messages_what_happened(const struct control_ring *c, int rank)
{
	const struct control_peer *peer = &c->config.peers[rank];
	return peer->is_visible && process_has_ended(peer->process) ? "has died" : "is lost";
}

/* If a later neighbour cannot be reached, it has left or died before: those that were its
 * neighbours then have said so. */
static void ring_messages_connection_ended(struct control_link *l)
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
		 ring_messages_what_happened(c, l->peer), (int)end, conn->error);
	if (conn->status == TUTTI_ERR_PEER)
		ring_messages_take_lost(l, &m);
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

static void ring_messages_take_ring_message(struct control_link *l)
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
		ring_messages_take_lost(l, m);
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
			ring_messages_connection_ended(l);
			continue;
		}
		if (io == &l->out) {
			l->is_sending = false;
		} else {
			ring_messages_take_ring_message(l);
			control_listen(l);
		}
		control_flush(l);
	}
	control_repair(c);
	return moved;
}

/* An endpoint without a descriptor to sleep on says for ever that there is work, and may sleep a
 * little each time. */
void control_settle(struct control_ring *c)
{
	enum { TRIES = 64, IDLE_TRIES = 4 };
	struct tutti_endpoint *ep = c->config.endpoint;
	for (int tries = 0, idle = 0; tries < TRIES && idle < IDLE_TRIES; tries++) {
		bool moved = control_pass(c);
		if ((!ep->transport->arm || !transport_arm(ep)) && !moved)
			return;
		idle = moved ? 0 : idle + 1;
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
