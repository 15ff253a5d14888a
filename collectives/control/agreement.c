/* One agreement, as every rank takes part in it: see agreement.h. Its messages are in
 * agreement_say.c. It is safe for the reason that Paxos is: a rank that has joined a ballot accepts
 * nothing under an older one, and the leader of a newer one proposes what may have been decided
 * before (agreement_lead.c). */
#include "collectives/control/agreement.h"
#include "collectives/control/agreement_internal.h"
#include "collectives/control/deadlines.h"

#include "core/clock.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

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
static void take_call(struct agreement *a, int from, uint64_t ballot)
{
	a->seats[from].called = ballot;
	if (from == a->leader) {
		agreement_answer(a, from, ballot);
	} else if (a->leader == a->rank && ballot > a->ballot) {
		a->promised = ballot > a->promised ? ballot : a->promised;
		agreement_begin_ballot(a);
	}
}

static void take_proposal(struct agreement *a, int from, const struct agreement_message *m,
			  uint64_t now_ns)
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

static void take_by_kind(struct agreement *a, int from, const struct agreement_message *m,
			 uint64_t now_ns)
{
	switch (m->kind) {
	case AGREEMENT_CALL:
		take_call(a, from, m->ballot);
		break;
	case AGREEMENT_JOIN:
	case AGREEMENT_ACCEPT:
	case AGREEMENT_REFUSE:
		agreement_take_answer(a, from, m);
		break;
	case AGREEMENT_PROPOSE:
		take_proposal(a, from, m, now_ns);
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
static void answer_decided(struct agreement_seat *s, enum agreement_kind kind)
{
	s->knows |= kind == AGREEMENT_KNOWN || kind == AGREEMENT_DECIDE;
	if (kind == AGREEMENT_KNOWN)
		s->due = AGREEMENT_NOTHING;
	else
		s->due = kind == AGREEMENT_DECIDE ? AGREEMENT_KNOWN : AGREEMENT_DECIDE;
}

static bool is_leading(enum agreement_kind kind)
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
		answer_decided(s, m->kind);
		return;
	}
	if (a->end != AGREEMENT_OPEN)
		return;
	if (s->is_suspect && (from > a->rank || is_leading(m->kind))) {
		s->is_suspect = false;
		agreement_elect(a, now_ns);
	}
	take_by_kind(a, from, m, now_ns);
}

/* Until when this rank waits for its leader to say something. */
static uint64_t leader_until(const struct agreement *a)
{
	uint64_t heard_ns = a->seats[a->leader].heard_ns;
	uint64_t next = a->grace_ns / 8, most = MS_TO_NS(NEXT_LEADER_MS);

	if (heard_ns)
		return agreement_later(heard_ns, a->since_ns) + a->grace_ns;
	return agreement_later(a->begun_ns + a->grace_ns,
			       a->since_ns + (next < most ? next : most));
}

/* A leader that has decided, or has lost what was sent to it, calls no more until it is asked. */
static void watch_leader(struct agreement *a, uint64_t now_ns)
{
	while (a->leader != a->rank && now_ns >= leader_until(a)) {
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
	watch_leader(a, now_ns);
	if (a->leader == a->rank)
		agreement_lead(a, now_ns);
}
