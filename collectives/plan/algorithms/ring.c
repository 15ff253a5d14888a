/* Ring: every rank talks to its two neighbours only. Each part of the data travels the ring, so a
 * rank sends (P-1)/P of the bytes a phase in P-1 rounds: the least traffic, the most rounds.
 * Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations", 2009.
 * Partial sums of 16- and 8-bit floats are rounded once a hop. */
#include "collectives/plan/plan.h"

/* Part i of in goes round, collecting every rank's contribution, and ends as out, with rank i. What
 * is on its way rests in scratch: out has room for the finished part alone. */
void ring_reduce_scatter(struct plan *p, struct group g, struct span in, struct span out)
{
	int n = g.size, next = member(g, g.me + 1), prev = member(g, g.me - 1);
	struct span sum = part(in, g.me - 1, n);

	for (int k = 1; k < n; k++) {
		struct span mine = part(in, g.me - k - 1, n);
		plan_send(p, next, sum);
		sum = k == n - 1 ? out : plan_scratch(p, mine);
		plan_recv_reduce(p, prev, sum, mine);
	}
	plan_finish(p, out);
}

/* Every rank starts with the part of out that carries its number and ends with all of them. */
static void share(struct plan *p, struct group g, struct span out)
{
	int n = g.size, next = member(g, g.me + 1), prev = member(g, g.me - 1);

	for (int k = 0; k < n - 1; k++) {
		plan_send(p, next, part(out, g.me - k, n));
		plan_recv(p, prev, part(out, g.me - k - 1, n));
	}
}

void ring_all_gather(struct plan *p, struct group g, struct span in, struct span out)
{
	plan_copy(p, part(out, g.me, g.size), in);
	share(p, g, out);
}

/* A reduce_scatter whose partial sums rest in out, then an all_gather. */
void ring_all_reduce(struct plan *p, struct group g, struct span in, struct span out)
{
	int n = g.size, next = member(g, g.me + 1), prev = member(g, g.me - 1);

	for (int k = 1; k < n; k++) {
		struct span mine = part(in, g.me - k - 1, n);
		plan_send(p, next, part(k == 1 ? in : out, g.me - k, n));
		plan_recv_reduce(p, prev, part(out, g.me - k - 1, n), mine);
	}
	plan_finish(p, part(out, g.me, n));
	share(p, g, out);
}

/* A chain from member 0: slices stream through it, so that the cost is that of one link. */
void ring_broadcast(struct plan *p, struct group g, struct span in, struct span out)
{
	if (g.me == 0)
		plan_copy(p, out, in);
	else
		plan_recv(p, member(g, g.me - 1), out);
	if (g.me < g.size - 1)
		plan_send(p, member(g, g.me + 1), g.me == 0 ? in : out);
}

/* The other way round: sums stream towards member 0. */
void ring_reduce(struct plan *p, struct group g, struct span in, struct span out)
{
	if (g.me < g.size - 1) {
		struct span sum = g.me == 0 ? out : plan_scratch(p, in);
		plan_recv_reduce(p, member(g, g.me + 1), sum, in);
		in = sum;
	}
	if (g.me > 0)
		plan_send(p, member(g, g.me - 1), in);
	else
		plan_finish(p, out);
}

struct cost ring_all_reduce_cost(struct topology p)
{
	struct cost c = cost_flat(p, 2 * (p.ranks - 1), 2.0 * (p.ranks - 1) / p.ranks, 1);
	c.reduced = (double)(p.ranks - 1) / p.ranks;
	return c;
}

/* all_gather, by bytes of a block. */
struct cost ring_all_gather_cost(struct topology p)
{
	return cost_flat(p, p.ranks - 1, p.ranks - 1, 1);
}

struct cost ring_reduce_scatter_cost(struct topology p)
{
	struct cost c = ring_all_gather_cost(p);
	c.reduced = p.ranks - 1;
	return c;
}

struct cost ring_broadcast_cost(struct topology p)
{
	struct cost c = cost_flat(p, p.ranks - 1, 1, 1);
	c.link[slowest_link(p)].depth = p.ranks - 2;
	return cost_uneven(c, p, 1, 1);
}

struct cost ring_reduce_cost(struct topology p)
{
	struct cost c = ring_broadcast_cost(p);
	c.reduced = 1;
	c.mean.reduced = c.mean.bytes;
	c.busiest.reduced = 1;
	return c;
}
