/* Blocks of the product's kernels that wait for other ranks' kernels: a GPU must hold all of them at
 * once, and one more of those that do not wait. A process that breaks that ends, with the numbers,
 * even where this time nothing hangs. */
#ifndef TESTS_CUDA_RESIDENTS_H
#define TESTS_CUDA_RESIDENTS_H

#include "tests/cuda/driver/op.h"

#include <stdatomic.h>

/* Of a kernel that runs. Lives on a stack. */
struct residents {
	struct residents *next;
	const struct op *op;
	const void *host; /* its channel_host, as the device maps it */
	atomic_uint blocks; /* that may wait yet */
};

/* With the lock. false: this kernel does not wait. */
bool residents_add(struct residents *residents, const struct op *op, int gpu);
void residents_remove(struct residents *residents, int gpu);
/* The address at which this block tells its host that it has ended, which is all that it does there. */
const void *residents_end(const struct residents *residents, unsigned index);

#endif
