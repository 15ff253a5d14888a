/* The layout of a model.
 *
 * DDP, ZeRO-1 and ZeRO-2 have buckets, in reverse order of registration: about the order in which
 * backward finishes gradients. A bucket ends with a unit. The first bucket has 1 MiB, so that
 * communication begins early, the others 25 MiB. FSDP has a span for every unit. Parameters of
 * different kinds (frozen, not sharded) or of different homes never share a span. */
#include "train/base/base.h"
#include "train/model/model.h"

#include <stdlib.h>
#include <string.h>

/* The elements that a parameter takes in a span: the next one begins on a cache line. */
static inline size_t span_layout_param_room(size_t elements)
{
	return (elements + 15) / 16 * 16;
}

/* ---- how a span is divided among the ranks of a shard group ---- */

enum { SHARD_ELEMENTS = 4 }; /* shards begin at multiples of 16 bytes */

/* span_layout_cut_flat and span_layout_cut_whole set span->cuts, but for the last one. This one
 * makes equal parts, also in the middle of a parameter. */
static void span_layout_cut_flat(struct param_span *span, const struct model_layout *layout,
				 const struct tutti_model *model, size_t ranks)
{
	size_t each = span->elements / ranks, more = span->elements % ranks, before = 0;
	int i = 0;

	for (size_t r = 0; r < ranks; r++) {
		size_t target = each * r + more * r / ranks;
		while (i < span->param_count - 1 &&
		       before + model->params[span->params[i]].count <= target)
			before += model->params[span->params[i++]].count;
		size_t cut = (target - before) / SHARD_ELEMENTS * SHARD_ELEMENTS;
		span->cuts[r] = layout->places[span->params[i]].offset + cut;
	}
	span->cuts[0] = 0;
}

/* The rank with the fewest elements so far. Tensors are assigned longest first. */
static int span_layout_cut_lightest(const size_t *loads, int ranks)
{
	int best = 0;

	for (int r = 1; r < ranks; r++)
		if (loads[r] < loads[best])
			best = r;
	return best;
}

/* Assigns whole tensors, and reorders the span so that a rank's tensors are contiguous. loads: the
 * elements of each rank in other spans so far. owners: room for one int per parameter. */
static void span_layout_cut_whole(struct param_span *span, const struct tutti_model *model,
				  size_t *loads, int ranks, int *owners)
{
	for (int i = 0; i < span->param_count; i++)
		owners[span->params[i]] = -1;
	for (int i = 0; i < span->param_count; i++) {
		int next = -1;
		for (int j = 0; j < span->param_count; j++) {
			int p = span->params[j];
			if (owners[p] < 0 &&
			    (next < 0 || model->params[p].count > model->params[next].count))
				next = p;
		}
		owners[next] = span_layout_cut_lightest(loads, ranks);
		loads[owners[next]] += model->params[next].count;
	}
	int moved = 0;
	for (int r = 0; r < ranks; r++)
		for (int i = moved; i < span->param_count; i++)
			if (owners[span->params[i]] == r) {
				int p = span->params[i];
				memmove(span->params + moved + 1, span->params + moved,
					(size_t)(i - moved) * sizeof p);
				span->params[moved++] = p;
			}
	size_t count = 0;
	for (int r = 0, i = 0; r <= ranks; r++) {
		span->cuts[r] = count;
		for (; r < ranks && i < span->param_count && owners[span->params[i]] == r; i++)
			count += span->is_in_place ? model->params[span->params[i]].count
						   : span_layout_param_room(
							     model->params[span->params[i]].count);
	}
}

/* ---- homes ---- */

/* Homes: units that compute in the same stream have their values in one place. Homes are numbered
 * in the order of their first units, so they have the same numbers on all ranks. */

void *unit_stream(const struct tutti_model *model, const tutti_train_config *config, int unit)
{
	void *own = model->units[unit].stream;

	return own ? own : config->stream;
}

int unit_leader(const struct tutti_model *model, const tutti_train_config *config, int unit)
{
	void *stream = unit_stream(model, config, unit);
	int leader = 0;

	while (unit_stream(model, config, leader) != stream)
		leader++;
	return leader;
}

/* Sets unit_homes and home_count. MEMORY. */
static tutti_status layout_homes(struct model_layout *layout, const struct tutti_model *model,
				 const tutti_train_config *config)
{
	layout->home_count = 0;
	layout->unit_homes = malloc(((size_t)model->unit_count + 1) * sizeof *layout->unit_homes);
	if (!layout->unit_homes)
		return fail_no_memory("the model's layout");
	for (int u = 0; u < model->unit_count; u++) {
		int leader = unit_leader(model, config, u);
		layout->unit_homes[u] =
			leader < u ? layout->unit_homes[leader] : layout->home_count++;
	}
	if (model->unit_count == 0)
		layout->home_count = 1;
	return TUTTI_OK;
}

int home_unit(const struct model_layout *layout, const struct tutti_model *model, int home)
{
	for (int u = 0; u < model->unit_count; u++)
		if (layout->unit_homes[u] == home)
			return u;
	return -1;
}

/* ---- spans ---- */

#define FIRST_BUCKET_BYTES ((size_t)1 << 20)
#define BUCKET_BYTES       ((size_t)25 << 20)
/* An extern tensor of at least this size is a span of its own, and is used in place. */
#define IN_PLACE_BYTES ((size_t)1 << 20)

enum kind { TRAINED, TRAINED_WHOLE, FROZEN, FROZEN_WHOLE, KINDS };

/* The parameters that may share a span. */
struct class
{
	enum kind kind;
	int mesh_kind; /* mesh_part.kind */
};

/* The number of ranks that share a model's state. node: the ranks of a node, the default of HSDP.
 */
static int layout_shard_size(const tutti_train_config *config, int world_size, int node)
{
	switch (config->strategy) {
	case TUTTI_ZERO1:
	case TUTTI_ZERO2:
	case TUTTI_FSDP:
		return world_size;
	case TUTTI_HSDP:
		return config->shard_size ? config->shard_size : node;
	default:
		return 1;
	}
}

static bool span_layout_shards_params(const tutti_train_config *config)
{
	return config->strategy == TUTTI_FSDP || config->strategy == TUTTI_HSDP;
}

/* If nothing is sharded, NO_SHARD makes no difference. */
static enum kind span_layout_kind_of(const struct model_layout *layout, const struct param *param)
{
	bool is_whole = layout->shard_size > 1 && param->flags & TUTTI_PARAM_NO_SHARD;

	if (param_is_trained(param))
		return is_whole ? TRAINED_WHOLE : TRAINED;
	return is_whole ? FROZEN_WHOLE : FROZEN;
}

static bool span_layout_is_of(const struct model_layout *layout, const struct param *param,
			      struct class class)
{
	return span_layout_kind_of(layout, param) == class.kind &&
	       param->part.kind == class.mesh_kind;
}

static size_t span_limit(const tutti_train_config *config, int spans_before)
{
	if (span_layout_shards_params(config))
		return 0; /* every unit ends a span */
	if (config->bucket_bytes)
		return config->bucket_bytes;
	return spans_before == 0 ? FIRST_BUCKET_BYTES : BUCKET_BYTES;
}

static void span_close(struct model_layout *layout, const struct tutti_model *model,
		       const tutti_train_config *config, struct param_span *open, enum kind kind)
{
	if (open->param_count == 0)
		return;
	open->is_trained = kind == TRAINED || kind == TRAINED_WHOLE;
	open->is_split = layout->shard_size > 1 &&
			 (kind == TRAINED || (kind == FROZEN && span_layout_shards_params(config)));
	open->is_sharded = open->is_split && span_layout_shards_params(config);
	open->keeps_grad = !open->is_split || config->strategy == TUTTI_ZERO1;
	open->home = layout->unit_homes[model->params[open->params[0]].unit];
	for (int i = 0; i < open->param_count; i++) {
		layout->places[open->params[i]].span = layout->span_count;
		open->has_extern = open->has_extern || model->params[open->params[i]].is_extern;
	}
	layout->spans[layout->span_count++] = *open;
	*open = (struct param_span){.params = open->params + open->param_count};
}

static bool span_layout_is_large_extern(const struct param *param, const tutti_train_config *config)
{
	return param->is_extern &&
	       param->count * dtype_bytes(config->param_dtype) >= IN_PLACE_BYTES;
}

/* The parameter before p, in another unit, is of another home. */
static bool span_layout_home_ends(const struct model_layout *layout,
				  const struct tutti_model *model, int p)
{
	const struct param *params = model->params;

	return p > 0 &&
	       layout->unit_homes[params[p - 1].unit] != layout->unit_homes[params[p].unit];
}

/* Makes all spans of one class. Their lists of parameters are taken from *list. */
static void span_layout_cut_class(struct model_layout *layout, const struct tutti_model *model,
				  const tutti_train_config *config, struct class class, int **list)
{
	struct param_span open = {.params = *list};
	size_t bytes = 0, width = dtype_bytes(config->grad_dtype);

	for (int p = model->param_count - 1; p >= 0; p--) {
		const struct param *param = &model->params[p];
		bool unit_ends = p == 0 || model->params[p - 1].unit != param->unit;
		if (span_layout_is_of(layout, param, class) &&
		    !span_layout_is_large_extern(param, config)) {
			open.params[open.param_count++] = p;
			bytes += param->count * width;
		}
		bool is_full = unit_ends && bytes >= span_limit(config, layout->span_count);
		/* Stages have other parameters beside it, but divide it alike. */
		is_full =
			is_full || (span_layout_is_of(layout, param, class) && param->part.is_tied);
		if (is_full || span_layout_home_ends(layout, model, p)) {
			span_close(layout, model, config, &open, class.kind);
			bytes = 0;
		}
		if (!span_layout_is_of(layout, param, class) ||
		    !span_layout_is_large_extern(param, config))
			continue;
		/* The extern tensor comes before the bucket that is still open. */
		memmove(open.params + 1, open.params,
			(size_t)open.param_count * sizeof *open.params);
		struct param_span own = {
			.params = open.params, .param_count = 1, .is_in_place = true};
		own.params[0] = p;
		open.params++;
		span_close(layout, model, config, &own, class.kind);
	}
	span_close(layout, model, config, &open, class.kind);
	*list = open.params;
}

static int span_layout_lowest(const struct param_span *span)
{
	int first = span->params[0];

	for (int i = 1; i < span->param_count; i++)
		first = span->params[i] < first ? span->params[i] : first;
	return first;
}

static int span_layout_compare_spans(const void *a, const void *b)
{
	return span_layout_lowest(b) - span_layout_lowest(a);
}

/* Trained spans start in the order of their index: as backward comes to their ends, whatever their
 * classes. */
static void span_layout_sort_trained(struct model_layout *layout)
{
	if (layout->trained_count > 1)
		qsort(layout->spans, (size_t)layout->trained_count, sizeof *layout->spans,
		      span_layout_compare_spans);
	for (int s = 0; s < layout->trained_count; s++)
		for (int i = 0; i < layout->spans[s].param_count; i++)
			layout->places[layout->spans[s].params[i]].span = s;
}

static void span_layout_place(struct model_layout *layout, const struct tutti_model *model,
			      struct param_span *span)
{
	for (int i = 0; i < span->param_count; i++) {
		int p = span->params[i];
		layout->places[p].offset = span->count;
		span->elements += model->params[p].count;
		span->count += span->is_in_place ? model->params[p].count
						 : span_layout_param_room(model->params[p].count);
	}
	/* A span without elements gets a cache line, so that it needs no special case elsewhere. */
	if (span->count == 0)
		span->count = span_layout_param_room(1);
}

static tutti_status span_layout_cut_all(struct model_layout *layout,
					const struct tutti_model *model,
					const tutti_train_config *config)
{
	int ranks = layout->shard_size,
	    *owners = malloc(((size_t)model->param_count + 1) * sizeof *owners);
	size_t *loads = calloc((size_t)ranks, sizeof *loads);

	layout->cut_memory =
		malloc((size_t)(layout->span_count + 1) * (size_t)(2 * ranks + 1) * sizeof(size_t));
	bool has_memory = owners && loads && layout->cut_memory;
	for (int s = 0; s < layout->span_count && has_memory; s++) {
		struct param_span *span = &layout->spans[s];
		span->cuts = layout->cut_memory + (size_t)s * (size_t)(2 * ranks + 1);
		span->shares = span->cuts + ranks + 1;
		if (config->whole_tensors && span->is_split)
			span_layout_cut_whole(span, model, loads, ranks, owners);
		span_layout_place(layout, model, span);
		if (!config->whole_tensors || !span->is_split)
			span_layout_cut_flat(span, layout, model, (size_t)ranks);
		span->cuts[ranks] = span->count;
		for (int r = 0; r < ranks; r++)
			span->shares[r] = span->cuts[r + 1] - span->cuts[r];
	}
	free(owners);
	free(loads);
	return has_memory ? TUTTI_OK : fail_no_memory("the model's layout");
}

static void span_layout_list_add(int *list, int *count, int span)
{
	for (int i = 0; i < *count; i++)
		if (list[i] == span)
			return;
	list[(*count)++] = span;
}

/* Lists the spans that each unit uses. */
static tutti_status span_layout_list_units(struct model_layout *layout,
					   const struct tutti_model *model)
{
	int *list =
		malloc(((size_t)model->use_count + (size_t)model->unit_count + 1) * sizeof *list);

	layout->unit_spans = calloc((size_t)model->unit_count + 1, sizeof *layout->unit_spans);
	layout->unit_memory = list;
	if (!layout->unit_spans || !list)
		return fail_no_memory("the model's layout");
	for (int u = 0; u < model->unit_count; u++) {
		int count = 0;
		layout->unit_spans[u] = list;
		for (int i = 0; i < model->use_count; i++)
			if (model->uses[i].unit == u)
				span_layout_list_add(list, &count,
						     layout->places[model->uses[i].param].span);
		list[count++] = -1;
		list += count;
	}
	return TUTTI_OK;
}

static tutti_status span_layout_fill(struct model_layout *layout, const struct tutti_model *model,
				     const tutti_train_config *config)
{
	size_t params = (size_t)model->param_count + 1;

	layout->spans = calloc(params, sizeof *layout->spans);
	layout->places = calloc(params, sizeof *layout->places);
	layout->param_memory = malloc(params * sizeof(int));
	if (!layout->spans || !layout->places || !layout->param_memory)
		return fail_no_memory("the model's layout");
	TRY(layout_homes(layout, model, config));
	int *list = layout->param_memory;
	for (enum kind kind = TRAINED; kind < KINDS; kind++) {
		for (int k = 0; k < model->kind_count; k++)
			span_layout_cut_class(layout, model, config, (struct class){kind, k},
					      &list);
		if (kind == TRAINED_WHOLE)
			layout->trained_count = layout->span_count;
	}
	if (model->kind_count > 1)
		span_layout_sort_trained(layout);
	TRY(span_layout_cut_all(layout, model, config));
	return span_layout_list_units(layout, model);
}

tutti_status layout_make(struct model_layout *layout, const struct tutti_model *model,
			 const tutti_train_config *config, int world_size, int node)
{
	int shard_size = layout_shard_size(config, world_size, node);

	*layout = (struct model_layout){.shard_size = shard_size,
					.replica_count = world_size / shard_size,
					.by_unit = span_layout_shards_params(config)};
	tutti_status status = span_layout_fill(layout, model, config);
	if (status != TUTTI_OK)
		layout_finish(layout);
	return status;
}

void layout_finish(struct model_layout *layout)
{
	free(layout->spans);
	free(layout->places);
	free(layout->unit_spans);
	free(layout->unit_homes);
	free(layout->cut_memory);
	free(layout->param_memory);
	free(layout->unit_memory);
	memset(layout, 0, sizeof *layout);
}

struct element_range span_part(const struct param_span *span, int rank)
{
	if (!span->is_split)
		return (struct element_range){0, span->count};
	return (struct element_range){span->cuts[rank], span->cuts[rank + 1]};
}

struct element_range param_part(const struct model_layout *layout, const struct tutti_model *model,
				int param, struct element_range part)
{
	size_t offset = layout->places[param].offset, count = model->params[param].count;
	size_t first = part.first > offset ? part.first - offset : 0;
	size_t last = part.last > offset ? part.last - offset : 0;

	first = first < count ? first : count;
	last = last < count ? last : count;
	return (struct element_range){first, last > first ? last : first};
}

size_t part_elements(const struct model_layout *layout, const struct tutti_model *model,
		     const struct param_span *span, struct element_range part)
{
	size_t elements = 0;

	for (int i = 0; i < span->param_count; i++) {
		struct element_range own = param_part(layout, model, span->params[i], part);
		elements += own.last - own.first;
	}
	return elements;
}
