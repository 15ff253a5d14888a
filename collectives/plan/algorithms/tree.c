/* Double binary tree: each half of the data goes through a tree of its own, and a rank that is an
 * inner node of one is a leaf of the other, so that every link is used both ways and no rank sends
 * more than twice the data. Member 0 stands above both. Slices stream through: logarithmic depth at
 * full bandwidth. Sanders, Speck, Träff, "Two-tree algorithms for full bandwidth broadcast,
 * reduction and scan", 2009. Partial sums of 16- and 8-bit floats are rounded at every node. */
#include "collectives/plan/plan.h"

/* Of one of the two trees: members, or -1. */
struct node {
	int parent, child[2];
};

/* Places 1 to n are in order (left subtree, node, right subtree): odd ones are leaves, even ones
 * have children as far away as half their lowest bit. On the right there may be fewer places than
 * that. */
static int tree_right_of(int x, int n)
{
	for (int far = (x & -x) / 2; far > 0; far /= 2)
		if (x + far <= n)
			return x + far;
	return 0;
}

static int tree_left_of(int x)
{
	return x % 2 ? 0 : x - (x & -x) / 2;
}

static int tree_top_of(int n)
{
	int top = 1;
	while (2 * top <= n)
		top *= 2;
	return top;
}

/* The other tree's places are the members mirrored when n is even, else moved on by one: either way
 * odd and even change sides, but for one leaf that is a leaf in both. */
static int tree_place(int tree, int i, int n)
{
	return tree == 0 ? i : n % 2 ? i % n + 1 : n + 1 - i;
}

static int tree_member_at(int tree, int x, int n)
{
	if (x == 0)
		return -1;
	return tree == 0 ? x : n % 2 ? (x + n - 2) % n + 1 : n + 1 - x;
}

static struct node tree_find(int tree, int i, int size)
{
	int n = size - 1, at = tree_top_of(n), above = 0, x = tree_place(tree, i, n);

	if (i == 0)
		return (struct node){-1, {tree_member_at(tree, at, n), -1}};
	while (at != x) {
		above = at;
		at = x < at ? tree_left_of(at) : tree_right_of(at, n);
	}
	return (struct node){above ? tree_member_at(tree, above, n) : 0,
			     {tree_member_at(tree, tree_left_of(x), n),
			      tree_member_at(tree, tree_right_of(x, n), n)}};
}

/* A node adds what its children send to its own data and passes the sum on; sums has room. */
static void tree_add_up(struct plan *p, struct group g, int tree, struct span in, struct span sums)
{
	struct node at = tree_find(tree, g.me, g.size);
	struct span sum = in;

	for (int c = 0; c < 2; c++)
		if (at.child[c] >= 0) {
			plan_recv_reduce(p, member(g, at.child[c]), sums, sum);
			sum = sums;
		}
	if (at.parent >= 0)
		plan_send(p, member(g, at.parent), sum);
	else
		plan_finish(p, sums);
}

static void tree_pass_down(struct plan *p, struct group g, int tree, struct span in,
			   struct span out)
{
	struct node at = tree_find(tree, g.me, g.size);

	if (at.parent >= 0)
		plan_recv(p, member(g, at.parent), out);
	for (int c = 0; c < 2; c++)
		if (at.child[c] >= 0)
			plan_send(p, member(g, at.child[c]), at.parent >= 0 ? out : in);
}

void tree_all_reduce(struct plan *p, struct group g, struct span in, struct span out)
{
	for (int tree = 0; tree < 2; tree++)
		tree_add_up(p, g, tree, part(in, tree, 2), part(out, tree, 2));
	for (int tree = 0; tree < 2; tree++)
		tree_pass_down(p, g, tree, part(out, tree, 2), part(out, tree, 2));
}

/* Only the root has an out; inner nodes add up in scratch. */
void tree_reduce(struct plan *p, struct group g, struct span in, struct span out)
{
	for (int tree = 0; tree < 2; tree++) {
		struct span own = part(in, tree, 2);
		bool is_leaf = tree_find(tree, g.me, g.size).child[0] < 0;
		tree_add_up(p, g, tree, own,
			    g.me == 0 ? part(out, tree, 2)
			    : is_leaf ? own
				      : plan_scratch(p, own));
	}
}

void tree_broadcast(struct plan *p, struct group g, struct span in, struct span out)
{
	for (int tree = 0; tree < 2; tree++)
		tree_pass_down(p, g, tree, part(in, tree, 2), part(out, tree, 2));
	if (g.me == 0)
		plan_copy(p, out, in);
}

/* Going through depth nodes, slices at half the bandwidth: each one's link carries two halves. A
 * node has two messages in every round. */
struct cost tree_broadcast_cost(struct topology p)
{
	struct cost c = cost_flat(p, log2_up(p.ranks), 1, 1);
	enum link l = slowest_link(p);
	c.link[l].messages = 2 * log2_up(p.ranks);
	c.link[l].depth = 2 * (log2_up(p.ranks) - 1);
	c = cost_uneven(c, p, 2, 2);
	c.mean.bytes /= 2;
	c.busiest.bytes /= 2;
	return c;
}

struct cost tree_reduce_cost(struct topology p)
{
	struct cost c = tree_broadcast_cost(p);
	c.reduced = 1;
	c.mean.reduced = c.mean.bytes;
	c.busiest.reduced = 1;
	return c;
}

struct cost tree_all_reduce_cost(struct topology p)
{
	struct cost c = tree_reduce_cost(p);
	c.is_one_way = false;
	for (int l = 0; l < LINKS; l++) {
		c.link[l].rounds *= 2;
		c.link[l].messages *= 2;
		c.link[l].bytes *= 2;
		c.link[l].depth *= 2;
	}
	c.mean.messages *= 2;
	c.mean.bytes *= 2;
	c.busiest.messages *= 2;
	c.busiest.bytes *= 2;
	return c;
}
