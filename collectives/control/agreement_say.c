/* Chooses a rank's messages in an agreement, and their receivers: see agreement.h. */
#include "collectives/control/agreement_internal.h"

bool agreement_needs(const struct agreement *a, int rank)
{
	const struct agreement_seat *s = &a->seats[rank];

	if (rank == a->rank || !agreement_is_possible(s))
		return false;
	if (a->end != AGREEMENT_OPEN)
		return s->due != AGREEMENT_NOTHING;
	return a->leader == a->rank || rank == a->leader || s->due != AGREEMENT_NOTHING;
}

static bool has_found_it(const struct agreement *a)
{
	return a->decided_by < 0 && (a->end == AGREEMENT_DECIDED || a->end == AGREEMENT_LEFT_OUT);
}

bool agreement_owes(const struct agreement *a, int rank)
{
	const struct agreement_seat *s = &a->seats[rank];

	if (a->end == AGREEMENT_OPEN || rank == a->rank || !agreement_is_possible(s) ||
	    a->value[rank] != MARK_MEMBER)
		return false;
	return s->due != AGREEMENT_NOTHING || (has_found_it(a) && !s->knows);
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
	else if (has_found_it(a) && !s->knows)
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
