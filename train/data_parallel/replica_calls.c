/* Calls of the program's functions, and the calls that these make. */
#include "train/data_parallel/data_parallel.h"

#include "core/callback.h"
#include "train/precision/precision.h"

#include <stdlib.h>

/* The program has the address of the view, which is that of the replica. */
static struct replica *replica_calls_replica_of(const tutti_replica *view)
{
	return (struct replica *)(uintptr_t)view;
}

/* Memory of the largest batch so far. */
static tutti_status replica_calls_make_room(struct tutti_data_parallel *dp, size_t floats)
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

static const void *item_at(const void *items, size_t bytes, size_t first)
{
	return items && bytes ? (const char *)items + first * bytes : NULL;
}

/* The product of items and replicas may need more than 64 bits. */
static size_t part_begin(size_t items, int replica, int count)
{
	size_t r = (size_t)replica, n = (size_t)count;

	return items / n * r + items % n * r / n;
}

tutti_status replicas_scatter(struct tutti_data_parallel *dp, bool with_grads)
{
	const tutti_data_parallel_config *c = &dp->config;
	const tutti_data_parallel_batch *batch = dp->batch;

	if (with_grads || !batch->outputs)
		TRY(replica_calls_make_room(dp, batch->items * c->output_count));
	float *outputs = batch->outputs ? batch->outputs : dp->outputs;
	for (int r = 0; r < dp->count; r++) {
		tutti_replica *view = &dp->replicas[r].view;
		size_t first = part_begin(batch->items, r, dp->count);
		view->first = first;
		view->items = part_begin(batch->items, r + 1, dp->count) - first;
		view->inputs = item_at(batch->inputs, c->input_bytes, first);
		view->targets = with_grads ? item_at(batch->targets, c->target_bytes, first) : NULL;
		view->outputs = outputs ? outputs + first * c->output_count : NULL;
		view->output_grads = with_grads && dp->output_grads
					     ? dp->output_grads + first * c->output_count
					     : NULL;
		view->loss = 0;
	}
	return TUTTI_OK;
}

void replicas_begin_function(void)
{
	tutti_set_error(TUTTI_OK, ""); /* an older message is not the reason */
}

tutti_status replicas_end_function(const struct tutti_data_parallel *dp, tutti_status status)
{
	if (!atomic_load(&dp->was_kept))
		return status;
	return fail_invalid("tutti_data_parallel_destroy was called by a function of a replica, "
			    "and has destroyed nothing: call it when the step has returned.");
}

tutti_status replica_call(struct replica *replica, tutti_replica_fn fn, const char *what)
{
	if (replica->view.items == 0)
		return TUTTI_OK;
	replicas_begin_function();
	tutti_status status;
	callback_call(what, "tutti_data_parallel_config", -1, status = fn(&replica->view));
	status = replicas_end_function(replica->of, status);
	if (status == TUTTI_OK)
		return TUTTI_OK;
	struct kept_error why = kept_error_of(status);
	return fail(status, "The %s of replica %d failed: %s", what, replica->view.index,
		    why.message[0] ? why.message
				   : "it gave no reason (tutti_set_error stores one).");
}

void replica_scale_grads(const struct replica *replica, const tutti_trainer *trainer)
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

static void replica_calls_take_turn(void *arg, int r)
{
	const struct turn *turn = arg;
	struct replica *replica = &turn->dp->replicas[r];

	replica->failure.status = TUTTI_OK;
	kept_error_note(&replica->failure, turn->call(replica));
}

tutti_status replicas_failure(const struct tutti_data_parallel *dp, int count)
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

	replica_threads_run(dp->threads, replica_calls_take_turn, &turn);
	return replicas_failure(dp, dp->count);
}

tutti_status replica_end_grads(tutti_trainer *trainer)
{
	for (int p = 0; p < trainer->model.param_count; p++)
		if (param_is_trained(&trainer->model.params[p]) && !trainer->tensors[p].is_ready)
			TRY(tutti_grad_ready(trainer, p));
	return TUTTI_OK;
}

/* NULL, with an error, unless a function of the program may ask for this parameter. */
static struct replica *replica_calls_check_param(const tutti_replica *view, const char *function,
						 int param)
{
	if (!view) {
		fail_invalid("%s needs a replica, not NULL.", function);
		return NULL;
	}
	struct replica *replica = replica_calls_replica_of(view);
	int count = replica->of->model.param_count;
	if (param >= 0 && param < count)
		return replica;
	fail_invalid("%s: there is no parameter %d among %d.", function, param, count);
	return NULL;
}

const void *tutti_replica_param(const tutti_replica *view, int param)
{
	const struct replica *replica =
		replica_calls_check_param(view, "tutti_replica_param", param);

	if (!replica)
		return NULL;
	return replica->of->is_mirrored ? tutti_param_data(replica->trainer, param)
					: copies_param(replica, param);
}

void *tutti_replica_grad(const tutti_replica *view, int param)
{
	const struct replica *replica =
		replica_calls_check_param(view, "tutti_replica_grad", param);

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
		replica_calls_check_param(view, "tutti_replica_grad_ready", param);

	if (!replica)
		return TUTTI_ERR_INVALID;
	return replica->of->is_mirrored ? tutti_grad_ready(replica->trainer, param) : TUTTI_OK;
}
