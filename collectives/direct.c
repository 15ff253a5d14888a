/* Direct exchange: everybody sends to everybody in one round. Reductions take two latency steps and
 * ring's bytes, and each part is reduced once, by one rank, from all contributions in rank order:
 * one rounding, one fixed association. The deterministic choice, and the quick one for few ranks.
 */
#include "collectives/plan.h"

#include <assert.h>

/* Everybody's contribution to my part arrives in scratch; one n-ary reduction makes mine of it. */
static void collect(struct plan *p, struct group g, struct span in, struct span mine)
{
	struct span source[PLAN_SOURCES_MAX], own = part(in, g.me, g.size);

	assert(g.size <= PLAN_SOURCES_MAX);
	for (int k = 1; k < g.size; k++) {
		int to = g.me + k, from = (g.me - k + g.size) % g.size;
		plan_send(p, member(g, to), part(in, to, g.size));
		source[from] = plan_scratch(p, own);
		plan_recv(p, member(g, from), source[from]);
	}
	source[g.me] = own;
	plan_reduce(p, mine, source, (uint32_t)g.size);
}

/* My part of out goes to everybody. */
static void share(struct plan *p, struct group g, struct span out)
{
	for (int k = 1; k < g.size; k++) {
		plan_send(p, member(g, g.me + k), part(out, g.me, g.size));
		plan_recv(p, member(g, g.me - k), part(out, g.me - k, g.size));
	}
}

void direct_reduce_scatter(struct plan *p, struct group g, struct span in, struct span out)
{
	collect(p, g, in, out);
}

void direct_all_gather(struct plan *p, struct group g, struct span in, struct span out)
{
	plan_copy(p, part(out, g.me, g.size), in);
	share(p, g, out);
}

void direct_all_reduce(struct plan *p, struct group g, struct span in, struct span out)
{
	collect(p, g, in, part(out, g.me, g.size));
	share(p, g, out);
}

void direct_broadcast(struct plan *p, struct group g, struct span in, struct span out)
{
	for (int k = 1; k < g.size; k++)
		if (g.me == 0)
			plan_send(p, member(g, k), in);
	if (g.me == 0)
		plan_copy(p, out, in);
	else
		plan_recv(p, member(g, 0), out);
}
