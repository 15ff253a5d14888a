/* See consensus.h. A question under way is in inquiry.c. */
#include "collectives/control/consensus_internal.h"

#include "collectives/control/deadlines.h"
#include "core/clock.h"
#include "core/rank_list.h"
#include "transport/guarded.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

static void fail_for_good(struct consensus *c, tutti_status status)
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
		fail_for_good(c, status);
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

static tutti_status too_few(const struct inquiry *q)
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
		return too_few(q);
	decisions_remember(c, q->question->number, a);
	if (a->end == AGREEMENT_LEFT_OUT)
		return inquiry_left_out(q);
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
			inquiry_run(&q);
		else
			agreement_step(&q.agreement, q.begun_ns);
		status = consensus_conclude(&q, marks, records);
	}
	agreement_finish(&q.agreement);
	/* This rank may not know the decision, so it must not take part in the next one. */
	if (status != TUTTI_OK)
		fail_for_good(c, status);
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
