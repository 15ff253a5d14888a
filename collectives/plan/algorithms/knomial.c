/* Trees of powers: the rooted collectives, and others by way of a root, in logarithmically many
 * rounds, for small messages. Down go trees of radix 4, whose root sends three messages a round;
 * sums go up a binary tree whose association is the fixed one, by distance 1, 2, 4 ..., whatever
 * the root; blocks travel with their subtrees', in one message. */
#include "collectives/plan/plan.h"

#define RADIX 4

/* In round k members below 4^k have the data and send them to those 1, 2 and 3 times 4^k further
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

/* The rank that holds the sum of the ranks from first on, n of them: the root if it is one, else
 * the first.
 */
static int knomial_holder(struct group g, int first, int n)
{
	return g.shift >= first && g.shift < first + n ? g.shift : first;
}

/* Sums of neighbours far apart by 1, then 2, 4 ...: the further one's holder sends its to the
 * nearer one's, or the other way round when that is the root. Partial sums rest in sums. */
static void knomial_add_up(struct plan *p, struct group g, struct span in, struct span sums)
{
	int me = modulo(g.me + g.shift, g.size);
	struct span sum = in;

	g.me = me; /* numbered by rank, members are not */
	for (int far = 1; far < g.size; far *= 2) {
		int low = me - me % (2 * far), high = low + far;
		if (high >= g.size)
			continue;
		int a = knomial_holder(g, low, far), b = knomial_holder(g, high, far);
		int to = knomial_holder(g, low, 2 * far), from = to == a ? b : a;
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
	knomial_add_up(p, g, in, g.me == 0 ? out : plan_scratch(p, in));
	if (g.me == 0)
		plan_finish(p, out);
}

/* Every rank has room for sums in out. */
void knomial_all_reduce(struct plan *p, struct group g, struct span in, struct span out)
{
	knomial_add_up(p, g, in, out);
	if (g.me == 0)
		plan_finish(p, out);
	knomial_broadcast(p, g, out, out);
}

/* The token's way up says that all have come, its way down that this is known. */
void knomial_barrier(struct plan *p, struct group g, struct span in, struct span out)
{
	struct span token = plan_scratch(p, in);
	(void)out;

	knomial_add_up(p, g, token, token);
	knomial_broadcast(p, g, token, token);
}

/* How many members the subtree of i has: those that follow it as far as its lowest bit says. */
static int knomial_subtree(int i, int size)
{
	int low = i ? i & -i : size;
	return low < size - i ? low : size - i;
}

/* Blocks of the subtree of member i: in the order of ranks, while members begin with the root. */
static struct span knomial_blocks(struct group g, struct span all, int i)
{
	return parts(all, g.shift + i, knomial_subtree(i, g.size), g.size);
}

/* Collects its subtree's blocks, the nearest first, and passes them on. */
void knomial_gather(struct plan *p, struct group g, struct span in, struct span out)
{
	int n = knomial_subtree(g.me, g.size);
	struct span mine = n == 1 ? in : knomial_blocks(g, out, g.me);

	if (g.me != 0 && n > 1)
		mine = plan_scratch(p, mine);
	for (int far = 1; far < n; far *= 2) {
		int k = knomial_subtree(g.me + far, g.size);
		struct span theirs = g.me ? parts(mine, far, k, n) : knomial_blocks(g, out, far);
		plan_recv(p, member(g, g.me + far), theirs);
	}
	plan_copy(p, g.me ? part(mine, 0, n) : part(out, g.shift, g.size), in);
	if (g.me != 0)
		plan_send(p, member(g, g.me - (g.me & -g.me)), mine);
}

/* Gets its subtree's blocks and passes the largest subtrees' on first. */
void knomial_scatter(struct plan *p, struct group g, struct span in, struct span out)
{
	int n = knomial_subtree(g.me, g.size), far = 1;
	struct span mine = n == 1 ? out : knomial_blocks(g, in, g.me);

	if (g.me != 0 && n > 1)
		mine = plan_scratch(p, mine);
	if (g.me != 0)
		plan_recv(p, member(g, g.me - (g.me & -g.me)), mine);
	while (far < n)
		far *= 2;
	for (far /= 2; far >= 1; far /= 2) {
		int k = knomial_subtree(g.me + far, g.size);
		struct span theirs = g.me ? parts(mine, far, k, n) : knomial_blocks(g, in, far);
		plan_send(p, member(g, g.me + far), theirs);
	}
	plan_copy(p, out, g.me ? part(mine, 0, n) : part(in, g.shift, g.size));
}

/* All blocks to member 0 and from there to all ranks: fewer messages than by exchanges, in more
 * rounds. */
void knomial_all_gather(struct plan *p, struct group g, struct span in, struct span out)
{
	int n = knomial_subtree(g.me, g.size);

	plan_copy(p, part(out, g.me, g.size), in);
	for (int far = 1; far < n; far *= 2)
		plan_recv(p, member(g, g.me + far), knomial_blocks(g, out, g.me + far));
	if (g.me != 0)
		plan_send(p, member(g, g.me - (g.me & -g.me)), knomial_blocks(g, out, g.me));
	knomial_broadcast(p, g, out, out);
}

/* The sums of all blocks to member 0, which deals them out. Finished blocks come where the sums
 * rested, so that they wait for those to be sent: out may lie within in. */
void knomial_reduce_scatter(struct plan *p, struct group g, struct span in, struct span out)
{
	int n = knomial_subtree(g.me, g.size), far = 1;

	struct span sums = plan_scratch(p, in);
	if (n == 1)
		plan_copy(p, sums, in);
	knomial_add_up(p, g, n == 1 ? sums : in, sums);
	if (g.me == 0)
		plan_finish(p, sums);
	else
		plan_recv(p, member(g, g.me - (g.me & -g.me)), knomial_blocks(g, sums, g.me));
	while (far < n)
		far *= 2;
	for (far /= 2; far >= 1; far /= 2)
		plan_send(p, member(g, g.me + far), knomial_blocks(g, sums, g.me + far));
	plan_copy(p, out, part(sums, g.me, g.size));
}

/* All blocks come to member 0, rows of one origin each, and columns go from there to where they are
 * for. */
void knomial_all_to_all(struct plan *p, struct group g, struct span in, struct span out)
{
	int n = g.size, k = knomial_subtree(g.me, n), far = 1,
	    parent = member(g, g.me - (g.me & -g.me));
	struct span rows = in, columns = out;

	if (k > 1) {
		rows = plan_scratch(p, in);
		for (int i = 1; i < k; i++)
			plan_scratch(p, in); /* lies behind it */
		rows.count *= (uint32_t)k;
		plan_copy(p, parts(rows, 0, n, k * n), in);
		for (; far < k; far *= 2) {
			int theirs = knomial_subtree(g.me + far, n);
			plan_recv(p, member(g, g.me + far),
				  parts(rows, far * n, theirs * n, k * n));
		}
		columns = g.me ? span(BUF_TMP, plan_scratch(p, rows).first, rows.count) : rows;
	}
	if (g.me != 0) {
		plan_send(p, parent, rows);
		plan_recv(p, parent, columns);
	}
	for (far /= 2; far >= 1; far /= 2)
		plan_send(p, member(g, g.me + far),
			  runs(part(columns, far, n * k), n * knomial_subtree(g.me + far, n),
			       knomial_subtree(g.me + far, n), k));
	if (g.me == 0 || k > 1)
		plan_copy(p, out, runs(columns, n, 1, k));
}

/* In a broadcast. */
static int knomial_root_sends(int ranks)
{
	int sends = 0;
	for (int far = 1; far < ranks; far *= RADIX)
		for (int to = far; to < RADIX * far && to < ranks; to += far)
			sends++;
	return sends;
}

struct cost knomial_broadcast_cost(struct topology p)
{
	int rounds = (log2_up(p.ranks) + 1) / 2;
	struct cost c = cost_flat(p, rounds, (RADIX - 1) * rounds, 1);
	return cost_uneven(c, p, 1, knomial_root_sends(p.ranks));
}

struct cost knomial_reduce_cost(struct topology p)
{
	struct cost c = cost_flat(p, log2_up(p.ranks), log2_up(p.ranks), 1);
	c.reduced = log2_up(p.ranks);
	return cost_uneven(c, p, 1, log2_up(p.ranks) / 2.0);
}

struct cost knomial_all_reduce_cost(struct topology p)
{
	int up = log2_up(p.ranks), down = (up + 1) / 2;
	struct cost c = cost_flat(p, up + down, up + (RADIX - 1) * down, 1);
	c.reduced = up;
	c = cost_uneven(c, p, 2, knomial_root_sends(p.ranks));
	c.is_one_way = false;
	c.busiest.bytes += up / 2.0; /* what the root gets; short messages are quickly read */
	return c;
}

/* The root's link carries every block once. */
struct cost knomial_gather_cost(struct topology p)
{
	struct cost c = cost_flat(p, log2_up(p.ranks), p.ranks - 1, 1);
	c = cost_uneven(c, p, 1, log2_up(p.ranks));
	c.mean.bytes = log2_up(p.ranks) / 2.0;
	c.busiest.bytes = p.ranks - 1;
	return c;
}

struct cost knomial_scatter_cost(struct topology p)
{
	return knomial_gather_cost(p);
}

/* Messages up and down, without bytes. */
struct cost knomial_barrier_cost(struct topology p)
{
	int up = log2_up(p.ranks), down = (up + 1) / 2;
	struct cost c = cost_flat(p, up + down, 0, 1);

	c.link[slowest_link(p)].messages = up + (RADIX - 1) * down;
	c = cost_uneven(c, p, 2, knomial_root_sends(p.ranks));
	c.is_one_way = false;
	return c;
}

/* Up come blocks, down go all of them with every message. */
struct cost knomial_all_gather_cost(struct topology p)
{
	int up = log2_up(p.ranks), down = (up + 1) / 2, n = p.ranks;
	struct cost c = knomial_barrier_cost(p);

	c.link[slowest_link(p)].bytes = n - 1 + (RADIX - 1) * down * n;
	c.mean.bytes = up / 2.0 + n - 1;
	c.busiest.bytes = (n - 1) / 2.0 + knomial_root_sends(n) * n;
	return c;
}

/* The other way round, and by a tree of radix 2. */
struct cost knomial_reduce_scatter_cost(struct topology p)
{
	int up = log2_up(p.ranks), n = p.ranks;
	struct cost c = cost_flat(p, 2 * up, up * n + n - 1, 1);

	c.reduced = up * n;
	c = cost_uneven(c, p, 2, up);
	c.is_one_way = false;
	c.mean.bytes = n - 1 + up / 2.0;
	c.mean.reduced = n - 1;
	c.busiest.bytes = up / 2.0 * n + n - 1;
	return c;
}

/* Every block goes up and down half of the rounds. */
struct cost knomial_all_to_all_cost(struct topology p)
{
	int up = log2_up(p.ranks), n = p.ranks;
	struct cost c = cost_flat(p, 2 * up, 2.0 * n * (n - 1), 1);

	c.reduced = 2 * n;
	c = cost_uneven(c, p, 2, up);
	c.is_one_way = false;
	c.mean.bytes = n * up;
	c.mean.reduced = 2 * n;
	c.busiest.bytes = 1.5 * n * (n - 1);
	return c;
}
