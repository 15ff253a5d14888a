/* Buckets of gradients.
 *
 * Reverse order of registration is about the order in which backward finishes gradients. A bucket
 * ends with a unit, the first one at 1 MiB, so that communication begins early, the others at 25
 * MiB. They start in the order of their index on every rank, whatever the order of the hooks.
 *
 * Our own gradients lie in the buckets. The caller's (extern ones) are copied in by their hook and
 * read from there by the update; from 1 MiB on, where a copy in memory costs more than a message,
 * they are a bucket of their own and reduced where they lie. */
#include "train/bucket.h"

#include "train/explain.h"

#include <stdlib.h>
#include <string.h>

#define FIRST_BUCKET_BYTES ((size_t)1 << 20)
#define BUCKET_BYTES       ((size_t)25 << 20)

static size_t bucket_limit(const tutti_trainer *trainer, int bucket)
{
	if (trainer->config.bucket_bytes)
		return trainer->config.bucket_bytes;
	return bucket == 0 ? FIRST_BUCKET_BYTES : BUCKET_BYTES;
}

static void bucket_add(struct bucket *bucket, size_t count)
{
	bucket->params++;
	bucket->count += padded(count);
	bucket->bytes += count * sizeof(float);
}

/* Appends the open bucket to the list and gives the parameters [first, last] that wait for it
 * (bucket -2) its index. */
static void close_bucket(tutti_trainer *trainer, struct bucket *open, int first, int last)
{
	if (open->params == 0)
		return;
	for (int p = first; p <= last; p++)
		if (trainer->tensors[p].bucket == -2)
			trainer->tensors[p].bucket = trainer->bucket_count;
	trainer->buckets[trainer->bucket_count++] = *open;
	*open = (struct bucket){0};
}

static void cut(tutti_trainer *trainer)
{
	const struct tutti_model *model = &trainer->model;
	struct bucket open = {0};
	int last = model->param_count - 1;

	for (int p = last; p >= 0; p--) {
		const struct param *param = &model->params[p];
		struct tensor *tensor = &trainer->tensors[p];
		tensor->bucket = -1;
		if (param_is_trained(param) && param_reduced_in_place(param)) {
			struct bucket *own = &trainer->buckets[trainer->bucket_count];
			*own = (struct bucket){.values = param->grad, .params = 1};
			own->count = param->count;
			own->bytes = param->count * sizeof(float);
			tensor->bucket = trainer->bucket_count++;
		} else if (param_is_trained(param)) {
			tensor->bucket = -2;
			bucket_add(&open, param->count);
		}
		bool unit_ends = p == 0 || model->params[p - 1].unit != param->unit;
		if (unit_ends && open.bytes >= bucket_limit(trainer, trainer->bucket_count))
			close_bucket(trainer, &open, p, last);
	}
	close_bucket(trainer, &open, 0, last);
}

/* Buckets get their memory in order, gradients their place in their bucket in reverse order. */
static void place(tutti_trainer *trainer)
{
	float *memory = trainer->grad_memory;

	for (int b = 0; b < trainer->bucket_count; b++)
		if (!trainer->buckets[b].values) {
			trainer->buckets[b].values = memory;
			memory += trainer->buckets[b].count;
			trainer->buckets[b].count = 0;
		}
	for (int p = trainer->model.param_count - 1; p >= 0; p--) {
		const struct param *param = &trainer->model.params[p];
		struct tensor *tensor = &trainer->tensors[p];
		if (!param_is_trained(param))
			continue;
		struct bucket *bucket = &trainer->buckets[tensor->bucket];
		tensor->grad = tensor->sum = param->grad;
		if (param_reduced_in_place(param))
			continue;
		tensor->sum = bucket->values + bucket->count;
		bucket->count += padded(param->count);
		if (!param->is_extern)
			tensor->grad = tensor->sum;
	}
}

tutti_status buckets_create(tutti_trainer *trainer)
{
	size_t elements = 0;

	trainer->buckets = calloc((size_t)trainer->model.param_count + 1, sizeof *trainer->buckets);
	if (!trainer->buckets)
		return train_fail(TUTTI_ERR_MEMORY, "There is no memory for the list of buckets.");
	cut(trainer);
	for (int b = 0; b < trainer->bucket_count; b++)
		if (!trainer->buckets[b].values)
			elements += trainer->buckets[b].count;
	if (elements)
		TRY(tutti_mem_alloc(&trainer->grad_memory, elements * sizeof(float),
				    trainer->comm));
	place(trainer);
	return TUTTI_OK;
}

void buckets_destroy(tutti_trainer *trainer)
{
	if (trainer->buckets)
		buckets_wait(trainer);
	if (trainer->grad_memory)
		tutti_mem_free(trainer->grad_memory);
	free(trainer->buckets);
	trainer->buckets = NULL;
}

void buckets_zero(tutti_trainer *trainer)
{
	for (int p = 0; p < trainer->model.param_count; p++)
		if (trainer->tensors[p].grad)
			memset(trainer->tensors[p].grad, 0,
			       trainer->model.params[p].count * sizeof(float));
}

void buckets_reset(tutti_trainer *trainer)
{
	for (int p = 0; p < trainer->model.param_count; p++)
		trainer->tensors[p].is_ready = false;
	for (int b = 0; b < trainer->bucket_count; b++)
		trainer->buckets[b].pending = trainer->buckets[b].params;
	trainer->next_bucket = 0;
}

static tutti_status start(tutti_trainer *trainer, struct bucket *bucket)
{
	tutti_call call = {.work = &bucket->work};

	TRY(tutti_all_reduce(bucket->values, bucket->values, bucket->count, TUTTI_F32, TUTTI_SUM,
			     trainer->comm, &call));
	count_bucket(trainer, bucket->bytes);
	return TUTTI_OK;
}

static tutti_status start_complete(tutti_trainer *trainer)
{
	while (trainer->next_bucket < trainer->bucket_count &&
	       trainer->buckets[trainer->next_bucket].pending == 0)
		TRY(start(trainer, &trainer->buckets[trainer->next_bucket++]));
	return TUTTI_OK;
}

tutti_status bucket_param_ready(tutti_trainer *trainer, int param)
{
	struct tensor *tensor = &trainer->tensors[param];

	tensor->is_ready = true;
	if (tensor->sum != tensor->grad)
		memcpy(tensor->sum, tensor->grad,
		       trainer->model.params[param].count * sizeof(float));
	trainer->buckets[tensor->bucket].pending--;
	return start_complete(trainer);
}

tutti_status buckets_flush(tutti_trainer *trainer)
{
	for (int p = trainer->model.param_count - 1; p >= 0; p--)
		if (trainer->tensors[p].grad && !trainer->tensors[p].is_ready)
			TRY(bucket_param_ready(trainer, p));
	return TUTTI_OK;
}

tutti_status buckets_wait(tutti_trainer *trainer)
{
	tutti_status first = TUTTI_OK;
	double begin = seconds_now();

	for (int b = 0; b < trainer->bucket_count; b++) {
		tutti_status status = tutti_work_wait(&trainer->buckets[b].work, 0);
		first = first == TUTTI_OK ? status : first;
	}
	trainer->stats.exposed_seconds += seconds_now() - begin;
	return first;
}
