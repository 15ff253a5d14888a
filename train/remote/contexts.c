/* A rank's contexts: made, found, told to the beginner, and freed when the beginner ends them or
 * has died. */
#include "train/remote/remote.h"

#include "rpc/extension.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

int context_beginner(uint64_t number)
{
	return (int)(number >> 48) - 1;
}

tutti_status context_unknown(const char *call, uint64_t number, const char *why)
{
	return fail_invalid("%s: there is no context %" PRIx64 "%s.", call, number, why);
}

static struct remote_context *look_up(const struct remote *remote, uint64_t number)
{
	struct remote_context *context = remote->contexts;

	while (context && context->number != number)
		context = context->next;
	return context;
}

static void context_free(struct remote_context *context)
{
	for (int i = 0; i < context->num_sums; i++)
		free(context->sums[i].values);
	free(context->sums);
	free(context->is_participant);
	pthread_mutex_destroy(&context->lock);
	free(context);
}

tutti_status context_make(struct remote *remote, uint64_t number, bool is_begun,
			  struct remote_context **context)
{
	struct remote_context *made = calloc(1, sizeof *made);

	if (made && is_begun)
		made->is_participant = calloc((size_t)remote->size, 1);
	if (!made || (is_begun && !made->is_participant)) {
		free(made);
		return fail_no_memory("context %" PRIx64, number);
	}
	made->number = number;
	made->is_begun = is_begun;
	pthread_mutex_init(&made->lock, NULL);
	made->next = remote->contexts;
	remote->contexts = made;
	remote->begun += is_begun;
	*context = made;
	return TUTTI_OK;
}

void context_remove(struct remote *remote, struct remote_context *context)
{
	struct remote_context **at = &remote->contexts;

	while (*at != context) {
		assert(*at);
		at = &(*at)->next;
	}
	*at = context->next;
	remote->begun -= context->is_begun;
	context->is_gone = true;
	if (context->users == 0)
		context_free(context);
}

struct remote_context *context_find(struct remote *remote, uint64_t number)
{
	pthread_mutex_lock(&remote->lock);
	struct remote_context *context = look_up(remote, number);
	if (context)
		context->users++;
	pthread_mutex_unlock(&remote->lock);
	return context;
}

void context_leave(struct remote *remote, struct remote_context *context)
{
	pthread_mutex_lock(&remote->lock);
	bool is_last = --context->users == 0 && context->is_gone;
	pthread_mutex_unlock(&remote->lock);
	if (is_last)
		context_free(context);
}

/* The record, or a new one that nobody knows yet. */
static tutti_status find_or_make(struct remote *remote, uint64_t number,
				 struct remote_context **context)
{
	tutti_status status = TUTTI_OK;

	pthread_mutex_lock(&remote->lock);
	*context = look_up(remote, number);
	if (!*context && context_beginner(number) == remote->rank)
		status = context_unknown("tutti_rpc_context_add", number, ": it has ended");
	else if (!*context)
		status = context_make(remote, number, false, context);
	if (status == TUTTI_OK)
		(*context)->users++;
	pthread_mutex_unlock(&remote->lock);
	return status;
}

/* The record is there before the beginner knows of it, so that an end that comes meanwhile finds
 * it.
 */
static tutti_status contexts_join(struct remote *remote, struct remote_context *context)
{
	const tutti_rpc_piece piece = {&context->number, sizeof context->number};

	if (context_beginner(context->number) == remote->rank)
		return TUTTI_OK; /* its record has begun */
	TRY(rpc_may_wait("tutti_rpc_context_add"));
	return tutti_rpc_call(remote->rpc, context_beginner(context->number), "tutti.context.join",
			      &piece, 1, NULL, NULL);
}

/* After the answer to join. A beginner that dies later is told to contexts_died. */
static tutti_status contexts_joined(struct remote *remote, struct remote_context *context,
				    tutti_status status)
{
	int beginner = context_beginner(context->number);

	pthread_mutex_lock(&remote->lock);
	if (status == TUTTI_OK && beginner != remote->rank &&
	    !tutti_rpc_is_alive(remote->rpc, beginner))
		status = fail(TUTTI_ERR_PEER, "rank %d, which began it, has died, or left",
			      beginner);
	if (status == TUTTI_OK && context->is_gone)
		status = fail_invalid("it has ended, or the first call here has failed");
	if (status == TUTTI_OK) {
		context->is_joined = true;
		if (context->is_begun)
			context->is_participant[remote->rank] = 1;
	} else if (!context->is_joined && !context->is_gone && !context->is_begun) {
		context_remove(remote, context); /* has a user still */
	}
	pthread_mutex_unlock(&remote->lock);
	return status;
}

tutti_status context_enter(struct remote *remote, uint64_t number, struct remote_context **context)
{
	tutti_status status;

	if (context_beginner(number) < 0 || context_beginner(number) >= remote->size)
		return context_unknown("tutti_rpc_context_add", number, "");
	TRY(find_or_make(remote, number, context));
	pthread_mutex_lock(&remote->lock);
	bool is_joined = (*context)->is_joined;
	pthread_mutex_unlock(&remote->lock);
	if (is_joined)
		return TUTTI_OK;
	status = contexts_joined(remote, *context, contexts_join(remote, *context));
	if (status == TUTTI_OK)
		return TUTTI_OK;
	struct kept_error failure = kept_error_of(status);
	context_leave(remote, *context);
	return fail(status, "tutti_rpc_context_add, context %" PRIx64 ": %s", number,
		    failure.message);
}

/* On the beginner. */
tutti_status context_on_join(void *arg, const tutti_rpc_request *request, tutti_rpc_reply *reply)
{
	struct remote *remote = arg;
	tutti_status status = TUTTI_OK;
	uint64_t number;

	(void)reply;
	if (request->bytes != sizeof number)
		return fail_invalid("a request of %zu bytes", request->bytes);
	memcpy(&number, request->data, sizeof number);
	pthread_mutex_lock(&remote->lock);
	struct remote_context *context = look_up(remote, number);
	if (!context || !context->is_begun || context->state == CONTEXT_ENDS)
		status = fail_invalid("there is no such context here: it has ended");
	else if (context->state != CONTEXT_ADDS)
		status = fail_invalid("it is in a step: functions that add return before");
	else
		context->is_participant[request->rank] = 1;
	pthread_mutex_unlock(&remote->lock);
	return status;
}

/* On a participant. It may not have come to know of the context. */
tutti_status context_on_end(void *arg, const tutti_rpc_request *request, tutti_rpc_reply *reply)
{
	struct remote *remote = arg;
	uint64_t number;

	(void)reply;
	if (request->bytes != sizeof number)
		return fail_invalid("a request of %zu bytes", request->bytes);
	memcpy(&number, request->data, sizeof number);
	if (context_beginner(number) != request->rank)
		return fail_invalid("rank %d began it", context_beginner(number));
	pthread_mutex_lock(&remote->lock);
	struct remote_context *context = look_up(remote, number);
	if (context && !context->is_begun)
		context_remove(remote, context);
	pthread_mutex_unlock(&remote->lock);
	return TUTTI_OK;
}

void contexts_died(void *arg, int rank)
{
	struct remote *remote = arg;
	struct remote_context *next;

	pthread_mutex_lock(&remote->lock);
	for (struct remote_context *context = remote->contexts; context; context = next) {
		next = context->next;
		if (context_beginner(context->number) == rank && !context->is_begun)
			context_remove(remote, context);
	}
	pthread_mutex_unlock(&remote->lock);
}
