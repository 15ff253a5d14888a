/* The factor by which authors multiply the loss. A loss scale keeps small gradients from vanishing
 * in 16 bits. It is fixed, or dynamic: halved after a step with an infinity, doubled after 2000
 * steps without one.
 *
 * F16 cannot hold the gradients of a large batch, because gradients are sums over items. Where
 * gradients are kept or sent in F16, the scale also divides by about the items of a step: by a
 * power of two, so that no bit is lost. */
#ifndef TRAIN_LOSS_SCALE_H
#define TRAIN_LOSS_SCALE_H

#include <tutti/train.h>

#include <stdbool.h>

struct loss_scale {
	float factor;  /* of the loss */
	float divisor; /* for F16 gradients; else 1 */
	int good_steps;
	bool is_known; /* the divisor is set */
};

void loss_scale_init(struct loss_scale *scale, const tutti_train_config *config);
/* Continues from the scale of an earlier trainer. A fixed factor stays as it is in the config. */
void loss_scale_resume(struct loss_scale *scale, const tutti_train_config *config,
		       const struct loss_scale *from);
/* True: the divisor is not known yet. Call loss_scale_set_items before the first micro-batch. */
bool loss_scale_needs_items(const struct loss_scale *scale, const tutti_train_config *config);
/* items: of all ranks, in one step. */
void loss_scale_set_items(struct loss_scale *scale, double items);
/* Gradients are multiples of this number. */
float loss_scale_now(const struct loss_scale *scale);
/* A step has ended. is_finite: its gradients had no infinity and no NaN. */
void loss_scale_end_step(struct loss_scale *scale, const tutti_train_config *config, double items,
			 bool is_finite);

#endif
