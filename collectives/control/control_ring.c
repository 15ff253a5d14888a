/* The ring as a kind of control: made, asked by calls that wait, told, served, and ended. Its
 * messages are in ring_messages.c. */
#include "collectives/control/control_internal.h"

#include "core/cancel.h"
#include "core/clock.h"
#include "transport/guarded.h"

#include <assert.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>

/* A rank that has left makes no more calls, so a wait in a later call has to fail. */
static void look_for_leavers(struct control_ring *c, uint64_t sequence)
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
		look_for_leavers(c, sequence);
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

static tutti_status wait_up(struct control *control, uint64_t deadline_ns,
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

static void send_the_rest(struct control_ring *c)
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
	send_the_rest(c);
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
					 .wait = wait_up,
					 .leave = control_ring_leave,
					 .destroy = control_ring_destroy,
					 .progress = control_ring_progress,
					 .arm = control_ring_arm,
					 .tell_first = control_ring_tell_first};

static tutti_status connect_link(struct control_ring *c, int i)
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
		status = connect_link(c, i);
	if (status != TUTTI_OK) {
		c->has_failed = c->is_leaving = true; /* there is no rank to say goodbye to */
		control_ring_destroy(&c->base);
		return status;
	}
	*out = &c->base;
	return TUTTI_OK;
}
