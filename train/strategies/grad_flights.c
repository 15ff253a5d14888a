/* Gradients in flight.
 *
 * A flight has up to two stages: among the ranks of the shard group, then, in the last micro-batch,
 * among replicas. Flights are in one queue. Stages start in the order of the queue, which is the
 * same on all ranks. */
#include "train/strategies/grad_flights.h"

#include "train/base/base.h"
#include "train/precision/precision.h"
#include "train/strategies/strategies.h"

static struct flight *flight_at(tutti_trainer *trainer, int i)
{
	return &trainer->flights.ring[(trainer->flights.first + i) % trainer->layout.span_count];
}

/* Adds the reduced part to the sum of earlier micro-batches. */
static void add_to_sum(const tutti_trainer *trainer, const struct flight *flight)
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

static tutti_status reduce_shards(tutti_trainer *trainer, struct flight *flight)
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

static tutti_status reduce_replicas(tutti_trainer *trainer, struct flight *flight)
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

struct flight *flight_add(tutti_trainer *trainer, const struct flight *flight)
{
	struct flight *added = flight_at(trainer, trainer->flights.count++);

	*added = *flight;
	trainer->buckets[flight->bucket].is_in_flight = true;
	return added;
}

tutti_status flight_start(tutti_trainer *trainer, struct flight *flight)
{
	tutti_status status =
		trainer->homes[0].reduce
			? group_status(trainer, reduce_shards(trainer, flight), IN_SHARD_GROUP)
			: group_status(trainer, reduce_replicas(trainer, flight), AMONG_REPLICAS);
	flight->failed = bucket_status(trainer, &trainer->buckets[flight->bucket],
				       "Reducing gradients of", status);
	return flight->failed;
}

static tutti_status grad_flights_progress(tutti_trainer *trainer, struct flight *flight, bool wait)
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
			add_to_sum(trainer, flight);
		if (has_replica_stage)
			TRY(group_status(trainer, reduce_replicas(trainer, flight),
					 AMONG_REPLICAS));
		else
			flight->stage = FLIGHT_DONE;
	}
	return TUTTI_OK;
}

/* Progresses the flight; with wait, to its end. A flight that failed has no sum, and stays failed.
 */
static tutti_status grad_flights_advance(tutti_trainer *trainer, struct flight *flight, bool wait)
{
	if (flight->failed != TUTTI_OK)
		return fail(flight->failed, "This step has no gradients: an earlier call of it "
					    "failed, and its error says why.");
	flight->failed =
		bucket_status(trainer, &trainer->buckets[flight->bucket], "Reducing gradients of",
			      grad_flights_progress(trainer, flight, wait));
	return flight->failed;
}

tutti_status flight_finish(tutti_trainer *trainer)
{
	struct flight *flight = flight_at(trainer, 0);
	struct bucket *bucket = &trainer->buckets[flight->bucket];
	struct kept_error failure = {0};

	kept_error_note(&failure, grad_flights_advance(trainer, flight, true));
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
		struct flight *flight = flight_at(trainer, i);
		TRY(grad_flights_advance(trainer, flight, false));
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
		kept_error_note(&first, flight_finish(trainer));
	return kept_error_return(&first);
}
