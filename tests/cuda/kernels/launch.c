/* Launches on threads; memory is where it is. */
#include "launch.h"

#include "cuda/kernels/give_way.h"
#include "tests/random.h"

#include <assert.h>
#include <pthread.h>

#define REACHES_A_YIELD 200

/* Other blocks get their turn before any access, now and then. */
void *kernel_reach(const void *pointer, size_t bytes, int writes)
{
	static _Thread_local uint64_t state;

	(void)bytes;
	(void)writes;
	if (state == 0)
		state = (uintptr_t)&state;
	if (random_below(&state, REACHES_A_YIELD) == 0)
		give_way();
	return (void *)(uintptr_t)pointer;
}

/* There is no switch here. */
void kernel_multicast_sum(const void *pointer, enum multicast_type type, void *vector)
{
	(void)pointer, (void)type, (void)vector;
	assert(0);
}

void kernel_multicast_store(void *pointer, const void *vector)
{
	(void)pointer, (void)vector;
	assert(0);
}

static void *run_block(void *arg)
{
	struct launch_thread *t = arg;

	t->launch->fn(t->launch->args, &t->block);
	return NULL;
}

void launch_start(struct launch *l, kernel_block_fn *fn, const void *args, unsigned blocks)
{
	assert(blocks >= 1 && blocks <= LAUNCH_BLOCKS);
	l->fn = fn;
	l->args = args;
	l->blocks = blocks;
	for (unsigned b = 0; b < blocks; b++) {
		l->threads[b] = (struct launch_thread){.launch = l, .block = {b, blocks}};
		if (pthread_create(&l->threads[b].thread, NULL, run_block, &l->threads[b]) != 0)
			assert(!"a thread starts");
	}
}

void launch_wait(struct launch *l)
{
	for (unsigned b = 0; b < l->blocks; b++)
		pthread_join(l->threads[b].thread, NULL);
}
