/* Trees of powers: the rooted collectives in logarithmically many rounds, for small messages. Down
 * go trees of radix 4, whose root sends three messages a round; sums go up a binary tree whose
 * association is the fixed one, by distance 1, 2, 4 ..., whatever the root; blocks travel with
 * their subtrees', in one message. */
#include "collectives/plan.h"

#define RADIX 4

/* In round k members below 4^k, who have the data, send them to those 1, 2 and 3 times 4^k further
 * on. */
void knomial_broadcast(struct plan *p, struct group g, struct span in, struct span out)
{
	for (int far = 1; far < g.size; far *= RADIX)
		for (int to = far; to < RADIX * far && to < g.size; to += far)
			if (g.me >= to && g.me < to + far)
				plan_recv(p, member(g, g.me - to), out);
			else if (g.me < far && g.me + to < g.size)
				plan_send(p, member(g, g.me + to), g.me == 0 ? in : out);
	if (g.me == 0)
		plan_copy(p, out, in);
}

/* Who holds the sum of the ranks from first on, n of them: the root if it is one, else the first.
 */
static int holder(struct group g, int first, int n)
{
	return g.shift >= first && g.shift < first + n ? g.shift : first;
}

/* Sums of neighbours far apart by 1, then 2, 4 ...: the further one's holder sends its to the
 * nearer one's, or the other way round when that is the root. Partial sums rest in sums. */
static void add_up(struct plan *p, struct group g, struct span in, struct span sums)
{
	int me = modulo(g.me + g.shift, g.size);
	struct span sum = in;

	g.me = me; /* numbered by rank, members are not */
	for (int far = 1; far < g.size; far *= 2) {
		int low = me - me % (2 * far), high = low + far;
		if (high >= g.size)
			continue;
		int a = holder(g, low, far), b = holder(g, high, far);
		int to = holder(g, low, 2 * far), from = to == a ? b : a;
		if (me == from) {
			plan_send(p, member(g, to - g.shift), sum);
			return;
		}
		if (me == to) {
			plan_recv_reduce(p, member(g, from - g.shift), sums, sum);
			sum = sums;
		}
	}
}

void knomial_reduce(struct plan *p, struct group g, struct span in, struct span out)
{
	if (g.size == 1) {
		plan_reduce(p, out, &in, 1); /* NaNs become canonical here too */
		return;
	}
	add_up(p, g, in, g.me == 0 ? out : plan_scratch(p, in));
	if (g.me == 0)
		plan_finish(p, out);
}

/* Every rank has room for sums in out. */
void knomial_all_reduce(struct plan *p, struct group g, struct span in, struct span out)
{
	if (g.size == 1) {
		plan_reduce(p, out, &in, 1);
		return;
	}
	add_up(p, g, in, out);
	if (g.me == 0)
		plan_finish(p, out);
	knomial_broadcast(p, g, out, out);
}

/* ---- blocks ------------------------------------------------------------------------------------
 */

/* How many members the subtree of i has: those that follow it as far as its lowest bit says. */
static int subtree(int i, int size)
{
	int low = i ? i & -i : size;
	return low < size - i ? low : size - i;
}

/* Blocks of the subtree of member i: they are in the order of ranks, members begin with the root.
 */
static struct span blocks(struct group g, struct span all, int i)
{
	return parts(all, g.shift + i, subtree(i, g.size), g.size);
}

/* Collects its subtree's blocks, the nearest first, and passes them on. */
void knomial_gather(struct plan *p, struct group g, struct span in, struct span out)
{
	int n = subtree(g.me, g.size);
	struct span mine = n == 1 ? in : blocks(g, out, g.me);

	if (g.me != 0 && n > 1)
		mine = plan_scratch(p, mine);
	for (int far = 1; far < n; far *= 2) {
		int k = subtree(g.me + far, g.size);
		struct span theirs = g.me ? parts(mine, far, k, n) : blocks(g, out, far);
		plan_recv(p, member(g, g.me + far), theirs);
	}
	plan_copy(p, g.me ? part(mine, 0, n) : part(out, g.shift, g.size), in);
	if (g.me != 0)
		plan_send(p, member(g, g.me - (g.me & -g.me)), mine);
}

/* Gets its subtree's blocks and passes the largest subtrees' on first. */
void knomial_scatter(struct plan *p, struct group g, struct span in, struct span out)
{
	int n = subtree(g.me, g.size), far = 1;
	struct span mine = n == 1 ? out : blocks(g, in, g.me);

	if (g.me != 0 && n > 1)
		mine = plan_scratch(p, mine);
	if (g.me != 0)
		plan_recv(p, member(g, g.me - (g.me & -g.me)), mine);
	while (far < n)
		far *= 2;
	for (far /= 2; far >= 1; far /= 2) {
		int k = subtree(g.me + far, g.size);
		struct span theirs = g.me ? parts(mine, far, k, n) : blocks(g, in, far);
		plan_send(p, member(g, g.me + far), theirs);
	}
	plan_copy(p, out, g.me ? part(mine, 0, n) : part(in, g.shift, g.size));
}

/* ---- costs -------------------------------------------------------------------------------------
 */

static int root_sends(int ranks)
{
	int sends = 0;
	for (int far = 1; far < ranks; far *= RADIX)
		for (int to = far; to < RADIX * far && to < ranks; to += far)
			sends++;
	return sends;
}

struct cost knomial_broadcast_cost(struct place p)
{
	int rounds = (log2_up(p.ranks) + 1) / 2;
	struct cost c = cost_flat(p, rounds, (RADIX - 1) * rounds, 1);
	return cost_uneven(c, p, 1, root_sends(p.ranks));
}

struct cost knomial_reduce_cost(struct place p)
{
	struct cost c = cost_flat(p, log2_up(p.ranks), log2_up(p.ranks), 1);
	c.reduced = log2_up(p.ranks);
	return cost_uneven(c, p, 1, log2_up(p.ranks) / 2.0);
}

struct cost knomial_all_reduce_cost(struct place p)
{
	int up = log2_up(p.ranks), down = (up + 1) / 2;
	struct cost c = cost_flat(p, up + down, up + (RADIX - 1) * down, 1);
	c.reduced = up;
	c = cost_uneven(c, p, 2, root_sends(p.ranks));
	c.busiest.bytes += up / 2.0; /* what the root gets; short messages are quickly read */
	return c;
}

/* The root's link carries every block once. */
struct cost knomial_gather_cost(struct place p)
{
	struct cost c = cost_flat(p, log2_up(p.ranks), p.ranks - 1, 1);
	c = cost_uneven(c, p, 1, log2_up(p.ranks));
	c.mean.bytes = log2_up(p.ranks) / 2.0;
	c.busiest.bytes = p.ranks - 1;
	return c;
}
