#include "cases.h"

#include "promise.h"

#include <stdio.h>

static bool has_root(enum collective c)
{
	return c == COLL_BROADCAST || c == COLL_REDUCE || c == COLL_GATHER || c == COLL_SCATTER;
}

static bool has_in_place(enum collective c)
{
	return c != COLL_ALL_TO_ALL && c != COLL_BARRIER;
}

const char *cases_why_not(const struct algorithm *a, int size, int nodes)
{
	struct nodes where = nodes_in_order(size, nodes);
	struct select select = {.size = size, .nodes = nodes > 1 ? &where : NULL};
	struct call_args args = {.collective = a->collective, .op = TUTTI_SUM, .count = 1};
	return a->build ? select_why_not(&select, a, &args)
			: "it has no plan: ranks load and store each other's memory";
}

static bool check_set(struct cases *c, struct plan_set *set, struct finding *f)
{
	const struct damage_order *d = c->damage;
	bool ok = true;

	look_open(set);
	look_build_all(set);
	if (d && (d->rank < 0 || d->rank >= set->size ||
		  !damage_plan(set->of[d->rank], d->damage, d->step, d->which)))
		ok = check_says(f, "Rank %d's step %u cannot be damaged in this way.", d->rank,
				d->step);
	ok = ok && check_plans(set, f);
	look_close(set);
	c->checked++;
	c->last = *set;
	return ok;
}

static bool check_options(struct cases *c, int root, int nodes, struct finding *f)
{
	bool reduces = promise_reduces(c->algorithm->collective);
	for (int how = 0; how < (c->thorough ? 8 : 1); how++) {
		struct plan_set set = {.algorithm = c->algorithm,
				       .size = c->size,
				       .nodes = nodes,
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
static bool check_roots(struct cases *c, int nodes, struct finding *f)
{
	int roots[3] = {0, c->size - 1, c->size / 2};
	int n = !has_root(c->algorithm->collective) ? 1 : c->size < 3 ? c->size : 3;

	if (c->root >= 0)
		return check_options(c, c->root, nodes, f);
	for (int i = 0; i < n; i++)
		if (!check_options(c, roots[i], nodes, f))
			return false;
	return true;
}

bool check_cases(struct cases *c, struct finding *f)
{
	bool looks_at_nodes = c->algorithm->needs & NEEDS_NODES;

	if (c->nodes)
		return check_roots(c, c->nodes, f);
	if (!looks_at_nodes)
		return check_roots(c, 1, f);
	for (int nodes = 2; nodes <= c->size; nodes++)
		if (c->size % nodes == 0 && !check_roots(c, nodes, f))
			return false;
	return true;
}
