/* Bytes that a rank will hold, before there is a trainer. */
#include "train/trainer.h"

#include "train/base/base.h"

#include <tutti/parallel.h>

#include <stdlib.h>
#include <string.h>

enum { MOST_RANKS = 1 << 24 };

static size_t memory_estimate_sum_of(const tutti_train_stats *stats)
{
	return stats->param_bytes + stats->grad_bytes + stats->optimizer_bytes;
}

/* Of the rank with most among those that the strategy divides the model over. */
static tutti_status train_memory_estimate(const struct tutti_model *model, int ranks,
					  const tutti_train_config *config,
					  tutti_train_stats *stats)
{
	struct model_layout layout;

	TRY(config_check_world(config, ranks, ranks));
	TRY(layout_make(&layout, model, config, ranks, ranks));
	*stats = (tutti_train_stats){0};
	for (int r = 0; r < layout.shard_size; r++) {
		tutti_train_stats one = {0};
		memory_resident(&layout, model, config, r, &one);
		if (memory_estimate_sum_of(&one) > memory_estimate_sum_of(stats))
			*stats = one;
	}
	tutti_status status = memory_for_slots(&layout, model, config, &stats->gathered_peak_bytes);
	layout_finish(&layout);
	return status;
}

tutti_status tutti_memory_estimate(const tutti_model *model, int world_size,
				   const tutti_train_config *config, tutti_train_stats *stats)
{
	const tutti_train_config zero = {0};

	config = config ? config : &zero;
	if (!model || !stats || world_size < 1 || world_size > MOST_RANKS)
		return fail_invalid("tutti_memory_estimate needs a model, stats and a world_size "
				    "of 1 to %d; world_size is %d.",
				    MOST_RANKS, world_size);
	TRY(config_check(config));
	TRY(config_check_model(config, model));
	return train_memory_estimate(model, world_size, config, stats);
}

static tutti_status estimate_part(const struct tutti_model *model, const struct axes *axes,
				  int rank, int ranks, const tutti_train_config *config,
				  tutti_train_stats *stats)
{
	struct tutti_model part;
	struct model_groups groups;
	int *locals = NULL;

	TRY(model_copy(&part, model));
	tutti_status status = model_localize(&part, &locals, &groups, axes, rank);
	if (status == TUTTI_OK)
		status = train_memory_estimate(&part, ranks, config, stats);
	free(locals);
	model_finish(&part);
	return status;
}

/* The ranks of an axis that the strategy reduces over; 1 for others. */
static int memory_estimate_reduced(const struct axes *axes, int axis)
{
	return axis_is_reduced(axes->axis[axis].name) ? axes->axis[axis].size : 1;
}

static tutti_status estimate_all(const struct tutti_model *model, const struct axes *axes,
				 const tutti_train_config *config, tutti_train_stats *stats)
{
	int ranks = axes->axis[0].size * axes->axis[0].stride, divided = 1;

	for (int i = 0; i < axes->count; i++)
		divided *= memory_estimate_reduced(axes, i);
	*stats = (tutti_train_stats){0};
	for (int r = 0; r < ranks; r++) {
		tutti_train_stats one;
		bool is_first = true;
		for (int i = 0; i < axes->count; i++)
			is_first &= memory_estimate_reduced(axes, i) == 1 ||
				    axes_coord(axes, i, r) == 0;
		if (!is_first) /* has the same part as another one */
			continue;
		TRY(estimate_part(model, axes, r, divided, config, &one));
		if (memory_estimate_sum_of(&one) + one.gathered_peak_bytes >
		    memory_estimate_sum_of(stats) + stats->gathered_peak_bytes)
			*stats = one;
	}
	return TUTTI_OK;
}

tutti_status tutti_memory_estimate_on(const tutti_model *model, const tutti_axis *axes,
				      int num_axes, const tutti_train_config *config,
				      tutti_train_stats *stats)
{
	const tutti_train_config zero = {0};
	char why[AXES_WHY_BYTES];
	struct axes read = {0};
	bool is_good = true;
	int ranks = 1;

	config = config ? config : &zero;
	if (!model || !stats || !axes || num_axes < 1)
		return fail_invalid("tutti_memory_estimate_on needs a model, axes and stats.");
	for (int i = 0; is_good && i < num_axes; i++) {
		is_good = axes_add(&read, axes[i].name, axes[i].size, why);
		ranks = axes[i].size > 0 && ranks <= MOST_RANKS / axes[i].size
				? ranks * axes[i].size
				: 0;
	}
	if (!is_good || ranks == 0)
		return fail_invalid("tutti_memory_estimate_on: %s.",
				    is_good ? "a mesh has at least 1 rank, and no open size" : why);
	axes_fit(&read, ranks, why);
	TRY(config_check(config));
	TRY(config_check_model(config, model));
	TRY(config_check_mesh(config, model));
	return estimate_all(model, &read, config, stats);
}
