/* Gradients, from the author's += to the end of their reduction.
 *
 * DDP and ZeRO-1 keep whole gradients and reduce them in place, once a step. ZeRO-2 and FSDP keep
 * only a part: a bucket has a slot from its first backward to the end of its reduce_scatter, in
 * every micro-batch, and the reduced part is added to a sum. Deterministic modes keep slots until
 * the step's last micro-batch, so that micro-batches are added before ranks, as with DDP. */
#include "train/base/base.h"
#include "train/model/model.h"
#include "train/precision/precision.h"
#include "train/state/trainer_state.h"
#include "train/strategies/strategies.h"

#include <assert.h>

/* ---- flights ---- */

/* A flight has up to two stages: among the ranks of the shard group, then, in the last micro-batch,
 * among replicas. Flights are in one queue. Stages start in the order of the queue, which is the
 * same on all ranks. */

static struct flight *grad_reduce_flight_at(tutti_trainer *trainer, int i)
{
	return &trainer->flights.ring[(trainer->flights.first + i) % trainer->layout.span_count];
}

/* Adds the reduced part to the sum of earlier micro-batches. */
static void grad_reduce_add_to_sum(const tutti_trainer *trainer, const struct flight *flight)
{
	struct bucket *bucket = &trainer->buckets[flight->bucket];
	tutti_dtype dtype = trainer->config.reduce_dtype;
	const char *part = flight->wire + bucket->part.first * dtype_bytes(dtype);
	size_t count = bucket->part.last - bucket->part.first;

	if (bucket->span->keeps_grad)
		return;
	if (bucket->has_sum)
		values_add(bucket->home, bucket->sum, bucket->sum_dtype, part, dtype, count);
	else
		values_convert(bucket->home, bucket->sum, bucket->sum_dtype, part, dtype, count);
	bucket->has_sum = true;
}

static tutti_status grad_reduce_shards(tutti_trainer *trainer, struct flight *flight)
{
	const struct bucket *bucket = &trainer->buckets[flight->bucket];
	const struct param_span *span = bucket->span;
	tutti_dtype dtype = trainer->config.reduce_dtype;
	size_t width = dtype_bytes(dtype);
	struct bucket_label label;
	tutti_call call = {.work = &flight->work,
			   .stream = bucket->home->stream,
			   .label = bucket_label(trainer, bucket, &label)};

	flight->stage = FLIGHT_SHARDS;
	trainer_count_reduced(trainer, span->elements * width, trainer->layout.shard_size,
			      !span->is_split);
	if (!span->is_split)
		return tutti_all_reduce(flight->wire, flight->wire, span->count, dtype, TUTTI_SUM,
					bucket->home->reduce, &call);
	return tutti_reduce_scatterv(flight->wire, part_in(bucket, flight->wire, width),
				     span->shares, NULL, dtype, TUTTI_SUM, bucket->home->reduce,
				     &call);
}

static tutti_status grad_reduce_replicas(tutti_trainer *trainer, struct flight *flight)
{
	const struct bucket *bucket = &trainer->buckets[flight->bucket];
	size_t count = bucket->part.last - bucket->part.first;
	struct bucket_label label;
	tutti_call call = {.work = &flight->work,
			   .stream = bucket->home->stream,
			   .label = bucket_label(trainer, bucket, &label)};

	flight->stage = FLIGHT_REPLICAS;
	trainer_count_reduced(trainer, bucket->part_elements * dtype_bytes(bucket->sum_dtype),
			      trainer->replica_count, true);
	return tutti_all_reduce(bucket->sum, bucket->sum, count, bucket->sum_dtype, TUTTI_SUM,
				bucket->home->replicas, &call);
}

static struct flight *grad_reduce_flight_add(tutti_trainer *trainer, const struct flight *flight)
{
	struct flight *added = grad_reduce_flight_at(trainer, trainer->flights.count++);

	*added = *flight;
	trainer->buckets[flight->bucket].is_in_flight = true;
	return added;
}

/* Adds a flight behind all others. */
static tutti_status grad_reduce_flight_start(tutti_trainer *trainer, struct flight *flight)
{
	tutti_status status =
		trainer->homes[0].reduce
			? group_status(trainer, grad_reduce_shards(trainer, flight), IN_SHARD_GROUP)
			: group_status(trainer, grad_reduce_replicas(trainer, flight),
				       AMONG_REPLICAS);
	flight->failed = bucket_status(trainer, &trainer->buckets[flight->bucket],
				       "Reducing gradients of", status);
	return flight->failed;
}

static tutti_status grad_reduce_flight_progress(tutti_trainer *trainer, struct flight *flight,
						bool wait)
{
	while (flight->stage != FLIGHT_DONE) {
		enum rank_group group =
			flight->stage == FLIGHT_SHARDS ? IN_SHARD_GROUP : AMONG_REPLICAS;
		int is_done = 1;
		if (!wait)
			TRY(group_status(trainer, tutti_work_test(flight->work, &is_done), group));
		if (!is_done)
			return TUTTI_OK;
		TRY(trainer_wait(trainer, &flight->work, group));
		bool has_replica_stage = flight->stage == FLIGHT_SHARDS && flight->is_last &&
					 trainer->homes[0].replicas;
		if (flight->stage == FLIGHT_SHARDS)
			grad_reduce_add_to_sum(trainer, flight);
		if (has_replica_stage)
			TRY(group_status(trainer, grad_reduce_replicas(trainer, flight),
					 AMONG_REPLICAS));
		else
			flight->stage = FLIGHT_DONE;
	}
	return TUTTI_OK;
}

/* Progresses the flight; with wait, to its end. A flight that failed has no sum, and stays failed.
 */
static tutti_status grad_reduce_flight_advance(tutti_trainer *trainer, struct flight *flight,
					       bool wait)
{
	if (flight->failed != TUTTI_OK)
		return fail(flight->failed, "This step has no gradients: an earlier call of it "
					    "failed, and its error says why.");
	flight->failed =
		bucket_status(trainer, &trainer->buckets[flight->bucket], "Reducing gradients of",
			      grad_reduce_flight_progress(trainer, flight, wait));
	return flight->failed;
}

/* Waits for the oldest flight, and frees its slots. */
static tutti_status grad_reduce_flight_finish(tutti_trainer *trainer)
{
	struct flight *flight = grad_reduce_flight_at(trainer, 0);
	struct bucket *bucket = &trainer->buckets[flight->bucket];
	struct kept_error failure = {0};

	kept_error_note(&failure, grad_reduce_flight_advance(trainer, flight, true));
	tutti_work_wait(&flight->work, 0); /* a failed work may still exist */
	pool_give(trainer, &bucket->home->grad_pool, &flight->grad);
	pool_give(trainer, &bucket->home->grad_pool, &flight->copy);
	bucket->is_in_flight = false;
	trainer->flights.first = (trainer->flights.first + 1) % trainer->layout.span_count;
	trainer->flights.count--;
	if (trainer->flights.done > 0)
		trainer->flights.done--;
	return kept_error_return(&failure);
}

/* Hooks call this function, so it looks at as few flights as possible. A flight behind one that is
 * in flight can progress only if there are shards and replicas. */
tutti_status grads_poll(tutti_trainer *trainer)
{
	bool has_two_stages = trainer->homes[0].reduce && trainer->homes[0].replicas;

	for (int i = trainer->flights.done; i < trainer->flights.count; i++) {
		struct flight *flight = grad_reduce_flight_at(trainer, i);
		TRY(grad_reduce_flight_advance(trainer, flight, false));
		if (flight->stage == FLIGHT_DONE && i == trainer->flights.done)
			trainer->flights.done++;
		if (flight->stage == FLIGHT_SHARDS ||
		    (flight->stage != FLIGHT_DONE && !has_two_stages))
			break; /* replicas start in order */
	}
	return TUTTI_OK;
}

tutti_status grads_wait(tutti_trainer *trainer)
{
	struct kept_error first = {0};

	while (trainer->flights.count > 0)
		kept_error_note(&first, grad_reduce_flight_finish(trainer));
	return kept_error_return(&first);
}

/* ---- sums over further axes of a mesh ---- */

/* Ranks of a group have the same pieces of
 * such parameters, since these lie in spans of their own (mesh_part.kind). All groups' sums are one
 * call. */

static tutti_status grad_reduce_groups_add_piece(tutti_trainer *trainer, const struct piece *piece,
						 int group)
{
	tutti_comm *comm = trainer->mesh->sums[group];
	uint64_t before = trainer->stats.sent_grad_bytes;

	trainer_count_reduced(trainer, piece->count * dtype_bytes(piece->sum_dtype),
			      tutti_size(comm), true);
	trainer->stats.sent_mesh_grad_bytes += trainer->stats.sent_grad_bytes - before;
	return tutti_all_reduce(piece->sum, piece->sum, piece->count, piece->sum_dtype, TUTTI_SUM,
				comm, NULL);
}

static tutti_status grad_reduce_groups_add_all(tutti_trainer *trainer)
{
	for (int i = 0; i < trainer->piece_count; i++) {
		const struct piece *piece = &trainer->pieces[i];
		int group = trainer->model.params[piece->param].part.sum_group;
		if (piece->sum && group >= 0)
			TRY(grad_reduce_groups_add_piece(trainer, piece, group));
	}
	return TUTTI_OK;
}

tutti_status grads_sum_groups(tutti_trainer *trainer)
{
	tutti_work *work = NULL;
	tutti_call call = {.work = &work, .stream = trainer->homes[0].stream};

	if (!trainer->mesh || trainer->mesh->groups.count == 0)
		return TUTTI_OK;
	TRY(tutti_group_begin());
	tutti_status added = grad_reduce_groups_add_all(trainer), status = tutti_group_end(&call);
	return added != TUTTI_OK ? added : trainer_finish(trainer, status, &work);
}

/* ---- reserves ---- */

/* Deterministic modes: memory for what micro-batches keep until the end of the step, which is whole
 * gradients and the partial sums of the tree. All ranks take it before a micro-batch begins, or
 * none does, so that it cannot run out in the middle of a step. */

/* The levels of the tree after so many further micro-batches; 1 without a tree. */
static int grad_reduce_levels_after(const tutti_trainer *trainer, int micro_batches)
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

static size_t grad_reduce_bytes_of_levels(const tutti_trainer *trainer, int levels)
{
	size_t elements = 0;

	if (trainer->config.deterministic != 2)
		return 0;
	for (int b = 0; b < trainer->layout.trained_count; b++)
		elements += trainer->layout.spans[b].elements;
	return (size_t)(levels - trainer->step.kept_levels) * elements * sizeof(float);
}

static tutti_status grad_reduce_plan_whole(tutti_trainer *trainer)
{
	struct slot_sizes all;

	for (int h = 0; h < trainer->home_count; h++) {
		TRY(slots_for_whole(&all, &trainer->layout, &trainer->config, h, 1));
		TRY(pool_plan(&trainer->homes[h].grad_pool, &all));
	}
	return TUTTI_OK;
}

/* The same result on all ranks. pool_grows checks what some ranks need beside the plan. */
static tutti_status grad_reduce_check_limit(const tutti_trainer *trainer, size_t grads, size_t sums)
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

static tutti_status grad_reduce_make_levels(tutti_trainer *trainer, int levels)
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

static void grad_reduce_drop_levels(tutti_trainer *trainer, int levels)
{
	for (int b = 0; b < trainer->layout.trained_count; b++)
		for (int level = trainer->step.kept_levels; level < levels; level++) {
			struct bucket *bucket = &trainer->buckets[b];
			values_free(bucket->home, bucket->levels[level]);
			bucket->levels[level] = NULL;
		}
}

static tutti_status grads_make_reserve(tutti_trainer *trainer, int levels, size_t sums)
{
	size_t grads = memory_of_slots(trainer);

	TRY(grad_reduce_check_limit(trainer, grads, sums));
	TRY(pool_grows(trainer, grads + sums));
	if (trainer->config.deterministic == 2)
		TRY(grad_reduce_make_levels(trainer, levels));
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
	int levels = grad_reduce_levels_after(trainer, micro_batches);
	size_t sums = grad_reduce_bytes_of_levels(trainer, levels);
	tutti_status status = TUTTI_OK;

	if (!trainer->config.deterministic || levels <= trainer->step.kept_levels)
		return TUTTI_OK;
	for (int h = 0; h < trainer->home_count; h++)
		pool_mark(&trainer->homes[h].grad_pool);
	if (trainer->step.kept_levels == 0)
		status = grad_reduce_plan_whole(trainer);
	if (status == TUTTI_OK)
		status = grads_make_reserve(trainer, levels, sums);
	if (status != TUTTI_OK) {
		for (int h = 0; h < trainer->home_count; h++)
			pool_forget(trainer, &trainer->homes[h].grad_pool);
		grad_reduce_drop_levels(trainer, levels);
	}
	return status;
}

/* ---- the sum tree ---- */

/* deterministic = 2: a binary counter of partial sums. After m micro-batches level l has the sum of
 * 2^l of them if bit l of m is set. So a rank's sum is the subtree that one rank with all
 * micro-batches would have, and the communicator's tree adds ranks above it. */

static void grad_reduce_add_levels(const tutti_trainer *trainer, int p, int last)
{
	const struct bucket *bucket = bucket_of(trainer, p);
	size_t offset = trainer->layout.places[p].offset, count = trainer->model.params[p].count;

	for (int level = 0; level < last; level++)
		if (trainer->tensors[p].pushed >> level & 1)
			values_add(bucket->home, param_grad(trainer, p), TUTTI_F32,
				   bucket->levels[level] + offset, TUTTI_F32, count);
}

/* Puts a parameter's gradient of this micro-batch, which is there (grad_make), into the tree, and
 * sets it to zero. grads_reserve has made the tree's levels. */
static void grad_reduce_sum_tree_push(tutti_trainer *trainer, int p)
{
	const struct bucket *bucket = bucket_of(trainer, p);
	size_t bytes = trainer->model.params[p].count * sizeof(float);
	int level = 0;

	while (trainer->tensors[p].pushed >> level & 1)
		level++;
	assert(bucket->levels[level]);
	grad_reduce_add_levels(trainer, p, level);
	values_copy(bucket->home, bucket->levels[level] + trainer->layout.places[p].offset,
		    param_grad(trainer, p), bytes);
	values_zero(bucket->home, param_grad(trainer, p), bytes);
	trainer->tensors[p].pushed++;
}

/* Adds the sums in the tree to the gradient of the last micro-batch. */
static void grad_reduce_sum_tree_finish(tutti_trainer *trainer, int b)
{
	const struct param_span *span = trainer->buckets[b].span;

	for (int i = 0; i < span->param_count; i++)
		grad_reduce_add_levels(trainer, span->params[i], TREE_LEVELS - 1);
}

/* ---- buckets ---- */

/* Deterministic modes keep gradients whole until the end of the step. */
static bool grad_reduce_bucket_reduces(const tutti_trainer *trainer, const struct bucket *bucket)
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
		if (!grad_reduce_bucket_reduces(trainer, &trainer->buckets[b]) &&
		    trainer->config.deterministic == 2) {
			TRY(grad_make(trainer, b));
			for (int i = 0; i < trainer->buckets[b].span->param_count; i++)
				grad_reduce_sum_tree_push(trainer,
							  trainer->buckets[b].span->params[i]);
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

static int grad_reduce_first_unit_of(const struct tutti_model *model, int param)
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
		    param_is_trained(&model->params[param]) &&
		    grad_reduce_first_unit_of(model, param) == unit)
			grad_reduce_sum_tree_push(trainer, param);
	}
}

/* Waits for a flight rather than take a larger slot: so the planned slots suffice in plain order.
 */
static tutti_status grad_reduce_take_flight_memory(tutti_trainer *trainer, struct slot_pool *pool,
						   size_t bytes, char **memory)
{
	while (trainer->flights.count > 0 && !pool_has(pool, bytes))
		TRY(grad_reduce_flight_finish(trainer));
	return pool_take(trainer, pool, bytes, memory);
}

tutti_status grad_make(tutti_trainer *trainer, int b)
{
	struct bucket *bucket = &trainer->buckets[b];
	tutti_dtype dtype = trainer->config.grad_dtype;

	if (!bucket->span->is_trained || bucket->span->keeps_grad || bucket->grad)
		return TUTTI_OK;
	size_t bytes = bucket->span->count * dtype_bytes(dtype);
	TRY(grad_reduce_take_flight_memory(trainer, &bucket->home->grad_pool, bytes,
					   &bucket->grad));
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
		TRY(grad_reduce_take_flight_memory(trainer, &bucket->home->grad_pool,
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
		TRY(grad_reduce_flight_finish(trainer));
	TRY(grad_make(trainer, b));
	if (trainer->config.deterministic == 2)
		grad_reduce_sum_tree_finish(trainer, b);
	flight.is_last = trainer->batch.pass == TUTTI_PASS_LAST;
	TRY(grad_reduce_load(trainer, &flight));
	if (!bucket->span->keeps_grad) {
		flight.grad = bucket->grad;
		bucket->grad = NULL;
	}
	return grad_reduce_flight_start(trainer, grad_reduce_flight_add(trainer, &flight));
}

/* FSDP's buckets start when their unit has ended; that order is the same on all ranks. Other
 * buckets start in the order of their index, whatever the order of hooks. */
static tutti_status grad_reduce_start_complete(tutti_trainer *trainer, int b)
{
	if (trainer->layout.by_unit)
		return trainer->buckets[b].params_left == 0 ? grad_reduce_start(trainer, b)
							    : TUTTI_OK;
	for (; trainer->flights.next_bucket < trainer->layout.trained_count;
	     trainer->flights.next_bucket++) {
		const struct bucket *next = &trainer->buckets[trainer->flights.next_bucket];
		if (!grad_reduce_bucket_reduces(trainer, next))
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
	if (!grad_reduce_bucket_reduces(trainer, &trainer->buckets[b]))
		return TUTTI_OK;
	trainer->buckets[b].params_left--;
	TRY(grads_poll(trainer));
	return grad_reduce_start_complete(trainer, b);
}

tutti_status grads_flush(tutti_trainer *trainer)
{
	for (int b = 0; b < trainer->layout.trained_count; b++) {
		const struct bucket *bucket = &trainer->buckets[b];
		if (grad_reduce_bucket_reduces(trainer, bucket) && !bucket->is_started)
			TRY(grad_reduce_start(trainer, b));
		else if (!config_has_wire(&trainer->config) && trainer->config.deterministic == 2 &&
			 trainer->batch.pass == TUTTI_PASS_LAST)
			grad_reduce_sum_tree_finish(trainer, b);
	}
	return TUTTI_OK;
}
