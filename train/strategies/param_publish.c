/* Updated values on their way. With ZeRO-1 and -2 each rank updates its part of a bucket, and all
 * ranks gather the bucket while the next one is updated and the next forward begins. A unit's begin
 * waits for its own buckets. Values in the caller's memory are not contiguous and go through a
 * slot. */
#include "train/base/base.h"
#include "train/strategies/strategies.h"

/* Copies between the caller's memory and the slot: this rank's part (out), or all of it (in). */
static void copy_extern(const tutti_trainer *trainer, const struct bucket *bucket, char *slot,
			bool is_out)
{
	size_t width = dtype_bytes(trainer->config.param_dtype);

	for (int i = 0; i < bucket->span->param_count; i++) {
		int p = bucket->span->params[i];
		const struct param *param = &trainer->model.params[p];
		char *there = slot + trainer->layout.places[p].offset * width;
		char *here = param->is_extern
				     ? param->data
				     : bucket->data + trainer->layout.places[p].offset * width;
		struct element_range own =
			param_part(&trainer->layout, &trainer->model, p, bucket->part);
		if (is_out)
			values_copy(bucket->home, there + own.first * width,
				    here + own.first * width, (own.last - own.first) * width);
		else
			values_copy(bucket->home, here, there, param->count * width);
	}
}

static bool needs_slot(const struct bucket *bucket)
{
	return bucket->span->has_extern && !bucket->span->is_in_place;
}

tutti_status publish_bucket(tutti_trainer *trainer, int b)
{
	struct bucket *bucket = &trainer->buckets[b];
	const struct param_span *span = bucket->span;
	size_t width = dtype_bytes(trainer->config.param_dtype);
	char *values = bucket->data;

	if (!span->is_split || span->is_sharded)
		return TUTTI_OK;
	TRY(publish_wait(trainer, b));
	if (needs_slot(bucket)) {
		for (int before = 0; before < b; before++)
			if (trainer->buckets[before].copy)
				TRY(publish_wait(trainer, before));
		TRY(pool_take(trainer, &bucket->home->data_pool, span->count * width,
			      &bucket->copy));
		values = bucket->copy;
		copy_extern(trainer, bucket, values, true);
	}
	tutti_status status = trainer_gather(trainer, bucket, part_in(bucket, values, width),
					     values, PURPOSE_NONE);
	if (status != TUTTI_OK)
		pool_give(trainer, &bucket->home->data_pool, &bucket->copy);
	return status;
}

tutti_status publish_wait(tutti_trainer *trainer, int b)
{
	struct bucket *bucket = &trainer->buckets[b];

	if (bucket->span->is_sharded)
		return TUTTI_OK;
	tutti_status status = bucket_status(trainer, bucket, "Sending updated",
					    trainer_wait_values(trainer, bucket));
	if (bucket->copy && status == TUTTI_OK)
		copy_extern(trainer, bucket, bucket->copy, false);
	pool_give(trainer, &bucket->home->data_pool, &bucket->copy);
	return status;
}

tutti_status publish_wait_all(tutti_trainer *trainer)
{
	struct kept_error first = {0};

	for (int b = 0; b < trainer->layout.span_count; b++)
		kept_error_note(&first, publish_wait(trainer, b));
	return kept_error_return(&first);
}
