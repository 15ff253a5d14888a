/* The latest decisions of a consensus: see consensus_internal.h. */
#include "collectives/control/consensus_internal.h"

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

tutti_status decisions_answer(const struct consensus *c, struct consensus_link *l)
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
