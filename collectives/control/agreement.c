/* One agreement, as every rank takes part in it: see agreement.h; the part of a
 * leader; and the choice of messages and their receivers. It is safe for the reason that Paxos is:
 * a rank that has joined a ballot accepts nothing under an older one, and the leader of a newer one
 * proposes what may have been decided before. */
#include "collectives/control/agreement.h"

#include "collectives/control/deadlines.h"
#include "core/clock.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

static bool agreement_is_possible(const struct agreement_seat *s)
{
	return s->is_candidate && !s->is_dead;
}

static uint64_t agreement_later(uint64_t a_ns, uint64_t b_ns)
{
	return a_ns > b_ns ? a_ns : b_ns;
}

/* Ends the agreement. */
static void agreement_decide(struct agreement *a, const uint8_t *value)
{
	memcpy(a->value, value, a->value_bytes);
	a->end = a->value[a->rank] == MARK_MEMBER ? AGREEMENT_DECIDED : AGREEMENT_LEFT_OUT;
}

/* The leader's part of an agreement: it calls, counts who has joined, proposes and decides.
 *
 * It proposes what may have been decided before. May it have been? A leader's own value is *fresh*:
 * it knew that nothing could have been decided until then. Such a value is decided when all its
 * members have accepted it, so if one of them joins without having done so, it never will be, and
 * the members may be chosen anew. A value that was proposed once more, by a leader who could not
 * know, is not fresh, and stays. */

static void agreement_lead_tell_all(struct agreement *a, enum agreement_kind kind)
{
	for (int r = 0; r < a->size; r++)
		if (r != a->rank && agreement_is_possible(&a->seats[r]))
			a->seats[r].due = kind;
}

static uint8_t *agreement_record_at(const struct agreement *a, uint8_t *value, int rank)
{
	return value + a->size + (size_t)rank * a->record_bytes;
}

/* A new ballot, above all that this rank has heard of. */
static void agreement_begin_ballot(struct agreement *a)
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
	memcpy(agreement_record_at(a, a->proposal, a->rank), a->own, a->record_bytes);
	agreement_lead_tell_all(a, AGREEMENT_CALL);
}

static void agreement_take_join(struct agreement *a, int from, const struct agreement_message *m)
{
	struct agreement_seat *s = &a->seats[from];

	if (a->phase != AGREEMENT_COLLECTS || m->ballot != a->ballot || s->has_joined)
		return;
	s->has_joined = true;
	s->accepted = m->accepted;
	memcpy(agreement_record_at(a, a->proposal, from), m->record, a->record_bytes);
	if (m->accepted <= a->best)
		return;
	a->best = m->accepted;
	a->best_is_fresh = m->is_fresh;
	memcpy(a->best_value, m->value, a->value_bytes);
}

static void agreement_take_refusal(struct agreement *a, uint64_t promised)
{
	if (a->phase == AGREEMENT_FOLLOWS || promised <= a->ballot)
		return;
	a->promised = promised > a->promised ? promised : a->promised;
	agreement_begin_ballot(a);
}

/* The messages to a leader: JOIN, ACCEPT, REFUSE. */
static void agreement_take_answer(struct agreement *a, int from, const struct agreement_message *m)
{
	if (m->kind == AGREEMENT_JOIN)
		agreement_take_join(a, from, m);
	else if (m->kind == AGREEMENT_REFUSE)
		agreement_take_refusal(a, m->ballot);
	else if (a->phase == AGREEMENT_PROPOSES && m->ballot == a->ballot)
		a->seats[from].has_accepted = a->seats[from].has_joined;
}

static bool agreement_is_awaited(const struct agreement *a, int rank)
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
		return agreement_is_awaited(a, rank);
	return rank == a->leader && !a->seats[rank].heard_ns;
}

/* Since when this rank has been waited for. */
static uint64_t agreement_awaited_since(const struct agreement *a, int rank)
{
	uint64_t heard_ns = a->seats[rank].heard_ns;

	return agreement_later(heard_ns ? heard_ns : a->begun_ns, a->since_ns);
}

static void agreement_watch_others(struct agreement *a, uint64_t now_ns)
{
	bool again = false;

	for (int r = 0; r < a->size; r++) {
		struct agreement_seat *s = &a->seats[r];
		if (!agreement_is_awaited(a, r) ||
		    now_ns < agreement_awaited_since(a, r) + a->grace_ns)
			continue;
		s->is_suspect = true;
		again |= a->phase == AGREEMENT_PROPOSES;
	}
	if (again)
		agreement_begin_ballot(a);
}

static bool agreement_anybody_awaited(const struct agreement *a)
{
	for (int r = 0; r < a->size; r++)
		if (agreement_is_awaited(a, r))
			return true;
	return false;
}

/* Whether what was accepted as a->best may have been decided: all of those that have joined and
 * should have accepted it have. */
static bool agreement_may_be_decided(const struct agreement *a)
{
	if (a->best == 0)
		return false;
	for (int r = 0; r < a->size && a->best_is_fresh; r++)
		if (a->best_value[r] == MARK_MEMBER && a->seats[r].has_joined &&
		    a->seats[r].accepted < a->best)
			return false;
	return true;
}

static void agreement_mark_seats(const struct agreement *a, uint8_t *marks)
{
	for (int r = 0; r < a->size; r++) {
		const struct agreement_seat *s = &a->seats[r];
		enum agreement_mark mark = s->has_joined ? MARK_MEMBER
					   : s->is_dead  ? MARK_DEAD
							 : MARK_MISSING;
		marks[r] = s->is_candidate ? (uint8_t)mark : MARK_NO_CANDIDATE;
	}
}

static bool agreement_has_quorum(struct agreement *a)
{
	for (int r = 0; r < a->size; r++)
		a->here[r] = a->seats[r].has_joined;
	return quorum_is_reached(&a->quorum, a->here);
}

static void agreement_lead_give_up(struct agreement *a)
{
	agreement_mark_seats(a, a->value);
	a->end = AGREEMENT_NO_QUORUM;
	agreement_lead_tell_all(a, AGREEMENT_HOPELESS);
}

/* A fresh value: the ranks that have joined, with their records. */
static void agreement_choose_anew(struct agreement *a)
{
	agreement_mark_seats(a, a->proposal);
	for (int r = 0; r < a->size; r++)
		if (!a->seats[r].has_joined)
			memset(agreement_record_at(a, a->proposal, r), 0, a->record_bytes);
}

static void agreement_lead_propose(struct agreement *a)
{
	a->is_fresh = !agreement_may_be_decided(a);
	if (a->is_fresh)
		agreement_choose_anew(a);
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

/* The leader's step when time has passed. */
static void agreement_lead(struct agreement *a, uint64_t now_ns)
{
	agreement_watch_others(a, now_ns);
	if (a->phase == AGREEMENT_COLLECTS && !agreement_anybody_awaited(a)) {
		if (!agreement_has_quorum(a)) {
			agreement_lead_give_up(a);
			return;
		}
		agreement_lead_propose(a);
	}
	if (a->phase == AGREEMENT_PROPOSES && !agreement_anybody_awaited(a)) {
		agreement_decide(a, a->proposal);
		agreement_lead_tell_all(a, AGREEMENT_DECIDE);
		return;
	}
	for (int r = 0; r < a->size; r++) {
		struct agreement_seat *s = &a->seats[r];
		bool is_asked = a->phase == AGREEMENT_PROPOSES && agreement_is_awaited(a, r);
		if (r != a->rank && agreement_is_possible(s) && now_ns >= s->told_ns + a->beat_ns)
			s->due = is_asked ? AGREEMENT_PROPOSE : AGREEMENT_CALL;
	}
}

tutti_status agreement_init(struct agreement *a, const struct agreement_config *config)
{
	size_t n = (size_t)config->size;
	size_t value = agreement_value_bytes(config->size, config->record_bytes);
	uint64_t beat = config->grace_ns / 16, least = MS_TO_NS(BEAT_LEAST_MS),
		 most = MS_TO_NS(BEAT_MOST_MS);
	tutti_status status;

	memset(a, 0, sizeof *a);
	a->seats = calloc(n, sizeof *a->seats);
	a->gone = calloc(2 * n + config->record_bytes + 4 * value, 1);
	status = config->quorum ? quorum_copy(&a->quorum, config->quorum)
				: quorum_begin(&a->quorum, config->size);
	if (!a->seats || !a->gone || status != TUTTI_OK) {
		agreement_finish(a);
		return fail(TUTTI_ERR_MEMORY, "rank %d: no memory to agree with %d ranks",
			    config->rank, config->size);
	}
	a->here = a->gone + n;
	a->own = a->here + n;
	a->accepted_value = a->own + config->record_bytes;
	a->proposal = a->accepted_value + value;
	a->best_value = a->proposal + value;
	a->value = a->best_value + value;
	a->rank = config->rank;
	a->size = config->size;
	a->record_bytes = config->record_bytes;
	a->value_bytes = value;
	a->start_ns = config->now_ns;
	a->begun_ns = config->now_ns + config->late_ns;
	a->grace_ns = config->grace_ns;
	a->beat_ns = beat > most ? most : beat < least ? least : beat;
	a->leader = a->decided_by = -1;
	memcpy(a->own, config->record, config->record_bytes);
	for (int r = 0; r < a->size; r++) {
		a->seats[r].is_candidate = config->candidates[r];
		a->gone[r] = a->quorum.gone[a->quorum.voter[r]];
		a->seats[r].is_dead = a->gone[r];
	}
	assert(a->seats[a->rank].is_candidate);
	return TUTTI_OK;
}

void agreement_finish(struct agreement *a)
{
	free(a->seats);
	free(a->gone);
	quorum_finish(&a->quorum);
	a->seats = NULL;
	a->gone = NULL;
}

/* A promise to ballot, if none was given to a later one. */
static bool agreement_promise(struct agreement *a, int to, uint64_t ballot)
{
	if (ballot < a->promised) {
		a->seats[to].due = AGREEMENT_REFUSE;
		return false;
	}
	a->promised = ballot;
	return true;
}

static void agreement_answer(struct agreement *a, int leader, uint64_t ballot)
{
	if (agreement_promise(a, leader, ballot))
		a->seats[leader].due = a->accepted == ballot ? AGREEMENT_ACCEPT : AGREEMENT_JOIN;
}

static void agreement_elect(struct agreement *a, uint64_t now_ns)
{
	int leader = 0;

	while (leader < a->rank &&
	       (!agreement_is_possible(&a->seats[leader]) || a->seats[leader].is_suspect))
		leader++;
	if (leader == a->leader)
		return;
	a->leader = leader;
	a->since_ns = now_ns;
	a->phase = AGREEMENT_FOLLOWS;
	if (leader == a->rank)
		agreement_begin_ballot(a);
	else if (a->seats[leader].called)
		agreement_answer(a, leader, a->seats[leader].called);
	else
		a->seats[leader].due = AGREEMENT_ASK;
}

void agreement_mark_dead(struct agreement *a, int rank, uint64_t now_ns)
{
	struct agreement_seat *s = &a->seats[rank];
	bool was_counted = a->phase == AGREEMENT_PROPOSES && s->has_joined;

	if (s->is_dead || rank == a->rank)
		return;
	s->is_dead = true;
	a->gone[rank] = 1;
	quorum_mark_dead(&a->quorum, rank);
	s->has_joined = s->has_accepted = false;
	s->due = AGREEMENT_NOTHING;
	if (a->end != AGREEMENT_OPEN)
		return;
	agreement_elect(a, now_ns);
	if (was_counted)
		agreement_begin_ballot(a);
}

/* A rank above this one that calls takes this one for dead: it is called back, under a later
 * ballot. */
static void agreement_take_call(struct agreement *a, int from, uint64_t ballot)
{
	a->seats[from].called = ballot;
	if (from == a->leader) {
		agreement_answer(a, from, ballot);
	} else if (a->leader == a->rank && ballot > a->ballot) {
		a->promised = ballot > a->promised ? ballot : a->promised;
		agreement_begin_ballot(a);
	}
}

static void agreement_take_proposal(struct agreement *a, int from,
				    const struct agreement_message *m, uint64_t now_ns)
{
	if (!agreement_promise(a, from, m->ballot))
		return;
	a->accepted = m->ballot;
	a->accepted_is_fresh = m->is_fresh;
	memcpy(a->accepted_value, m->value, a->value_bytes);
	/* Messages that these ranks sent before they died no longer count. */
	for (int r = 0; r < a->size; r++)
		if (m->gone[r] == 1)
			agreement_mark_dead(a, r, now_ns);
	a->seats[from].due = AGREEMENT_ACCEPT;
}

static void agreement_take_by_kind(struct agreement *a, int from, const struct agreement_message *m,
				   uint64_t now_ns)
{
	switch (m->kind) {
	case AGREEMENT_CALL:
		agreement_take_call(a, from, m->ballot);
		break;
	case AGREEMENT_JOIN:
	case AGREEMENT_ACCEPT:
	case AGREEMENT_REFUSE:
		agreement_take_answer(a, from, m);
		break;
	case AGREEMENT_PROPOSE:
		agreement_take_proposal(a, from, m, now_ns);
		break;
	case AGREEMENT_DECIDE:
		agreement_decide(a, m->value);
		a->decided_by = from;
		a->seats[from].due = AGREEMENT_KNOWN;
		break;
	case AGREEMENT_HOPELESS:
		if (from != a->leader)
			break;
		memcpy(a->value, m->value, (size_t)a->size);
		a->end = AGREEMENT_NO_QUORUM;
		break;
	case AGREEMENT_ASK:
		if (a->phase != AGREEMENT_FOLLOWS)
			a->seats[from].due = AGREEMENT_CALL;
		break;
	case AGREEMENT_KNOWN:
	case AGREEMENT_NOTHING:
	case AGREEMENT_KINDS:
		break;
	}
}

/* The answer to a rank that knows how the agreement ended. */
static void agreement_answer_decided(struct agreement_seat *s, enum agreement_kind kind)
{
	s->knows |= kind == AGREEMENT_KNOWN || kind == AGREEMENT_DECIDE;
	if (kind == AGREEMENT_KNOWN)
		s->due = AGREEMENT_NOTHING;
	else
		s->due = kind == AGREEMENT_DECIDE ? AGREEMENT_KNOWN : AGREEMENT_DECIDE;
}

static bool agreement_is_leading(enum agreement_kind kind)
{
	return kind == AGREEMENT_CALL || kind == AGREEMENT_PROPOSE;
}

/* A rank that is heard from is alive. Below this one that matters only if it leads: else it waits
 * for this one to do so. */
void agreement_hear(struct agreement *a, int from, const struct agreement_message *m,
		    uint64_t now_ns)
{
	struct agreement_seat *s = &a->seats[from];

	if (!agreement_is_possible(s) || from == a->rank)
		return;
	s->heard_ns = now_ns;
	if (a->end == AGREEMENT_DECIDED || a->end == AGREEMENT_LEFT_OUT) {
		agreement_answer_decided(s, m->kind);
		return;
	}
	if (a->end != AGREEMENT_OPEN)
		return;
	if (s->is_suspect && (from > a->rank || agreement_is_leading(m->kind))) {
		s->is_suspect = false;
		agreement_elect(a, now_ns);
	}
	agreement_take_by_kind(a, from, m, now_ns);
}

/* Until when this rank waits for its leader to say something. */
static uint64_t agreement_leader_until(const struct agreement *a)
{
	uint64_t heard_ns = a->seats[a->leader].heard_ns;
	uint64_t next = a->grace_ns / 8, most = MS_TO_NS(NEXT_LEADER_MS);

	if (heard_ns)
		return agreement_later(heard_ns, a->since_ns) + a->grace_ns;
	return agreement_later(a->begun_ns + a->grace_ns,
			       a->since_ns + (next < most ? next : most));
}

/* A leader that has decided, or has lost what was sent to it, calls no more until it is asked. */
static void agreement_watch_leader(struct agreement *a, uint64_t now_ns)
{
	while (a->leader != a->rank && now_ns >= agreement_leader_until(a)) {
		a->seats[a->leader].is_suspect = true;
		agreement_elect(a, now_ns);
	}
	if (a->leader == a->rank)
		return;
	struct agreement_seat *s = &a->seats[a->leader];
	if (s->due == AGREEMENT_NOTHING &&
	    now_ns >= agreement_later(s->heard_ns, s->told_ns) + 2 * a->beat_ns)
		s->due = AGREEMENT_ASK;
}

void agreement_step(struct agreement *a, uint64_t now_ns)
{
	if (a->end != AGREEMENT_OPEN)
		return;
	agreement_elect(a, now_ns);
	agreement_watch_leader(a, now_ns);
	if (a->leader == a->rank)
		agreement_lead(a, now_ns);
}

bool agreement_needs(const struct agreement *a, int rank)
{
	const struct agreement_seat *s = &a->seats[rank];

	if (rank == a->rank || !agreement_is_possible(s))
		return false;
	if (a->end != AGREEMENT_OPEN)
		return s->due != AGREEMENT_NOTHING;
	return a->leader == a->rank || rank == a->leader || s->due != AGREEMENT_NOTHING;
}

static bool agreement_has_found_it(const struct agreement *a)
{
	return a->decided_by < 0 && (a->end == AGREEMENT_DECIDED || a->end == AGREEMENT_LEFT_OUT);
}

bool agreement_owes(const struct agreement *a, int rank)
{
	const struct agreement_seat *s = &a->seats[rank];

	if (a->end == AGREEMENT_OPEN || rank == a->rank || !agreement_is_possible(s) ||
	    a->value[rank] != MARK_MEMBER)
		return false;
	return s->due != AGREEMENT_NOTHING || (agreement_has_found_it(a) && !s->knows);
}

void agreement_repeat(struct agreement *a, int rank)
{
	struct agreement_seat *s = &a->seats[rank];

	if (rank == a->rank || !agreement_is_possible(s))
		return;
	if (a->end == AGREEMENT_OPEN && a->leader == a->rank)
		s->told_ns = 0; /* it is called, or asked, at the next step */
	else if (a->end == AGREEMENT_OPEN && rank == a->leader && s->due == AGREEMENT_NOTHING)
		s->due = AGREEMENT_ASK;
	else if (agreement_has_found_it(a) && !s->knows)
		s->due = AGREEMENT_DECIDE;
	else if (a->end != AGREEMENT_OPEN && rank == a->decided_by)
		s->due = AGREEMENT_KNOWN;
}

bool agreement_say(struct agreement *a, int rank, struct agreement_message *m, uint64_t now_ns)
{
	struct agreement_seat *s = &a->seats[rank];

	if (s->due == AGREEMENT_NOTHING)
		return false;
	*m = (struct agreement_message){.kind = s->due, .ballot = a->promised};
	s->due = AGREEMENT_NOTHING;
	s->told_ns = now_ns;
	switch (m->kind) {
	case AGREEMENT_CALL:
		m->ballot = a->ballot;
		break;
	case AGREEMENT_JOIN:
		m->accepted = a->accepted;
		m->is_fresh = a->accepted_is_fresh;
		m->record = a->own;
		m->value = a->accepted ? a->accepted_value : NULL;
		break;
	case AGREEMENT_PROPOSE:
		m->ballot = a->ballot;
		m->is_fresh = a->is_fresh;
		m->value = a->proposal;
		m->gone = a->gone;
		break;
	case AGREEMENT_ACCEPT:
		m->ballot = a->accepted;
		break;
	case AGREEMENT_DECIDE:
	case AGREEMENT_HOPELESS:
		m->value = a->value;
		break;
	case AGREEMENT_REFUSE:
	case AGREEMENT_ASK:
	case AGREEMENT_KNOWN:
	case AGREEMENT_NOTHING:
	case AGREEMENT_KINDS:
		break;
	}
	return true;
}
