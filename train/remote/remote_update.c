/* A context on a participant: sums of gradients, and its part of a step, which is measured, then,
 * if all ranks can, applied. */
#include "rpc/extension.h"
#include "train/optimizer/optimizer.h"
#include "train/remote/remote.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static tutti_status remote_update_make_state(struct remote_param *param, float **state)
{
	if (!*state)
		*state = calloc(param->count ? param->count : 1, sizeof **state);
	return *state ? TUTTI_OK : fail_no_memory("the optimizer of parameter '%s'", param->name);
}

static tutti_status remote_update_check_kind(const struct remote *remote,
					     const struct remote_param *param,
					     const tutti_optimizer *group)
{
	if (param->kind < 0 || param->kind == (int)group->kind)
		return TUTTI_OK;
	return fail_invalid("parameter '%s' of rank %d was trained with %s, whose state %s cannot "
			    "use",
			    param->name, remote->rank, optimizer_kind_name(param->kind),
			    optimizer_kind_name((int)group->kind));
}

/* Under the lock: makes the state that an update with groups needs. */
static tutti_status remote_update_prepare(const struct remote *remote, int number,
					  const tutti_optimizer *groups, int num_groups)
{
	struct remote_param *param = remote_param_of(remote, number);

	if (!param)
		return remote_param_unknown(remote, "gradients", number);
	if (param->group >= num_groups)
		return fail_invalid("parameter '%s' of rank %d is of group %d, but %d groups were "
				    "given",
				    param->name, remote->rank, param->group, num_groups);
	const tutti_optimizer *group = &groups[param->group];
	TRY(remote_update_check_kind(remote, param, group));
	if (group->kind == TUTTI_ADAMW || group->momentum != 0)
		TRY(remote_update_make_state(param, &param->m));
	if (group->kind == TUTTI_ADAMW)
		TRY(remote_update_make_state(param, &param->v));
	return TUTTI_OK;
}

/* Nothing is added afterwards, and no thread adds. */
static tutti_status remote_update_stop_adds(struct remote *remote, struct remote_context *context)
{
	pthread_mutex_lock(&remote->lock);
	bool is_free = context->state == CONTEXT_ADDS || context->state == CONTEXT_STEPS;
	if (is_free)
		context->state = CONTEXT_STEPS;
	pthread_mutex_unlock(&remote->lock);
	if (!is_free)
		return fail_invalid("rank %d updates with this context already", remote->rank);
	pthread_mutex_lock(&context->lock);
	pthread_mutex_unlock(&context->lock);
	return TUTTI_OK;
}

static void remote_update_measure_sum(struct remote *remote, const struct remote_context *context,
				      int number, struct step_measure *measure)
{
	const struct context_sum *sum = &context->sums[number];
	int64_t before = measure->squares.nonfinite;

	exact_sum_add(&measure->squares, sum->values, TUTTI_F32, sum->count);
	if (measure->squares.nonfinite == before || measure->bad_param >= 0)
		return;
	measure->bad_param = number;
	pthread_mutex_lock(&remote->lock);
	const struct remote_param *param = remote_param_of(remote, number);
	snprintf(measure->bad_name, sizeof measure->bad_name, "%s", param ? param->name : "");
	pthread_mutex_unlock(&remote->lock);
}

static tutti_status remote_update_measure_all(struct remote *remote, struct remote_context *context,
					      const struct step_order *order,
					      const tutti_optimizer *groups,
					      struct step_measure *measure)
{
	TRY(remote_update_stop_adds(remote, context));
	for (int i = 0; i < context->num_sums; i++) {
		if (!context->sums[i].is_there)
			continue;
		pthread_mutex_lock(&remote->lock);
		tutti_status status = remote_update_prepare(remote, i, groups, order->num_groups);
		pthread_mutex_unlock(&remote->lock);
		TRY(status);
		remote_update_measure_sum(remote, context, i, measure);
	}
	return TUTTI_OK;
}

/* A rank whose first addition failed is a participant without a context. */
tutti_status update_measure(struct remote *remote, const struct step_order *order,
			    const tutti_optimizer *groups, struct step_measure *measure)
{
	struct remote_context *context = context_find(remote, order->context);

	*measure = (struct step_measure){.bad_param = -1};
	if (!context)
		return TUTTI_OK;
	tutti_status status = remote_update_measure_all(remote, context, order, groups, measure);
	context_leave(remote, context);
	return status;
}

static tutti_status remote_update_begin_updates(struct remote *remote,
						struct remote_context *context)
{
	pthread_mutex_lock(&remote->lock);
	bool is_measured = context->state == CONTEXT_STEPS;
	if (is_measured && !context->is_begun)
		context->state = CONTEXT_UPDATES;
	pthread_mutex_unlock(&remote->lock);
	return is_measured ? TUTTI_OK
			   : fail_invalid("rank %d was not asked before for its part of the norm",
					  remote->rank);
}

/* Its lock is held. What others may make meanwhile is read under the lock. */
static void remote_update_one(struct remote *remote, int number, const struct context_sum *sum,
			      const struct step_order *order, const tutti_optimizer *groups)
{
	pthread_mutex_lock(&remote->lock);
	struct remote_param *param = remote->params[number];
	tutti_optimizer group = groups[param->group];
	const struct kernel_update update = {.value = param->values,
					     .m = param->m,
					     .v = param->v,
					     .grad = sum->values,
					     .grad_dtype = TUTTI_F32,
					     .count = sum->count,
					     .scale = order->scale};
	uint64_t updates = ++param->updates;
	param->kind = (int)group.kind;
	if (param->flags & TUTTI_PARAM_NO_DECAY)
		group.weight_decay = 0;
	pthread_mutex_unlock(&remote->lock);
	if (group.kind == TUTTI_ADAMW)
		kernel_adamw(&update, &group, (double)updates);
	else
		kernel_sgd(&update, &group);
}

/* With the parameters' locks: another step may have come between. */
static tutti_status remote_update_check_kinds(struct remote *remote, const int *numbers, int count,
					      const tutti_optimizer *groups)
{
	tutti_status status = TUTTI_OK;

	pthread_mutex_lock(&remote->lock);
	for (int i = 0; status == TUTTI_OK && i < count; i++) {
		const struct remote_param *param = remote->params[numbers[i]];
		status = remote_update_check_kind(remote, param, &groups[param->group]);
	}
	pthread_mutex_unlock(&remote->lock);
	return status;
}

static tutti_status remote_update_all(struct remote *remote, const struct remote_context *context,
				      const struct step_order *order, const tutti_optimizer *groups,
				      int timeout_ms)
{
	int *numbers = calloc((size_t)context->num_sums + 1, sizeof *numbers);
	int count = 0;

	if (!numbers)
		return fail_no_memory("a step's list of parameters");
	for (int i = 0; i < context->num_sums; i++)
		if (context->sums[i].is_there)
			numbers[count++] = i;
	tutti_status status = param_locks_take(remote, numbers, count, true, timeout_ms);
	if (status == TUTTI_OK) {
		struct kept_error failure =
			kept_error_of(remote_update_check_kinds(remote, numbers, count, groups));
		for (int i = 0; failure.status == TUTTI_OK && i < count; i++)
			remote_update_one(remote, numbers[i], &context->sums[numbers[i]], order,
					  groups);
		param_locks_drop(remote, numbers, count, true);
		status = kept_error_return(&failure);
	}
	free(numbers);
	return status;
}

/* On the beginner the step goes on until all others have updated, too. */
static void remote_update_end_updates(struct remote *remote, struct remote_context *context,
				      bool has_updated)
{
	pthread_mutex_lock(&remote->lock);
	if (!context->is_begun)
		context->state = has_updated ? CONTEXT_ADDS : CONTEXT_STEPS;
	pthread_mutex_unlock(&remote->lock);
}

tutti_status update_apply(struct remote *remote, const struct step_order *order,
			  const tutti_optimizer *groups, int timeout_ms)
{
	struct remote_context *context = context_find(remote, order->context);

	if (!context)
		return TUTTI_OK;
	tutti_status status = remote_update_begin_updates(remote, context);
	if (status == TUTTI_OK) {
		status = remote_update_all(remote, context, order, groups, timeout_ms);
		remote_update_end_updates(remote, context, status == TUTTI_OK);
	}
	context_leave(remote, context);
	return status;
}

/* Another rank's order, which may be broken. */
static tutti_status remote_update_read_order(const tutti_rpc_request *request,
					     struct step_order *order,
					     const tutti_optimizer **groups)
{
	if (request->bytes < sizeof *order)
		return fail_invalid("a request of %zu bytes", request->bytes);
	memcpy(order, request->data, sizeof *order);
	size_t rest = request->bytes - sizeof *order;
	if (context_beginner(order->context) != request->rank || order->num_groups < 1 ||
	    rest / sizeof **groups != (size_t)order->num_groups || rest % sizeof **groups)
		return fail_invalid("a request of %zu bytes with %d groups, for a context of rank "
				    "%d",
				    request->bytes, order->num_groups,
				    context_beginner(order->context));
	*groups = (const tutti_optimizer *)((const char *)request->data + sizeof *order);
	return optimizer_groups_check("the step", *groups, order->num_groups);
}

tutti_status update_on_measure(void *arg, const tutti_rpc_request *request, tutti_rpc_reply *reply)
{
	struct step_order order;
	const tutti_optimizer *groups = NULL;
	struct step_measure measure;
	size_t bytes = offsetof(struct step_measure, bad_name);

	TRY(remote_update_read_order(request, &order, &groups));
	TRY(update_measure(arg, &order, groups, &measure));
	if (measure.bad_param >= 0)
		bytes = sizeof measure;
	return tutti_rpc_reply_copy(reply, &measure, bytes);
}

tutti_status update_on_apply(void *arg, const tutti_rpc_request *request, tutti_rpc_reply *reply)
{
	struct step_order order;
	const tutti_optimizer *groups = NULL;

	(void)reply;
	TRY(remote_update_read_order(request, &order, &groups));
	return update_apply(arg, &order, groups, request->timeout_ms);
}

/* ---- sums ---- */

/* Sums of gradients: what is added on the rank of the parameter, and what it is now. */

/* The parameter may be removed at any moment, but its number stays what it is. */
static tutti_status remote_update_grads_check_number(struct remote *remote, const char *call,
						     int number, size_t count, const float *grad)
{
	tutti_status status = TUTTI_OK;

	pthread_mutex_lock(&remote->lock);
	const struct remote_param *param = remote_param_of(remote, number);
	if (!param)
		status = remote_param_unknown(remote, call, number);
	else if (count != param->count)
		status = fail_invalid("%s: %zu gradients, but parameter '%s' of rank %d has %zu "
				      "values.",
				      call, count, param->name, remote->rank, param->count);
	else if (!grad && count > 0)
		status = fail_invalid("%s: the gradients of parameter '%s' are NULL.", call,
				      param->name);
	pthread_mutex_unlock(&remote->lock);
	return status;
}

/* Room for the sums of parameters 0 to number. The context's lock. */
static tutti_status remote_update_grads_make_room(struct remote_context *context, int number)
{
	if (number < context->num_sums)
		return TUTTI_OK;
	struct context_sum *more =
		realloc(context->sums, ((size_t)number + 1) * sizeof *context->sums);
	if (!more)
		return fail_no_memory("the sums of context %" PRIx64, context->number);
	memset(more + context->num_sums, 0,
	       (size_t)(number + 1 - context->num_sums) * sizeof *more);
	context->sums = more;
	context->num_sums = number + 1;
	return TUTTI_OK;
}

static tutti_status remote_update_grads_add(struct remote_context *context, int number,
					    const float *grad, size_t count)
{
	TRY(remote_update_grads_make_room(context, number));
	struct context_sum *sum = &context->sums[number];
	if (sum->is_there) {
		kernel_add(sum->values, TUTTI_F32, grad, TUTTI_F32, count);
		return TUTTI_OK;
	}
	sum->values = malloc(count ? count * sizeof *sum->values : 1);
	if (!sum->values)
		return fail_no_memory("%zu gradients of context %" PRIx64, count, context->number);
	if (count)
		memcpy(sum->values, grad, count * sizeof *sum->values);
	sum->count = count;
	sum->is_there = true;
	return TUTTI_OK;
}

/* A step sets the state, and then takes the context's lock, so that it sees all that was added. */
static tutti_status remote_update_grads_check_state(struct remote *remote,
						    const struct remote_context *context)
{
	pthread_mutex_lock(&remote->lock);
	bool is_gone = context->is_gone || context->state == CONTEXT_ENDS;
	bool adds = context->state == CONTEXT_ADDS;
	pthread_mutex_unlock(&remote->lock);
	if (is_gone)
		return context_unknown("tutti_rpc_context_add", context->number, ": it has ended");
	if (!adds)
		return fail_invalid("tutti_rpc_context_add: context %" PRIx64 " is in a step, or "
				    "one has failed: functions that add return before.",
				    context->number);
	return TUTTI_OK;
}

tutti_status tutti_rpc_context_add(tutti_rpc *rpc, int number, const float *grad, size_t count)
{
	tutti_status status;
	struct remote *remote = remote_of(rpc, "tutti_rpc_context_add", &status);
	struct remote_context *context;

	if (!remote)
		return status;
	TRY(remote_update_grads_check_number(remote, "tutti_rpc_context_add", number, count, grad));
	if (rpc_context() == 0)
		return fail_invalid("tutti_rpc_context_add: this thread has no current context: "
				    "call tutti_rpc_context_begin, or call this from a function "
				    "that is called with one.");
	TRY(context_enter(remote, rpc_context(), &context));
	pthread_mutex_lock(&context->lock);
	status = remote_update_grads_check_state(remote, context);
	if (status == TUTTI_OK)
		status = remote_update_grads_add(context, number, grad, count);
	pthread_mutex_unlock(&context->lock);
	context_leave(remote, context);
	return status;
}

tutti_status tutti_rpc_context_grad(tutti_rpc *rpc, uint64_t number, int param, float *grad,
				    size_t count)
{
	tutti_status status;
	struct remote *remote = remote_of(rpc, "tutti_rpc_context_grad", &status);

	if (!remote)
		return status;
	TRY(remote_update_grads_check_number(remote, "tutti_rpc_context_grad", param, count, grad));
	struct remote_context *context = context_find(remote, number);
	if (!context)
		return context_unknown("tutti_rpc_context_grad", number,
				       " here: it has ended, or nothing was added on this rank");
	pthread_mutex_lock(&context->lock);
	bool is_there = param < context->num_sums && context->sums[param].is_there;
	if (count && is_there)
		memcpy(grad, context->sums[param].values, count * sizeof *grad);
	else if (count)
		memset(grad, 0, count * sizeof *grad);
	pthread_mutex_unlock(&context->lock);
	context_leave(remote, context);
	return TUTTI_OK;
}
