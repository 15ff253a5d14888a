/* The whole units and whole gradients that a micro-batch in plain order has at once. This file goes
 * through the steps of param_gather.c, hooks.c and grad_reduce.c without values. A pipeline has
 * another order. */
#include "train/base/base.h"
#include "train/model/slot_tally.h"

#include <stdlib.h>

int units_ahead(const tutti_train_config *config, const struct tutti_model *model)
{
	int ahead = config->prefetch_units ? config->prefetch_units : 1;

	return ahead < model->unit_count ? ahead : model->unit_count;
}

struct gathered {
	bool is_there, is_gathered_ahead, lingers;
};

/* The events of a micro-batch: the forwards of all units, then their backwards. */
struct units {
	const struct model_layout *layout;
	int units, ahead, home; /* the values of one home are counted */
	size_t width;
	struct gathered *buckets;
	struct tally *tally;
};

static const int *plain_order_spans_of(const struct units *s, int event)
{
	return s->layout->unit_spans[event < s->units ? event : 2 * s->units - 1 - event];
}

static bool plain_order_is_among(const int *spans, int span)
{
	while (*spans >= 0 && *spans != span)
		spans++;
	return *spans == span;
}

static bool is_counted(const struct units *s, int b)
{
	return s->layout->spans[b].home == s->home;
}

static void plain_order_gather(struct units *s, int b)
{
	if (!s->buckets[b].is_there && is_counted(s, b))
		tally_take(s->tally, s->layout->spans[b].count * s->width);
	s->buckets[b].is_there = true;
}

static void plain_order_let_go(struct units *s, int b)
{
	if (s->buckets[b].is_there && is_counted(s, b))
		tally_give(s->tally, s->layout->spans[b].count * s->width);
	s->buckets[b] = (struct gathered){0};
}

static void open_unit(struct units *s, int event)
{
	for (int b = 0; b < s->layout->span_count; b++) {
		struct gathered *bucket = &s->buckets[b];
		if (bucket->lingers && !bucket->is_gathered_ahead &&
		    !plain_order_is_among(plain_order_spans_of(s, event), b))
			plain_order_let_go(s, b);
		bucket->lingers = false;
	}
	for (int i = event; i <= event + s->ahead && i < 2 * s->units; i++)
		for (const int *b = plain_order_spans_of(s, i); *b >= 0; b++) {
			if (!s->layout->spans[*b].is_sharded)
				continue;
			plain_order_gather(s, *b);
			s->buckets[*b].is_gathered_ahead = true;
		}
	for (const int *b = plain_order_spans_of(s, event); *b >= 0; b++)
		s->buckets[*b].is_gathered_ahead = false;
}

static void close_unit(struct units *s, int event)
{
	for (const int *b = plain_order_spans_of(s, event); *b >= 0; b++) {
		s->buckets[*b].lingers = true;
		if (event >= s->units)
			plain_order_let_go(s, *b);
	}
}

static tutti_status tally_units(struct tally *tally, const struct model_layout *layout,
				const struct tutti_model *model, const tutti_train_config *config,
				int home)
{
	struct units s = {.layout = layout,
			  .units = model->unit_count,
			  .home = home,
			  .ahead = units_ahead(config, model),
			  .width = dtype_bytes(config->param_dtype),
			  .buckets = calloc((size_t)layout->span_count + 1, sizeof *s.buckets),
			  .tally = tally};

	if (!s.buckets)
		return fail_no_memory("a trainer's tables");
	for (int event = 0; event < 2 * s.units; event++) {
		open_unit(&s, event);
		if (!config->keep_after_forward || event >= s.units)
			close_unit(&s, event);
	}
	free(s.buckets);
	return TUTTI_OK;
}

/* Values in the caller's memory are sent through a slot, one bucket at a time. */
static bool is_passed_on(const struct param_span *span, int home)
{
	return span->home == home && span->is_split && span->has_extern && !span->is_in_place;
}

tutti_status slots_for_units(struct slot_sizes *slots, const struct model_layout *layout,
			     const struct tutti_model *model, const tutti_train_config *config,
			     int home)
{
	size_t width = dtype_bytes(config->param_dtype);
	struct tally tally;

	TRY(tally_make(&tally, layout->span_count));
	for (int s = 0; s < layout->span_count; s++) {
		const struct param_span *span = &layout->spans[s];
		if ((span->home == home && span->is_sharded) || is_passed_on(span, home))
			tally_expect(&tally, span->count * width);
	}
	tally_begin(&tally);
	for (int s = 0; s < layout->span_count; s++)
		if (is_passed_on(&layout->spans[s], home)) {
			tally_take(&tally, layout->spans[s].count * width);
			tally_give(&tally, layout->spans[s].count * width);
		}
	tutti_status status = TUTTI_OK;
	if (layout->by_unit)
		status = model->is_pipelined ? tally_any_order(&tally, layout, model, config, home)
					     : tally_units(&tally, layout, model, config, home);
	if (status == TUTTI_OK)
		status = tally_choose(&tally, slots);
	tally_free(&tally);
	return status;
}

/* As in plain order: one that is in flight, and one that follows it. */
enum { NO_BUCKET = -1, COPIES_IN_PIPELINE = 2 };

/* A bucket has a gradient from its first backward until the gradient is reduced. One gradient is in
 * flight while the next is computed. */
struct grads {
	const struct model_layout *layout;
	const struct tutti_model *model;
	size_t grad_width, wire_width; /* wire_width is 0 if gradients are sent as they are */
	int *pending, *to_come;        /* of each parameter: units; of each bucket: parameters */
	bool *is_there;
	int under_way, next_bucket, home;
	struct tally *tally;
};

/* Its whole gradient is in a slot of the home that is counted. */
static bool has_slot(const struct grads *s, const struct param_span *span)
{
	return span->is_trained && !span->keeps_grad && span->home == s->home;
}

static void plain_order_land(struct grads *s)
{
	if (s->under_way == NO_BUCKET)
		return;
	size_t count = s->layout->spans[s->under_way].count;
	tally_give(s->tally, count * s->grad_width);
	if (s->wire_width)
		tally_give(s->tally, count * s->wire_width);
	s->under_way = NO_BUCKET;
}

static void plain_order_start(struct grads *s, int b)
{
	if (!has_slot(s, &s->layout->spans[b]))
		return;
	if (s->wire_width)
		tally_take(s->tally, s->layout->spans[b].count * s->wire_width);
	plain_order_land(s);
	s->under_way = b;
}

static void grad_is_final(struct grads *s, int param)
{
	int b = s->layout->places[param].span, *next = &s->next_bucket;

	s->to_come[b]--;
	if (s->layout->by_unit && s->to_come[b] == 0)
		plain_order_start(s, b);
	while (!s->layout->by_unit && *next < s->layout->trained_count && s->to_come[*next] == 0)
		plain_order_start(s, (*next)++);
}

static void unit_backward(struct grads *s, int unit)
{
	for (const int *b = s->layout->unit_spans[unit]; *b >= 0; b++) {
		const struct param_span *span = &s->layout->spans[*b];
		if (!has_slot(s, span) || s->is_there[*b])
			continue;
		tally_take(s->tally, span->count * s->grad_width);
		s->is_there[*b] = true;
	}
	for (int i = s->model->use_count - 1; i >= 0; i--) {
		int param = s->model->uses[i].param;
		if (s->model->uses[i].unit == unit && --s->pending[param] == 0 &&
		    param_is_trained(&s->model->params[param]))
			grad_is_final(s, param);
	}
}

static tutti_status tally_grads(struct grads *s)
{
	int params = s->model->param_count, buckets = s->layout->trained_count;

	s->pending = calloc((size_t)(params + buckets) + 1, sizeof *s->pending);
	s->is_there = calloc((size_t)buckets + 1, sizeof *s->is_there);
	bool has_memory = s->pending && s->is_there;
	if (has_memory) {
		s->to_come = s->pending + params;
		for (int i = 0; i < s->model->use_count; i++)
			s->pending[s->model->uses[i].param]++;
		for (int b = 0; b < buckets; b++)
			s->to_come[b] = s->layout->spans[b].param_count;
		for (int u = s->model->unit_count - 1; u >= 0; u--)
			unit_backward(s, u);
	}
	free(s->pending);
	free(s->is_there);
	return has_memory ? TUTTI_OK : fail_no_memory("a trainer's tables");
}

tutti_status slots_for_grads(struct slot_sizes *slots, const struct model_layout *layout,
			     const struct tutti_model *model, const tutti_train_config *config,
			     int home)
{
	struct tally tally;
	struct grads s = {.layout = layout,
			  .model = model,
			  .grad_width = dtype_bytes(config->grad_dtype),
			  .under_way = NO_BUCKET,
			  .home = home,
			  .tally = &tally};

	if (model->is_pipelined) /* held until the last micro-batch */
		return slots_for_whole(slots, layout, config, home, COPIES_IN_PIPELINE);
	if (config->grad_dtype != config->reduce_dtype)
		s.wire_width = dtype_bytes(config->reduce_dtype);
	TRY(tally_make(&tally, 2 * layout->trained_count));
	for (int b = 0; b < layout->trained_count; b++) {
		if (!has_slot(&s, &layout->spans[b]))
			continue;
		tally_expect(&tally, layout->spans[b].count * s.grad_width);
		if (s.wire_width)
			tally_expect(&tally, layout->spans[b].count * s.wire_width);
	}
	tally_begin(&tally);
	tutti_status status = tally_grads(&s);
	if (status == TUTTI_OK)
		status = tally_choose(&tally, slots);
	tally_free(&tally);
	return status;
}
