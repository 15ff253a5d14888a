/* The leader's part of an agreement: it calls, counts who has joined, proposes and decides.
 *
 * It proposes what may have been decided before. May it have been? A leader's own value is *fresh*:
 * it knew that nothing could have been decided until then. Such a value is decided when all its
 * members have accepted it, so if one of them joins without having done so, it never will be, and
 * the members may be chosen anew. A value that was proposed once more, by a leader who could not
 * know, is not fresh, and stays. */
#include "collectives/control/agreement_internal.h"

#include <string.h>

static void agreement_lead_tell_all(struct agreement *a, enum agreement_kind kind)
{
	for (int r = 0; r < a->size; r++)
		if (r != a->rank && agreement_is_possible(&a->seats[r]))
			a->seats[r].due = kind;
}

static uint8_t *record_at(const struct agreement *a, uint8_t *value, int rank)
{
	return value + a->size + (size_t)rank * a->record_bytes;
}

void agreement_begin_ballot(struct agreement *a)
{
	struct agreement_seat *own = &a->seats[a->rank];
	uint64_t n = (uint64_t)a->size;

	a->ballot = (a->promised / n + 1) * n + (uint64_t)a->rank;
	a->promised = a->ballot;
	a->phase = AGREEMENT_COLLECTS;
	for (int r = 0; r < a->size; r++)
		a->seats[r].has_joined = a->seats[r].has_accepted = false;
	own->has_joined = true;
	own->accepted = a->best = a->accepted;
	a->best_is_fresh = a->accepted_is_fresh;
	memcpy(a->best_value, a->accepted_value, a->value_bytes);
	memcpy(record_at(a, a->proposal, a->rank), a->own, a->record_bytes);
	agreement_lead_tell_all(a, AGREEMENT_CALL);
}

static void take_join(struct agreement *a, int from, const struct agreement_message *m)
{
	struct agreement_seat *s = &a->seats[from];

	if (a->phase != AGREEMENT_COLLECTS || m->ballot != a->ballot || s->has_joined)
		return;
	s->has_joined = true;
	s->accepted = m->accepted;
	memcpy(record_at(a, a->proposal, from), m->record, a->record_bytes);
	if (m->accepted <= a->best)
		return;
	a->best = m->accepted;
	a->best_is_fresh = m->is_fresh;
	memcpy(a->best_value, m->value, a->value_bytes);
}

static void take_refusal(struct agreement *a, uint64_t promised)
{
	if (a->phase == AGREEMENT_FOLLOWS || promised <= a->ballot)
		return;
	a->promised = promised > a->promised ? promised : a->promised;
	agreement_begin_ballot(a);
}

void agreement_take_answer(struct agreement *a, int from, const struct agreement_message *m)
{
	if (m->kind == AGREEMENT_JOIN)
		take_join(a, from, m);
	else if (m->kind == AGREEMENT_REFUSE)
		take_refusal(a, m->ballot);
	else if (a->phase == AGREEMENT_PROPOSES && m->ballot == a->ballot)
		a->seats[from].has_accepted = a->seats[from].has_joined;
}

static bool is_awaited(const struct agreement *a, int rank)
{
	const struct agreement_seat *s = &a->seats[rank];

	if (rank == a->rank || !agreement_is_possible(s))
		return false;
	if (a->phase == AGREEMENT_COLLECTS)
		return !s->has_joined && !s->is_suspect;
	return s->has_joined && !s->has_accepted;
}

bool agreement_awaits(const struct agreement *a, int rank)
{
	if (a->end != AGREEMENT_OPEN)
		return false;
	if (a->leader == a->rank)
		return is_awaited(a, rank);
	return rank == a->leader && !a->seats[rank].heard_ns;
}

/* Since when this rank has been waited for. */
static uint64_t awaited_since(const struct agreement *a, int rank)
{
	uint64_t heard_ns = a->seats[rank].heard_ns;

	return agreement_later(heard_ns ? heard_ns : a->begun_ns, a->since_ns);
}

static void watch_others(struct agreement *a, uint64_t now_ns)
{
	bool again = false;

	for (int r = 0; r < a->size; r++) {
		struct agreement_seat *s = &a->seats[r];
		if (!is_awaited(a, r) || now_ns < awaited_since(a, r) + a->grace_ns)
			continue;
		s->is_suspect = true;
		again |= a->phase == AGREEMENT_PROPOSES;
	}
	if (again)
		agreement_begin_ballot(a);
}

static bool anybody_awaited(const struct agreement *a)
{
	for (int r = 0; r < a->size; r++)
		if (is_awaited(a, r))
			return true;
	return false;
}

/* Whether what was accepted as a->best may have been decided: all of those that have joined and
 * should have accepted it have. */
static bool may_be_decided(const struct agreement *a)
{
	if (a->best == 0)
		return false;
	for (int r = 0; r < a->size && a->best_is_fresh; r++)
		if (a->best_value[r] == MARK_MEMBER && a->seats[r].has_joined &&
		    a->seats[r].accepted < a->best)
			return false;
	return true;
}

static void mark_seats(const struct agreement *a, uint8_t *marks)
{
	for (int r = 0; r < a->size; r++) {
		const struct agreement_seat *s = &a->seats[r];
		enum agreement_mark mark = s->has_joined ? MARK_MEMBER
					   : s->is_dead  ? MARK_DEAD
							 : MARK_MISSING;
		marks[r] = s->is_candidate ? (uint8_t)mark : MARK_NO_CANDIDATE;
	}
}

static bool has_quorum(struct agreement *a)
{
	for (int r = 0; r < a->size; r++)
		a->here[r] = a->seats[r].has_joined;
	return quorum_is_reached(&a->quorum, a->here);
}

static void agreement_lead_give_up(struct agreement *a)
{
	mark_seats(a, a->value);
	a->end = AGREEMENT_NO_QUORUM;
	agreement_lead_tell_all(a, AGREEMENT_HOPELESS);
}

/* A fresh value: the ranks that have joined, with their records. */
static void choose_anew(struct agreement *a)
{
	mark_seats(a, a->proposal);
	for (int r = 0; r < a->size; r++)
		if (!a->seats[r].has_joined)
			memset(record_at(a, a->proposal, r), 0, a->record_bytes);
}

static void agreement_lead_propose(struct agreement *a)
{
	a->is_fresh = !may_be_decided(a);
	if (a->is_fresh)
		choose_anew(a);
	else
		memcpy(a->proposal, a->best_value, a->value_bytes);
	a->phase = AGREEMENT_PROPOSES;
	a->accepted = a->ballot;
	a->accepted_is_fresh = a->is_fresh;
	memcpy(a->accepted_value, a->proposal, a->value_bytes);
	a->seats[a->rank].has_accepted = true;
	for (int r = 0; r < a->size; r++)
		if (r != a->rank && a->seats[r].has_joined)
			a->seats[r].due = AGREEMENT_PROPOSE;
}

void agreement_lead(struct agreement *a, uint64_t now_ns)
{
	watch_others(a, now_ns);
	if (a->phase == AGREEMENT_COLLECTS && !anybody_awaited(a)) {
		if (!has_quorum(a)) {
			agreement_lead_give_up(a);
			return;
		}
		agreement_lead_propose(a);
	}
	if (a->phase == AGREEMENT_PROPOSES && !anybody_awaited(a)) {
		agreement_decide(a, a->proposal);
		agreement_lead_tell_all(a, AGREEMENT_DECIDE);
		return;
	}
	for (int r = 0; r < a->size; r++) {
		struct agreement_seat *s = &a->seats[r];
		bool is_asked = a->phase == AGREEMENT_PROPOSES && is_awaited(a, r);
		if (r != a->rank && agreement_is_possible(s) && now_ns >= s->told_ns + a->beat_ns)
			s->due = is_asked ? AGREEMENT_PROPOSE : AGREEMENT_CALL;
	}
}
