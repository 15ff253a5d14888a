/* Star: an all_reduce of few bytes where ranks share cores. All send to the first, which adds
 * everything at once and sends the sum to all. As few messages as any tree has, and no rank waits
 * for one that waits itself: where a wait is a switch of threads, that is what takes the time.
 * Every sum is rounded once, in the order of ranks. */
#include "collectives/plan/plan.h"

void star_all_reduce(struct plan *p, struct group g, struct span in, struct span out)
{
	direct_reduce(p, g, in, out);
	direct_broadcast(p, g, out, out);
}

struct cost star_all_reduce_cost(struct topology p)
{
	double others = p.ranks - 1;
	struct cost c = cost_flat(p, 2, 2 * others, 1);

	c.link[slowest_link(p)].messages = 2 * others;
	c.reduced = others;
	c = cost_uneven(c, p, 2, others);
	c.is_one_way = false;
	c.busiest.bytes += others / 2; /* what the root gets; short messages are quickly read */
	return c;
}
