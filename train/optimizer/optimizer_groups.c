/* The numbers of optimizers that a caller may give. */
#include "train/optimizer/optimizer_groups.h"

#include "train/base/base.h"

#include <math.h>

const char *optimizer_kind_name(int kind)
{
	return kind == TUTTI_ADAMW ? "TUTTI_ADAMW" : "TUTTI_SGD";
}

static bool is_fraction(float x)
{
	return x >= 0 && x < 1;
}

static tutti_status check_group(const char *call, const tutti_optimizer *group, int g)
{
	if (group->kind != TUTTI_ADAMW && group->kind != TUTTI_SGD)
		return fail_invalid("%s: group %d has no optimizer kind %d.", call, g,
				    (int)group->kind);
	if (!isfinite(group->lr) || group->lr < 0 || !isfinite(group->weight_decay))
		return fail_invalid("%s: group %d has learning rate %g and weight decay "
				    "%g; both must be finite, and the rate at least 0.",
				    call, g, (double)group->lr, (double)group->weight_decay);
	if (group->kind == TUTTI_SGD && !is_fraction(group->momentum))
		return fail_invalid("%s: group %d has momentum %g, which is outside [0, 1).", call,
				    g, (double)group->momentum);
	if (group->kind == TUTTI_ADAMW &&
	    !(is_fraction(group->beta1) && is_fraction(group->beta2) && group->eps > 0))
		return fail_invalid("%s: group %d has beta1 %g, beta2 %g, eps %g; AdamW "
				    "needs betas in [0, 1) and a positive eps.",
				    call, g, (double)group->beta1, (double)group->beta2,
				    (double)group->eps);
	return TUTTI_OK;
}

tutti_status optimizer_groups_check(const char *call, const tutti_optimizer *groups, int num_groups)
{
	if (!groups || num_groups < 1)
		return fail_invalid("%s needs at least one group.", call);
	for (int g = 0; g < num_groups; g++)
		TRY(check_group(call, &groups[g], g));
	return TUTTI_OK;
}
