/* One question under way: sends and receives the messages of its agreement. Also the decisions
 * before it, for ranks that missed them. */
#include "collectives/control/consensus_internal.h"

#include "collectives/control/deadlines.h"
#include "core/cancel.h"
#include "core/clock.h"
#include "core/log.h"
#include "core/rank_list.h"
#include "transport/guarded.h"

#include <poll.h>
#include <stdlib.h>
#include <string.h>

void decisions_remember(struct consensus *c, uint64_t number, const struct agreement *a)
{
	struct decision *d = &c->past[c->past_at];
	uint8_t *value = malloc(a->value_bytes);

	free(d->value);
	*d = (struct decision){number, a->record_bytes, value};
	if (value)
		memcpy(value, a->value, a->value_bytes);
	c->past_at = (c->past_at + 1) % DECISIONS;
}

/* To what came over the link, about a question that was decided before. */
static tutti_status decisions_answer(const struct consensus *c, struct consensus_link *l)
{
	struct agreement_message m = {.kind = CONSENSUS_LATE};
	size_t record_bytes = 0;

	if (l->in.kind == AGREEMENT_KNOWN || l->in.kind == AGREEMENT_HOPELESS ||
	    l->in.kind == CONSENSUS_LATE || l->is_sending || l->is_lost)
		return TUTTI_OK;
	if (l->in.kind == AGREEMENT_DECIDE)
		m.kind = AGREEMENT_KNOWN; /* this rank's earlier KNOWN was lost */
	for (int i = 0; i < DECISIONS && m.kind == CONSENSUS_LATE; i++) {
		const struct decision *d = &c->past[i];
		if (!d->value || d->number != l->in.number)
			continue;
		m.kind = AGREEMENT_DECIDE;
		m.value = d->value;
		record_bytes = d->record_bytes;
	}
	return consensus_link_send(l, l->in.number, record_bytes, &m);
}

#define SLEEP_MS  5 /* at most: the end of a process does not wake this thread, which looks */
#define CALL_BITS 24

static tutti_status other_call(const struct inquiry *q, const struct consensus_link *l)
{
	return fail(TUTTI_ERR_MISMATCH,
		    "The ranks did not make the same call: rank %d called %s, and rank %d asks "
		    "another question (%llx, not %llx)",
		    q->consensus->config.rank, q->question->name, l->peer,
		    (unsigned long long)l->in.number, (unsigned long long)q->question->number);
}

tutti_status inquiry_left_out(const struct inquiry *q)
{
	return fail(TUTTI_ERR_PEER,
		    "%s: the others have gone on without rank %d: it did not come, or was not "
		    "heard from, for as long as they waited",
		    q->question->name, q->consensus->config.rank);
}

/* A message of another question. */
static tutti_status take_other(struct inquiry *q, struct consensus_link *l)
{
	uint64_t own = q->question->number, theirs = l->in.number;
	struct agreement_message ask = {.kind = AGREEMENT_ASK};

	if (own >> CALL_BITS == theirs >> CALL_BITS && ((own ^ theirs) & 3))
		return other_call(q, l);
	if (theirs < own)
		return decisions_answer(q->consensus, l);
	/* The peer has gone on, so it knows how this question was decided. */
	if (l->is_sending || l->is_lost)
		return TUTTI_OK;
	return consensus_link_send(l, own, q->question->record_bytes, &ask);
}

static tutti_status take_message(struct inquiry *q, struct consensus_link *l, uint64_t now_ns)
{
	struct agreement_message m = consensus_link_message(l);

	if (l->in.number != q->question->number)
		return take_other(q, l);
	if (l->in.kind == CONSENSUS_LATE)
		return inquiry_left_out(q);
	if (l->in.record_bytes != q->question->record_bytes && (m.record || m.value))
		return other_call(q, l);
	agreement_hear(&q->agreement, l->peer, &m, now_ns);
	return TUTTI_OK;
}

/* A message of a later question, which waits: this one has ended, but not all members know it. */
static bool is_early(const struct inquiry *q, const struct consensus_link *l)
{
	return q->agreement.end != AGREEMENT_OPEN && l->in.number > q->question->number;
}

static bool take_messages(struct inquiry *q, uint64_t now_ns)
{
	struct consensus *c = q->consensus;
	bool any = false;

	for (int r = 0; r < c->config.size; r++) {
		struct consensus_link *l = &c->links[r];
		if (!l->has_message || is_early(q, l))
			continue;
		any = true;
		if (q->status == TUTTI_OK)
			q->status = take_message(q, l, now_ns);
		consensus_link_listen(l);
	}
	return any;
}

static void look_for_the_dead(struct inquiry *q, uint64_t now_ns)
{
	struct consensus *c = q->consensus;
	const struct consensus_question *question = q->question;
	bool asks_kernel = question->has_ended && now_ns >= q->kernel_asked_ns + MS_TO_NS(SLEEP_MS);

	if (asks_kernel)
		q->kernel_asked_ns = now_ns;
	for (int r = 0; r < c->config.size; r++) {
		if (r == c->config.rank || q->agreement.seats[r].is_dead)
			continue;
		if (consensus_link_is_refused(&c->links[r]) ||
		    (asks_kernel && question->has_ended(question->arg, r))) {
			log_info("rank %d is gone", r);
			agreement_mark_dead(&q->agreement, r, now_ns);
		}
	}
}

static bool open_link(const struct inquiry *q, struct consensus_link *l)
{
	const struct consensus_question *question = q->question;

	if (!l->address_bytes && question->find_address)
		l->address_bytes = question->find_address(question->arg, l->peer, l->address);
	return consensus_link_open(l);
}

static void inquiry_speak(struct inquiry *q, uint64_t now_ns)
{
	struct consensus *c = q->consensus;
	struct agreement_message m;

	for (int r = 0; r < c->config.size && q->status == TUTTI_OK; r++) {
		struct consensus_link *l = &c->links[r];
		if (!agreement_needs(&q->agreement, r) || !open_link(q, l) || l->is_sending ||
		    l->is_lost || !agreement_say(&q->agreement, r, &m, now_ns))
			continue;
		q->status =
			consensus_link_send(l, q->question->number, q->question->record_bytes, &m);
	}
}

/* Every member must hear how the agreement ended, also if its connection breaks: so a rank that
 * knows waits until the others say that they know, too. Asking the next question says it too. */
static bool inquiry_is_silent(const struct inquiry *q)
{
	const struct agreement *a = &q->agreement;

	for (int r = 0; r < a->size; r++) {
		const struct consensus_link *l = &q->consensus->links[r];
		bool is_there = l->conn && !l->is_lost;
		if (a->value[r] != MARK_MEMBER || a->seats[r].is_dead)
			continue;
		if (is_there && l->is_sending)
			return false;
		if (agreement_owes(a, r) && !(l->has_message && is_early(q, l)) &&
		    (is_there || a->end != AGREEMENT_NO_QUORUM))
			return false;
	}
	return true;
}

static bool inquiry_pass(struct inquiry *q)
{
	struct consensus *c = q->consensus;
	struct tutti_endpoint *ep = c->config.endpoint;
	struct tutti_io *io;
	bool moved = false;

	transport_progress(ep, &c->done);
	while ((io = tutti_done_pop(&c->done))) {
		/* The io's conn may be freed by now, but the link that the io lies in is not. */
		size_t at = (size_t)((char *)io - (char *)c->links) / sizeof *c->links;
		moved = true;
		consensus_link_done(&c->links[at], io);
	}
	for (int r = 0; r < c->config.size; r++)
		if (c->links[r].conn && consensus_link_settle(&c->links[r]))
			agreement_repeat(&q->agreement, r);
	return moved;
}

static void sleep_on(struct consensus *c)
{
	struct tutti_endpoint *ep = c->config.endpoint;
	struct pollfd fd = {.fd = -1, .events = POLLIN};

	if (!ep->transport->event_fd) {
		poll(NULL, 0, 1);
		return;
	}
	if (transport_arm(ep))
		return;
	fd.fd = transport_event_fd(ep);
	poll(&fd, 1, SLEEP_MS);
}

static bool inquiry_is_over(struct inquiry *q, uint64_t now_ns)
{
	if (q->status == TUTTI_OK && cancel_requested())
		q->status = fail(TUTTI_ERR_ABORTED,
				 "%s: tutti_comm_abort was called on rank %d while it waited here",
				 q->question->name, q->consensus->config.rank);
	if (q->status != TUTTI_OK)
		return true;
	if (q->agreement.end == AGREEMENT_OPEN) {
		if (now_ns > q->agreement.begun_ns + AGREEMENT_TIMEOUTS * q->agreement.grace_ns)
			q->status = fail(TUTTI_ERR_TIMEOUT,
					 "%s: rank %d heard of no decision within %d times %d ms: "
					 "can it reach the other ranks?",
					 q->question->name, q->consensus->config.rank,
					 AGREEMENT_TIMEOUTS, q->consensus->config.timeout_ms);
		return q->status != TUTTI_OK;
	}
	if (!q->goodbye_ns)
		q->goodbye_ns = now_ns + MS_TO_NS(GOODBYE_MS);
	return inquiry_is_silent(q) || now_ns >= q->goodbye_ns;
}

static void inquiry_say_awaited(struct inquiry *q, uint64_t now_ns)
{
	char text[180];
	struct rank_list list;

	if (!long_wait_is_due(&q->wait, now_ns))
		return;
	rank_list_begin(&list, text, sizeof text);
	for (int r = 0; r < q->consensus->config.size; r++)
		if (agreement_awaits(&q->agreement, r))
			rank_list_add(&list, r);
	if (list.count > 0)
		long_wait_say("%s in %s", rank_list_end(&list), q->question->name);
}

void inquiry_run(struct inquiry *q)
{
	struct consensus *c = q->consensus;
	const struct consensus_question *question = q->question;

	for (;;) {
		uint64_t now_ns = clock_now_ns();
		look_for_the_dead(q, now_ns);
		bool moved = take_messages(q, now_ns);
		agreement_step(&q->agreement, now_ns);
		inquiry_speak(q, now_ns);
		if (inquiry_is_over(q, now_ns))
			return;
		inquiry_say_awaited(q, now_ns);
		moved |= inquiry_pass(q);
		if (question->wait && q->agreement.end == AGREEMENT_OPEN)
			question->wait(question->arg, now_ns - q->begun_ns);
		if (!moved)
			sleep_on(c);
	}
}
