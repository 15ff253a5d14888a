/* Rings: every rank talks to its two neighbours only. Each part of the data travels the ring, so a
 * rank sends (P-1)/P of the bytes a phase in P-1 rounds: the least traffic, the most rounds.
 * Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations", 2009.
 * Partial sums of 16- and 8-bit floats are rounded once a hop.
 *
 * Two rings turn in opposite directions, each with half of every block: both directions of every
 * link are busy where a link carries less one way than both, and each message is half as long. The
 * same bytes and rounds as one ring, twice the messages. */
#include "collectives/plan/plan.h"

struct ring {
	int turn, next, prev;
};

static struct ring algorithms_ring_of(struct group g, int way)
{
	int turn = way ? -1 : 1;
	return (struct ring){turn, member(g, g.me + turn), member(g, g.me - turn)};
}

/* Of block i of all, what goes this one of so many ways. */
static struct span ring_share_of(struct group g, struct span all, int i, int way, int ways)
{
	return part(part(all, i, g.size), way, ways);
}

/* Part i of in goes round, collecting every rank's contribution, and ends as out, with rank i. What
 * is on its way rests in scratch: out has room for the finished part alone. */
static void reduce_scatter(struct plan *p, struct group g, struct span in, struct span out,
			   int ways)
{
	int n = g.size;
	struct span sum[2];

	for (int k = 1; k < n; k++)
		for (int way = 0; way < ways; way++) {
			struct ring r = algorithms_ring_of(g, way);
			struct span mine = ring_share_of(g, in, g.me - r.turn * (k + 1), way, ways);
			plan_send(p, r.next,
				  k == 1 ? ring_share_of(g, in, g.me - r.turn, way, ways)
					 : sum[way]);
			sum[way] = k == n - 1 ? part(out, way, ways) : plan_scratch(p, mine);
			plan_recv_reduce(p, r.prev, sum[way], mine);
		}
	plan_finish(p, out);
}

/* Every rank starts with the part of out that carries its number and ends with all of them. */
static void ring_share(struct plan *p, struct group g, struct span out, int ways)
{
	for (int k = 0; k < g.size - 1; k++)
		for (int way = 0; way < ways; way++) {
			struct ring r = algorithms_ring_of(g, way);
			plan_send(p, r.next, ring_share_of(g, out, g.me - r.turn * k, way, ways));
			plan_recv(p, r.prev,
				  ring_share_of(g, out, g.me - r.turn * (k + 1), way, ways));
		}
}

static void all_gather(struct plan *p, struct group g, struct span in, struct span out, int ways)
{
	plan_copy(p, part(out, g.me, g.size), in);
	ring_share(p, g, out, ways);
}

/* A reduce_scatter whose partial sums rest in out, then an all_gather. */
static void all_reduce(struct plan *p, struct group g, struct span in, struct span out, int ways)
{
	for (int k = 1; k < g.size; k++)
		for (int way = 0; way < ways; way++) {
			struct ring r = algorithms_ring_of(g, way);
			int i = g.me - r.turn * (k + 1);
			plan_send(p, r.next,
				  ring_share_of(g, k == 1 ? in : out, i + r.turn, way, ways));
			plan_recv_reduce(p, r.prev, ring_share_of(g, out, i, way, ways),
					 ring_share_of(g, in, i, way, ways));
		}
	plan_finish(p, part(out, g.me, g.size));
	ring_share(p, g, out, ways);
}

void ring_reduce_scatter(struct plan *p, struct group g, struct span in, struct span out)
{
	reduce_scatter(p, g, in, out, 1);
}

void rings_reduce_scatter(struct plan *p, struct group g, struct span in, struct span out)
{
	reduce_scatter(p, g, in, out, 2);
}

void ring_all_gather(struct plan *p, struct group g, struct span in, struct span out)
{
	all_gather(p, g, in, out, 1);
}

void rings_all_gather(struct plan *p, struct group g, struct span in, struct span out)
{
	all_gather(p, g, in, out, 2);
}

void ring_all_reduce(struct plan *p, struct group g, struct span in, struct span out)
{
	all_reduce(p, g, in, out, 1);
}

void rings_all_reduce(struct plan *p, struct group g, struct span in, struct span out)
{
	all_reduce(p, g, in, out, 2);
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

/* all_gather, by bytes of a block. Between nodes two ranks of each send at once, in directions that
 * do not meet. */
struct cost ring_all_gather_cost(struct topology p)
{
	return cost_flat(p, p.ranks - 1, p.ranks - 1, 1);
}

struct cost rings_all_gather_cost(struct topology p)
{
	return cost_flat(p, 2 * (p.ranks - 1), p.ranks - 1, 1);
}

static struct cost ring_with_sums(struct cost c, double reduced)
{
	c.reduced = reduced;
	return c;
}

struct cost ring_reduce_scatter_cost(struct topology p)
{
	return ring_with_sums(ring_all_gather_cost(p), p.ranks - 1);
}

struct cost rings_reduce_scatter_cost(struct topology p)
{
	return ring_with_sums(rings_all_gather_cost(p), p.ranks - 1);
}

struct cost ring_all_reduce_cost(struct topology p)
{
	double f = (double)(p.ranks - 1) / p.ranks;
	return ring_with_sums(cost_flat(p, 2 * (p.ranks - 1), 2 * f, 1), f);
}

struct cost rings_all_reduce_cost(struct topology p)
{
	double f = (double)(p.ranks - 1) / p.ranks;
	return ring_with_sums(cost_flat(p, 4 * (p.ranks - 1), 2 * f, 1), f);
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
