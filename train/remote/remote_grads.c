/* Sums of gradients: what is added on the rank of the parameter, and what it is now. */
#include "train/remote/remote.h"

#include "rpc/extension.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* The parameter may be removed at any moment, but its number stays what it is. */
static tutti_status remote_grads_check_number(struct remote *remote, const char *call, int number,
					      size_t count, const float *grad)
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
static tutti_status remote_grads_make_room(struct remote_context *context, int number)
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

static tutti_status remote_grads_add(struct remote_context *context, int number, const float *grad,
				     size_t count)
{
	TRY(remote_grads_make_room(context, number));
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
static tutti_status remote_grads_check_state(struct remote *remote,
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
	TRY(remote_grads_check_number(remote, "tutti_rpc_context_add", number, count, grad));
	if (rpc_context() == 0)
		return fail_invalid("tutti_rpc_context_add: this thread has no current context: "
				    "call tutti_rpc_context_begin, or call this from a function "
				    "that is called with one.");
	TRY(context_enter(remote, rpc_context(), &context));
	pthread_mutex_lock(&context->lock);
	status = remote_grads_check_state(remote, context);
	if (status == TUTTI_OK)
		status = remote_grads_add(context, number, grad, count);
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
	TRY(remote_grads_check_number(remote, "tutti_rpc_context_grad", param, count, grad));
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
