/* Circulant graphs: ring's bytes in ceil(log2 P) rounds for any number of ranks, one message a
 * round. In round k each rank talks to the ranks ceil(P/2^(k+1)) away. Träff, "Optimal,
 * non-pipelined reduce-scatter and allreduce algorithms", 2024. Partial sums of 16- and 8-bit
 * floats are rounded once a round. */
#include "collectives/plan/plan.h"

/* Numbered relative to this rank: block i is that of member me + i. */
struct blocks {
	struct span all;
	int first, of;
};

static struct span circulant_some(struct blocks b, int i, int k)
{
	return parts(b.all, b.first + i, k, b.of);
}

/* So many of its blocks, from 0 on, a rank still cares for when round k begins. */
static int circulant_left_of(int size, int k)
{
	return (size + (1 << k) - 1) >> k;
}

/* Each round passes on the sums of the farther half of the blocks to where they are nearer by as
 * much, and adds what comes for the nearer half. sums has room for that half; the last one, my own,
 * goes to mine. */
static void circulant_add_up(struct plan *p, struct group g, struct blocks from, struct blocks sums,
			     struct span mine)
{
	for (int k = 0; k < log2_up(g.size); k++) {
		int far = circulant_left_of(g.size, k + 1), n = circulant_left_of(g.size, k) - far;
		plan_send(p, member(g, g.me + far), circulant_some(from, far, n));
		plan_recv_reduce(p, member(g, g.me - far),
				 far == 1 ? mine : circulant_some(sums, 0, n),
				 circulant_some(from, 0, n));
		if (k == 0 && n < far) /* of an odd number the middle one rests */
			plan_copy(p, circulant_some(sums, n, 1), circulant_some(from, n, 1));
		from = sums;
	}
	plan_finish(p, mine);
}

/* The same rounds backwards: every rank starts with the part of out that carries its number. */
static void circulant_share(struct plan *p, struct group g, struct span out)
{
	struct blocks all = {out, g.me, g.size};
	for (int k = log2_up(g.size) - 1; k >= 0; k--) {
		int far = circulant_left_of(g.size, k + 1), n = circulant_left_of(g.size, k) - far;
		plan_send(p, member(g, g.me - far), circulant_some(all, 0, n));
		plan_recv(p, member(g, g.me + far), circulant_some(all, far, n));
	}
}

/* out has room for the finished block alone, so the sums on their way rest in scratch. */
void circulant_reduce_scatter(struct plan *p, struct group g, struct span in, struct span out)
{
	int half = circulant_left_of(g.size, 1);
	struct blocks all = {in, g.me, g.size}, sums = {out, 0, 1};

	if (g.size > 2)
		sums = (struct blocks){plan_scratch(p, circulant_some(all, 0, half)), 0, half};
	circulant_add_up(p, g, all, sums, out);
}

void circulant_all_gather(struct plan *p, struct group g, struct span in, struct span out)
{
	plan_copy(p, part(out, g.me, g.size), in);
	circulant_share(p, g, out);
}

void circulant_all_reduce(struct plan *p, struct group g, struct span in, struct span out)
{
	struct blocks from = {in, g.me, g.size}, sums = {out, g.me, g.size};

	circulant_add_up(p, g, from, sums, part(out, g.me, g.size));
	circulant_share(p, g, out);
}

/* Rounds that go farther than a node make all its ranks cross at once. */
struct cost circulant_all_reduce_cost(struct topology p)
{
	double f = (double)(p.ranks - 1) / p.ranks;
	struct cost c = cost_flat(p, 2 * log2_up(p.ranks), 2 * f, (double)p.ranks / p.nodes);
	c.reduced = f;
	return c;
}

struct cost circulant_all_gather_cost(struct topology p)
{
	return cost_flat(p, log2_up(p.ranks), p.ranks - 1, (double)p.ranks / p.nodes);
}

struct cost circulant_reduce_scatter_cost(struct topology p)
{
	struct cost c = circulant_all_gather_cost(p);
	c.reduced = p.ranks - 1;
	return c;
}
