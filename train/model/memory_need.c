/* The bytes that each strategy needs. */
#include "train/model/model.h"

#include "train/base/base.h"

#include <stdio.h>

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

/* Of the left neighbour's part: parameters, state as of AdamW, and gradients. */
static size_t shadow_bytes(const struct model_layout *layout, const struct tutti_model *model,
			   const tutti_train_config *config, const struct param_span *span,
			   int shard_rank)
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
static size_t copied_elements(const struct param_span *span, const struct tutti_model *model,
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

static void need_span(const struct model_layout *layout, const struct tutti_model *model,
		      const tutti_train_config *config, const struct param_span *span,
		      int shard_rank, tutti_train_stats *stats)
{
	size_t part = part_elements(layout, model, span, span_part(span, shard_rank));
	size_t all = part_elements(layout, model, span, (struct element_range){0, span->count});
	size_t width = dtype_bytes(config->param_dtype);

	stats->param_bytes += width * (span->is_sharded ? part : all);
	stats->optimizer_bytes += shadow_bytes(layout, model, config, span, shard_rank);
	if (!span->is_trained)
		return;
	if (span->keeps_grad)
		stats->grad_bytes +=
			dtype_bytes(config->grad_dtype) * all +
			dtype_bytes(config->reduce_dtype) * copied_elements(span, model, config);
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
		*bytes += slots_sum(&slots);
		slots_finish(&slots);
		TRY(slots_for_grads(&slots, layout, model, config, home));
		*bytes += slots_sum(&slots);
		slots_finish(&slots);
	}
	return TUTTI_OK;
}

void memory_resident(const struct model_layout *layout, const struct tutti_model *model,
		     const tutti_train_config *config, int shard_rank, tutti_train_stats *stats)
{
	stats->param_bytes = stats->grad_bytes = stats->optimizer_bytes = 0;
	for (int s = 0; s < layout->span_count; s++)
		need_span(layout, model, config, &layout->spans[s], shard_rank, stats);
}

/* Prints 1765376 as 1,765,376. */
static const char *with_commas(size_t number, char text[32])
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
		    with_commas(sum, t[0]), with_commas(needed->param_bytes, t[1]),
		    with_commas(needed->grad_bytes, t[2]),
		    with_commas(needed->optimizer_bytes, t[3]),
		    with_commas(needed->gathered_peak_bytes, t[4]),
		    with_commas(config->memory_limit, t[5]));
}
