/* deterministic = 2: a binary counter of partial sums. After m micro-batches level l has the sum of
 * 2^l of them if bit l of m is set. So a rank's sum is the subtree that one rank with all
 * micro-batches would have, and the communicator's tree adds ranks above it. */
#include "train/precision/precision.h"
#include "train/strategies/grad_flights.h"

#include <assert.h>

static void add_levels(const tutti_trainer *trainer, int p, int last)
{
	const struct bucket *bucket = bucket_of(trainer, p);
	size_t offset = trainer->layout.places[p].offset, count = trainer->model.params[p].count;

	for (int level = 0; level < last; level++)
		if (trainer->tensors[p].pushed >> level & 1)
			values_add(bucket->home, param_grad(trainer, p), TUTTI_F32,
				   bucket->levels[level] + offset, TUTTI_F32, count);
}

void sum_tree_push(tutti_trainer *trainer, int p)
{
	const struct bucket *bucket = bucket_of(trainer, p);
	size_t bytes = trainer->model.params[p].count * sizeof(float);
	int level = 0;

	while (trainer->tensors[p].pushed >> level & 1)
		level++;
	assert(bucket->levels[level]);
	add_levels(trainer, p, level);
	values_copy(bucket->home, bucket->levels[level] + trainer->layout.places[p].offset,
		    param_grad(trainer, p), bytes);
	values_zero(bucket->home, param_grad(trainer, p), bytes);
	trainer->tensors[p].pushed++;
}

void sum_tree_finish(tutti_trainer *trainer, int b)
{
	const struct param_span *span = trainer->buckets[b].span;

	for (int i = 0; i < span->param_count; i++)
		add_levels(trainer, span->params[i], TREE_LEVELS - 1);
}
