/* A step of DataParallel. The loss between forward and backward is computed on the outputs of all
 * replicas, and the trainer of replica 0 has the only optimizer. Scatter and gather move no bytes:
 * a replica's part is a slice of the arrays that the first replica has. */
#include "train/data_parallel/data_parallel.h"
#include "train/step_end.h"

static tutti_status gathered_step_forward(struct replica *replica)
{
	TRY(copies_replicate(replica));
	copies_zero_grads(replica); /* forward may add to them, too */
	return replica_call(replica, replica->of->config.forward, "forward");
}

/* On all outputs, as replica 0. */
static tutti_status gathered_step_loss(struct tutti_data_parallel *dp, double *sum)
{
	struct replica *first = &dp->replicas[0];
	const tutti_replica part = first->view;

	first->view.items = dp->batch->items;
	first->view.inputs = dp->batch->inputs;
	first->view.targets = dp->batch->targets;
	tutti_status status = replica_call(first, dp->config.loss, "loss");
	if (status == TUTTI_OK)
		replica_scale_grads(first, first->trainer);
	*sum = first->view.loss;
	first->view = part;
	return status;
}

static tutti_status gathered_step_backward(struct replica *replica)
{
	return replica_call(replica, replica->of->config.backward, "backward");
}

static tutti_status gathered_step_compute(struct tutti_data_parallel *dp, double *loss_sum)
{
	TRY(copies_check_comms(dp));
	TRY(replicas_run(dp, gathered_step_forward));
	TRY(gathered_step_loss(dp, loss_sum));
	TRY(replicas_run(dp, gathered_step_backward));
	if (dp->count > 1)
		TRY(replicas_run(dp, copies_reduce));
	return TUTTI_OK;
}

tutti_status gathered_step(struct tutti_data_parallel *dp, tutti_data_parallel_info *info)
{
	tutti_trainer *trainer = dp->replicas[0].trainer;
	double items = (double)dp->batch->items, loss_sum = 0;
	struct kept_error why = {0};

	TRY(tutti_micro_batch(trainer, TUTTI_PASS_LAST, items, NULL));
	kept_error_note(&why, gathered_step_compute(dp, &loss_sum));
	kept_error_note(&why, replica_end_grads(trainer));
	if (why.status != TUTTI_OK) {
		step_give_up(trainer, &why); /* the trainer is alone, and calls this rank 0 */
		return fail(why.status, "Nothing was updated in this step. %s", why.message);
	}
	TRY(tutti_step(trainer, dp->groups, dp->num_groups, &info->step));
	info->loss = loss_sum / items;
	return TUTTI_OK;
}
