/* Two rings that turn in opposite directions, each with half of every block: both directions of
 * every link are busy where a link carries less one way than both, and each message is half as
 * long. The same bytes and rounds as one ring, twice the messages. Partial sums of 16- and 8-bit
 * floats are rounded once a hop. */
#include "collectives/plan/plan.h"

struct ring {
	int turn, next, prev;
};

static struct ring ring_of(struct group g, int way)
{
	int turn = way ? -1 : 1;
	return (struct ring){turn, member(g, g.me + turn), member(g, g.me - turn)};
}

/* The half of block i of all that goes this way. */
static struct span half(struct group g, struct span all, int i, int way)
{
	return part(part(all, i, g.size), way, 2);
}

/* As in one ring, what is on its way rests in scratch. */
void rings_reduce_scatter(struct plan *p, struct group g, struct span in, struct span out)
{
	int n = g.size;
	struct span sum[2];

	for (int k = 1; k < n; k++)
		for (int way = 0; way < 2; way++) {
			struct ring r = ring_of(g, way);
			struct span mine = half(g, in, g.me - r.turn * (k + 1), way);
			plan_send(p, r.next, k == 1 ? half(g, in, g.me - r.turn, way) : sum[way]);
			sum[way] = k == n - 1 ? part(out, way, 2) : plan_scratch(p, mine);
			plan_recv_reduce(p, r.prev, sum[way], mine);
		}
	plan_finish(p, out);
}

static void share(struct plan *p, struct group g, struct span out)
{
	for (int k = 0; k < g.size - 1; k++)
		for (int way = 0; way < 2; way++) {
			struct ring r = ring_of(g, way);
			plan_send(p, r.next, half(g, out, g.me - r.turn * k, way));
			plan_recv(p, r.prev, half(g, out, g.me - r.turn * (k + 1), way));
		}
}

void rings_all_gather(struct plan *p, struct group g, struct span in, struct span out)
{
	plan_copy(p, part(out, g.me, g.size), in);
	share(p, g, out);
}

/* Partial sums rest in out. */
void rings_all_reduce(struct plan *p, struct group g, struct span in, struct span out)
{
	int n = g.size;

	for (int k = 1; k < n; k++)
		for (int way = 0; way < 2; way++) {
			struct ring r = ring_of(g, way);
			int i = g.me - r.turn * (k + 1);
			plan_send(p, r.next, half(g, k == 1 ? in : out, i + r.turn, way));
			plan_recv_reduce(p, r.prev, half(g, out, i, way), half(g, in, i, way));
		}
	plan_finish(p, part(out, g.me, n));
	share(p, g, out);
}

/* Between nodes two ranks of each send at once, in directions that do not meet. */
struct cost rings_all_reduce_cost(struct topology p)
{
	double f = (double)(p.ranks - 1) / p.ranks;
	struct cost c = cost_flat(p, 4 * (p.ranks - 1), 2 * f, 1);
	c.reduced = f;
	return c;
}

struct cost rings_all_gather_cost(struct topology p)
{
	return cost_flat(p, 2 * (p.ranks - 1), p.ranks - 1, 1);
}

struct cost rings_reduce_scatter_cost(struct topology p)
{
	struct cost c = rings_all_gather_cost(p);
	c.reduced = p.ranks - 1;
	return c;
}
