/* Updated values on their way. With ZeRO-1 and -2 each rank has updated its part of a block, and
 * all of them gather the others' while the next block is updated and the next forward begins: a
 * unit's begin waits for its own. Where the caller owns the memory it lies in many places, and goes
 * through a slot. */
#include "train/base/train_error.h"
#include "train/strategies/strategies.h"
#include "train/state/trainer_memory.h"

#include <string.h>

/* Between the caller's memory and the slot: this rank's part (out), or the others' (in). */
static void copy_extern(const tutti_trainer *trainer, const struct block *block, char *slot,
			bool is_out)
{
	size_t width = dtype_bytes(trainer->config.param_dtype);

	for (int i = 0; i < block->span->param_count; i++) {
		int p = block->span->params[i];
		const struct param *param = &trainer->model.params[p];
		char *there = slot + trainer->layout.places[p].offset * width;
		char *here = param->is_extern
				     ? param->data
				     : block->data + trainer->layout.places[p].offset * width;
		struct range own = param_part(&trainer->layout, &trainer->model, p, block->part);
		if (is_out)
			memcpy(there + own.first * width, here + own.first * width,
			       (own.last - own.first) * width);
		else
			memcpy(here, there, param->count * width);
	}
}

static bool needs_slot(const struct block *block)
{
	return block->span->has_extern && !block->span->is_in_place;
}

tutti_status publish(tutti_trainer *trainer, int b)
{
	struct block *block = &trainer->blocks[b];
	const struct span *span = block->span;
	size_t width = dtype_bytes(trainer->config.param_dtype);
	tutti_call call = {.work = &block->gathering};
	char *values = block->data;

	if (!span->is_split || span->is_sharded)
		return TUTTI_OK;
	TRY(publish_wait(trainer, b));
	if (needs_slot(block)) {
		for (int before = 0; before < b; before++)
			if (trainer->blocks[before].data_slot != NO_SLOT)
				TRY(publish_wait(trainer, before));
		TRY(pool_take(trainer, &trainer->data_pool, span->count * width,
			      &block->data_slot));
		values = trainer->data_pool.slots[block->data_slot].memory;
		copy_extern(trainer, block, values, true);
	}
	count_gathered(trainer, span->elements * width, trainer->layout.shard_size);
	tutti_status status = circle_status(
		trainer,
		tutti_all_gatherv(values + block->part.first * width, values, span->shares, NULL,
				  trainer->config.param_dtype, trainer->gather, &call),
		IN_SHARD_GROUP);
	if (status != TUTTI_OK && block->data_slot != NO_SLOT) {
		pool_give(trainer, &trainer->data_pool, span->count * width, block->data_slot);
		block->data_slot = NO_SLOT;
	}
	return status;
}

tutti_status publish_wait(tutti_trainer *trainer, int b)
{
	struct block *block = &trainer->blocks[b];

	if (block->span->is_sharded || (!block->gathering && block->data_slot == NO_SLOT))
		return TUTTI_OK;
	tutti_status status = trainer_wait(trainer, &block->gathering, IN_SHARD_GROUP);
	if (block->data_slot == NO_SLOT)
		return status;
	if (status == TUTTI_OK)
		copy_extern(trainer, block, trainer->data_pool.slots[block->data_slot].memory,
			    false);
	pool_give(trainer, &trainer->data_pool,
		  block->span->count * dtype_bytes(trainer->config.param_dtype), block->data_slot);
	block->data_slot = NO_SLOT;
	return status;
}

tutti_status publish_wait_all(tutti_trainer *trainer)
{
	struct first_failure first = {0};

	for (int b = 0; b < trainer->layout.span_count; b++)
		train_note(&first, publish_wait(trainer, b));
	return train_first(&first);
}

tutti_status publish_all(tutti_trainer *trainer)
{
	TRY(params_drop(trainer));
	for (int b = 0; b < trainer->layout.span_count; b++)
		TRY(publish(trainer, b));
	return publish_wait_all(trainer);
}
