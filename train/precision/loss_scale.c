/* The loss scale, fixed or dynamic. */
#include "train/precision/precision.h"

#include <math.h>

static const float first_scale = 65536, least_scale = 1.0f / 65536, most_scale = 16777216;
enum { GOOD_STEPS = 2000 };

static bool loss_scale_is_dynamic(const tutti_train_config *config)
{
	return config->loss_scale < 0;
}

static bool loss_scale_has_divisor(const tutti_train_config *config)
{
	return config->grad_dtype == TUTTI_F16 || config->reduce_dtype == TUTTI_F16;
}

void loss_scale_init(struct loss_scale *scale, const tutti_train_config *config)
{
	float fixed = config->loss_scale > 0 ? config->loss_scale : 1;

	*scale = (struct loss_scale){.factor = loss_scale_is_dynamic(config) ? first_scale : fixed,
				     .divisor = 1};
}

void loss_scale_resume(struct loss_scale *scale, const tutti_train_config *config,
		       const struct loss_scale *from)
{
	struct loss_scale before = *scale;

	*scale = *from;
	if (!loss_scale_is_dynamic(config)) {
		scale->factor = before.factor;
		scale->good_steps = before.good_steps;
	}
}

bool loss_scale_needs_items(const struct loss_scale *scale, const tutti_train_config *config)
{
	return loss_scale_has_divisor(config) && !scale->is_known &&
	       config->strategy != TUTTI_LOCAL_SGD;
}

void loss_scale_set_items(struct loss_scale *scale, double items)
{
	scale->divisor = items > 1 ? (float)exp2(ceil(log2(items))) : 1;
	scale->is_known = items > 0;
}

float loss_scale_now(const struct loss_scale *scale)
{
	return scale->factor / scale->divisor;
}

void loss_scale_end_step(struct loss_scale *scale, const tutti_train_config *config, double items,
			 bool is_finite)
{
	if (loss_scale_has_divisor(config))
		loss_scale_set_items(scale, items);
	if (!loss_scale_is_dynamic(config))
		return;
	scale->good_steps = is_finite ? scale->good_steps + 1 : 0;
	if (!is_finite)
		scale->factor = fmaxf(scale->factor / 2, least_scale);
	else if (scale->good_steps % GOOD_STEPS == 0)
		scale->factor = fminf(scale->factor * 2, most_scale);
}
