/* See consensus.h. A question under way sends and receives the messages of its agreement; the
 * decisions before it are kept for ranks that missed them. */
#include "collectives/control/consensus.h"

#include "collectives/control/consensus_internal.h"
#include "collectives/control/deadlines.h"
#include "core/cancel.h"
#include "core/clock.h"
#include "core/log.h"
#include "core/rank_list.h"
#include "transport/guarded.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void consensus_decisions_remember(struct consensus *c, uint64_t number,
					 const struct agreement *a)
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
static tutti_status consensus_decisions_answer(const struct consensus *c, struct consensus_link *l)
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

static tutti_status consensus_other_call(const struct inquiry *q, const struct consensus_link *l)
{
	return fail(TUTTI_ERR_MISMATCH,
		    "The ranks did not make the same call: rank %d called %s, and rank %d asks "
		    "another question (%llx, not %llx)",
		    q->consensus->config.rank, q->question->name, l->peer,
		    (unsigned long long)l->in.number, (unsigned long long)q->question->number);
}

/* The error of a rank that the others have left out. */
static tutti_status consensus_inquiry_left_out(const struct inquiry *q)
{
	return fail(TUTTI_ERR_PEER,
		    "%s: the others have gone on without rank %d: it did not come, or was not "
		    "heard from, for as long as they waited",
		    q->question->name, q->consensus->config.rank);
}

/* A message of another question. */
static tutti_status consensus_take_other(struct inquiry *q, struct consensus_link *l)
{
	uint64_t own = q->question->number, theirs = l->in.number;
	struct agreement_message ask = {.kind = AGREEMENT_ASK};

	if (own >> CALL_BITS == theirs >> CALL_BITS && ((own ^ theirs) & 3))
		return consensus_other_call(q, l);
	if (theirs < own)
		return consensus_decisions_answer(q->consensus, l);
	/* The peer has gone on, so it knows how this question was decided. */
	if (l->is_sending || l->is_lost)
		return TUTTI_OK;
	return consensus_link_send(l, own, q->question->record_bytes, &ask);
}

static tutti_status consensus_take_message(struct inquiry *q, struct consensus_link *l,
					   uint64_t now_ns)
{
	struct agreement_message m = consensus_link_message(l);

	if (l->in.number != q->question->number)
		return consensus_take_other(q, l);
	if (l->in.kind == CONSENSUS_LATE)
		return consensus_inquiry_left_out(q);
	if (l->in.record_bytes != q->question->record_bytes && (m.record || m.value))
		return consensus_other_call(q, l);
	agreement_hear(&q->agreement, l->peer, &m, now_ns);
	return TUTTI_OK;
}

/* A message of a later question, which waits: this one has ended, but not all members know it. */
static bool consensus_is_early(const struct inquiry *q, const struct consensus_link *l)
{
	return q->agreement.end != AGREEMENT_OPEN && l->in.number > q->question->number;
}

static bool consensus_take_messages(struct inquiry *q, uint64_t now_ns)
{
	struct consensus *c = q->consensus;
	bool any = false;

	for (int r = 0; r < c->config.size; r++) {
		struct consensus_link *l = &c->links[r];
		if (!l->has_message || consensus_is_early(q, l))
			continue;
		any = true;
		if (q->status == TUTTI_OK)
			q->status = consensus_take_message(q, l, now_ns);
		consensus_link_listen(l);
	}
	return any;
}

static void consensus_look_for_the_dead(struct inquiry *q, uint64_t now_ns)
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

static bool consensus_open_link(const struct inquiry *q, struct consensus_link *l)
{
	const struct consensus_question *question = q->question;

	if (!l->address_bytes && question->find_address)
		l->address_bytes = question->find_address(question->arg, l->peer, l->address);
	return consensus_link_open(l);
}

static void consensus_inquiry_speak(struct inquiry *q, uint64_t now_ns)
{
	struct consensus *c = q->consensus;
	struct agreement_message m;

	for (int r = 0; r < c->config.size && q->status == TUTTI_OK; r++) {
		struct consensus_link *l = &c->links[r];
		if (!agreement_needs(&q->agreement, r) || !consensus_open_link(q, l) ||
		    l->is_sending || l->is_lost || !agreement_say(&q->agreement, r, &m, now_ns))
			continue;
		q->status =
			consensus_link_send(l, q->question->number, q->question->record_bytes, &m);
	}
}

/* Every member must hear how the agreement ended, also if its connection breaks: so a rank that
 * knows waits until the others say that they know, too. Asking the next question says it too. */
static bool consensus_inquiry_is_silent(const struct inquiry *q)
{
	const struct agreement *a = &q->agreement;

	for (int r = 0; r < a->size; r++) {
		const struct consensus_link *l = &q->consensus->links[r];
		bool is_there = l->conn && !l->is_lost;
		if (a->value[r] != MARK_MEMBER || a->seats[r].is_dead)
			continue;
		if (is_there && l->is_sending)
			return false;
		if (agreement_owes(a, r) && !(l->has_message && consensus_is_early(q, l)) &&
		    (is_there || a->end != AGREEMENT_NO_QUORUM))
			return false;
	}
	return true;
}

static bool consensus_inquiry_pass(struct inquiry *q)
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

static void consensus_sleep_on(struct consensus *c)
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

static bool consensus_inquiry_is_over(struct inquiry *q, uint64_t now_ns)
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
	return consensus_inquiry_is_silent(q) || now_ns >= q->goodbye_ns;
}

static void consensus_inquiry_say_awaited(struct inquiry *q, uint64_t now_ns)
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

/* Until all that need it know how it has ended, or q->status says why this rank gives up. */
static void consensus_inquiry_run(struct inquiry *q)
{
	struct consensus *c = q->consensus;
	const struct consensus_question *question = q->question;

	for (;;) {
		uint64_t now_ns = clock_now_ns();
		consensus_look_for_the_dead(q, now_ns);
		bool moved = consensus_take_messages(q, now_ns);
		agreement_step(&q->agreement, now_ns);
		consensus_inquiry_speak(q, now_ns);
		if (consensus_inquiry_is_over(q, now_ns))
			return;
		consensus_inquiry_say_awaited(q, now_ns);
		moved |= consensus_inquiry_pass(q);
		if (question->wait && q->agreement.end == AGREEMENT_OPEN)
			question->wait(question->arg, now_ns - q->begun_ns);
		if (!moved)
			consensus_sleep_on(c);
	}
}

tutti_status consensus_create(struct consensus **out, const struct consensus_config *config)
{
	struct consensus *c = calloc(1, sizeof *c);
	size_t n = (size_t)config->size;
	tutti_status status = TUTTI_ERR_MEMORY;

	if (c) {
		c->config = *config;
		atomic_init(&c->holders, 1);
		tutti_done_init(&c->done);
		c->links = calloc(n, sizeof *c->links);
		c->members = calloc(n, sizeof *c->members);
		status = quorum_begin(&c->quorum, config->size);
	}
	if (status != TUTTI_OK || !c->links || !c->members) {
		if (c)
			consensus_drop(c);
		else if (config->endpoint)
			transport_destroy(config->endpoint);
		return fail(TUTTI_ERR_MEMORY, "rank %d: no memory for its ways to %d ranks",
			    config->rank, config->size);
	}
	for (int r = 0; r < config->size; r++) {
		c->members[r] = true;
		c->links[r].peer = r;
		c->links[r].size = config->size;
		c->links[r].endpoint = config->endpoint;
	}
	*out = c;
	return TUTTI_OK;
}

tutti_status consensus_introduce(struct consensus *c, int rank, const uint8_t *address,
				 size_t address_bytes)
{
	struct consensus_link *l = &c->links[rank];

	if (address_bytes > sizeof l->address)
		return fail(TUTTI_ERR_INTERNAL,
			    "rank %d sent an address of %zu bytes (have all ranks the same version "
			    "of Tutti?)",
			    rank, address_bytes);
	memcpy(l->address, address, address_bytes);
	l->address_bytes = address_bytes;
	return TUTTI_OK;
}

tutti_status consensus_descend(struct consensus *c, const struct consensus *old, const int *ranks)
{
	quorum_finish(&c->quorum);
	return quorum_follow(&c->quorum, &old->quorum, ranks, c->config.size);
}

const struct quorum *consensus_quorum(const struct consensus *c)
{
	return &c->quorum;
}

const struct tutti_endpoint *consensus_endpoint(const struct consensus *c)
{
	return c->config.endpoint;
}

void consensus_rest(struct consensus *c)
{
	if (!c->config.endpoint)
		return;
	transport_destroy(c->config.endpoint);
	c->config.endpoint = NULL;
	for (int r = 0; r < c->config.size; r++)
		c->links[r].address_bytes = 0;
	c->is_at_rest = true;
}

bool consensus_is_at_rest(const struct consensus *c)
{
	return c->is_at_rest;
}

static void consensus_fail_for_good(struct consensus *c, tutti_status status)
{
	c->failed = status;
	snprintf(c->error, sizeof c->error, "%s", last_error());
}

void consensus_wake(struct consensus *c, struct tutti_endpoint *endpoint, tutti_status status)
{
	c->is_at_rest = false;
	c->config.endpoint = endpoint;
	for (int r = 0; r < c->config.size; r++)
		c->links[r].endpoint = endpoint;
	if (!endpoint)
		consensus_fail_for_good(c, status);
}

struct consensus *consensus_hold(struct consensus *c)
{
	atomic_fetch_add(&c->holders, 1);
	return c;
}

void consensus_drop(struct consensus *c)
{
	if (!c || atomic_fetch_sub(&c->holders, 1) != 1)
		return;
	for (int r = 0; c->links && r < c->config.size; r++) {
		consensus_link_close(&c->links[r]);
		free(c->links[r].in_bytes);
		free(c->links[r].out_bytes);
	}
	if (c->config.endpoint)
		transport_destroy(c->config.endpoint);
	for (int i = 0; i < DECISIONS; i++)
		free(c->past[i].value);
	quorum_finish(&c->quorum);
	free(c->links);
	free(c->members);
	free(c);
}

bool consensus_misses(const struct consensus *c)
{
	return c->misses;
}

const char *consensus_list(const uint8_t *marks, int size, enum agreement_mark mark, char *text,
			   size_t text_bytes)
{
	struct rank_list list;

	rank_list_begin(&list, text, text_bytes);
	for (int r = 0; r < size; r++)
		if (marks[r] == mark)
			rank_list_add(&list, r);
	return rank_list_end(&list);
}

static tutti_status consensus_too_few(const struct inquiry *q)
{
	const struct agreement *a = &q->agreement;
	const struct quorum *quorum = &q->consensus->quorum;
	char absent[128], gone[128];
	int here = 0, absentees = 0;

	for (int r = 0; r < a->size; r++) {
		here += a->value[r] == MARK_MEMBER;
		absentees += a->value[r] == MARK_MISSING;
	}
	int before = quorum_alive(quorum) - here - absentees;
	consensus_list(a->value, a->size, MARK_MISSING, absent, sizeof absent);
	consensus_list(a->value, a->size, MARK_DEAD, gone, sizeof gone);
	return fail(TUTTI_ERR_TIMEOUT,
		    "%s: %d of %d ranks that may be alive are no majority, and cannot know whether "
		    "the others go on: %s did not come within %d ms%s%s%s",
		    q->question->name, here, quorum_alive(quorum),
		    absent[0] ? absent : "those left behind", q->consensus->config.timeout_ms,
		    before > 0 && absent[0] ? "; some were left behind before" : "",
		    gone[0] ? "; died or left: " : "", gone);
}

static tutti_status consensus_conclude(struct inquiry *q, uint8_t *marks, void *records)
{
	struct consensus *c = q->consensus;
	const struct agreement *a = &q->agreement;

	quorum_learn(&c->quorum, &a->quorum);
	TRY(q->status);
	if (a->end == AGREEMENT_NO_QUORUM)
		return consensus_too_few(q);
	consensus_decisions_remember(c, q->question->number, a);
	if (a->end == AGREEMENT_LEFT_OUT)
		return consensus_inquiry_left_out(q);
	memcpy(marks, a->value, (size_t)a->size);
	memcpy(records, a->value + a->size, a->value_bytes - (size_t)a->size);
	for (int r = 0; r < a->size; r++) {
		c->members[r] = marks[r] == MARK_MEMBER;
		c->misses |= marks[r] == MARK_MISSING;
		if (marks[r] == MARK_DEAD)
			quorum_mark_dead(&c->quorum, r);
	}
	return TUTTI_OK;
}

tutti_status consensus_ask(struct consensus *c, const struct consensus_question *question,
			   uint8_t *marks, void *records)
{
	struct inquiry q = {.consensus = c, .question = question, .begun_ns = clock_now_ns()};
	struct agreement_config config = {.rank = c->config.rank,
					  .size = c->config.size,
					  .candidates = c->members,
					  .record = question->record,
					  .record_bytes = question->record_bytes,
					  .quorum = &c->quorum,
					  /* Ranks whose call has the same deadline come late. */
					  .grace_ns = MS_TO_NS(c->config.timeout_ms + ANSWERS_MS),
					  .late_ns = question->late_ns,
					  .now_ns = q.begun_ns};

	if (c->failed != TUTTI_OK)
		return fail(c->failed, "%s", c->error);
	tutti_status status = agreement_init(&q.agreement, &config);
	if (status == TUTTI_OK) {
		if (c->config.endpoint)
			consensus_inquiry_run(&q);
		else
			agreement_step(&q.agreement, q.begun_ns);
		status = consensus_conclude(&q, marks, records);
	}
	agreement_finish(&q.agreement);
	/* This rank may not know the decision, so it must not take part in the next one. */
	if (status != TUTTI_OK)
		consensus_fail_for_good(c, status);
	return status;
}

void consensus_leave(struct consensus *c)
{
	bool leaves = c->failed == TUTTI_ERR_ABORTED || c->failed == TUTTI_ERR_MEMORY;

	if (!leaves || !c->config.endpoint || atomic_load(&c->holders) != 1)
		return;
	for (int r = 0; r < c->config.size; r++)
		consensus_link_close(&c->links[r]);
	transport_destroy(c->config.endpoint);
	c->config.endpoint = NULL;
}
