/* Recursive doubling: after round k every rank knows 2^k ranks' data, so ceil(log2 P) rounds do:
 * the fewest rounds, all the bytes in each. For small messages. Thakur, Rabenseifner, Gropp,
 * "Optimization of collective communication operations in MPICH", 2005. Partial sums of 16- and
 * 8-bit floats are rounded once a round. */
#include "collectives/plan/plan.h"

/* Partners exchange all they have and both add: x+y here, y+x there, which are the same bits. Ranks
 * past the largest power of two lend their data to a partner and get the result back. */
void doubling_all_reduce(struct plan *p, struct group g, struct span in, struct span out)
{
	int pow2 = 1;
	while (pow2 * 2 <= g.size)
		pow2 *= 2;
	int extra = g.size - pow2;

	if (g.me >= pow2) {
		plan_send(p, member(g, g.me - pow2), in);
		plan_recv(p, member(g, g.me - pow2), out);
		return;
	}
	if (g.me < extra) {
		plan_recv_reduce(p, member(g, g.me + pow2), out, in);
		in = out;
	}
	for (int bit = 1; bit < pow2; bit *= 2) {
		plan_send(p, member(g, g.me ^ bit), in);
		plan_recv_reduce(p, member(g, g.me ^ bit), out, in);
		in = out;
	}
	plan_finish(p, out);
	if (g.me < extra)
		plan_send(p, member(g, g.me + pow2), out);
}

/* Binomial tree: in round k members below 2^k have the data and send it 2^k further on. */
void doubling_broadcast(struct plan *p, struct group g, struct span in, struct span out)
{
	struct span have = g.me == 0 ? in : out;

	for (int far = 1; far < g.size; far *= 2)
		if (g.me >= far && g.me < 2 * far)
			plan_recv(p, member(g, g.me - far), out);
		else if (g.me < far && g.me + far < g.size)
			plan_send(p, member(g, g.me + far), have);
	if (g.me == 0)
		plan_copy(p, out, in);
}

/* Dissemination: in round k each rank signals the rank 2^k further on. The token is reduced, so
 * that the signal of a round says that all earlier ones have come. Hensgen, Finkel, Manber, 1988.
 */
void doubling_barrier(struct plan *p, struct group g, struct span in, struct span out)
{
	struct span token = plan_scratch(p, in);
	(void)out;

	for (int far = 1; far < g.size; far *= 2) {
		plan_send(p, member(g, g.me + far), token);
		plan_recv_reduce(p, member(g, g.me - far), token, token);
	}
}

/* Ranks past the largest power of two add a round before and one after. */
struct cost doubling_all_reduce_cost(struct topology p)
{
	int down = log2_up(p.ranks + 1) - 1, rounds = down + (1 << down == p.ranks ? 0 : 2);
	struct cost c = cost_flat(p, rounds, rounds, (double)p.ranks / p.nodes);
	c.reduced = rounds;
	return c;
}

struct cost doubling_broadcast_cost(struct topology p)
{
	return cost_uneven(cost_flat(p, log2_up(p.ranks), log2_up(p.ranks), 1), p, 1,
			   log2_up(p.ranks));
}

struct cost doubling_barrier_cost(struct topology p)
{
	return cost_flat(p, log2_up(p.ranks), 0, 1);
}
