/* Direct exchange: each rank sends to all others in one round. Reductions take two latency steps
 * and ring's bytes, and each part is reduced once, by one rank, from all contributions in rank
 * order: one rounding, one fixed association. The deterministic choice, and the quick one for few
 * ranks.
 */
#include "collectives/plan/plan.h"

#include <assert.h>

/* All ranks' contributions to my part arrive in scratch; one n-ary reduction makes mine of it. */
static void direct_collect(struct plan *p, struct group g, struct span in, struct span mine)
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

/* My part of out goes to all ranks. */
static void direct_share(struct plan *p, struct group g, struct span out)
{
	for (int k = 1; k < g.size; k++) {
		plan_send(p, member(g, g.me + k), part(out, g.me, g.size));
		plan_recv(p, member(g, g.me - k), part(out, g.me - k, g.size));
	}
}

void direct_reduce_scatter(struct plan *p, struct group g, struct span in, struct span out)
{
	direct_collect(p, g, in, out);
}

void direct_all_gather(struct plan *p, struct group g, struct span in, struct span out)
{
	plan_copy(p, part(out, g.me, g.size), in);
	direct_share(p, g, out);
}

void direct_all_reduce(struct plan *p, struct group g, struct span in, struct span out)
{
	direct_collect(p, g, in, part(out, g.me, g.size));
	direct_share(p, g, out);
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

/* The root reduces all contributions at once: one round, but all bytes through the root's link. */
void direct_reduce(struct plan *p, struct group g, struct span in, struct span out)
{
	struct span source[PLAN_SOURCES_MAX];

	assert(g.size <= PLAN_SOURCES_MAX);
	if (g.me != 0) {
		plan_send(p, member(g, 0), in);
		return;
	}
	for (int k = 1; k < g.size; k++) {
		int rank =
			modulo(g.shift + k, g.size); /* the association is by rank, whatever root */
		source[rank] = plan_scratch(p, in);
		plan_recv(p, member(g, k), source[rank]);
	}
	source[g.shift] = in;
	plan_reduce(p, out, source, (uint32_t)g.size);
}

/* Block of member k: blocks are in the order of ranks, members begin with the root. */
static struct span direct_block(struct group g, struct span all, int k)
{
	return part(all, g.shift + k, g.size);
}

void direct_gather(struct plan *p, struct group g, struct span in, struct span out)
{
	if (g.me != 0) {
		plan_send(p, member(g, 0), in);
		return;
	}
	for (int k = 1; k < g.size; k++)
		plan_recv(p, member(g, k), direct_block(g, out, k));
	plan_copy(p, direct_block(g, out, 0), in);
}

void direct_scatter(struct plan *p, struct group g, struct span in, struct span out)
{
	if (g.me != 0) {
		plan_recv(p, member(g, 0), out);
		return;
	}
	for (int k = 1; k < g.size; k++)
		plan_send(p, member(g, k), direct_block(g, in, k));
	plan_copy(p, out, direct_block(g, in, 0));
}

void direct_all_to_all(struct plan *p, struct group g, struct span in, struct span out)
{
	for (int k = 1; k < g.size; k++) {
		plan_send(p, member(g, g.me + k), part(in, g.me + k, g.size));
		plan_recv(p, member(g, g.me - k), part(out, g.me - k, g.size));
	}
	plan_copy(p, part(out, g.me, g.size), part(in, g.me, g.size));
}

/* Everything goes at once: few rounds, but many messages. */
static struct cost direct_at_once(struct topology p, double phases, double bytes, double crossing)
{
	struct cost c = cost_flat(p, phases, bytes, crossing);
	c.link[slowest_link(p)].messages = phases * (p.ranks - 1);
	return c;
}

/* A sum of all contributions reads each once and writes once; a sum of two, which is what cost
 * counts in, reads two and writes one. */
static double direct_sum_of_all(struct topology p)
{
	return p.ranks > 1 ? (p.ranks + 1) / 3.0 : 0;
}

struct cost direct_all_reduce_cost(struct topology p)
{
	double f = (double)(p.ranks - 1) / p.ranks;
	struct cost c = direct_at_once(p, 2, 2 * f, (double)p.ranks / p.nodes);
	c.reduced = direct_sum_of_all(p) / p.ranks;
	return c;
}

/* all_gather and all_to_all, by bytes of a block. */
struct cost direct_all_gather_cost(struct topology p)
{
	return direct_at_once(p, 1, p.ranks - 1, (double)p.ranks / p.nodes);
}

struct cost direct_all_to_all_cost(struct topology p)
{
	return direct_all_gather_cost(p);
}

struct cost direct_reduce_scatter_cost(struct topology p)
{
	struct cost c = direct_all_gather_cost(p);
	c.reduced = direct_sum_of_all(p);
	return c;
}

struct cost direct_broadcast_cost(struct topology p)
{
	return cost_uneven(direct_at_once(p, 1, p.ranks - 1, 1), p, 1, p.ranks - 1);
}

struct cost direct_reduce_cost(struct topology p)
{
	struct cost c = direct_at_once(p, 1, p.ranks - 1, 1);
	c.reduced = direct_sum_of_all(p);
	c = cost_uneven(c, p, 1, (p.ranks - 1) / 2.0);
	c.mean.reduced = c.reduced / p.ranks;
	return c;
}

struct cost direct_gather_cost(struct topology p)
{
	return cost_uneven(direct_at_once(p, 1, p.ranks - 1, 1), p, 1, (p.ranks - 1) / 2.0);
}

struct cost direct_scatter_cost(struct topology p)
{
	return direct_broadcast_cost(p);
}
