/* Deterministic modes: memory for what micro-batches keep until the end of the step, which is whole
 * gradients and the partial sums of the tree. All ranks take it before a micro-batch begins, or
 * none does, so that it cannot run out in the middle of a step. */
#include "train/base/base.h"
#include "train/model/model.h"
#include "train/strategies/strategies.h"

/* The levels of the tree after so many further micro-batches; 1 without a tree. */
static int levels_after(const tutti_trainer *trainer, int micro_batches)
{
	int before = 0, levels = 1;

	if (trainer->config.deterministic != 2)
		return 1;
	if (trainer->step.state != STEP_CLOSED)
		before = trainer->step.micro_batches +
			 (trainer->batch.is_open && trainer->batch.pass == TUTTI_PASS_ACCUMULATE);
	while ((before + micro_batches) >> levels)
		levels++;
	return levels;
}

static size_t bytes_of_levels(const tutti_trainer *trainer, int levels)
{
	size_t elements = 0;

	if (trainer->config.deterministic != 2)
		return 0;
	for (int b = 0; b < trainer->layout.trained_count; b++)
		elements += trainer->layout.spans[b].elements;
	return (size_t)(levels - trainer->step.kept_levels) * elements * sizeof(float);
}

static tutti_status plan_whole(tutti_trainer *trainer)
{
	struct slot_sizes all;

	for (int h = 0; h < trainer->home_count; h++) {
		TRY(slots_for_whole(&all, &trainer->layout, &trainer->config, h, 1));
		TRY(pool_plan(&trainer->homes[h].grad_pool, &all));
	}
	return TUTTI_OK;
}

/* The same result on all ranks. pool_grows checks what some ranks need beside the plan. */
static tutti_status check_limit(const tutti_trainer *trainer, size_t grads, size_t sums)
{
	size_t limit = trainer->config.memory_limit,
	       all = trainer->memory.planned_bytes + grads + sums;

	if (limit == 0 || all <= limit)
		return TUTTI_OK;
	return fail(
		TUTTI_ERR_MEMORY,
		"tutti_micro_batch: with so many micro-batches a step deterministic = %d needs %zu "
		"bytes on the rank with most: %zu that it holds, %zu for whole gradients until the "
		"step ends, and %zu for partial sums; memory_limit is %zu.",
		trainer->config.deterministic, all, trainer->memory.planned_bytes, grads, sums,
		limit);
}

static tutti_status make_levels(tutti_trainer *trainer, int levels)
{
	for (int b = 0; b < trainer->layout.trained_count; b++)
		for (int level = trainer->step.kept_levels; level < levels; level++) {
			void *sums;
			TRY(values_alloc(trainer->buckets[b].home, &sums,
					 trainer->layout.spans[b].count * sizeof(float),
					 "the partial sums of deterministic = 2"));
			trainer->buckets[b].levels[level] = sums;
		}
	return TUTTI_OK;
}

static void drop_levels(tutti_trainer *trainer, int levels)
{
	for (int b = 0; b < trainer->layout.trained_count; b++)
		for (int level = trainer->step.kept_levels; level < levels; level++) {
			struct bucket *bucket = &trainer->buckets[b];
			values_free(bucket->home, bucket->levels[level]);
			bucket->levels[level] = NULL;
		}
}

static tutti_status grad_reserve_make(tutti_trainer *trainer, int levels, size_t sums)
{
	size_t grads = memory_of_slots(trainer);

	TRY(check_limit(trainer, grads, sums));
	TRY(pool_grows(trainer, grads + sums));
	if (trainer->config.deterministic == 2)
		TRY(make_levels(trainer, levels));
	for (int h = 0; h < trainer->home_count; h++)
		TRY(pool_fill_local(trainer, &trainer->homes[h].grad_pool));
	trainer->memory.planned_bytes += grads + sums;
	trainer->memory.held_bytes += sums;
	trainer->stats.grad_bytes += sums;
	trainer->step.kept_levels = levels;
	return TUTTI_OK;
}

tutti_status grads_reserve(tutti_trainer *trainer, int micro_batches)
{
	int levels = levels_after(trainer, micro_batches);
	size_t sums = bytes_of_levels(trainer, levels);
	tutti_status status = TUTTI_OK;

	if (!trainer->config.deterministic || levels <= trainer->step.kept_levels)
		return TUTTI_OK;
	for (int h = 0; h < trainer->home_count; h++)
		pool_mark(&trainer->homes[h].grad_pool);
	if (trainer->step.kept_levels == 0)
		status = plan_whole(trainer);
	if (status == TUTTI_OK)
		status = grad_reserve_make(trainer, levels, sums);
	if (status != TUTTI_OK) {
		for (int h = 0; h < trainer->home_count; h++)
			pool_forget(trainer, &trainer->homes[h].grad_pool);
		drop_levels(trainer, levels);
	}
	return status;
}
