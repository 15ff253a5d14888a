/* The kernels of the driver's own tests. */
#include "tests/cuda/driver/own_kernels.h"

#include <sched.h>
#include <stdatomic.h>

void fake_fill_block(const struct fake_fill_args *args, struct kernel_block *block)
{
	for (size_t i = block->index; i < args->n; i += block->count)
		*(uint32_t *)kernel_reach(args->to + i, sizeof *args->to, 1) += args->add;
}

static uint32_t load(const uint32_t *word)
{
	return atomic_load((_Atomic uint32_t *)kernel_reach(word, sizeof *word, 0));
}

void fake_meet_block(const struct fake_meet_args *args, struct kernel_block *block)
{
	(void)block;
	atomic_fetch_add((_Atomic uint32_t *)kernel_reach(args->came, sizeof *args->came, 1), 1);
	while (load(args->came) < args->n)
		sched_yield();
}

void fake_wait_block(const struct fake_wait_args *args, struct kernel_block *block)
{
	(void)block;
	while (load(args->word) != args->value)
		sched_yield();
}
