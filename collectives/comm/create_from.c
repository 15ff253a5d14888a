/* tutti_comm_create_from: a child that its members alone make. They exchange what the rounds of
 * split.h need by messages with the lowest of them, whose tags no caller can use. First they
 * compare their lists; with the answer each has a random number that makes this child's id its own.
 */
#include "collectives/comm/split.h"

#include "collectives/engine/engine.h"
#include "collectives/p2p/p2p.h"

#include "core/auth.h"
#include "core/clock.h"
#include "core/net.h"

#include <stdlib.h>
#include <string.h>

struct list_record {
	uint64_t hash;
	int32_t count;
};

struct list_verdict {
	struct outcome outcome;
	uint64_t number;
};

/* FNV-1a of the numbers in their order. */
static struct list_record create_from_record_of(const struct split *s)
{
	struct list_record record = {UINT64_C(14695981039346656037), s->count};

	for (int i = 0; i < s->count; i++)
		for (int byte = 0; byte < 32; byte += 8)
			record.hash = (record.hash ^ ((uint32_t)s->list[i] >> byte & 255)) *
				      UINT64_C(1099511628211);
	return record;
}

static tutti_status create_from_compare(const struct split *s, const struct list_record *all)
{
	const struct list_record *own = &all[s->me];

	for (int i = 0; i < s->count; i++)
		if (all[i].count != own->count || all[i].hash != own->hash)
			return fail(
				TUTTI_ERR_MISMATCH,
				"%s: rank %d lists %d ranks, rank %d lists %d, and the lists "
				"differ: all ranks of the child need the same in the same order",
				split_name(s).text, s->parent->rank, own->count, s->list[i],
				all[i].count);
	return TUTTI_OK;
}

static tutti_status create_from_lead(struct split *s, const struct list_record *own,
				     struct list_verdict *v)
{
	struct list_record *all = calloc((size_t)s->count, sizeof *all);
	tutti_status status =
		all ? TUTTI_OK : fail(TUTTI_ERR_MEMORY, "no memory for %d lists", s->count);

	if (status == TUTTI_OK) {
		all[s->me] = *own;
		status = split_list_exchange_all(s, P2P_RECV, all, sizeof *all, sizeof *all);
	}
	if (status == TUTTI_OK) {
		outcome_set(&v->outcome, create_from_compare(s, all));
		auth_random(&v->number, sizeof v->number);
		status = split_list_exchange_all(s, P2P_SEND, v, sizeof *v, 0);
	}
	free(all);
	return status;
}

/* The lists are the same, on all ranks or on none. */
static tutti_status create_from_agree_on_list(struct split *s)
{
	struct list_record own = create_from_record_of(s);
	struct list_verdict verdict = {0};

	if (s->me == split_list_leader(s)) {
		TRY(create_from_lead(s, &own, &verdict));
	} else {
		TRY(split_list_exchange(s, P2P_SEND, &own, sizeof own, split_list_leader(s)));
		TRY(split_list_exchange(s, P2P_RECV, &verdict, sizeof verdict,
					split_list_leader(s)));
	}
	s->sequence = verdict.number;
	if (verdict.outcome.status == TUTTI_OK)
		return TUTTI_OK;
	return fail(status_said(verdict.outcome.status), "%.*s", ERROR_BYTES - 1,
		    verdict.outcome.message);
}

tutti_status comm_create_from(struct tutti_comm *parent, const int *ranks, int n, int tag,
			      const tutti_config *config, struct tutti_comm **child)
{
	tutti_config inherited = comm_config(parent);
	struct split s = {.parent = parent,
			  .config = config ? config : &inherited,
			  .list = ranks,
			  .count = n,
			  .tag = tag,
			  .deadline_ns = deadline_after_ms(parent->settings.timeout_ms)};

	while (s.list[s.me] != parent->rank)
		s.me++;
	TRY(create_from_agree_on_list(&s));
	return split_run(&s, 0, s.me, child);
}
