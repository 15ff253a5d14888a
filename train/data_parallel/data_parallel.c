/* The calls on replicas that are there: steps, forwards, calls with trainers, statistics. */
#include "train/data_parallel/data_parallel.h"

#include "core/callback.h"
#include "train/optimizer/optimizer.h"
#include "train/precision/precision.h"
#include "train/trainer.h"

#include <stdlib.h>
#include <unistd.h>

/* ---- calls of the program's functions, and the calls that these make ---- */

/* The program has the address of the view, which is that of the replica. */
static struct replica *data_parallel_replicas_replica_of(const tutti_replica *view)
{
	return (struct replica *)(uintptr_t)view;
}

/* Memory of the largest batch so far. */
static tutti_status data_parallel_replicas_make_room(struct tutti_data_parallel *dp, size_t floats)
{
	if (floats <= dp->output_room)
		return TUTTI_OK;
	float *outputs = realloc(dp->outputs, floats * sizeof *outputs);
	dp->outputs = outputs ? outputs : dp->outputs;
	float *grads = realloc(dp->output_grads, floats * sizeof *grads);
	dp->output_grads = grads ? grads : dp->output_grads;
	if (!outputs || !grads)
		return fail_no_memory("outputs of %zu floats and their gradients", floats);
	dp->output_room = floats;
	return TUTTI_OK;
}

static const void *data_parallel_item_at(const void *items, size_t bytes, size_t first)
{
	return items && bytes ? (const char *)items + first * bytes : NULL;
}

/* The product of items and replicas may need more than 64 bits. */
static size_t data_parallel_part_begin(size_t items, int replica, int count)
{
	size_t r = (size_t)replica, n = (size_t)count;

	return items / n * r + items % n * r / n;
}

/* Gives each replica its part of dp->batch. MEMORY. */
static tutti_status data_parallel_replicas_scatter(struct tutti_data_parallel *dp, bool with_grads)
{
	const tutti_data_parallel_config *c = &dp->config;
	const tutti_data_parallel_batch *batch = dp->batch;

	if (with_grads || !batch->outputs)
		TRY(data_parallel_replicas_make_room(dp, batch->items * c->output_count));
	float *outputs = batch->outputs ? batch->outputs : dp->outputs;
	for (int r = 0; r < dp->count; r++) {
		tutti_replica *view = &dp->replicas[r].view;
		size_t first = data_parallel_part_begin(batch->items, r, dp->count);
		view->first = first;
		view->items = data_parallel_part_begin(batch->items, r + 1, dp->count) - first;
		view->inputs = data_parallel_item_at(batch->inputs, c->input_bytes, first);
		view->targets =
			with_grads ? data_parallel_item_at(batch->targets, c->target_bytes, first)
				   : NULL;
		view->outputs = outputs ? outputs + first * c->output_count : NULL;
		view->output_grads = with_grads && dp->output_grads
					     ? dp->output_grads + first * c->output_count
					     : NULL;
		view->loss = 0;
	}
	return TUTTI_OK;
}

static void data_parallel_replicas_begin_function(void)
{
	tutti_set_error(TUTTI_OK, ""); /* an older message is not the reason */
}

/* Before the program's function is called, and with its status afterwards: INVALID if a function
 * of this call has asked to destroy the replicas, which is not done. */
static tutti_status data_parallel_replicas_end_function(const struct tutti_data_parallel *dp,
							tutti_status status)
{
	if (!atomic_load(&dp->was_kept))
		return status;
	return fail_invalid("tutti_data_parallel_destroy was called by a function of a replica, "
			    "and has destroyed nothing: call it when the step has returned.");
}

/* Calls a function of the program, unless the replica has no items. what: "forward". */
static tutti_status data_parallel_replica_call(struct replica *replica, tutti_replica_fn fn,
					       const char *what)
{
	if (replica->view.items == 0)
		return TUTTI_OK;
	data_parallel_replicas_begin_function();
	tutti_status status;
	callback_call(what, "tutti_data_parallel_config", -1, status = fn(&replica->view));
	status = data_parallel_replicas_end_function(replica->of, status);
	if (status == TUTTI_OK)
		return TUTTI_OK;
	struct kept_error why = kept_error_of(status);
	return fail(status, "The %s of replica %d failed: %s", what, replica->view.index,
		    why.message[0] ? why.message
				   : "it gave no reason (tutti_set_error stores one).");
}

/* Multiplies the gradients of its outputs by the trainer's scale. */
static void data_parallel_replica_scale_grads(const struct replica *replica,
					      const tutti_trainer *trainer)
{
	float scale = tutti_grad_scale(trainer), *grads = replica->view.output_grads;
	size_t count = replica->view.items * replica->of->config.output_count;

	if (scale != 1)
		kernel_scale(grads, TUTTI_F32, grads, TUTTI_F32, count, scale);
}

struct turn {
	struct tutti_data_parallel *dp;
	tutti_status (*call)(struct replica *);
};

static void data_parallel_replicas_take_turn(void *arg, int r)
{
	const struct turn *turn = arg;
	struct replica *replica = &turn->dp->replicas[r];

	replica->failure.status = TUTTI_OK;
	kept_error_note(&replica->failure, turn->call(replica));
}

/* The failure of the first count replicas: the first one that does not follow from another's. */
static tutti_status data_parallel_replicas_failure(const struct tutti_data_parallel *dp, int count)
{
	const struct kept_error *first = NULL;

	for (int r = 0; r < count; r++) {
		const struct kept_error *failure = &dp->replicas[r].failure;
		if (failure->status == TUTTI_OK)
			continue;
		bool is_cause = first && status_is_secondary(first->status) &&
				!status_is_secondary(failure->status);
		first = !first || is_cause ? failure : first;
	}
	return first ? kept_error_return(first) : TUTTI_OK;
}

tutti_status replicas_run(struct tutti_data_parallel *dp, tutti_status (*call)(struct replica *))
{
	struct turn turn = {dp, call};

	replica_threads_run(dp->threads, data_parallel_replicas_take_turn, &turn);
	return data_parallel_replicas_failure(dp, dp->count);
}

/* Tells the trainer that all gradients are final. */
static tutti_status data_parallel_replica_end_grads(tutti_trainer *trainer)
{
	for (int p = 0; p < trainer->model.param_count; p++)
		if (param_is_trained(&trainer->model.params[p]) && !trainer->tensors[p].is_ready)
			TRY(tutti_grad_ready(trainer, p));
	return TUTTI_OK;
}

/* NULL, with an error, unless a function of the program may ask for this parameter. */
static struct replica *data_parallel_replicas_check_param(const tutti_replica *view,
							  const char *function, int param)
{
	if (!view) {
		fail_invalid("%s needs a replica, not NULL.", function);
		return NULL;
	}
	struct replica *replica = data_parallel_replicas_replica_of(view);
	int count = replica->of->model.param_count;
	if (param >= 0 && param < count)
		return replica;
	fail_invalid("%s: there is no parameter %d among %d.", function, param, count);
	return NULL;
}

const void *tutti_replica_param(const tutti_replica *view, int param)
{
	const struct replica *replica =
		data_parallel_replicas_check_param(view, "tutti_replica_param", param);

	if (!replica)
		return NULL;
	return replica->of->is_mirrored ? tutti_param_data(replica->trainer, param)
					: copies_param(replica, param);
}

void *tutti_replica_grad(const tutti_replica *view, int param)
{
	const struct replica *replica =
		data_parallel_replicas_check_param(view, "tutti_replica_grad", param);

	if (!replica)
		return NULL;
	if (!param_is_trained(&replica->of->model.params[param])) {
		fail_invalid("tutti_replica_grad: parameter '%s' is frozen and has no gradient.",
			     replica->of->model.params[param].name);
		return NULL;
	}
	return replica->of->is_mirrored ? tutti_param_grad(replica->trainer, param)
					: copies_grad(replica, param);
}

tutti_status tutti_replica_grad_ready(tutti_replica *view, int param)
{
	const struct replica *replica =
		data_parallel_replicas_check_param(view, "tutti_replica_grad_ready", param);

	if (!replica)
		return TUTTI_ERR_INVALID;
	return replica->of->is_mirrored ? tutti_grad_ready(replica->trainer, param) : TUTTI_OK;
}

/* ---- a step of Mirrored ---- */

/* Each thread makes a step of its trainer, which reduces gradients and makes the same update on all
 * replicas. */

static tutti_status data_parallel_mirrored_step_compute(struct replica *replica)
{
	const tutti_data_parallel_config *c = &replica->of->config;

	TRY(data_parallel_replica_call(replica, c->forward, "forward"));
	TRY(data_parallel_replica_call(replica, c->loss, "loss"));
	data_parallel_replica_scale_grads(replica, replica->trainer);
	return data_parallel_replica_call(replica, c->backward, "backward");
}

/* Whatever fails here, the trainer's step ends as on the other ranks, which wait for it. */
static tutti_status data_parallel_mirrored_step(struct replica *replica)
{
	tutti_trainer *trainer = replica->trainer;
	const struct tutti_data_parallel *dp = replica->of;
	double items = (double)replica->view.items;
	struct kept_error why = {0};

	TRY(tutti_micro_batch(trainer, TUTTI_PASS_LAST, items, NULL));
	kept_error_note(&why, data_parallel_mirrored_step_compute(replica));
	kept_error_note(&why, data_parallel_replica_end_grads(trainer));
	if (why.status != TUTTI_OK)
		return step_give_up(trainer, &why);
	TRY(tutti_step(trainer, dp->groups, dp->num_groups, &replica->info));
	if (replica->info.skipped)
		why = kept_error_of(TUTTI_OK);
	TRY(tutti_means(trainer, &replica->view.loss, &items, &replica->mean_loss, 1));
	return replica->info.skipped ? tutti_set_error(TUTTI_OK, why.message) : TUTTI_OK;
}

/* dp->batch and dp->groups are set and checked. */
static tutti_status mirrored_step(struct tutti_data_parallel *dp, tutti_data_parallel_info *info)
{
	TRY(replicas_run(dp, data_parallel_mirrored_step));
	info->step = dp->replicas[0].info;
	info->loss = dp->replicas[0].mean_loss;
	return TUTTI_OK;
}

/* ---- a step of DataParallel ---- */

/* The loss between forward and backward is computed on the outputs of all replicas, and the trainer
 * of replica 0 has the only optimizer. Scatter and gather move no bytes: a replica's part is a
 * slice of the arrays that the first replica has. */

static tutti_status data_parallel_gathered_step_forward(struct replica *replica)
{
	TRY(copies_replicate(replica));
	copies_zero_grads(replica); /* forward may add to them, too */
	return data_parallel_replica_call(replica, replica->of->config.forward, "forward");
}

/* On all outputs, as replica 0. */
static tutti_status data_parallel_gathered_step_loss(struct tutti_data_parallel *dp, double *sum)
{
	struct replica *first = &dp->replicas[0];
	const tutti_replica part = first->view;

	first->view.items = dp->batch->items;
	first->view.inputs = dp->batch->inputs;
	first->view.targets = dp->batch->targets;
	tutti_status status = data_parallel_replica_call(first, dp->config.loss, "loss");
	if (status == TUTTI_OK)
		data_parallel_replica_scale_grads(first, first->trainer);
	*sum = first->view.loss;
	first->view = part;
	return status;
}

static tutti_status data_parallel_gathered_step_backward(struct replica *replica)
{
	return data_parallel_replica_call(replica, replica->of->config.backward, "backward");
}

static tutti_status data_parallel_gathered_step_compute(struct tutti_data_parallel *dp,
							double *loss_sum)
{
	TRY(copies_check_comms(dp));
	TRY(replicas_run(dp, data_parallel_gathered_step_forward));
	TRY(data_parallel_gathered_step_loss(dp, loss_sum));
	TRY(replicas_run(dp, data_parallel_gathered_step_backward));
	if (dp->count > 1)
		TRY(replicas_run(dp, copies_reduce));
	return TUTTI_OK;
}

/* dp->batch and dp->groups are set and checked. */
static tutti_status data_parallel_gathered_step(struct tutti_data_parallel *dp,
						tutti_data_parallel_info *info)
{
	tutti_trainer *trainer = dp->replicas[0].trainer;
	double items = (double)dp->batch->items, loss_sum = 0;
	struct kept_error why = {0};

	TRY(tutti_micro_batch(trainer, TUTTI_PASS_LAST, items, NULL));
	kept_error_note(&why, data_parallel_gathered_step_compute(dp, &loss_sum));
	kept_error_note(&why, data_parallel_replica_end_grads(trainer));
	if (why.status != TUTTI_OK) {
		step_give_up(trainer, &why); /* the trainer is alone, and calls this rank 0 */
		return fail(why.status, "Nothing was updated in this step. %s", why.message);
	}
	TRY(tutti_step(trainer, dp->groups, dp->num_groups, &info->step));
	info->loss = loss_sum / items;
	return TUTTI_OK;
}

/* ---- calls on all replicas ---- */

/* The checks at the beginning of each call. */
static tutti_status data_parallel_check_idle(const tutti_data_parallel *dp, const char *function)
{
	if (!dp)
		return fail_invalid("%s needs a tutti_data_parallel, not NULL.", function);
	if (dp->owner != getpid())
		return fail_invalid("%s: the threads of the replicas are in the process from "
				    "which this one was forked: call it there.",
				    function);
	if (dp->is_busy)
		return fail_invalid("%s: another call is under way: functions of replicas cannot "
				    "make it.",
				    function);
	return tutti_group_refuse(function);
}

static tutti_status data_parallel_check_batch(const tutti_data_parallel *dp, const char *function,
					      const tutti_data_parallel_batch *batch)
{
	size_t widest = dp->config.output_count * sizeof(float);

	if (!batch)
		return fail_invalid("%s needs a batch, not NULL.", function);
	if (batch->items > 0 && dp->config.input_bytes && !batch->inputs)
		return fail_invalid("%s: the inputs of %zu items are at NULL.", function,
				    batch->items);
	if (batch->items > SIZE_MAX / 2 / widest)
		return fail_invalid("%s: %zu items of %zu outputs are too many for memory.",
				    function, batch->items, dp->config.output_count);
	return TUTTI_OK;
}

/* Whether another process has ranks of the communicator. */
static bool data_parallel_has_others(const tutti_data_parallel *dp)
{
	return tutti_size(dp->replicas[0].comm) > dp->count;
}

static tutti_status data_parallel_check_step(const tutti_data_parallel *dp,
					     const tutti_data_parallel_batch *batch,
					     const tutti_optimizer *groups, int num_groups)
{
	const char *const function = "tutti_data_parallel_step";

	TRY(data_parallel_check_idle(dp, function));
	TRY(data_parallel_check_batch(dp, function, batch));
	if (batch->items == 0 && !data_parallel_has_others(dp))
		return fail_invalid("%s: the batch has no items, so there is no mean gradient.",
				    function);
	if (batch->items > 0 && dp->config.target_bytes && !batch->targets)
		return fail_invalid("%s: the targets of %zu items are at NULL.", function,
				    batch->items);
	return optimizer_check(dp->replicas[0].trainer, groups, num_groups);
}

static void data_parallel_begin_call(tutti_data_parallel *dp)
{
	atomic_store(&dp->was_kept, false);
	dp->is_busy = true;
}

tutti_status tutti_data_parallel_step(tutti_data_parallel *dp,
				      const tutti_data_parallel_batch *batch,
				      const tutti_optimizer *groups, int num_groups,
				      tutti_data_parallel_info *info)
{
	tutti_data_parallel_info own = {0};

	TRY(data_parallel_check_step(dp, batch, groups, num_groups));
	dp->batch = batch;
	dp->groups = groups;
	dp->num_groups = num_groups;
	TRY(data_parallel_replicas_scatter(dp, true));
	data_parallel_begin_call(dp);
	tutti_status status =
		dp->is_mirrored ? mirrored_step(dp, &own) : data_parallel_gathered_step(dp, &own);
	dp->is_busy = false;
	if (status == TUTTI_OK && info)
		*info = own;
	return status;
}

static tutti_status data_parallel_run_forward(struct replica *replica)
{
	if (!replica->of->is_mirrored)
		TRY(copies_replicate(replica));
	return data_parallel_replica_call(replica, replica->of->config.forward, "forward");
}

tutti_status tutti_data_parallel_forward(tutti_data_parallel *dp,
					 const tutti_data_parallel_batch *batch)
{
	const char *const function = "tutti_data_parallel_forward";

	TRY(data_parallel_check_idle(dp, function));
	TRY(data_parallel_check_batch(dp, function, batch));
	if (batch->items == 0 || !batch->outputs)
		return fail_invalid("%s needs items and a place for their outputs: there are %zu "
				    "items%s.",
				    function, batch->items,
				    batch->outputs ? "" : " and outputs is NULL");
	if (!dp->is_mirrored)
		TRY(copies_check_comms(dp));
	dp->batch = batch;
	TRY(data_parallel_replicas_scatter(dp, false));
	data_parallel_begin_call(dp);
	tutti_status status = replicas_run(dp, data_parallel_run_forward);
	dp->is_busy = false;
	return status;
}

/* The caller's function for tutti_data_parallel_run. */
struct trainer_call {
	tutti_data_parallel *dp;
	tutti_trainer_fn fn;
	void *arg;
};

static void data_parallel_call_with_trainer(void *arg, int r)
{
	const struct trainer_call *call = arg;
	struct replica *replica = &call->dp->replicas[r];

	replica->failure.status = TUTTI_OK;
	data_parallel_replicas_begin_function();
	tutti_status status;
	callback_call("the function", "tutti_data_parallel_run", -1,
		      status = call->fn(replica->trainer, r, call->arg));
	kept_error_note(&replica->failure, data_parallel_replicas_end_function(call->dp, status));
	if (status == TUTTI_OK && replica->trainer->step.state != STEP_CLOSED)
		kept_error_note(
			&replica->failure,
			fail_invalid("tutti_data_parallel_run: the function has begun a step "
				     "of replica %d's trainer and not ended it: steps are "
				     "those of tutti_data_parallel_step.",
				     r));
}

tutti_status tutti_data_parallel_run(tutti_data_parallel *dp, tutti_trainer_fn fn, void *arg)
{
	struct trainer_call call = {dp, fn, arg};

	TRY(data_parallel_check_idle(dp, "tutti_data_parallel_run"));
	if (!fn)
		return fail_invalid("tutti_data_parallel_run needs a function, not NULL.");
	data_parallel_begin_call(dp);
	if (dp->is_mirrored)
		replica_threads_run(dp->threads, data_parallel_call_with_trainer, &call);
	else
		data_parallel_call_with_trainer(&call, 0);
	dp->is_busy = false;
	return data_parallel_replicas_failure(dp, dp->is_mirrored ? dp->count : 1);
}

tutti_status tutti_data_parallel_stats(const tutti_data_parallel *dp, int replica,
				       tutti_train_stats *stats)
{
	TRY(data_parallel_check_idle(dp, "tutti_data_parallel_stats"));
	if (replica < 0 || replica >= dp->count || !stats)
		return fail_invalid("tutti_data_parallel_stats needs a replica from 0 to %d and a "
				    "place for its numbers; it got %d%s.",
				    dp->count - 1, replica, stats ? "" : " and NULL");
	const struct replica *of = &dp->replicas[replica];
	return dp->is_mirrored ? tutti_trainer_stats(of->trainer, stats) : copies_stats(of, stats);
}
