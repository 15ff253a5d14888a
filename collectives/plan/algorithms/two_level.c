/* Two levels, several lanes: what crosses between nodes is reduced, or not yet copied, within a
 * node, and each rank of a node carries its own share across, so that all of a node's sockets and
 * cores work at once and no byte crosses twice. Ranks with the same place in their nodes are a
 * lane. Across, few nodes exchange directly and many go by rings. Partial sums of 16- and 8-bit
 * floats are rounded once at each level. */
#include "collectives/plan/plan.h"

/* More nodes than this exchange in rings: 2 (nodes - 1) rounds cost less than as many messages at
 * once. */
#define FEW_NODES 16

/* Blocks of the ranks that have place k in their nodes. */
static struct span two_level_lane_of(const struct nodes *n, struct span blocks, int k)
{
	struct span lane = blocks;
	lane.first += (lane.from + (uint32_t)(k * n->local_step)) * lane.stride;
	lane.from = 0;
	lane.count = (uint32_t)n->count;
	lane.stride *= (uint32_t)n->node_step;
	return lane;
}

/* reduce_scatter in the node, all_reduce of each share across, all_gather in the node. */
void two_level_all_reduce(struct plan *p, struct group g, struct span in, struct span out)
{
	struct group node = group_in_node(g.nodes, g.me), lane = group_across(g.nodes, g.me);
	struct span share = part(out, node.me, node.size);

	if (!p->options.across) {
		plan_partial(p, true);
		direct_reduce_scatter(p, node, in, share);
		plan_partial(p, false);
	}
	(lane.size <= FEW_NODES ? direct_all_reduce : ring_all_reduce)(p, lane, share, share);
	if (!p->options.across)
		direct_all_gather(p, node, share, out);
}

/* Ranks of a node add up, for each lane, what its ranks on all nodes will get. */
static struct span two_level_add_up_lane(struct plan *p, const struct nodes *n, struct group node,
					 struct span in)
{
	struct span source[PLAN_SOURCES_MAX], own = two_level_lane_of(n, in, node.me);
	struct span sum = plan_scratch(p, own);

	for (int k = 1; k < node.size; k++) {
		int to = (node.me + k) % node.size, from = modulo(node.me - k, node.size);
		plan_send(p, member(node, to), two_level_lane_of(n, in, to));
		source[from] = plan_scratch(p, own);
		plan_recv(p, member(node, from), source[from]);
	}
	source[node.me] = own;
	plan_partial(p, true);
	plan_reduce(p, sum, source, (uint32_t)node.size);
	plan_partial(p, false);
	return sum;
}

void two_level_reduce_scatter(struct plan *p, struct group g, struct span in, struct span out)
{
	struct group node = group_in_node(g.nodes, g.me), lane = group_across(g.nodes, g.me);
	struct span sum = p->options.across
				  ? plan_filled(p, two_level_lane_of(g.nodes, in, node.me))
				  : two_level_add_up_lane(p, g.nodes, node, in);

	(lane.size <= FEW_NODES ? direct_reduce_scatter : ring_reduce_scatter)(p, lane, sum, out);
}

/* Each rank fetches the blocks of its lane from the other nodes; then the ranks of a node swap
 * lanes. */
void two_level_all_gather(struct plan *p, struct group g, struct span in, struct span out)
{
	struct group node = group_in_node(g.nodes, g.me), lane = group_across(g.nodes, g.me);
	struct span own = two_level_lane_of(g.nodes, out, node.me);

	(lane.size <= FEW_NODES ? direct_all_gather : ring_all_gather)(p, lane, in, own);
	for (int k = 1; k < node.size && !p->options.across; k++) {
		plan_send(p, member(node, node.me + k), own);
		plan_recv(p, member(node, node.me - k),
			  two_level_lane_of(g.nodes, out, modulo(node.me - k, node.size)));
	}
}

/* The root gives each rank of its node a share, the lanes carry the shares to all nodes, and every
 * node puts them together. */
void two_level_broadcast(struct plan *p, struct group g, struct span in, struct span out)
{
	const struct nodes *n = g.nodes;
	int me = member(g, g.me), root = g.shift;
	struct group node = group_in_node(n, me), lane = group_across(n, me);
	struct span share = part(me == root ? in : out, node.me, node.size);

	lane.shift = node_of(n, root);
	lane.me = modulo(lane.me - lane.shift, lane.size);
	if (me == root)
		for (int k = 1; k < node.size; k++)
			plan_send(p, member(node, node.me + k), part(in, node.me + k, node.size));
	else if (node_of(n, me) == node_of(n, root))
		plan_recv(p, root, share);
	doubling_broadcast(p, lane, share, share);
	for (int k = 1; k < node.size; k++) {
		int to = member(node, node.me + k), from = member(node, node.me - k);
		if (to != root)
			plan_send(p, to, share);
		if (me != root)
			plan_recv(p, from, part(out, node.me - k, node.size));
	}
	if (me == root)
		plan_copy(p, out, in);
}

struct cost two_level_all_reduce_cost(struct topology p)
{
	double local = (double)p.ranks / p.nodes, f = (local - 1) / local, g = 1.0 - 1.0 / p.nodes;
	struct cost c = {0};
	c.link[LINK_LOCAL].rounds = 2;
	c.link[LINK_LOCAL].bytes = 2 * f;
	c.link[LINK_NET].rounds = p.nodes <= FEW_NODES ? 2 : 2 * (p.nodes - 1);
	c.link[LINK_NET].bytes = 2 * g;
	c.link[LINK_LOCAL].messages = 2 * (local - 1);
	c.link[LINK_NET].messages = 2 * (p.nodes - 1);
	c.reduced = f + g / local;
	return c;
}

/* reduce_scatter and all_gather, by bytes of a block. */
struct cost two_level_all_gather_cost(struct topology p)
{
	double local = (double)p.ranks / p.nodes;
	struct cost c = {0};
	c.link[LINK_LOCAL].rounds = 1;
	c.link[LINK_LOCAL].bytes = (local - 1) * p.nodes;
	c.link[LINK_NET].rounds = p.nodes <= FEW_NODES ? 1 : p.nodes - 1;
	c.link[LINK_NET].bytes = (p.nodes - 1) * local;
	c.link[LINK_LOCAL].messages = local - 1;
	c.link[LINK_NET].messages = p.nodes - 1;
	return c;
}

struct cost two_level_reduce_scatter_cost(struct topology p)
{
	return two_level_all_gather_cost(p);
}

struct cost two_level_broadcast_cost(struct topology p)
{
	double local = (double)p.ranks / p.nodes, f = (local - 1) / local;
	struct cost c = {0};
	c.link[LINK_LOCAL].rounds = 2;
	c.link[LINK_LOCAL].bytes = 2 * f;
	c.link[LINK_NET].rounds = log2_up(p.nodes);
	c.link[LINK_NET].bytes = log2_up(p.nodes);
	c.link[LINK_LOCAL].messages = 2 * (local - 1);
	c.link[LINK_NET].messages = log2_up(p.nodes);
	c.is_one_way = true;
	return c;
}
