/* The bytes that each strategy needs, and the slots for whole units and whole gradients. */
#include "train/base/base.h"
#include "train/model/model.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- sizes of slots ---- */

/* How many slots there are, and how large.
 *
 * Slots have one or two sizes, for large and small values, and there are as many of each as values
 * at once. A value fits any slot of its kind, so it does not matter which slots are free. If that
 * takes fewer bytes, each value has a slot of its own size. */

/* Counts values that exist at once, by size. First every value is expected; after
 * memory_need_tally_begin, values are taken and given back any number of times. */
struct tally {
	size_t *all;   /* sizes of all expected values */
	size_t *sizes; /* the different sizes, ascending */
	int all_count, size_count;
	int *now;           /* values that exist now, by size */
	int *above, *below; /* the most at once: of at least that size; of smaller sizes */
};

static void memory_need_tally_free(struct tally *tally)
{
	free(tally->all);
	free(tally->now);
	*tally = (struct tally){0};
}

/* most: of expected values. MEMORY leaves nothing to free. */
static tutti_status memory_need_tally_make(struct tally *tally, int most)
{
	size_t room = (size_t)most + 1;

	*tally = (struct tally){.all = malloc(2 * room * sizeof *tally->all),
				.now = calloc(3 * room, sizeof *tally->now)};
	if (!tally->all || !tally->now) {
		memory_need_tally_free(tally);
		return fail_no_memory("a trainer's tables");
	}
	tally->sizes = tally->all + room;
	tally->above = tally->now + room;
	tally->below = tally->above + room;
	return TUTTI_OK;
}

static void memory_need_tally_expect(struct tally *tally, size_t bytes)
{
	tally->all[tally->all_count++] = whole_lines(bytes);
}

static int memory_need_by_size(const void *a, const void *b)
{
	size_t x = *(const size_t *)a, y = *(const size_t *)b;

	return (x > y) - (x < y);
}

static void memory_need_tally_begin(struct tally *tally)
{
	qsort(tally->all, (size_t)tally->all_count, sizeof *tally->all, memory_need_by_size);
	for (int i = 0; i < tally->all_count; i++)
		if (i == 0 || tally->all[i] != tally->all[i - 1])
			tally->sizes[tally->size_count++] = tally->all[i];
}

static int *memory_need_tally_count_of(const struct tally *tally, size_t bytes)
{
	size_t size = whole_lines(bytes);
	const size_t *found = bsearch(&size, tally->sizes, (size_t)tally->size_count, sizeof size,
				      memory_need_by_size);

	assert(found);
	return &tally->now[found - tally->sizes];
}

static void memory_need_tally_take(struct tally *tally, size_t bytes)
{
	int before = 0, all = 0;

	++*memory_need_tally_count_of(tally, bytes);
	for (int i = 0; i < tally->size_count; i++)
		all += tally->now[i];
	for (int i = 0; i < tally->size_count; i++) {
		if (before > tally->below[i])
			tally->below[i] = before;
		if (all - before > tally->above[i])
			tally->above[i] = all - before;
		before += tally->now[i];
	}
}

static void memory_need_tally_give(struct tally *tally, size_t bytes)
{
	--*memory_need_tally_count_of(tally, bytes);
}

/* The bytes of slots for values from sizes[cut] on, and of slots for smaller ones. */
static size_t memory_need_bytes_of_two(const struct tally *tally, int cut)
{
	size_t large = (size_t)tally->above[cut] * tally->sizes[tally->size_count - 1];

	return large + (cut > 0 ? (size_t)tally->below[cut] * tally->sizes[cut - 1] : 0);
}

static tutti_status memory_need_slots_make(struct slot_sizes *slots, int most)
{
	*slots = (struct slot_sizes){.bytes = malloc(((size_t)most + 1) * sizeof *slots->bytes)};
	return slots->bytes ? TUTTI_OK : fail_no_memory("a trainer's tables");
}

static void memory_need_add_slots(struct slot_sizes *slots, int count, size_t bytes)
{
	for (int i = 0; i < count; i++)
		slots->bytes[slots->count++] = bytes;
}

/* Sets the slots for the values that were counted. */
static tutti_status memory_need_tally_choose(const struct tally *tally, struct slot_sizes *slots)
{
	size_t least = 0;
	int best = -1; /* -1: a slot for each value */

	TRY(memory_need_slots_make(slots, tally->all_count)); /* never more slots than values */
	for (int i = 0; i < tally->all_count; i++)
		least += tally->all[i];
	for (int cut = 0; cut < tally->size_count; cut++)
		if (memory_need_bytes_of_two(tally, cut) < least) {
			least = memory_need_bytes_of_two(tally, cut);
			best = cut;
		}
	for (int i = 0; best < 0 && i < tally->all_count; i++)
		memory_need_add_slots(slots, 1, tally->all[i]);
	if (best >= 0)
		memory_need_add_slots(slots, tally->above[best],
				      tally->sizes[tally->size_count - 1]);
	if (best > 0)
		memory_need_add_slots(slots, tally->below[best], tally->sizes[best - 1]);
	return TUTTI_OK;
}

tutti_status slots_for_whole(struct slot_sizes *slots, const struct model_layout *layout,
			     const tutti_train_config *config, int home, int copies)
{
	size_t grad = dtype_bytes(config->grad_dtype), wire = dtype_bytes(config->reduce_dtype);
	size_t most = 0; /* elements */

	TRY(memory_need_slots_make(slots, layout->trained_count + copies));
	for (int b = 0; b < layout->trained_count; b++) {
		const struct param_span *span = &layout->spans[b];
		if (span->keeps_grad || span->home != home)
			continue;
		memory_need_add_slots(slots, 1, whole_lines(span->count * grad));
		most = span->count > most ? span->count : most;
	}
	copies = copies < slots->count ? copies : slots->count;
	if (config->grad_dtype != config->reduce_dtype)
		memory_need_add_slots(slots, copies, whole_lines(most * wire));
	qsort(slots->bytes, (size_t)slots->count, sizeof *slots->bytes, memory_need_by_size);
	return TUTTI_OK;
}

static size_t memory_need_slots_sum(const struct slot_sizes *slots)
{
	size_t sum = 0;

	for (int i = 0; i < slots->count; i++)
		sum += slots->bytes[i];
	return sum;
}

void slots_finish(struct slot_sizes *slots)
{
	free(slots->bytes);
	*slots = (struct slot_sizes){0};
}

/* ---- any order ---- */

/* The whole units that a rank of a pipeline has at once. Its units follow each other as the
 * schedule wants, which the trainer does not know: so it may be any of them, and any that are
 * gathered ahead. */

struct parts {
	int all, large; /* spans of a unit that are gathered; of at least some size */
};

static struct parts memory_need_any_order_parts_of(const struct model_layout *layout, int unit,
						   int home, size_t width, size_t size)
{
	struct parts parts = {0};

	for (const int *b = layout->unit_spans[unit]; *b >= 0; b++) {
		const struct param_span *span = &layout->spans[*b];
		if (!span->is_sharded || span->home != home)
			continue;
		parts.all++;
		parts.large += whole_lines(span->count * width) >= size;
	}
	return parts;
}

static int memory_need_any_order_descending(const void *a, const void *b)
{
	return *(const int *)b - *(const int *)a;
}

/* Sets at_once to the sum of the largest of these counts, if that is more, but not above all. */
static void memory_need_count_largest(int *at_once, int *counts, int units, int largest, int all)
{
	int sum = 0;

	qsort(counts, (size_t)units, sizeof *counts, memory_need_any_order_descending);
	for (int i = 0; i < largest && i < units; i++)
		sum += counts[i];
	sum = sum < all ? sum : all;
	*at_once = sum > *at_once ? sum : *at_once;
}

/* Counts the most whole units at once, in whichever order they begin. */
static tutti_status memory_need_tally_any_order(struct tally *tally,
						const struct model_layout *layout,
						const struct tutti_model *model,
						const tutti_train_config *config, int home)
{
	int units = model->unit_count;
	int at_once = config->keep_after_forward ? units : 1 + units_ahead(config, model);
	size_t width = dtype_bytes(config->param_dtype);
	int *large = malloc(2 * ((size_t)units + 1) * sizeof *large), *small = large + units + 1;

	if (!large)
		return fail_no_memory("a trainer's tables");
	for (int i = 0; i < tally->size_count; i++) {
		int all = 0; /* values of at least this size */
		for (int v = 0; v < tally->all_count; v++)
			all += tally->all[v] >= tally->sizes[i];
		for (int u = 0; u < units; u++) {
			struct parts parts = memory_need_any_order_parts_of(layout, u, home, width,
									    tally->sizes[i]);
			large[u] = parts.large;
			small[u] = parts.all - parts.large;
		}
		memory_need_count_largest(&tally->above[i], large, units, at_once, all);
		memory_need_count_largest(&tally->below[i], small, units, at_once,
					  tally->all_count - all);
	}
	free(large);
	return TUTTI_OK;
}

bool config_has_wire(const tutti_train_config *config)
{
	return config->strategy != TUTTI_LOCAL_SGD;
}

tutti_dtype span_sum_dtype(const struct param_span *span, const tutti_train_config *config)
{
	if (!config_has_wire(config))
		return config->grad_dtype;
	if (span->keeps_grad)
		return config->reduce_dtype;
	return config->grad_dtype == config->reduce_dtype ? config->reduce_dtype : TUTTI_F32;
}

bool layout_has_shadow(const struct model_layout *layout, const tutti_train_config *config)
{
	return config->shadow && layout->shard_size > 1 && layout->replica_count == 1;
}

/* ---- plain order ---- */

/* The whole units and whole gradients that a micro-batch in plain order has at once. This file goes
 * through the steps of param_gather.c, hooks.c and grad_reduce.c without values. A pipeline has
 * another order. */

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

static const int *memory_need_plain_order_spans_of(const struct units *s, int event)
{
	return s->layout->unit_spans[event < s->units ? event : 2 * s->units - 1 - event];
}

static bool memory_need_plain_order_is_among(const int *spans, int span)
{
	while (*spans >= 0 && *spans != span)
		spans++;
	return *spans == span;
}

static bool memory_need_is_counted(const struct units *s, int b)
{
	return s->layout->spans[b].home == s->home;
}

static void memory_need_plain_order_gather(struct units *s, int b)
{
	if (!s->buckets[b].is_there && memory_need_is_counted(s, b))
		memory_need_tally_take(s->tally, s->layout->spans[b].count * s->width);
	s->buckets[b].is_there = true;
}

static void memory_need_plain_order_let_go(struct units *s, int b)
{
	if (s->buckets[b].is_there && memory_need_is_counted(s, b))
		memory_need_tally_give(s->tally, s->layout->spans[b].count * s->width);
	s->buckets[b] = (struct gathered){0};
}

static void memory_need_open_unit(struct units *s, int event)
{
	for (int b = 0; b < s->layout->span_count; b++) {
		struct gathered *bucket = &s->buckets[b];
		if (bucket->lingers && !bucket->is_gathered_ahead &&
		    !memory_need_plain_order_is_among(memory_need_plain_order_spans_of(s, event),
						      b))
			memory_need_plain_order_let_go(s, b);
		bucket->lingers = false;
	}
	for (int i = event; i <= event + s->ahead && i < 2 * s->units; i++)
		for (const int *b = memory_need_plain_order_spans_of(s, i); *b >= 0; b++) {
			if (!s->layout->spans[*b].is_sharded)
				continue;
			memory_need_plain_order_gather(s, *b);
			s->buckets[*b].is_gathered_ahead = true;
		}
	for (const int *b = memory_need_plain_order_spans_of(s, event); *b >= 0; b++)
		s->buckets[*b].is_gathered_ahead = false;
}

static void memory_need_close_unit(struct units *s, int event)
{
	for (const int *b = memory_need_plain_order_spans_of(s, event); *b >= 0; b++) {
		s->buckets[*b].lingers = true;
		if (event >= s->units)
			memory_need_plain_order_let_go(s, *b);
	}
}

static tutti_status memory_need_tally_units(struct tally *tally, const struct model_layout *layout,
					    const struct tutti_model *model,
					    const tutti_train_config *config, int home)
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
		memory_need_open_unit(&s, event);
		if (!config->keep_after_forward || event >= s.units)
			memory_need_close_unit(&s, event);
	}
	free(s.buckets);
	return TUTTI_OK;
}

/* Values in the caller's memory are sent through a slot, one bucket at a time. */
static bool memory_need_is_passed_on(const struct param_span *span, int home)
{
	return span->home == home && span->is_split && span->has_extern && !span->is_in_place;
}

tutti_status slots_for_units(struct slot_sizes *slots, const struct model_layout *layout,
			     const struct tutti_model *model, const tutti_train_config *config,
			     int home)
{
	size_t width = dtype_bytes(config->param_dtype);
	struct tally tally;

	TRY(memory_need_tally_make(&tally, layout->span_count));
	for (int s = 0; s < layout->span_count; s++) {
		const struct param_span *span = &layout->spans[s];
		if ((span->home == home && span->is_sharded) ||
		    memory_need_is_passed_on(span, home))
			memory_need_tally_expect(&tally, span->count * width);
	}
	memory_need_tally_begin(&tally);
	for (int s = 0; s < layout->span_count; s++)
		if (memory_need_is_passed_on(&layout->spans[s], home)) {
			memory_need_tally_take(&tally, layout->spans[s].count * width);
			memory_need_tally_give(&tally, layout->spans[s].count * width);
		}
	tutti_status status = TUTTI_OK;
	if (layout->by_unit)
		status = model->is_pipelined
				 ? memory_need_tally_any_order(&tally, layout, model, config, home)
				 : memory_need_tally_units(&tally, layout, model, config, home);
	if (status == TUTTI_OK)
		status = memory_need_tally_choose(&tally, slots);
	memory_need_tally_free(&tally);
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
static bool memory_need_has_slot(const struct grads *s, const struct param_span *span)
{
	return span->is_trained && !span->keeps_grad && span->home == s->home;
}

static void memory_need_plain_order_land(struct grads *s)
{
	if (s->under_way == NO_BUCKET)
		return;
	size_t count = s->layout->spans[s->under_way].count;
	memory_need_tally_give(s->tally, count * s->grad_width);
	if (s->wire_width)
		memory_need_tally_give(s->tally, count * s->wire_width);
	s->under_way = NO_BUCKET;
}

static void memory_need_plain_order_start(struct grads *s, int b)
{
	if (!memory_need_has_slot(s, &s->layout->spans[b]))
		return;
	if (s->wire_width)
		memory_need_tally_take(s->tally, s->layout->spans[b].count * s->wire_width);
	memory_need_plain_order_land(s);
	s->under_way = b;
}

static void memory_need_grad_is_final(struct grads *s, int param)
{
	int b = s->layout->places[param].span, *next = &s->next_bucket;

	s->to_come[b]--;
	if (s->layout->by_unit && s->to_come[b] == 0)
		memory_need_plain_order_start(s, b);
	while (!s->layout->by_unit && *next < s->layout->trained_count && s->to_come[*next] == 0)
		memory_need_plain_order_start(s, (*next)++);
}

static void memory_need_unit_backward(struct grads *s, int unit)
{
	for (const int *b = s->layout->unit_spans[unit]; *b >= 0; b++) {
		const struct param_span *span = &s->layout->spans[*b];
		if (!memory_need_has_slot(s, span) || s->is_there[*b])
			continue;
		memory_need_tally_take(s->tally, span->count * s->grad_width);
		s->is_there[*b] = true;
	}
	for (int i = s->model->use_count - 1; i >= 0; i--) {
		int param = s->model->uses[i].param;
		if (s->model->uses[i].unit == unit && --s->pending[param] == 0 &&
		    param_is_trained(&s->model->params[param]))
			memory_need_grad_is_final(s, param);
	}
}

static tutti_status memory_need_tally_grads(struct grads *s)
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
			memory_need_unit_backward(s, u);
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
	TRY(memory_need_tally_make(&tally, 2 * layout->trained_count));
	for (int b = 0; b < layout->trained_count; b++) {
		if (!memory_need_has_slot(&s, &layout->spans[b]))
			continue;
		memory_need_tally_expect(&tally, layout->spans[b].count * s.grad_width);
		if (s.wire_width)
			memory_need_tally_expect(&tally, layout->spans[b].count * s.wire_width);
	}
	memory_need_tally_begin(&tally);
	tutti_status status = memory_need_tally_grads(&s);
	if (status == TUTTI_OK)
		status = memory_need_tally_choose(&tally, slots);
	memory_need_tally_free(&tally);
	return status;
}

/* ---- bytes ---- */

/* Of the left neighbour's part: parameters, state as of AdamW, and gradients. */
static size_t memory_need_shadow_bytes(const struct model_layout *layout,
				       const struct tutti_model *model,
				       const tutti_train_config *config,
				       const struct param_span *span, int shard_rank)
{
	int owner = (shard_rank + layout->shard_size - 1) % layout->shard_size;
	struct element_range range = span_part(span, owner);
	size_t part = part_elements(layout, model, span, range);
	size_t width = dtype_bytes(config->param_dtype);

	if (!layout_has_shadow(layout, config) || !span->is_split)
		return 0;
	if (!span->is_trained)
		return width * part;
	return ((width < sizeof(float) ? width : 0) + 3 * sizeof(float)) * part +
	       dtype_bytes(span_sum_dtype(span, config)) * (range.last - range.first);
}

/* Elements of the span whose gradient is copied before it is sent. */
static size_t memory_need_copied_elements(const struct param_span *span,
					  const struct tutti_model *model,
					  const tutti_train_config *config)
{
	size_t elements = 0;

	if (!config_has_wire(config))
		return 0;
	for (int i = 0; i < span->param_count; i++) {
		const struct param *param = &model->params[span->params[i]];
		bool is_moved = param->is_extern && !span->is_in_place;
		if (is_moved || config->grad_dtype != config->reduce_dtype)
			elements += param->count;
	}
	return elements;
}

static void memory_need_span(const struct model_layout *layout, const struct tutti_model *model,
			     const tutti_train_config *config, const struct param_span *span,
			     int shard_rank, tutti_train_stats *stats)
{
	size_t part = part_elements(layout, model, span, span_part(span, shard_rank));
	size_t all = part_elements(layout, model, span, (struct element_range){0, span->count});
	size_t width = dtype_bytes(config->param_dtype);

	stats->param_bytes += width * (span->is_sharded ? part : all);
	stats->optimizer_bytes += memory_need_shadow_bytes(layout, model, config, span, shard_rank);
	if (!span->is_trained)
		return;
	if (span->keeps_grad)
		stats->grad_bytes += dtype_bytes(config->grad_dtype) * all +
				     dtype_bytes(config->reduce_dtype) *
					     memory_need_copied_elements(span, model, config);
	else
		stats->grad_bytes += dtype_bytes(span_sum_dtype(span, config)) * part;
	if (!config->offload_dir && !(config->on_device && config->offload_optimizer))
		stats->optimizer_bytes += (width < sizeof(float) ? 3 : 2) * sizeof(float) * part;
}

tutti_status memory_for_slots(const struct model_layout *layout, const struct tutti_model *model,
			      const tutti_train_config *config, size_t *bytes)
{
	struct slot_sizes slots;

	*bytes = 0;
	for (int home = 0; home < layout->home_count; home++) {
		TRY(slots_for_units(&slots, layout, model, config, home));
		*bytes += memory_need_slots_sum(&slots);
		slots_finish(&slots);
		TRY(slots_for_grads(&slots, layout, model, config, home));
		*bytes += memory_need_slots_sum(&slots);
		slots_finish(&slots);
	}
	return TUTTI_OK;
}

void memory_resident(const struct model_layout *layout, const struct tutti_model *model,
		     const tutti_train_config *config, int shard_rank, tutti_train_stats *stats)
{
	stats->param_bytes = stats->grad_bytes = stats->optimizer_bytes = 0;
	for (int s = 0; s < layout->span_count; s++)
		memory_need_span(layout, model, config, &layout->spans[s], shard_rank, stats);
}

/* Prints 1765376 as 1,765,376. */
static const char *memory_need_with_commas(size_t number, char text[32])
{
	char digits[24];
	int count = snprintf(digits, sizeof digits, "%zu", number), used = 0;

	for (int i = 0; i < count; i++) {
		if (i > 0 && (count - i) % 3 == 0)
			text[used++] = ',';
		text[used++] = digits[i];
	}
	text[used] = '\0';
	return text;
}

tutti_status memory_check(const tutti_train_config *config, const tutti_train_stats *needed)
{
	size_t sum = needed->param_bytes + needed->grad_bytes + needed->optimizer_bytes +
		     needed->gathered_peak_bytes;
	char t[6][32];

	if (config->memory_limit == 0 || sum <= config->memory_limit)
		return TUTTI_OK;
	return fail(TUTTI_ERR_MEMORY,
		    "This model needs %s B: %s parameters + %s gradients + %s optimizer + %s "
		    "of whole units and gradients; memory_limit is %s B. Use a strategy that "
		    "shards more, more ranks, or offload_dir.",
		    memory_need_with_commas(sum, t[0]),
		    memory_need_with_commas(needed->param_bytes, t[1]),
		    memory_need_with_commas(needed->grad_bytes, t[2]),
		    memory_need_with_commas(needed->optimizer_bytes, t[3]),
		    memory_need_with_commas(needed->gathered_peak_bytes, t[4]),
		    memory_need_with_commas(config->memory_limit, t[5]));
}
