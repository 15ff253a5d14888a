/* In which order a lane issues its steps on the slices of a run, and when it waits: for run.c, and
 * for tutti-plan, which runs plans in virtual time. */
#ifndef COLLECTIVES_ENGINE_CURSOR_H
#define COLLECTIVES_ENGINE_CURSOR_H

#include <stdbool.h>
#include <stdint.h>

struct cursor {
	uint32_t base, index, offset; /* first slice of the round, step, slice in the round */
};

static inline uint32_t cursor_slice(const struct cursor *c)
{
	return c->base + c->offset;
}

/* A round has `interleave` slices, the last one what is left of them. In a round the order is step
 * by step, and slice by slice in a step. Returns whether the cursor is at the end. */
static inline bool cursor_advance(struct cursor *c, uint32_t steps, uint32_t slices,
				  uint32_t interleave)
{
	uint32_t in_round = slices - c->base < interleave ? slices - c->base : interleave;

	if (++c->offset < in_round)
		return false;
	c->offset = 0;
	if (++c->index < steps)
		return false;
	c->index = 0;
	c->base += in_round;
	return c->base == slices;
}

/* pending, by slot: for how many steps the cursor's step still waits. A slice starts when the slice
 * that used its slot before has finished on this rank. */
static inline bool cursor_must_wait(const struct cursor *c, const uint32_t *pending, uint32_t slots,
				    uint32_t finished)
{
	uint32_t slice = cursor_slice(c);

	return slice >= finished + slots || pending[slice % slots];
}

#endif
