/* Bruck's all_to_all: blocks travel by the bits of how far they have to go, many in one message, so
 * that ceil(log2 P) rounds do. Most blocks are sent several times: for small ones. Bruck and
 * others, "Efficient algorithms for all-to-all communications in multiport message-passing
 * systems", 1997. */
#include "collectives/plan/plan.h"

/* How many numbers from first on, below n, have a bit. first is the least of a run of them. */
static int bruck_count_of(int first, int bit, int n)
{
	int left = n - first, rest = left % (2 * bit);
	if (left <= 0)
		return 0;
	return left / (2 * bit) * bit + (rest < bit ? rest : bit);
}

/* The slots with these numbers. */
static struct span bruck_with_bit(struct span slots, int first, int bit)
{
	int n = (int)slots.count, count = bruck_count_of(first, bit, n);
	return runs(part(slots, count ? first : 0, n), count, bit, 2 * bit);
}

/* Slot i holds a block that has to go i further in all; in the round of a bit those that have it go
 * on by that much. A block that arrives rests in landed until the slot it is for has been sent: a
 * block with no higher bit has come home, the others go further. */
void bruck_all_to_all(struct plan *p, struct group g, struct span in, struct span out)
{
	int n = g.size;
	struct span slots = plan_scratch(p, parts(in, g.me, n, n)), landed = plan_scratch(p, slots);

	plan_copy(p, part(out, g.me, n), part(in, g.me, n));
	plan_copy(p, parts(slots, 1, n - 1, n), parts(in, g.me + 1, n - 1, n));
	for (int bit = 1; bit < n; bit *= 2) {
		plan_send(p, member(g, g.me + bit), bruck_with_bit(slots, bit, bit));
		plan_recv(p, member(g, g.me - bit), bruck_with_bit(landed, bit, bit));
		for (int i = bit; i < 2 * bit && i < n; i++)
			plan_copy(p, part(out, g.me - i, n), part(landed, i, n));
		plan_copy(p, bruck_with_bit(slots, 3 * bit, bit),
			  bruck_with_bit(landed, 3 * bit, bit));
	}
}

/* About half of the blocks go in every round. All are copied before and after, and between rounds
 * those that go on; copies cost about as much as sums. */
struct cost bruck_all_to_all_cost(struct topology p)
{
	double blocks = 0;
	for (int bit = 1; bit < p.ranks; bit *= 2)
		blocks += bruck_count_of(bit, bit, p.ranks);
	struct cost c = cost_flat(p, log2_up(p.ranks), blocks, (double)p.ranks / p.nodes);
	c.reduced = p.ranks - 1 + blocks;
	return c;
}
