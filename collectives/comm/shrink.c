/* tutti_comm_shrink: a new communicator of the ranks that live. It asks, one after the other
 * (consensus.h),
 *
 *     presence     which ranks are there? From then on each of them knows the group
 *     members      where are the endpoints of the new communicator to be found?
 *     windows      does each rank share memory with the others?
 *     reports      has each rank started?
 *
 * When one of the group is missing in a later answer, all of them know it, drop what they have
 * begun and ask again which ranks are there. */
#include "collectives/comm/join.h"
#include "collectives/engine/engine.h"

#include "core/clock.h"
#include "core/outcome.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NAME "tutti_comm_shrink"

enum shrink_phase { ASK_PRESENCE, ASK_MEMBERS, ASK_WINDOWS, ASK_REPORTS, PHASES };

struct shrink_report {
	struct outcome outcome;
	uint32_t has; /* comm_has of the child */
};

struct shrink {
	struct tutti_comm *old, *child;
	uint32_t attempt;
	uint8_t *marks;           /* by old rank                                         */
	int *ranks, size, rank;   /* the group: old ranks in their order, and our place  */
	void *records;            /* of an answer, by old rank                           */
	struct member *members;   /* in the order of the group                           */
	struct shrink_report own; /* how this rank has fared so far                      */
};

/* Other ranks may wait in a call: when the communicator fails they come. */
static void shrink_wake_others(void *arg, uint64_t waited_ns)
{
	struct tutti_comm *comm = arg;
	char text[80];

	if (waited_ns < MS_TO_NS(WAKE_OTHERS_MS) || engine_status(comm->engine) != TUTTI_OK)
		return;
	snprintf(text, sizeof text, "rank %d called " NAME, comm->rank);
	engine_fail(comm->engine, TUTTI_ERR_ABORTED, text);
}

/* IN_PROGRESS: one of the group is missing; all others have the same answer. */
static tutti_status shrink_ask_phase(struct shrink *s, enum shrink_phase phase, const void *record,
				     size_t record_bytes)
{
	struct consensus_question question = {.name = NAME,
					      .record = record,
					      .record_bytes = record_bytes,
					      .wait = phase == ASK_PRESENCE ? shrink_wake_others
									    : NULL};
	uint32_t which = 4 * (s->attempt * PHASES + phase) + CALL_SHRINK;

	TRY(comm_ask(s->old, &question, which, s->marks, s->records));
	for (int i = 0; phase != ASK_PRESENCE && i < s->size; i++)
		if (s->marks[s->ranks[i]] != MARK_MEMBER)
			return TUTTI_IN_PROGRESS;
	return TUTTI_OK;
}

static void shrink_remember(struct shrink *s, tutti_status status)
{
	if (status == TUTTI_OK)
		s->own.outcome.status = TUTTI_OK; /* the last message is for the end */
	else
		outcome_set(&s->own.outcome, status);
}

/* All have the same reports, and so come to the same result. IN_PROGRESS: a rank may have died, try
 * again. */
static tutti_status shrink_judge_reports(const struct shrink *s, uint32_t *all_have)
{
	const struct shrink_report *all = s->records;
	int cause =
		outcome_cause(&all[0].outcome, sizeof *all, s->old->size, s->marks, MARK_MEMBER);

	*all_have = HAS_ALL;
	for (int i = 0; i < s->size; i++)
		*all_have &= all[s->ranks[i]].has;
	if (cause < 0)
		return TUTTI_OK;
	return outcome_is_secondary(&all[cause].outcome)
		       ? TUTTI_IN_PROGRESS
		       : outcome_fail(&all[cause].outcome, cause, NAME ": ");
}

static tutti_status comm_shrink_report(struct shrink *s, enum shrink_phase phase,
				       uint32_t *all_have)
{
	s->own.has = s->child ? comm_has(s->child) : 0;
	TRY(shrink_ask_phase(s, phase, &s->own, sizeof s->own));
	return shrink_judge_reports(s, all_have);
}

/* After this nothing of ours touches a caller's buffer on behalf of the old communicator. */
static void shrink_end_old(struct tutti_comm *old)
{
	shrink_wake_others(old, MS_TO_NS(WAKE_OTHERS_MS));
	engine_settle_failure(old->engine);
}

static tutti_status shrink_find_group(struct shrink *s)
{
	const struct tutti_comm *old = s->old;
	uint8_t none = 0;

	TRY(shrink_ask_phase(s, ASK_PRESENCE, &none, sizeof none));
	s->size = 0;
	for (int r = 0; r < old->size; r++) {
		if (s->marks[r] != MARK_MEMBER)
			continue;
		if (r == old->rank)
			s->rank = s->size;
		s->ranks[s->size++] = r;
	}
	shrink_end_old(s->old);
	if (s->size == old->size || !old->window)
		return TUTTI_OK;
	/* A rank that was left behind may wake up and store into it. */
	return window_mem_withdraw(old->window);
}

/* Different in each attempt. */
static tutti_status shrink_derive_identity(const struct shrink *s)
{
	const struct tutti_comm *old = s->old;
	const uint64_t of[4] = {old->identity.id[0], old->identity.id[1], old->recovery.calls,
				s->attempt};
	size_t bytes = sizeof of + (size_t)old->size;
	uint8_t *what = malloc(bytes);

	if (!what)
		return fail(TUTTI_ERR_MEMORY, "rank %d: no memory for %zu bytes", old->rank, bytes);
	memcpy(what, of, sizeof of);
	memcpy(what + sizeof of, s->marks, (size_t)old->size);
	comm_derive_identity(s->child, old, "survivors' key", "survivors' id", what, bytes);
	free(what);
	return TUTTI_OK;
}

static tutti_status shrink_make_child(struct shrink *s, struct member *mine)
{
	const struct tutti_comm *old = s->old;
	const tutti_config inherited = comm_config(old);

	TRY(comm_new_child(&s->child, old, &inherited, s->rank, s->size));
	memcpy(s->child->parent.ranks, s->ranks, (size_t)s->size * sizeof *s->ranks);
	TRY(shrink_derive_identity(s));
	TRY(comm_describe(s->child, mine));
	return consensus_descend(s->child->recovery.consensus, old->recovery.consensus, s->ranks);
}

/* The child's ranks_on_host: the old one's without the ranks of this node that were left behind,
 * which wait here no more. */
static void shrink_count_ranks_on_host(struct shrink *s)
{
	int here = 0;

	for (int i = 0; i < s->size; i++)
		here += strcmp(s->members[i].host_id, s->members[s->rank].host_id) == 0;
	s->child->place.ranks_on_host =
		s->old->place.ranks_on_host - (s->old->place.local_size - here);
	if (s->child->place.ranks_on_host < 1)
		s->child->place.ranks_on_host = 1;
}

static tutti_status shrink_gather_members(struct shrink *s)
{
	struct member mine = {0};
	const struct member *all = s->records;
	tutti_status status = shrink_make_child(s, &mine);

	shrink_remember(s, status);
	mine.status = (int32_t)status;
	TRY(shrink_ask_phase(s, ASK_MEMBERS, &mine, sizeof mine));
	for (int i = 0; i < s->size; i++)
		s->members[i] = all[s->ranks[i]];
	if (status == TUTTI_OK) {
		shrink_count_ranks_on_host(s);
		shrink_remember(s, comm_meet(s->child, s->members));
	}
	return TUTTI_OK;
}

static bool shrink_anybody_died(void *arg)
{
	const struct shrink *s = arg;

	for (int i = 0; i < s->size && s->old->window; i++)
		if (board_has_ended(window_board(s->old->window), s->ranks[i]))
			return true;
	return false;
}

static tutti_status shrink_form(struct shrink *s)
{
	uint32_t all_have;

	TRY(shrink_gather_members(s));
	if (s->own.outcome.status == TUTTI_OK && s->size > 1)
		comm_open_window(s->child, deadline_after_ms(s->child->settings.timeout_ms),
				 shrink_anybody_died, s);
	TRY(comm_shrink_report(s, ASK_WINDOWS, &all_have));
	if (s->child)
		comm_keep(s->child, all_have);
	tutti_status status = comm_start(s->child);
	if (status == TUTTI_OK)
		status = comm_connect(s->child, deadline_after_ms(s->child->settings.timeout_ms),
				      NULL, NULL);
	shrink_remember(s, status);
	return comm_shrink_report(s, ASK_REPORTS, &all_have);
}

/* Other ranks' parts of it fail too. */
static void shrink_drop_child(struct shrink *s)
{
	if (s->child && s->child->engine)
		engine_fail(s->child->engine, TUTTI_ERR_ABORTED,
			    "this communicator of survivors was given up");
	comm_free(s->child);
	s->child = NULL;
}

/* Every attempt but the last has lost a rank, or found one slow to die. */
static tutti_status shrink_run(struct shrink *s)
{
	uint32_t most = 2 * (uint32_t)s->old->size + 8;
	tutti_status status = TUTTI_IN_PROGRESS;

	s->old->recovery.calls++;
	if (engine_status(s->old->engine) != TUTTI_OK)
		shrink_end_old(s->old);
	for (; status == TUTTI_IN_PROGRESS && s->attempt < most; s->attempt++) {
		status = shrink_find_group(s);
		if (status == TUTTI_OK)
			status = shrink_form(s);
		if (status != TUTTI_OK)
			shrink_drop_child(s);
	}
	if (status == TUTTI_IN_PROGRESS)
		return fail(TUTTI_ERR_PEER,
			    NAME
			    ": rank %d: the survivors could not connect in %u attempts: %.300s",
			    s->old->rank, most, s->own.outcome.message);
	return status;
}

static tutti_status comm_shrink_run(struct tutti_comm *old, tutti_comm **survivors)
{
	size_t n = (size_t)old->size, longest = sizeof(struct member);
	struct shrink s = {.old = old,
			   .marks = calloc(n, 1),
			   .ranks = calloc(n, sizeof(int)),
			   .records = calloc(n, longest),
			   .members = calloc(n, sizeof(struct member))};
	tutti_status status;

	_Static_assert(sizeof(struct member) >= sizeof(struct shrink_report), "the longest record");
	if (s.marks && s.ranks && s.records && s.members)
		status = shrink_run(&s);
	else
		status = fail(TUTTI_ERR_MEMORY, NAME ": no memory for %d survivors", old->size);
	if (status == TUTTI_OK)
		*survivors = s.child;
	free(s.marks);
	free(s.ranks);
	free(s.records);
	free(s.members);
	return status;
}

tutti_status comm_shrink(struct tutti_comm *comm, struct tutti_comm **survivors)
{
	TRY(comm_enter_recovery(comm, NAME, TRACE_SHRINK));
	tutti_status status = comm_shrink_run(comm, survivors);
	comm_leave_recovery(comm, status);
	if (status == TUTTI_OK)
		last_error_clear(); /* what was tried again is no error */
	return status;
}
