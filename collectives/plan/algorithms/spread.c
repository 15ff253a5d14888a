/* Spread: a broadcast of large messages as a scatter of parts down a binomial tree and an
 * all_gather of them over circulant graphs. The root sends the data twice, whatever the number of
 * ranks, in twice the rounds of a tree. Van de Geijn and others, "Global combine on mesh
 * architectures with wormhole routing", 1993. */
#include "collectives/plan/plan.h"

/* Member i starts with as many parts, from part i on, as its lowest bit says, and halves what it
 * has. */
void spread_broadcast(struct plan *p, struct group g, struct span in, struct span out)
{
	int n = g.size, low = g.me ? g.me & -g.me : 1 << log2_up(n);
	struct span have = g.me == 0 ? in : out;

	if (g.me != 0)
		plan_recv(p, member(g, g.me - low),
			  parts(out, g.me, low < n - g.me ? low : n - g.me, n));
	for (int far = low / 2; far > 0; far /= 2) {
		int left = n - g.me - far;
		if (left > 0)
			plan_send(p, member(g, g.me + far),
				  parts(have, g.me + far, far < left ? far : left, n));
	}
	circulant_all_gather(p, g, part(have, g.me, n), out);
}

struct cost spread_broadcast_cost(struct topology p)
{
	double f = (double)(p.ranks - 1) / p.ranks;
	struct cost c = cost_flat(p, log2_up(p.ranks), f, (double)p.ranks / p.nodes);
	enum link l = slowest_link(p);
	c.link[l].rounds += log2_up(p.ranks);
	c.link[l].messages += log2_up(p.ranks);
	c.link[l].bytes += f;
	c.mean.messages = log2_up(p.ranks) + f;
	c.mean.bytes = f + log2_up(p.ranks) / 2.0 / p.ranks;
	c.busiest.messages = 2 * log2_up(p.ranks);
	c.busiest.bytes = 2 * f;
	return c;
}
