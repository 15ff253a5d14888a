/* Pairwise exchange: all_to_all in P-1 paced rounds. In round k each rank sends to the rank k
 * further on and none receives from two at once: direct exchange's bytes and messages without its
 * congestion, for large blocks and many ranks. */
#include "collectives/plan/plan.h"

void pairwise_all_to_all(struct plan *p, struct group g, struct span in, struct span out)
{
	for (int k = 1; k < g.size; k++) {
		plan_pace(p);
		plan_send(p, member(g, g.me + k), part(in, g.me + k, g.size));
		plan_recv(p, member(g, g.me - k), part(out, g.me - k, g.size));
	}
	plan_copy(p, part(out, g.me, g.size), part(in, g.me, g.size));
}

struct cost pairwise_all_to_all_cost(struct topology p)
{
	return cost_flat(p, p.ranks - 1, p.ranks - 1, (double)p.ranks / p.nodes);
}
