/* Parameters on their way to the ranks that compute with them.
 *
 * FSDP's are gathered when their unit begins, freed when it has ended.
 *
 * The units that begin next are known from the micro-batch before, and their values are gathered
 * while the current unit computes. Forward's last unit is backward's first, so values linger until
 * another unit begins. The order of gathers follows from the order of calls alone, which is the
 * same on all ranks: the purpose of a gather is the unit that begins, and ranks compare it. */
#include "train/base/base.h"
#include "train/model/model.h"
#include "train/strategies/strategies.h"

#include <stdlib.h>

/* ---- updated values ---- */

/* With ZeRO-1 and -2 each rank updates its part of a bucket, and all ranks gather the bucket while
 * the next one is updated and the next forward begins. A unit's begin waits for its own buckets.
 * Values in the caller's memory are not contiguous and go through a slot. */

/* Copies between the caller's memory and the slot: this rank's part (out), or all of it (in). */
static void param_gather_copy_extern(const tutti_trainer *trainer, const struct bucket *bucket,
				     char *slot, bool is_out)
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

static bool param_gather_needs_slot(const struct bucket *bucket)
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
	if (param_gather_needs_slot(bucket)) {
		for (int before = 0; before < b; before++)
			if (trainer->buckets[before].copy)
				TRY(publish_wait(trainer, before));
		TRY(pool_take(trainer, &bucket->home->data_pool, span->count * width,
			      &bucket->copy));
		values = bucket->copy;
		param_gather_copy_extern(trainer, bucket, values, true);
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
		param_gather_copy_extern(trainer, bucket, bucket->copy, false);
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

/* ---- FSDP ---- */

static const char GATHERING[] = "Gathering";

enum { MOST_EVENTS = 1 << 16 };

static bool param_gather_unit_uses(const tutti_trainer *trainer, int unit, int span)
{
	for (const int *s = trainer->layout.unit_spans[unit]; *s >= 0; s++)
		if (*s == span)
			return true;
	return false;
}

void *param_data(const tutti_trainer *trainer, int param)
{
	const struct param_place *place = &trainer->layout.places[param];
	const struct bucket *bucket = &trainer->buckets[place->span];

	if (trainer->model.params[param].is_extern)
		return trainer->model.params[param].data;
	if (bucket->span->is_sharded &&
	    (trainer->batch.open_pass == UNIT_NONE ||
	     !param_gather_unit_uses(trainer, trainer->batch.open_unit, place->span)))
		return NULL;
	return bucket->data
		       ? bucket->data + place->offset * dtype_bytes(trainer->config.param_dtype)
		       : NULL;
}

tutti_status params_compare_order(tutti_trainer *trainer)
{
	return trainer->layout.by_unit ? trainer_meet(trainer, 0, PURPOSE_STEP_END) : TUTTI_OK;
}

static tutti_status param_gather_bucket_gather(tutti_trainer *trainer, struct bucket *bucket,
					       uint32_t event)
{
	size_t bytes = bucket->span->count * dtype_bytes(trainer->config.param_dtype);

	if (bucket->data)
		return TUTTI_OK;
	TRY(pool_take(trainer, &bucket->home->data_pool, bytes, &bucket->data));
	return bucket_status(trainer, bucket, GATHERING,
			     trainer_gather(trainer, bucket, bucket->shard, bucket->data, event));
}

static tutti_status param_gather_bucket_arrive(tutti_trainer *trainer, struct bucket *bucket)
{
	return bucket_status(trainer, bucket, GATHERING, trainer_wait_values(trainer, bucket));
}

static tutti_status param_gather_bucket_free(tutti_trainer *trainer, struct bucket *bucket)
{
	if (!bucket->span->is_sharded || !bucket->data)
		return TUTTI_OK;
	struct kept_error arrived = {0};
	kept_error_note(&arrived, param_gather_bucket_arrive(trainer, bucket));
	tutti_work_wait(&bucket->gathering, 0); /* its memory is given back */
	pool_give(trainer, &bucket->home->data_pool, &bucket->data);
	bucket->lingers = bucket->is_gathered_ahead = false;
	return kept_error_return(&arrived);
}

tutti_status params_drop(tutti_trainer *trainer)
{
	struct kept_error first = {0};

	for (int b = 0; b < trainer->layout.span_count; b++)
		kept_error_note(&first, param_gather_bucket_free(trainer, &trainer->buckets[b]));
	return kept_error_return(&first);
}

tutti_status params_begin_write(tutti_trainer *trainer)
{
	shadow_expire(trainer);
	TRY(publish_wait_all(trainer));
	return params_drop(trainer);
}

tutti_status params_publish(tutti_trainer *trainer)
{
	TRY(params_drop(trainer));
	for (int b = 0; b < trainer->layout.span_count; b++)
		TRY(publish_bucket(trainer, b));
	return publish_wait_all(trainer);
}

/* Beyond MOST_EVENTS in a micro-batch nothing is gathered ahead. */
static tutti_status param_gather_events_add(struct unit_events *events, uint32_t event)
{
	if (events->count == events->room && events->room < MOST_EVENTS) {
		int room = events->room ? 2 * events->room : 64;
		uint32_t *list = realloc(events->list, (size_t)room * sizeof *list);
		if (!list)
			return fail_no_memory("the order of units");
		events->list = list;
		events->room = room;
	}
	if (events->count < events->room)
		events->list[events->count++] = event;
	return TUTTI_OK;
}

tutti_status params_expect(tutti_trainer *trainer)
{
	if (!trainer->layout.by_unit)
		return TUTTI_OK;
	TRY(params_drop(trainer));
	if (trainer->batch.backward_begun) { /* the micro-batch before was a training one */
		struct unit_events plan = trainer->plan;
		trainer->plan = trainer->seen;
		trainer->seen = plan;
	}
	trainer->seen.count = 0;
	trainer->plan.next = 0;
	return TUTTI_OK;
}

static bool is_as_planned(const struct unit_events *plan, uint32_t event)
{
	return plan->next < plan->count && plan->list[plan->next] == event;
}

static void param_gather_follow_plan(struct unit_events *plan, uint32_t event)
{
	for (int i = plan->next; i < plan->count; i++)
		if (plan->list[i] == event) {
			plan->next = i + 1;
			return;
		}
}

static tutti_status param_gather_ahead(tutti_trainer *trainer, uint32_t event)
{
	const struct unit_events *plan = &trainer->plan;
	int ahead = units_ahead(&trainer->config, &trainer->model);

	for (int i = plan->next; i < plan->count && i < plan->next + ahead; i++) {
		if (trainer->batch.pass == TUTTI_PASS_EVAL && plan->list[i] % 4 == UNIT_BACKWARD)
			break;
		for (const int *s = trainer->layout.unit_spans[plan->list[i] / 4]; *s >= 0; s++) {
			struct bucket *bucket = &trainer->buckets[*s];
			if (!bucket->span->is_sharded)
				continue;
			TRY(param_gather_bucket_gather(trainer, bucket, event));
			bucket->is_gathered_ahead = true;
		}
	}
	return TUTTI_OK;
}

/* Frees values whose unit has ended and, if units come in another order than planned, values
 * gathered ahead. */
static tutti_status param_gather_free_lingering(tutti_trainer *trainer, int unit,
						bool is_as_planned)
{
	for (int b = 0; b < trainer->layout.span_count; b++) {
		struct bucket *bucket = &trainer->buckets[b];
		bool is_idle = is_as_planned ? bucket->lingers && !bucket->is_gathered_ahead
					     : bucket->lingers || bucket->is_gathered_ahead;
		if (is_idle && !param_gather_unit_uses(trainer, unit, b))
			TRY(param_gather_bucket_free(trainer, bucket));
		bucket->lingers = false;
	}
	return TUTTI_OK;
}

tutti_status params_open(tutti_trainer *trainer, int unit, enum unit_pass pass)
{
	uint32_t event = unit_event(unit, pass);
	const int *spans = trainer->layout.unit_spans[unit];

	for (const int *s = spans; *s >= 0; s++)
		TRY(publish_wait(trainer, *s));
	trainer->step.order = trainer->step.order * 0x9e3779b97f4a7c15u + (uint64_t)event + 1;
	if (!trainer->layout.by_unit || !trainer->homes[0].gather)
		return TUTTI_OK;
	TRY(param_gather_free_lingering(trainer, unit, is_as_planned(&trainer->plan, event)));
	TRY(param_gather_events_add(&trainer->seen, event));
	param_gather_follow_plan(&trainer->plan, event);
	for (const int *s = spans; *s >= 0; s++)
		if (trainer->buckets[*s].span->is_sharded)
			TRY(param_gather_bucket_gather(trainer, &trainer->buckets[*s], event));
	TRY(param_gather_ahead(trainer, event));
	for (const int *s = spans; *s >= 0; s++) {
		TRY(param_gather_bucket_arrive(trainer, &trainer->buckets[*s]));
		trainer->buckets[*s].is_gathered_ahead = false;
	}
	return TUTTI_OK;
}

/* A unit uses the span that has more forwards than backwards so far. */
static bool param_gather_is_needed(const tutti_trainer *trainer, int span)
{
	for (int u = 0; u < trainer->model.unit_count; u++)
		if (trainer->units[u].uses > trainer->units[u].finished &&
		    param_gather_unit_uses(trainer, u, span))
			return true;
	return false;
}

tutti_status params_close(tutti_trainer *trainer, int unit, bool is_over)
{
	bool keeps = trainer->config.keep_after_forward && trainer->batch.pass != TUTTI_PASS_EVAL;

	if (!trainer->layout.by_unit || !trainer->homes[0].gather)
		return TUTTI_OK;
	for (const int *s = trainer->layout.unit_spans[unit]; *s >= 0; s++) {
		struct bucket *bucket = &trainer->buckets[*s];
		if (bucket->is_gathered_ahead || (keeps && param_gather_is_needed(trainer, *s)))
			continue;
		bucket->lingers = !is_over;
		if (is_over)
			TRY(param_gather_bucket_free(trainer, bucket));
	}
	return TUTTI_OK;
}
