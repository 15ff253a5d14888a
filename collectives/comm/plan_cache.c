/* The plans of a communicator, by algorithm, and there by what a plan depends on besides. */
#include "collectives/comm/comm.h"

#include <assert.h>
#include <stdlib.h>

struct cached_plan {
	struct cached_plan *next;
	struct plan *plan;
	int root;
	bool in_place;
	struct plan_options options;
};

int plan_cache_index(const struct algorithm *a)
{
	int index = (int)(a - algorithm_at(0));

	assert(index >= 0 && index < ALGORITHMS);
	return index;
}

tutti_status plan_cache_find(struct tutti_comm *comm, const struct algorithm *a,
			     const struct plan_key *key, const struct plan **plan)
{
	struct cached_plan **list = &comm->plans[plan_cache_index(a)], *c;

	for (c = *list; c; c = c->next)
		if (c->root == key->root && c->in_place == key->in_place &&
		    c->options.staged == key->options.staged &&
		    c->options.scaled == key->options.scaled &&
		    c->options.across == key->options.across &&
		    c->options.direct_kind == key->options.direct_kind &&
		    c->options.whole == key->options.whole) {
			*plan = c->plan;
			return TUTTI_OK;
		}
	c = malloc(sizeof *c);
	struct plan *made = algorithm_plan(a, key);
	if (!c || !made) {
		free(c);
		plan_free(made);
		return fail(TUTTI_ERR_MEMORY, "rank %d: no memory for the plan of %s %s",
			    comm->rank, collective_name(a->collective), a->name);
	}
	*c = (struct cached_plan){*list, made, key->root, key->in_place, key->options};
	*list = c;
	*plan = made;
	return TUTTI_OK;
}

void plan_cache_free(struct tutti_comm *comm)
{
	for (int i = 0; i < ALGORITHMS; i++)
		while (comm->plans[i]) {
			struct cached_plan *c = comm->plans[i];
			comm->plans[i] = c->next;
			plan_free(c->plan);
			free(c);
		}
}
