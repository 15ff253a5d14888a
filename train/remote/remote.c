/* The parameters and contexts of an rpc: made when a thread first asks for them, and freed with the
 * rpc, which tells of deaths. */
#include "train/remote/remote.h"

#include "core/callback.h"
#include "core/clock.h"
#include "rpc/extension.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* ---- contexts ---- */

/* A rank's contexts: made, found, told to the beginner, and freed when the beginner ends them or
 * has died. */

int context_beginner(uint64_t number)
{
	return (int)(number >> 48) - 1;
}

tutti_status context_unknown(const char *call, uint64_t number, const char *why)
{
	return fail_invalid("%s: there is no context %" PRIx64 "%s.", call, number, why);
}

static struct remote_context *remote_look_up(const struct remote *remote, uint64_t number)
{
	struct remote_context *context = remote->contexts;

	while (context && context->number != number)
		context = context->next;
	return context;
}

static void remote_context_free(struct remote_context *context)
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
		remote_context_free(context);
}

struct remote_context *context_find(struct remote *remote, uint64_t number)
{
	pthread_mutex_lock(&remote->lock);
	struct remote_context *context = remote_look_up(remote, number);
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
		remote_context_free(context);
}

/* The record, or a new one that nobody knows yet. */
static tutti_status remote_find_or_make(struct remote *remote, uint64_t number,
					struct remote_context **context)
{
	tutti_status status = TUTTI_OK;

	pthread_mutex_lock(&remote->lock);
	*context = remote_look_up(remote, number);
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
static tutti_status remote_contexts_join(struct remote *remote, struct remote_context *context)
{
	const tutti_rpc_piece piece = {&context->number, sizeof context->number};

	if (context_beginner(context->number) == remote->rank)
		return TUTTI_OK; /* its record has begun */
	TRY(rpc_may_wait("tutti_rpc_context_add"));
	return tutti_rpc_call(remote->rpc, context_beginner(context->number), "tutti.context.join",
			      &piece, 1, NULL, NULL);
}

/* After the answer to join. A beginner that dies later is told to remote_contexts_died. */
static tutti_status remote_contexts_joined(struct remote *remote, struct remote_context *context,
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
	TRY(remote_find_or_make(remote, number, context));
	pthread_mutex_lock(&remote->lock);
	bool is_joined = (*context)->is_joined;
	pthread_mutex_unlock(&remote->lock);
	if (is_joined)
		return TUTTI_OK;
	status = remote_contexts_joined(remote, *context, remote_contexts_join(remote, *context));
	if (status == TUTTI_OK)
		return TUTTI_OK;
	struct kept_error failure = kept_error_of(status);
	context_leave(remote, *context);
	return fail(status, "tutti_rpc_context_add, context %" PRIx64 ": %s", number,
		    failure.message);
}

static tutti_status remote_context_read_number(const tutti_rpc_request *request, uint64_t *number)
{
	if (request->bytes != sizeof *number)
		return fail_invalid("a request of %zu bytes", request->bytes);
	memcpy(number, request->data, sizeof *number);
	return TUTTI_OK;
}

/* On the beginner. */
static tutti_status remote_context_on_join(void *arg, const tutti_rpc_request *request,
					   tutti_rpc_reply *reply)
{
	struct remote *remote = arg;
	tutti_status status = TUTTI_OK;
	uint64_t number = 0;

	(void)reply;
	TRY(remote_context_read_number(request, &number));
	pthread_mutex_lock(&remote->lock);
	struct remote_context *context = remote_look_up(remote, number);
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
static tutti_status remote_context_on_end(void *arg, const tutti_rpc_request *request,
					  tutti_rpc_reply *reply)
{
	struct remote *remote = arg;
	uint64_t number = 0;

	(void)reply;
	TRY(remote_context_read_number(request, &number));
	if (context_beginner(number) != request->rank)
		return fail_invalid("rank %d began it", context_beginner(number));
	pthread_mutex_lock(&remote->lock);
	struct remote_context *context = remote_look_up(remote, number);
	if (context && !context->is_begun)
		context_remove(remote, context);
	pthread_mutex_unlock(&remote->lock);
	return TUTTI_OK;
}

/* Functions of the rpc. */
static void remote_contexts_died(void *arg, int rank)
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

/* ---- parameters ---- */

/* The table of parameters: they are found by their numbers, and freed when nothing uses them. */

struct remote_param *remote_param_of(const struct remote *remote, int number)
{
	if (number < 0 || number >= remote->num_params || !remote->params[number] ||
	    remote->params[number]->is_removed)
		return NULL;
	return remote->params[number];
}

tutti_status remote_param_unknown(const struct remote *remote, const char *call, int number)
{
	if (number >= 0 && number < remote->num_params)
		return fail_invalid("%s: parameter %d of rank %d was removed.", call, number,
				    remote->rank);
	return fail_invalid("%s: rank %d has no parameter %d; %d were registered there.", call,
			    remote->rank, number, remote->num_params);
}

tutti_status remote_params_insert(struct remote *remote, struct remote_param *made, int *number)
{
	for (int i = 0; i < remote->num_params; i++) {
		const struct remote_param *other = remote_param_of(remote, i);
		if (other && strcmp(other->name, made->name) == 0)
			return fail_invalid("tutti_rpc_param_add: rank %d has a parameter '%s' "
					    "already, number %d.",
					    remote->rank, made->name, i);
	}
	TRY(array_grow(&remote->params, (size_t)remote->num_params, sizeof(struct remote_param *),
		       "an rpc's parameters"));
	remote->params[remote->num_params] = made;
	*number = remote->num_params++;
	return TUTTI_OK;
}

struct remote_param *remote_params_look(struct remote *remote, int number)
{
	struct remote_param *param = remote->params[number];

	if (!param || !param->is_removed || param->readers || param->is_updated)
		return NULL;
	remote->params[number] = NULL;
	return param;
}

void remote_param_end(struct remote_param *param)
{
	if (!param)
		return;
	if (param->release)
		callback_call("release", "tutti_rpc_param", -1, param->release(param->release_arg));
	free(param->m);
	free(param->v);
	free(param);
}

static void remote_free(struct remote *remote)
{
	for (int i = 0; i < remote->num_params; i++)
		remote_param_end(remote->params[i]);
	free(remote->params);
	pthread_cond_destroy(&remote->unlocked);
	pthread_mutex_destroy(&remote->registering);
	pthread_mutex_destroy(&remote->lock);
	free(remote);
}

static void remote_destroy(void *arg)
{
	struct remote *remote = arg;

	pthread_mutex_lock(&remote->lock);
	while (remote->contexts)
		context_remove(remote, remote->contexts);
	pthread_mutex_unlock(&remote->lock);
	remote_free(remote);
}

/* ---- the rpc's ---- */

/* Two rpcs of a process, or of two jobs, hardly have the same. */
static uint64_t remote_salt_of(const struct remote *remote)
{
	return random_mix(clock_now_ns() ^ (uint64_t)getpid() << 44 ^ (uint64_t)(uintptr_t)remote);
}

static struct remote *remote_make(tutti_rpc *rpc)
{
	struct remote *remote = calloc(1, sizeof *remote);

	if (!remote)
		return NULL;
	remote->rpc = rpc;
	remote->rank = tutti_rpc_rank(rpc);
	remote->size = tutti_rpc_size(rpc);
	remote->salt = remote_salt_of(remote);
	pthread_mutex_init(&remote->lock, NULL);
	pthread_mutex_init(&remote->registering, NULL);
	pthread_cond_init(&remote->unlocked, NULL);
	return remote;
}

/* Those that never wait are short: a participant whose threads all wait for the beginner can still
 * end what it has. */
static tutti_status remote_register_functions(struct remote *remote)
{
	const tutti_rpc_function functions[] = {
		{.name = "tutti.context.join",
		 .fn = remote_context_on_join,
		 .flags = TUTTI_RPC_SHORT},
		{.name = "tutti.context.end",
		 .fn = remote_context_on_end,
		 .flags = TUTTI_RPC_SHORT},
		{.name = "tutti.context.measure", .fn = update_on_measure},
		{.name = "tutti.context.update", .fn = update_on_apply},
	};

	for (; remote->num_registered < sizeof functions / sizeof *functions;
	     remote->num_registered++) {
		tutti_rpc_function function = functions[remote->num_registered];
		function.arg = remote;
		TRY(rpc_extension_register(remote->rpc, &function));
	}
	return TUTTI_OK;
}

struct remote *remote_of(tutti_rpc *rpc, const char *call, tutti_status *status)
{
	struct remote *remote = NULL;

	if (!rpc) {
		*status = fail_invalid("%s: the rpc is NULL.", call);
		return NULL;
	}
	if (!rpc_extension_data(rpc)) {
		remote = remote_make(rpc);
		if (!remote) {
			*status = fail_no_memory("the contexts of an rpc");
			return NULL;
		}
		if (!rpc_extension_set(rpc, &(struct rpc_extension){.data = remote,
								    .died = remote_contexts_died,
								    .destroy = remote_destroy}))
			remote_free(remote); /* another thread was first */
	}
	remote = rpc_extension_data(rpc);
	pthread_mutex_lock(&remote->registering);
	*status = remote_register_functions(remote);
	pthread_mutex_unlock(&remote->registering);
	return *status == TUTTI_OK ? remote : NULL;
}

int remote_context_count(tutti_rpc *rpc)
{
	struct remote *remote = rpc_extension_data(rpc);
	int count = 0;

	if (!remote)
		return 0;
	pthread_mutex_lock(&remote->lock);
	for (struct remote_context *context = remote->contexts; context; context = context->next)
		count++;
	pthread_mutex_unlock(&remote->lock);
	return count;
}

/* ---- locks of parameters ---- */

/* Read by several threads at once, updated by one. A thread takes all that it
 * needs at once or waits with none, so no two threads wait for each other. A step that waits keeps
 * new readers out. */

static bool remote_param_locks_is_free(const struct remote_param *param, bool updates)
{
	if (updates)
		return !param->is_updated && param->readers == 0;
	return !param->is_updated && param->steps_waiting == 0;
}

/* The first that is not to be had; -1: all are free. INVALID: one is not there. */
static tutti_status remote_find_busy(const struct remote *remote, const int *numbers, int count,
				     bool updates, int *busy)
{
	*busy = -1;
	for (int i = 0; i < count; i++) {
		const struct remote_param *param = remote_param_of(remote, numbers[i]);
		if (!param)
			return remote_param_unknown(
				remote, updates ? "tutti_rpc_context_step" : "tutti_rpc_param_lock",
				numbers[i]);
		if (*busy < 0 && !remote_param_locks_is_free(param, updates))
			*busy = numbers[i];
	}
	return TUTTI_OK;
}

static void remote_note_waiting(const struct remote *remote, const int *numbers, int count,
				int more)
{
	for (int i = 0; i < count; i++) {
		struct remote_param *param = remote_param_of(remote, numbers[i]);
		if (param)
			param->steps_waiting += more;
	}
}

static void remote_param_locks_hold(const struct remote *remote, const int *numbers, int count,
				    bool updates)
{
	for (int i = 0; i < count; i++) {
		struct remote_param *param = remote->params[numbers[i]];
		if (updates)
			param->is_updated = true;
		else
			param->readers++;
	}
}

static tutti_status remote_param_locks_late(const struct remote *remote, int busy, int timeout_ms)
{
	const struct remote_param *param = remote->params[busy];

	return fail(TUTTI_ERR_TIMEOUT,
		    "parameter '%s' of rank %d is still locked by %s after %d ms: call "
		    "tutti_rpc_param_unlock before a function waits for others.",
		    param->name, remote->rank,
		    param->is_updated ? "a step" : "a reader, or a step that waits for one",
		    timeout_ms);
}

/* Waits, with the lock, until all are free. */
static tutti_status remote_await_free(struct remote *remote, const int *numbers, int count,
				      bool updates, int timeout_ms)
{
	struct timespec deadline = {0};
	int busy, error = 0;

	if (timeout_ms > 0)
		deadline = deadline_timespec(deadline_after_ms(timeout_ms));
	for (;;) {
		TRY(remote_find_busy(remote, numbers, count, updates, &busy));
		if (busy < 0)
			return TUTTI_OK;
		if (error == ETIMEDOUT)
			return remote_param_locks_late(remote, busy, timeout_ms);
		error = timeout_ms > 0 ? pthread_cond_clockwait(&remote->unlocked, &remote->lock,
								CLOCK_MONOTONIC, &deadline)
				       : pthread_cond_wait(&remote->unlocked, &remote->lock);
	}
}

tutti_status param_locks_take(struct remote *remote, const int *numbers, int count, bool updates,
			      int timeout_ms)
{
	tutti_status status;

	pthread_mutex_lock(&remote->lock);
	if (updates)
		remote_note_waiting(remote, numbers, count, 1);
	status = remote_await_free(remote, numbers, count, updates, timeout_ms);
	if (updates) {
		remote_note_waiting(remote, numbers, count, -1);
		if (status != TUTTI_OK) /* readers that it kept out */
			pthread_cond_broadcast(&remote->unlocked);
	}
	if (status == TUTTI_OK)
		remote_param_locks_hold(remote, numbers, count, updates);
	pthread_mutex_unlock(&remote->lock);
	return status;
}

static bool remote_param_locks_is_held(const struct remote *remote, int number, bool updates)
{
	const struct remote_param *param =
		number >= 0 && number < remote->num_params ? remote->params[number] : NULL;

	return param && (updates ? param->is_updated : param->readers > 0);
}

static tutti_status remote_drop_one(struct remote *remote, int number, bool updates)
{
	struct remote_param *gone = NULL;
	bool held;

	pthread_mutex_lock(&remote->lock);
	held = remote_param_locks_is_held(remote, number, updates);
	if (held) {
		if (updates)
			remote->params[number]->is_updated = false;
		else
			remote->params[number]->readers--;
		gone = remote_params_look(remote, number);
		pthread_cond_broadcast(&remote->unlocked);
	}
	pthread_mutex_unlock(&remote->lock);
	remote_param_end(gone);
	return held ? TUTTI_OK
		    : fail_invalid("tutti_rpc_param_unlock: parameter %d of rank %d is not "
				   "locked.",
				   number, remote->rank);
}

tutti_status param_locks_drop(struct remote *remote, const int *numbers, int count, bool updates)
{
	struct kept_error first = {0};

	for (int i = 0; i < count; i++)
		kept_error_note(&first, remote_drop_one(remote, numbers[i], updates));
	return kept_error_return(&first);
}
