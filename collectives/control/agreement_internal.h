/* Shared by agreement.c (all ranks' part) and agreement_lead.c (a leader's). */
#ifndef COLLECTIVES_CONTROL_AGREEMENT_INTERNAL_H
#define COLLECTIVES_CONTROL_AGREEMENT_INTERNAL_H

#include "collectives/control/agreement.h"

#include <string.h>

static inline bool agreement_is_possible(const struct agreement_seat *s)
{
	return s->is_candidate && !s->is_dead;
}

static inline uint64_t agreement_later(uint64_t a_ns, uint64_t b_ns)
{
	return a_ns > b_ns ? a_ns : b_ns;
}

/* Ends the agreement. */
static inline void agreement_decide(struct agreement *a, const uint8_t *value)
{
	memcpy(a->value, value, a->value_bytes);
	a->end = a->value[a->rank] == MARK_MEMBER ? AGREEMENT_DECIDED : AGREEMENT_LEFT_OUT;
}

/* agreement_lead.c. A new ballot, above all that this rank has heard of. */
void agreement_begin_ballot(struct agreement *a);
/* The messages to a leader: JOIN, ACCEPT, REFUSE. */
void agreement_take_answer(struct agreement *a, int from, const struct agreement_message *m);
/* The leader's step when time has passed. */
void agreement_lead(struct agreement *a, uint64_t now_ns);

#endif
