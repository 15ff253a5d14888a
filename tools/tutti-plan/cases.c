/* The calls to check, one after the other. */
#include "cases.h"

#include <stdio.h>

static bool has_in_place(enum collective c)
{
	return c != COLL_ALL_TO_ALL && c != COLL_BARRIER;
}

const char *cases_why_not(const struct algorithm *a, int size, int nodes)
{
	struct nodes where = nodes_in_order(size, nodes);
	bool several = nodes > 1 && nodes < size;
	struct select select = {.size = size, .nodes = several ? &where : NULL};
	struct call_args args = {.collective = a->collective, .op = TUTTI_SUM, .count = 1};
	return a->build ? select_why_not(&select, a, &args)
			: "it has no plan: ranks load and store each other's memory";
}

static bool check_set(struct cases *c, struct plan_set *set, struct finding *f)
{
	const struct damage_order *d = c->damage;
	bool ok = true;

	look_build_all(set);
	if (d && (d->rank < 0 || d->rank >= set->size ||
		  !damage_plan(set->of[d->rank], d->damage, d->step, d->which)))
		ok = finding_says(f, "Rank %d's step %u cannot be damaged in this way.", d->rank,
				  d->step);
	ok = ok && check_plans(set, f);
	look_free_all(set);
	c->checked++;
	c->last = *set;
	return ok;
}

/* Where the ranks are. */
struct layer {
	int nodes;
	bool in_turn;
};

static bool check_options(struct cases *c, int root, struct layer where, struct finding *f)
{
	bool reduces = collective_reduces(c->algorithm->collective);
	for (int how = 0; how < (c->thorough ? 8 : 1); how++) {
		struct plan_set set = {.algorithm = c->algorithm,
				       .size = c->size,
				       .nodes = where.nodes,
				       .in_turn = where.in_turn,
				       .root = root,
				       .in_place = how & 1,
				       .options = {.staged = how & 2, .scaled = how & 4}};
		if ((set.in_place && !has_in_place(c->algorithm->collective)) ||
		    (set.options.scaled && !reduces))
			continue;
		if (!check_set(c, &set, f))
			return false;
	}
	return true;
}

/* The first, the last and one between see all that renumbering may break. */
static bool check_roots(struct cases *c, struct layer where, struct finding *f)
{
	int roots[3] = {0, c->size - 1, c->size / 2};
	int n = !collective_has_root(c->algorithm->collective) ? 1 : c->size < 3 ? c->size : 3;

	if (cases_why_not(c->algorithm, c->size, where.nodes))
		return true;
	if (c->root >= 0)
		return check_options(c, c->root, where, f);
	for (int i = 0; i < n; i++)
		if (!check_options(c, roots[i], where, f))
			return false;
	return true;
}

bool check_cases(struct cases *c, struct finding *f)
{
	bool looks_at_nodes = c->algorithm->needs & NEEDS_NODES;
	int first = c->nodes ? c->nodes : looks_at_nodes ? 2 : 1;
	int last = c->nodes ? c->nodes : looks_at_nodes ? c->size / 2 : 1;

	/* Of many ranks few nodes and small ones. */
	for (int nodes = first; nodes <= last; nodes++) {
		if (c->size > 16 && nodes > 3 && c->size / nodes > 3)
			continue;
		for (int in_turn = 0; in_turn < (looks_at_nodes ? 2 : 1); in_turn++)
			if (c->size % nodes == 0 &&
			    !check_roots(c, (struct layer){nodes, in_turn}, f))
				return false;
	}
	return true;
}
