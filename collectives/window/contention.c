/* Judges a staged call: whether its rounds waited for turns of other threads. */
#include "collectives/window/contention.h"

void contention_begin(struct contention *c, bool is_short, uint64_t now_ns)
{
	c->is_judged = is_short;
	c->begun_ns = c->round_ns = now_ns;
	c->long_ns = 0;
	if (!is_short && c->calls_left > 0)
		c->calls_left--;
}

void contention_round(struct contention *c, uint64_t long_ns, uint64_t now_ns)
{
	uint64_t took = now_ns - c->round_ns;

	c->round_ns = now_ns;
	if (took > long_ns)
		c->long_ns += took;
}

void contention_end(struct contention *c)
{
	if (!c->is_judged)
		return;
	c->is_judged = false;
	if (c->long_ns > (c->round_ns - c->begun_ns) / 3)
		c->calls_left = CONTENTION_CALLS;
	else
		c->calls_left = 0;
}
