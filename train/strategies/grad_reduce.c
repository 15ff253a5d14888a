/* Gradients, from the author's += to the start of their reduction.
 *
 * DDP and ZeRO-1 keep whole gradients and reduce them in place, once a step. ZeRO-2 and FSDP keep
 * only a part: a bucket has a slot from its first backward to the end of its reduce_scatter, in
 * every micro-batch, and the reduced part is added to a sum. Deterministic modes keep slots until
 * the step's last micro-batch, so that micro-batches are added before ranks, as with DDP. */

#include "train/base/base.h"
#include "train/model/model.h"
#include "train/precision/precision.h"
#include "train/strategies/grad_flights.h"
#include "train/strategies/strategies.h"

/* Deterministic modes keep gradients whole until the end of the step. */
static bool bucket_reduces(const tutti_trainer *trainer, const struct bucket *bucket)
{
	if (!bucket->span->is_trained || !config_has_wire(&trainer->config))
		return false;
	return trainer->batch.pass == TUTTI_PASS_LAST ||
	       (!bucket->span->keeps_grad && !trainer->config.deterministic);
}

void grads_zero(tutti_trainer *trainer)
{
	for (int p = 0; p < trainer->model.param_count; p++) {
		void *grad = param_grad(trainer, p);
		size_t count = trainer->model.params[p].count;
		if (grad)
			values_zero(bucket_of(trainer, p)->home, grad,
				    count * dtype_bytes(trainer->config.grad_dtype));
	}
	for (int p = 0; p < trainer->model.param_count; p++)
		trainer->tensors[p].pushed = 0;
	for (int b = 0; b < trainer->layout.trained_count; b++)
		trainer->buckets[b].has_sum = false;
}

void grads_expect(tutti_trainer *trainer)
{
	for (int p = 0; p < trainer->model.param_count; p++)
		trainer->tensors[p].is_ready = false;
	for (int b = 0; b < trainer->layout.trained_count; b++) {
		trainer->buckets[b].params_left = trainer->buckets[b].span->param_count;
		trainer->buckets[b].is_started = false;
	}
	trainer->flights.next_bucket = 0;
}

tutti_status grads_keep(tutti_trainer *trainer)
{
	for (int b = 0; b < trainer->layout.trained_count; b++)
		if (!bucket_reduces(trainer, &trainer->buckets[b]) &&
		    trainer->config.deterministic == 2) {
			TRY(grad_make(trainer, b));
			for (int i = 0; i < trainer->buckets[b].span->param_count; i++)
				sum_tree_push(trainer, trainer->buckets[b].span->params[i]);
		}
	return TUTTI_OK;
}

tutti_status grads_add_up(tutti_trainer *trainer, int micro_batches, const char *last_callback)
{
	trainer->batch.last_callback = last_callback;
	trainer->batch.pipelined = micro_batches;
	if (trainer->config.deterministic != 2)
		return TUTTI_OK;
	trainer->batch.adds_up = true;
	return grads_reserve(trainer, micro_batches - 1);
}

void grads_hold_part(tutti_trainer *trainer, bool is_part)
{
	trainer->batch.is_part = is_part;
}

static int first_unit_of(const struct tutti_model *model, int param)
{
	int first = model->unit_count;

	for (int i = 0; i < model->use_count; i++)
		if (model->uses[i].param == param && model->uses[i].unit < first)
			first = model->uses[i].unit;
	return first;
}

/* All units of a parameter add to its gradient; of one micro-batch the first unit is the last. */
void grads_push(tutti_trainer *trainer, int unit)
{
	const struct tutti_model *model = &trainer->model;

	for (int i = 0; i < model->use_count && trainer->batch.adds_up; i++) {
		int param = model->uses[i].param;
		if (!trainer->batch.is_part && model->uses[i].unit == unit &&
		    param_is_trained(&model->params[param]) && first_unit_of(model, param) == unit)
			sum_tree_push(trainer, param);
	}
}

/* Waits for a flight rather than take a larger slot: so the planned slots suffice in plain order.
 */
static tutti_status take_flight_memory(tutti_trainer *trainer, struct slot_pool *pool, size_t bytes,
				       char **memory)
{
	while (trainer->flights.count > 0 && !pool_has(pool, bytes))
		TRY(flight_finish(trainer));
	return pool_take(trainer, pool, bytes, memory);
}

tutti_status grad_make(tutti_trainer *trainer, int b)
{
	struct bucket *bucket = &trainer->buckets[b];
	tutti_dtype dtype = trainer->config.grad_dtype;

	if (!bucket->span->is_trained || bucket->span->keeps_grad || bucket->grad)
		return TUTTI_OK;
	size_t bytes = bucket->span->count * dtype_bytes(dtype);
	TRY(take_flight_memory(trainer, &bucket->home->grad_pool, bytes, &bucket->grad));
	values_zero(bucket->home, bucket->grad, bytes);
	return TUTTI_OK;
}

/* Sets what is sent: the gradients themselves, or a copy in another type or from the caller's
 * memory. */
static tutti_status grad_reduce_load(tutti_trainer *trainer, struct flight *flight)
{
	struct bucket *bucket = &trainer->buckets[flight->bucket];
	const struct param_span *span = bucket->span;
	tutti_dtype grad = trainer->config.grad_dtype, wire = trainer->config.reduce_dtype;

	flight->wire = bucket->wire;
	if (!span->keeps_grad && grad == wire) {
		flight->wire = bucket->grad;
		return TUTTI_OK;
	}
	if (!span->keeps_grad) {
		TRY(take_flight_memory(trainer, &bucket->home->grad_pool,
				       span->count * dtype_bytes(wire), &flight->copy));
		flight->wire = flight->copy;
		values_convert(bucket->home, flight->wire, wire, bucket->grad, grad, span->count);
		return TUTTI_OK;
	}
	for (int i = 0; i < span->param_count; i++) {
		int p = span->params[i];
		char *to = flight->wire + trainer->layout.places[p].offset * dtype_bytes(wire);
		const void *from = param_grad(trainer, p);
		if (from != to)
			values_convert(bucket->home, to, wire, from, grad,
				       trainer->model.params[p].count);
	}
	return TUTTI_OK;
}

static tutti_status grad_reduce_start(tutti_trainer *trainer, int b)
{
	struct bucket *bucket = &trainer->buckets[b];
	struct flight flight = {.bucket = b};

	bucket->is_started = true;
	while (bucket->is_in_flight)
		TRY(flight_finish(trainer));
	TRY(grad_make(trainer, b));
	if (trainer->config.deterministic == 2)
		sum_tree_finish(trainer, b);
	flight.is_last = trainer->batch.pass == TUTTI_PASS_LAST;
	TRY(grad_reduce_load(trainer, &flight));
	if (!bucket->span->keeps_grad) {
		flight.grad = bucket->grad;
		bucket->grad = NULL;
	}
	return flight_start(trainer, flight_add(trainer, &flight));
}

/* FSDP's buckets start when their unit has ended; that order is the same on all ranks. Other
 * buckets start in the order of their index, whatever the order of hooks. */
static tutti_status start_complete(tutti_trainer *trainer, int b)
{
	if (trainer->layout.by_unit)
		return trainer->buckets[b].params_left == 0 ? grad_reduce_start(trainer, b)
							    : TUTTI_OK;
	for (; trainer->flights.next_bucket < trainer->layout.trained_count;
	     trainer->flights.next_bucket++) {
		const struct bucket *next = &trainer->buckets[trainer->flights.next_bucket];
		if (!bucket_reduces(trainer, next))
			continue;
		if (next->params_left > 0)
			break;
		TRY(grad_reduce_start(trainer, trainer->flights.next_bucket));
	}
	return TUTTI_OK;
}

tutti_status grad_ready(tutti_trainer *trainer, int param)
{
	int b = trainer->layout.places[param].span;

	trainer->tensors[param].is_ready = true;
	if (!bucket_reduces(trainer, &trainer->buckets[b]))
		return TUTTI_OK;
	trainer->buckets[b].params_left--;
	TRY(grads_poll(trainer));
	return start_complete(trainer, b);
}

tutti_status grads_flush(tutti_trainer *trainer)
{
	for (int b = 0; b < trainer->layout.trained_count; b++) {
		const struct bucket *bucket = &trainer->buckets[b];
		if (bucket_reduces(trainer, bucket) && !bucket->is_started)
			TRY(grad_reduce_start(trainer, b));
		else if (!config_has_wire(&trainer->config) && trainer->config.deterministic == 2 &&
			 trainer->batch.pass == TUTTI_PASS_LAST)
			sum_tree_finish(trainer, b);
	}
	return TUTTI_OK;
}
