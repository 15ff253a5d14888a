/* The ring as a kind of control: made, asked by calls that wait, told, served, and ended. Also what
 * it asks: which neighbours are silent, and which ranks have made a call. Its messages and
 * connections are in ring_messages.c. */
#include "collectives/control/control_internal.h"
#include "core/cancel.h"
#include "core/clock.h"
#include "core/machine.h"
#include "core/rank_list.h"
#include "transport/guarded.h"

#include <assert.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PAUSE_NS    1000000000u /* looks that lie further apart are of different waits */
#define TICK_NS_MAX MS_TO_NS(2 * RING_LOOK_MS)

/* Whether ranks that say nothing are there. A rank whose wait lasts asks both neighbours; each
 * of them answers and asks the next one. So every rank is asked by its two neighbours, at most
 * once in an interval, however many ranks wait. The helper thread answers: a rank
 * that computes is there, one that is stopped is not. */
static uint64_t control_ring_silence_ns(const struct control_ring *c)
{
	return MS_TO_NS(c->config.silence_ms);
}

static uint64_t ring_watch_interval_ns(const struct control_ring *c)
{
	uint64_t most = MS_TO_NS(WATCH_MS), interval = control_ring_silence_ns(c) / 4;
	return interval < most ? interval : most;
}

static bool ring_watch_is_stopped(const struct control_link *l)
{
	const struct control_peer *peer = &l->ring->config.peers[l->peer];
	return peer->is_visible && process_is_stopped(peer->process);
}

/* How long a neighbour may be silent. */
static uint64_t ring_watch_limit_ns(const struct control_link *l)
{
	uint64_t silence =
		l->ring->config.silence_ms ? control_ring_silence_ns(l->ring) : UINT64_MAX;
	bool is_sooner = l->asker >= 0 && MS_TO_NS(ANSWER_MS) < silence;
	return is_sooner ? MS_TO_NS(ANSWER_MS) : silence;
}

static void ring_watch_give_up(struct control_link *l)
{
	struct control_ring *c = l->ring;
	char text[ERROR_BYTES], who[128], why[100] = "(TUTTI_SILENCE_MS; 0: wait for ever)";

	if (l->asker >= 0)
		snprintf(why, sizeof why,
			 "and the deadline of a call of rank %d has passed (TUTTI_TIMEOUT_MS)",
			 l->asker);
	snprintf(text, sizeof text, "%s %s: it has not answered rank %d for %.1f s %s.",
		 control_who(c, l->peer, who, sizeof who),
		 ring_watch_is_stopped(l)
			 ? "is stopped (SIGSTOP, or a debugger)"
			 : "is silent: stopped, or its machine or the way there is gone",
		 c->config.rank, (double)l->silent_ns * 1e-9, why);
	control_decide(c, &(struct failure){.status = TUTTI_ERR_TIMEOUT,
					    .rank = FAILURE_NO_RANK,
					    .message = text,
					    .is_common = true});
}

/* A process that was stopped itself, or starved, wakes up late: what it could not hear meanwhile is
 * not the silence of other ranks. */
static void control_measure_silence(struct control_ring *c)
{
	uint64_t now = clock_now_ns(), passed = now - c->ticked_ns;

	c->ticked_ns = now;
	passed = passed < TICK_NS_MAX ? passed : TICK_NS_MAX;
	for (int i = 0; i < c->link_count && !c->has_failed; i++) {
		struct control_link *l = &c->links[i];
		if (!l->is_awaited)
			continue;
		l->silent_ns += passed;
		if (l->silent_ns >= ring_watch_limit_ns(l))
			ring_watch_give_up(l);
	}
}

static void control_ring_await_answer(struct control_link *l)
{
	if (l->is_awaited)
		return;
	control_measure_silence(l->ring);
	l->is_awaited = true;
	l->silent_ns = 0;
	l->ring->needs_helper = true;
}

/* If the neighbour was asked a moment ago, all ranks behind it have been asked, too. */
static void control_ring_ask_sign_of_life(struct control_link *l, uint32_t hops)
{
	struct control_ring *c = l->ring;
	struct control_message m = {.kind = CONTROL_WATCH, .origin = c->config.rank, .count = hops};
	uint64_t now = clock_now_ns();

	if (!l->conn || !l->is_up ||
	    (l->watched_ns && now - l->watched_ns < ring_watch_interval_ns(c)))
		return;
	l->watched_ns = now;
	control_ring_await_answer(l);
	control_post(l, &m);
}

/* A wait lasts. */
static void control_watch(struct control_ring *c)
{
	uint64_t now = clock_now_ns();

	if (c->config.silence_ms == 0 || c->has_failed)
		return;
	if (now - c->slow_ns > PAUSE_NS)
		c->slow_since_ns = now;
	c->slow_ns = now;
	if (now - c->slow_since_ns >= ring_watch_interval_ns(c))
		for (int i = 0; i < c->link_count; i++)
			control_ring_ask_sign_of_life(&c->links[i], (uint32_t)c->config.size);
}

void control_take_watch(struct control_link *l, const struct control_message *m)
{
	struct control_ring *c = l->ring;
	struct control_link *on = control_other(l);
	struct control_message here = {.kind = CONTROL_HERE, .origin = c->config.rank};

	control_post(l, &here);
	if (on && m->count > 1 && c->config.silence_ms)
		control_ring_ask_sign_of_life(on, m->count - 1);
}

/* Sends WHO on. After a deadline the neighbour has to answer: the kernel says at once which
 * processes of this machine are stopped; other machines have to answer. */
static void control_post_question(struct control_link *l, const struct control_message *m)
{
	if (m->is_common && l->peer >= 0) {
		control_ring_await_answer(l);
		l->asker = m->origin;
		if (ring_watch_is_stopped(l))
			ring_watch_give_up(l);
	}
	if (!l->ring->has_failed)
		control_post(l, m);
}

/* The question that goes round the ring: which ranks are there, and have made a call? Both ways
 * round after a deadline: a rank that is stopped may cut the ring on one side, and one that has
 * failed on the other. */
static void control_ring_post_question(struct control_ring *c)
{
	struct control_message m = {.kind = CONTROL_WHO,
				    .origin = c->config.rank,
				    .is_common = c->question.deadline_ns != 0,
				    .first = c->question.sequence,
				    .issued = c->question.number};
	bool is_asked = false;

	c->question.is_posted = true;
	for (int i = c->link_count - 1; i >= 0; i--) {
		if (c->links[i].peer < 0 || (is_asked && !m.is_common))
			continue;
		control_post_question(&c->links[i], &m);
		is_asked = true;
	}
}

static bool control_ring_ask(struct control *control, uint64_t sequence, uint64_t deadline_ns)
{
	struct control_ring *c = ring_of(control);
	struct control_question *q = &c->question;

	pthread_mutex_lock(&c->lock);
	if (!q->number || q->sequence != sequence || q->deadline_ns != deadline_ns)
		*q = (struct control_question){
			.sequence = sequence, .deadline_ns = deadline_ns, .number = q->number + 1};
	if (!q->is_posted)
		control_ring_post_question(c);
	control_settle(c);
	bool is_answered = q->is_answered;
	control_unlock(c);
	return !is_answered;
}

/* The ring's, to call sequence; NULL: it has not come. */
static const struct control_question *ring_question_answer_to(const struct control_ring *c,
							      uint64_t sequence)
{
	return c->question.is_answered && c->question.sequence == sequence ? &c->question : NULL;
}

static const char *control_ring_missing(struct control *control, uint64_t sequence, char *text,
					size_t text_bytes)
{
	struct control_ring *c = ring_of(control);
	struct rank_list list;

	rank_list_begin(&list, text, text_bytes);
	pthread_mutex_lock(&c->lock);
	control_settle(c);
	const struct control_question *answer = ring_question_answer_to(c, sequence);
	for (uint32_t i = 0; answer && i < answer->missing_count; i++)
		rank_list_add(&list, (int)answer->missing[i]);
	control_unlock(c);
	return rank_list_end(&list);
}

static bool control_ring_all_agree(struct control *control, uint64_t sequence)
{
	struct control_ring *c = ring_of(control);
	pthread_mutex_lock(&c->lock);
	control_settle(c);
	const struct control_question *answer = ring_question_answer_to(c, sequence);
	bool agree = !c->has_failed && answer && answer->missing_count == 0;
	control_unlock(c);
	return agree;
}

/* A rank that has not made the call adds its name; back at the origin the list is the answer. */
void control_take_question(struct control_link *l, struct control_message *m)
{
	struct control_ring *c = l->ring;
	struct control_link *on = control_other(l);
	struct control_question *q = &c->question;
	struct control_message here = {.kind = CONTROL_HERE, .origin = c->config.rank};

	if (m->count > CONTROL_MISSING)
		return;
	control_post(l, &here);
	control_compare_kept(
		c); /* records that came before the question are compared before it goes on */
	if (m->origin == c->config.rank) {
		if (m->issued != q->number)
			return; /* to an earlier one */
		memcpy(q->missing, m->ranks, m->count * sizeof q->missing[0]);
		q->missing_count = m->count;
		q->is_answered = true;
		return;
	}
	if (c->known[m->origin].is_gone)
		return; /* no rank waits for the answer, and none would stop the question */
	if (m->first != NO_CALL && recorder_issued(c->config.recorder) <= m->first &&
	    m->count < CONTROL_MISSING)
		m->ranks[m->count++] = c->config.rank;
	control_post_question(on ? on : l, m);
}

/* A rank that has left makes no more calls, so a wait in a later call has to fail. */
static void control_ring_look_for_leavers(struct control_ring *c, uint64_t sequence)
{
	for (int r = 0; c->some_have_left && r < c->config.size; r++) {
		const struct control_known *known = &c->known[r];
		char text[ERROR_BYTES], who[128];
		if (!known->has_left || known->left_at > sequence)
			continue;
		snprintf(text, sizeof text,
			 "%s " FAILURE_HAS_LEFT " after %llu calls, and rank %d waits in "
			 "call #%llu.",
			 control_who(c, r, who, sizeof who), (unsigned long long)known->left_at,
			 c->config.rank, (unsigned long long)sequence);
		control_decide(c, &(struct failure){.status = TUTTI_ERR_PEER,
						    .rank = r,
						    .sequence = sequence,
						    .message = text});
		return;
	}
}

static void control_ring_check(struct control *control, const struct control_wait *wait)
{
	struct control_ring *c = ring_of(control);
	uint64_t sequence = wait->sequence;

	pthread_mutex_lock(&c->lock);
	control_settle(c);
	control_compare_kept(c);
	if (sequence != NO_CALL)
		control_ring_look_for_leavers(c, sequence);
	if (c->lost >= 0 && wait->is_urgent)
		control_decide(c, &(struct failure){.status = TUTTI_ERR_PEER,
						    .rank = c->lost,
						    .sequence = sequence,
						    .message = c->lost_message});
	control_watch(c);
	control_measure_silence(c);
	if (sequence != NO_CALL && c->slow_told != sequence + 1 && !c->has_failed) {
		uint64_t first = sequence > CONTROL_BEFORE ? sequence - CONTROL_BEFORE : 0;
		c->slow_told = sequence + 1;
		for (int i = 0; i < c->link_count; i++)
			control_send_calls(&c->links[i], first, first + CONTROL_CALLS_MOST - 1);
	}
	control_settle(c);
	control_unlock(c);
}

#define CONTROL_BLIND_MS 10 /* between two looks at a transport that cannot be slept on     */

static void control_ring_tell(struct control *control, const struct failure *failure, int pending)
{
	struct control_ring *c = ring_of(control);
	struct failure own = *failure;
	uint64_t issued = recorder_issued(c->config.recorder);

	own.sequence = issued - ((uint64_t)pending < issued ? (uint64_t)pending : issued);
	pthread_mutex_lock(&c->lock);
	control_decide(c, &own);
	c->is_delivered = true;
	control_settle(c);
	control_unlock(c);
}

static void control_ring_progress(struct control *control)
{
	struct control_ring *c = ring_of(control);

	pthread_mutex_lock(&c->lock);
	control_settle(c);
	control_compare_kept(c);
	control_measure_silence(c);
	if (c->has_failed && !c->is_delivered)
		control_settle(c);
	control_unlock(c);
}

static int control_ring_arm(struct control *control, struct pollfd *fd, int *timeout_ms)
{
	struct control_ring *c = ring_of(control);
	struct tutti_endpoint *ep = c->config.endpoint;
	int n = 1, due_ms = -1;

	pthread_mutex_lock(&c->lock);
	if (!ep->transport->event_fd) {
		n = 0;
		due_ms = CONTROL_BLIND_MS;
	} else if (transport_arm(ep)) {
		n = -1;
	} else {
		*fd = (struct pollfd){.fd = transport_event_fd(ep), .events = POLLIN};
	}
	for (int i = 0; i < c->link_count && due_ms < 0; i++)
		if (c->links[i].is_keeping || c->links[i].is_awaited)
			due_ms = RING_LOOK_MS;
	pthread_mutex_unlock(&c->lock);
	if (due_ms >= 0 && (*timeout_ms < 0 || due_ms < *timeout_ms))
		*timeout_ms = due_ms;
	return n;
}

/* Whether both neighbours are there, or never will be. */
static bool control_ring_is_settled(struct control_ring *c, tutti_status *status)
{
	bool all_up = true;

	pthread_mutex_lock(&c->lock);
	for (int i = 0; i < c->link_count; i++)
		all_up &= c->links[i].is_up;
	*status = c->has_failed ? c->decided.status : TUTTI_OK;
	if (*status == TUTTI_OK && !all_up && c->lost >= 0 &&
	    clock_now_ns() >= c->lost_ns + MS_TO_NS(LAST_WORD_MS))
		*status = fail(TUTTI_ERR_PEER, "%s", c->lost_message);
	else if (*status != TUTTI_OK)
		fail(*status, "%s", c->message);
	pthread_mutex_unlock(&c->lock);
	return all_up || *status != TUTTI_OK;
}

static void control_ring_say_awaited(struct control_ring *c)
{
	char text[600] = "";
	size_t used = 0;

	pthread_mutex_lock(&c->lock);
	for (int i = 0; i < c->link_count; i++) {
		int r = c->links[i].peer;
		if (!c->links[i].is_up && r >= 0 && used < sizeof text)
			used += (size_t)snprintf(text + used, sizeof text - used,
						 "%srank %d (process %d on %s)", used ? ", " : "",
						 r, c->config.peers[r].process,
						 c->config.peers[r].host);
	}
	pthread_mutex_unlock(&c->lock);
	if (used > 0)
		long_wait_say("%s to connect in a communicator of %d", text, c->config.size);
}

static tutti_status control_ring_wait_up(struct control *control, uint64_t deadline_ns,
					 bool (*is_over)(void *arg), void *arg)
{
	struct control_ring *c = ring_of(control);
	tutti_status status;

	for (;;) {
		struct pollfd fd;
		int ms = 5, n;
		control_ring_progress(control);
		if (control_ring_is_settled(c, &status))
			return status;
		if (is_over && is_over(arg))
			return fail(
				TUTTI_ERR_ABORTED,
				"rank %d no longer needs its neighbours: another rank has failed",
				c->config.rank);
		if (clock_now_ns() >= cancel_deadline(deadline_ns))
			return fail(TUTTI_ERR_TIMEOUT,
				    "rank %d was not connected to its neighbours in time: are "
				    "their processes stopped?",
				    c->config.rank);
		if (long_wait_is_due(&c->wait, clock_now_ns()))
			control_ring_say_awaited(c);
		if ((n = control_ring_arm(control, &fd, &ms)) >= 0)
			poll(&fd, (nfds_t)n, ms);
	}
}

/* Whether all that was said is on its way. */
static bool control_ring_is_silent(struct control_ring *c)
{
	bool silent = true;
	control_pass(c);
	for (int i = 0; i < c->link_count; i++)
		silent &= !c->links[i].conn || !(c->links[i].is_sending || c->links[i].queued);
	return silent;
}

static void control_ring_leave(struct control *control)
{
	struct control_ring *c = ring_of(control);
	struct control_message m = {.kind = CONTROL_LEAVING,
				    .origin = c->config.rank,
				    .issued = recorder_issued(c->config.recorder)};

	pthread_mutex_lock(&c->lock);
	m.first = m.issued > CONTROL_CALLS_MOST ? m.issued - CONTROL_CALLS_MOST : 0;
	while (m.first + m.count < m.issued &&
	       recorder_find(c->config.recorder, m.first + m.count, &m.calls[m.count]))
		m.count++;
	for (int i = 0; i < c->link_count && !c->is_leaving; i++)
		(c->has_failed ? control_post : control_post_last)(&c->links[i], &m);
	c->is_leaving = true;
	control_settle(c);
	control_unlock(c);
}

static void control_ring_send_the_rest(struct control_ring *c)
{
	uint64_t deadline = deadline_after_ms(GOODBYE_MS);

	while (!control_ring_is_silent(c) && clock_now_ns() < deadline) {
		struct pollfd none;
		poll(&none, 0, 1);
	}
}

static void control_ring_destroy(struct control *control)
{
	struct control_ring *c = ring_of(control);

	c->base.on_failure = NULL;
	c->base.wake = NULL;
	control_ring_leave(control);
	control_ring_send_the_rest(c);
	for (int i = 0; i < c->link_count; i++)
		if (c->links[i].conn)
			transport_close(c->links[i].conn);
	transport_destroy(c->config.endpoint);
	pthread_mutex_destroy(&c->lock);
	free(c->known);
	free(c);
}

/* The thread may hold the lock of another engine: what comes in meanwhile is the helper's. */
static void control_ring_tell_first(void *control, int first)
{
	struct control_ring *c = ring_of(control);
	struct control_message m = {.kind = CONTROL_FIRST, .origin = c->config.rank};
	(void)first; /* every message has it */

	pthread_mutex_lock(&c->lock);
	for (int i = 0; i < c->link_count; i++)
		control_post(&c->links[i], &m);
	pthread_mutex_unlock(&c->lock);
	if (c->base.wake)
		c->base.wake();
}

static const struct control_kind ring = {.check = control_ring_check,
					 .ask = control_ring_ask,
					 .missing = control_ring_missing,
					 .all_agree = control_ring_all_agree,
					 .fail = control_ring_tell,
					 .wait = control_ring_wait_up,
					 .leave = control_ring_leave,
					 .destroy = control_ring_destroy,
					 .progress = control_ring_progress,
					 .arm = control_ring_arm,
					 .tell_first = control_ring_tell_first};

static tutti_status control_ring_connect_link(struct control_ring *c, int i)
{
	struct control_link *l = &c->links[i];

	l->ring = c;
	l->asker = -1;
	l->peer = (c->config.rank + (i ? 1 : c->config.size - 1)) % c->config.size;
	return control_connect(l);
}

tutti_status control_create(struct control **out, const struct control_config *config)
{
	struct control_ring *c = calloc(1, sizeof *c);
	tutti_status status = TUTTI_OK;

	assert(config->size > 1);
	if (c)
		c->known = calloc((size_t)config->size, sizeof *c->known);
	if (!c || !c->known) {
		free(c);
		transport_destroy(config->endpoint);
		return fail(TUTTI_ERR_MEMORY, "rank %d: no memory for its neighbours",
			    config->rank);
	}
	c->base.kind = &ring;
	c->config = *config;
	c->base.job = config->job;
	c->link_count = config->size > 2 ? 2 : 1;
	c->lost = -1;
	pthread_mutex_init(&c->lock, NULL);
	tutti_done_init(&c->done);
	for (int i = 0; i < c->link_count && status == TUTTI_OK; i++)
		status = control_ring_connect_link(c, i);
	if (status != TUTTI_OK) {
		c->has_failed = c->is_leaving = true; /* there is no rank to say goodbye to */
		control_ring_destroy(&c->base);
		return status;
	}
	*out = &c->base;
	return TUTTI_OK;
}
