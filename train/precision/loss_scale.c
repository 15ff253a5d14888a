/* What the author multiplies the loss by.
 *
 * The loss scale keeps small gradients from vanishing in 16 bits: fixed, or with config.loss_scale
 * < 0 halved whenever a step has an infinity and doubled after 2000 steps without. Gradients are
 * sums over items, which F16 cannot hold for large batches: where they are kept or sent in F16 they
 * are divided by about the items of a step, a power of two, so that this costs no bit. */
#include "train/trainer.h"

#include <math.h>

static const float first_scale = 65536, least_scale = 1.0f / 65536, most_scale = 16777216;
enum { GOOD_STEPS = 2000 };

static bool is_dynamic(const tutti_trainer *trainer)
{
	return trainer->config.loss_scale < 0;
}

void scale_create(tutti_trainer *trainer)
{
	float fixed = trainer->config.loss_scale;

	trainer->scale = (struct scale){.factor = is_dynamic(trainer) ? first_scale
						  : fixed > 0         ? fixed
								      : 1,
					.divisor = 1};
}

static bool divides(const tutti_trainer *trainer)
{
	return trainer->config.grad_dtype == TUTTI_F16 || trainer->config.reduce_dtype == TUTTI_F16;
}

static void set_divisor(tutti_trainer *trainer, double items)
{
	trainer->scale.divisor = items > 1 ? (float)exp2(ceil(log2(items))) : 1;
	trainer->scale.is_known = items > 0;
}

tutti_status scale_begin_step(tutti_trainer *trainer, double items)
{
	if (!divides(trainer) || trainer->scale.is_known ||
	    trainer->config.strategy == TUTTI_LOCAL_SGD)
		return TUTTI_OK;
	tutti_status status = trainer_all_reduce(trainer, &items, 1, TUTTI_SUM);
	if (status == TUTTI_OK)
		set_divisor(trainer, items);
	return status;
}

float scale_now(const tutti_trainer *trainer)
{
	return trainer->scale.factor / trainer->scale.divisor;
}

void scale_end_step(tutti_trainer *trainer, double items, bool is_finite)
{
	struct scale *scale = &trainer->scale;

	if (divides(trainer))
		set_divisor(trainer, items);
	if (!is_dynamic(trainer))
		return;
	scale->good_steps = is_finite ? scale->good_steps + 1 : 0;
	if (!is_finite)
		scale->factor = fmaxf(scale->factor / 2, least_scale);
	else if (scale->good_steps % GOOD_STEPS == 0)
		scale->factor = fminf(scale->factor * 2, most_scale);
}
