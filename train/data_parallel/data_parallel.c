/* The calls on replicas that are there: steps, forwards, calls with trainers, statistics. */
#include "train/data_parallel/data_parallel.h"

#include "core/callback.h"
#include "train/optimizer/optimizer.h"

#include <unistd.h>

/* The checks at the beginning of each call. */
static tutti_status check_idle(const tutti_data_parallel *dp, const char *function)
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

static tutti_status check_batch(const tutti_data_parallel *dp, const char *function,
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
static bool has_others(const tutti_data_parallel *dp)
{
	return tutti_size(dp->replicas[0].comm) > dp->count;
}

static tutti_status data_parallel_check_step(const tutti_data_parallel *dp,
					     const tutti_data_parallel_batch *batch,
					     const tutti_optimizer *groups, int num_groups)
{
	const char *const function = "tutti_data_parallel_step";

	TRY(check_idle(dp, function));
	TRY(check_batch(dp, function, batch));
	if (batch->items == 0 && !has_others(dp))
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
	TRY(replicas_scatter(dp, true));
	data_parallel_begin_call(dp);
	tutti_status status = dp->is_mirrored ? mirrored_step(dp, &own) : gathered_step(dp, &own);
	dp->is_busy = false;
	if (status == TUTTI_OK && info)
		*info = own;
	return status;
}

static tutti_status data_parallel_run_forward(struct replica *replica)
{
	if (!replica->of->is_mirrored)
		TRY(copies_replicate(replica));
	return replica_call(replica, replica->of->config.forward, "forward");
}

tutti_status tutti_data_parallel_forward(tutti_data_parallel *dp,
					 const tutti_data_parallel_batch *batch)
{
	const char *const function = "tutti_data_parallel_forward";

	TRY(check_idle(dp, function));
	TRY(check_batch(dp, function, batch));
	if (batch->items == 0 || !batch->outputs)
		return fail_invalid("%s needs items and a place for their outputs: there are %zu "
				    "items%s.",
				    function, batch->items,
				    batch->outputs ? "" : " and outputs is NULL");
	if (!dp->is_mirrored)
		TRY(copies_check_comms(dp));
	dp->batch = batch;
	TRY(replicas_scatter(dp, false));
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

static void call_with_trainer(void *arg, int r)
{
	const struct trainer_call *call = arg;
	struct replica *replica = &call->dp->replicas[r];

	replica->failure.status = TUTTI_OK;
	replicas_begin_function();
	tutti_status status;
	callback_call("the function", "tutti_data_parallel_run", -1,
		      status = call->fn(replica->trainer, r, call->arg));
	kept_error_note(&replica->failure, replicas_end_function(call->dp, status));
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

	TRY(check_idle(dp, "tutti_data_parallel_run"));
	if (!fn)
		return fail_invalid("tutti_data_parallel_run needs a function, not NULL.");
	data_parallel_begin_call(dp);
	if (dp->is_mirrored)
		replica_threads_run(dp->threads, call_with_trainer, &call);
	else
		call_with_trainer(&call, 0);
	dp->is_busy = false;
	return replicas_failure(dp, dp->is_mirrored ? dp->count : 1);
}

tutti_status tutti_data_parallel_stats(const tutti_data_parallel *dp, int replica,
				       tutti_train_stats *stats)
{
	TRY(check_idle(dp, "tutti_data_parallel_stats"));
	if (replica < 0 || replica >= dp->count || !stats)
		return fail_invalid("tutti_data_parallel_stats needs a replica from 0 to %d and a "
				    "place for its numbers; it got %d%s.",
				    dp->count - 1, replica, stats ? "" : " and NULL");
	const struct replica *of = &dp->replicas[replica];
	return dp->is_mirrored ? tutti_trainer_stats(of->trainer, stats) : copies_stats(of, stats);
}
