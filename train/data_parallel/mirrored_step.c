/* A step of Mirrored. Each thread makes a step of its trainer, which reduces gradients and makes
 * the same update on all replicas. */
#include "train/data_parallel/data_parallel.h"
#include "train/step_end.h"

static tutti_status mirrored_step_compute(struct replica *replica)
{
	const tutti_data_parallel_config *c = &replica->of->config;

	TRY(replica_call(replica, c->forward, "forward"));
	TRY(replica_call(replica, c->loss, "loss"));
	replica_scale_grads(replica, replica->trainer);
	return replica_call(replica, c->backward, "backward");
}

/* Whatever fails here, the trainer's step ends as on the other ranks, which wait for it. */
static tutti_status data_parallel_mirrored_step(struct replica *replica)
{
	tutti_trainer *trainer = replica->trainer;
	const struct tutti_data_parallel *dp = replica->of;
	double items = (double)replica->view.items;
	struct kept_error why = {0};

	TRY(tutti_micro_batch(trainer, TUTTI_PASS_LAST, items, NULL));
	kept_error_note(&why, mirrored_step_compute(replica));
	kept_error_note(&why, replica_end_grads(trainer));
	if (why.status != TUTTI_OK)
		return step_give_up(trainer, &why);
	TRY(tutti_step(trainer, dp->groups, dp->num_groups, &replica->info));
	if (replica->info.skipped)
		why = kept_error_of(TUTTI_OK);
	TRY(tutti_means(trainer, &replica->view.loss, &items, &replica->mean_loss, 1));
	return replica->info.skipped ? tutti_set_error(TUTTI_OK, why.message) : TUTTI_OK;
}

tutti_status mirrored_step(struct tutti_data_parallel *dp, tutti_data_parallel_info *info)
{
	TRY(replicas_run(dp, data_parallel_mirrored_step));
	info->step = dp->replicas[0].info;
	info->loss = dp->replicas[0].mean_loss;
	return TUTTI_OK;
}
