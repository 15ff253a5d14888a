/* The driver of all checks, and the first: are the arrays of every plan what plan.h says they are?
 * The other checks index by them. */
#include "check.h"

#include "tools/must.h"

static bool check_refs(const struct plan *p, uint32_t step, struct finding *f)
{
	struct refs sides[2] = {look_reads(p, step), look_writes(p, step)};
	for (int side = 0; side < 2; side++)
		for (uint32_t i = 0; i < sides[side].n; i++) {
			struct ref r = sides[side].at[i];
			if (r.buf >= BUF_COUNT || r.chunk >= p->chunks[r.buf])
				return finding_says(f,
						    "Rank %d: step %u names chunk %u of buffer %u, "
						    "which there is not.",
						    p->rank, step, r.chunk, r.buf);
		}
	return true;
}

static bool has_peer(const struct step *s)
{
	return s->kind == STEP_SEND || s->kind == STEP_RECV || s->kind == STEP_RECV_REDUCE;
}

static bool tutti_plan_check_step(const struct plan *p, uint32_t step, struct finding *f)
{
	const struct step *s = &p->steps[step];
	char words[512];

	if (!check_refs(p, step, f))
		return false;
	look_step_in_words(p, step, words, sizeof words);
	if (has_peer(s) && (s->peer < 0 || s->peer >= p->size || s->peer == p->rank))
		return finding_says(f, "Rank %d: %s has no such peer.", p->rank, words);
	if (s->lane >= p->lane_count || p->lanes[s->lane].peer != (has_peer(s) ? s->peer : -1) ||
	    p->lanes[s->lane].sends != (s->kind == STEP_SEND))
		return finding_says(f, "Rank %d: %s is on a lane that leads elsewhere.", p->rank,
				    words);
	for (uint32_t k = 0; k < s->succs; k++)
		if (p->edges[s->succ + k] >= p->count)
			return finding_says(f, "Rank %d: step %u is waited for by step %u of %u.",
					    p->rank, step, p->edges[s->succ + k], p->count);
	return true;
}

/* Every step once, on its own lane. */
static bool check_lanes(const struct plan *p, struct finding *f)
{
	uint32_t *times = must_alloc(p->count, sizeof *times);
	bool ok = true;

	for (uint32_t l = 0; l < p->lane_count && ok; l++)
		for (uint32_t i = 0; i < p->lanes[l].count && ok; i++) {
			uint32_t step = p->order[p->lanes[l].first + i];
			if (step >= p->count || p->steps[step].lane != l)
				ok = finding_says(f,
						  "Rank %d: lane %u has step %u of another lane.",
						  p->rank, l, step);
			else
				times[step]++;
		}
	for (uint32_t s = 0; s < p->count && ok; s++)
		if (times[s] != 1)
			ok = finding_says(f, "Rank %d: step %u is issued %u times.", p->rank, s,
					  times[s]);
	free(times);
	return ok;
}

static bool tutti_plan_check_counts(const struct plan *p, struct finding *f)
{
	struct before before = look_before(p);
	char words[512];
	bool ok = true;

	for (uint32_t s = 0; s < p->count && ok; s++)
		if (before.first[s + 1] - before.first[s] != p->steps[s].deps)
			ok = finding_says(f, "Rank %d: %s waits for %u steps, but %u lead to it.",
					  p->rank, look_step_in_words(p, s, words, sizeof words),
					  p->steps[s].deps, before.first[s + 1] - before.first[s]);
	look_before_free(&before);
	return ok;
}

static bool check_arrays(const struct plan_set *set, struct finding *f)
{
	for (int r = 0; r < set->size; r++) {
		const struct plan *p = set->of[r];
		for (uint32_t s = 0; s < p->count; s++)
			if (!tutti_plan_check_step(p, s, f))
				return false;
		if (!check_lanes(p, f) || !tutti_plan_check_counts(p, f))
			return false;
	}
	return true;
}

bool check_plans(const struct plan_set *set, struct finding *f)
{
	return check_arrays(set, f) && check_messages(set, f) && check_order(set, f) &&
	       check_execution(set, false, f) && check_execution(set, true, f);
}
