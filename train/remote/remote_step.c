/* What a program asks for: the functions of rpc.h for parameters and contexts, and a step of a
 * context, on its beginner: all participants measure, then all update. */
#include "rpc/extension.h"
#include "train/optimizer/optimizer.h"
#include "train/remote/remote.h"

#include <ctype.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- one call to each participant of a context, all in flight at once ---- */

struct remote_peer {
	int rank;
	tutti_rpc_future *future;
	tutti_rpc_answer answer;
	struct step_measure measure;
	struct kept_error failure; /* of the last call */
};
struct remote_peers {
	int count;
	struct remote_peer each[];
};

/* The participants, in order. The caller frees them. */
static tutti_status remote_peers_of(struct remote *remote, const struct remote_context *context,
				    struct remote_peers **peers)
{
	struct remote_peers *made =
		calloc(1, sizeof *made + (size_t)remote->size * sizeof *made->each);

	if (!made)
		return fail_no_memory("calls to the participants of a context");
	pthread_mutex_lock(&remote->lock);
	for (int rank = 0; rank < remote->size; rank++)
		if (context->is_participant[rank])
			made->each[made->count++].rank = rank;
	pthread_mutex_unlock(&remote->lock);
	*peers = made;
	return TUTTI_OK;
}

static void remote_peers_begin(struct remote *remote, struct remote_peer *peer,
			       const char *function, const tutti_rpc_piece pieces[2],
			       int timeout_ms)
{
	const tutti_rpc_options options = {.timeout_ms = timeout_ms};
	int num_pieces = pieces[1].bytes ? 2 : 1;

	peer->answer = (tutti_rpc_answer){&peer->measure, sizeof peer->measure, {0}};
	kept_error_note(&peer->failure,
			tutti_rpc_call_async(remote->rpc, peer->rank, function, pieces, num_pieces,
					     &peer->answer, &options, &peer->future));
}

/* Calls the function on all but this rank, at once; then here does this rank's part, and all are
 * waited for. Each peer has its failure afterwards. */
static void remote_peers_call(struct remote *remote, struct remote_peers *peers,
			      const char *function, const tutti_rpc_piece pieces[2], int timeout_ms,
			      tutti_status (*here)(void *arg, struct remote_peer *self), void *arg)
{
	struct remote_peer *self = NULL;

	for (int i = 0; i < peers->count; i++) {
		struct remote_peer *peer = &peers->each[i];
		peer->failure = (struct kept_error){0};
		if (peer->rank == remote->rank)
			self = peer;
		else
			remote_peers_begin(remote, peer, function, pieces, timeout_ms);
	}
	if (self)
		kept_error_note(&self->failure, here(arg, self));
	for (int i = 0; i < peers->count; i++)
		if (peers->each[i].future)
			kept_error_note(&peers->each[i].failure,
					tutti_rpc_wait(&peers->each[i].future, 0));
}

/* ---- the functions that begin and end contexts, and that ask about them ---- */

enum { RANKS_MAX = 65534 }; /* the rank is in 16 bits of a number */

uint64_t tutti_rpc_context_now(void)
{
	return rpc_context();
}

void tutti_rpc_context_set(uint64_t context)
{
	rpc_context_set(context);
}

static uint64_t remote_step_context_next_number(struct remote *remote)
{
	uint64_t count = ++remote->last & 0xffffffff;

	return (uint64_t)(remote->rank + 1) << 48 | count << 16 | (remote->salt & 0xffff);
}

tutti_status tutti_rpc_context_begin(tutti_rpc *rpc, uint64_t *context)
{
	tutti_status status;
	struct remote *remote = remote_of(rpc, "tutti_rpc_context_begin", &status);
	struct remote_context *made;

	if (!remote)
		return status;
	if (!context)
		return fail_invalid("tutti_rpc_context_begin: context is NULL.");
	if (remote->size > RANKS_MAX)
		return fail(TUTTI_ERR_UNSUPPORTED,
			    "tutti_rpc_context_begin: the rpc has %d ranks; contexts are for "
			    "up to %d.",
			    remote->size, RANKS_MAX);
	pthread_mutex_lock(&remote->lock);
	if (remote->begun >= TUTTI_RPC_CONTEXTS)
		status = fail(TUTTI_ERR_MEMORY,
			      "tutti_rpc_context_begin: rank %d has begun %d contexts that "
			      "have not ended: call tutti_rpc_context_end.",
			      remote->rank, remote->begun);
	else
		status = context_make(remote, remote_step_context_next_number(remote), true, &made);
	if (status == TUTTI_OK)
		*context = made->number;
	pthread_mutex_unlock(&remote->lock);
	if (status == TUTTI_OK)
		rpc_context_set(*context);
	return status;
}

/* The beginner's, for one thread that steps or ends it; one more user. INVALID. */
static tutti_status remote_step_context_take(struct remote *remote, const char *call,
					     uint64_t number, enum context_state state,
					     struct remote_context **context)
{
	tutti_status status = TUTTI_OK;

	*context = context_find(remote, number);
	if (!*context)
		return context_unknown(call, number, ", or it has ended");
	pthread_mutex_lock(&remote->lock);
	if (!(*context)->is_begun)
		status = fail_invalid("%s: context %" PRIx64 " was begun by rank %d, which alone "
				      "steps and ends it.",
				      call, number, context_beginner(number));
	else if ((*context)->is_busy)
		status = fail_invalid("%s: another thread steps or ends context %" PRIx64 ".", call,
				      number);
	else if ((*context)->state == CONTEXT_ENDS && state != CONTEXT_ENDS)
		status = fail_invalid("%s: context %" PRIx64 " has ended on some ranks: call "
				      "tutti_rpc_context_end again.",
				      call, number);
	else {
		(*context)->is_busy = true;
		(*context)->state = state;
	}
	pthread_mutex_unlock(&remote->lock);
	if (status != TUTTI_OK)
		context_leave(remote, *context);
	return status;
}

static void remote_step_context_give(struct remote *remote, struct remote_context *context,
				     enum context_state state)
{
	pthread_mutex_lock(&remote->lock);
	context->is_busy = false;
	context->state = state;
	pthread_mutex_unlock(&remote->lock);
	context_leave(remote, context);
}

static tutti_status remote_step_end_here(void *arg, struct remote_peer *self)
{
	(void)arg, (void)self;
	return TUTTI_OK;
}

/* Participants that have freed it, or that are dead, are none any more. */
static tutti_status remote_step_end_on_others(struct remote *remote, struct remote_context *context,
					      int timeout_ms)
{
	const tutti_rpc_piece pieces[] = {{&context->number, sizeof context->number}, {NULL, 0}};
	struct remote_peers *peers = NULL;
	struct kept_error first = {0};

	TRY(remote_peers_of(remote, context, &peers));
	remote_peers_call(remote, peers, "tutti.context.end", pieces, timeout_ms,
			  remote_step_end_here, NULL);
	pthread_mutex_lock(&remote->lock);
	for (int i = 0; i < peers->count; i++) {
		const struct remote_peer *peer = &peers->each[i];
		if (peer->failure.status == TUTTI_OK ||
		    !tutti_rpc_is_alive(remote->rpc, peer->rank))
			context->is_participant[peer->rank] = 0;
		else if (first.status == TUTTI_OK)
			first = peer->failure;
	}
	pthread_mutex_unlock(&remote->lock);
	free(peers);
	return kept_error_return(&first);
}

tutti_status tutti_rpc_context_end(tutti_rpc *rpc, uint64_t number, int timeout_ms)
{
	tutti_status status;
	struct remote *remote = remote_of(rpc, "tutti_rpc_context_end", &status);
	struct remote_context *context;

	if (!remote)
		return status;
	TRY(rpc_may_wait("tutti_rpc_context_end"));
	TRY(remote_step_context_take(remote, "tutti_rpc_context_end", number, CONTEXT_ENDS,
				     &context));
	if (rpc_context() == number)
		rpc_context_set(0);
	status = remote_step_end_on_others(remote, context, timeout_ms);
	struct kept_error failure = kept_error_of(status);
	if (status == TUTTI_OK) {
		pthread_mutex_lock(&remote->lock);
		context_remove(remote, context);
		pthread_mutex_unlock(&remote->lock);
		context_leave(remote, context);
		return TUTTI_OK;
	}
	remote_step_context_give(remote, context, CONTEXT_ENDS);
	return fail(status, "tutti_rpc_context_end, which can be called again: %s",
		    failure.message);
}

tutti_status tutti_rpc_context_ranks(tutti_rpc *rpc, uint64_t number, int *ranks, int room,
				     int *count)
{
	tutti_status status;
	struct remote *remote = remote_of(rpc, "tutti_rpc_context_ranks", &status);

	if (!remote)
		return status;
	if (!count || room < 0 || (room > 0 && !ranks))
		return fail_invalid("tutti_rpc_context_ranks: room for %d ranks at %p, count at "
				    "%p.",
				    room, (void *)ranks, (void *)count);
	struct remote_context *context = context_find(remote, number);
	if (!context)
		return context_unknown("tutti_rpc_context_ranks", number, ", or it has ended");
	pthread_mutex_lock(&remote->lock);
	if (!context->is_begun)
		status = fail_invalid("tutti_rpc_context_ranks: rank %d knows the participants of "
				      "context %" PRIx64 ", which it began.",
				      context_beginner(number), number);
	for (int rank = 0, n = 0; status == TUTTI_OK && rank < remote->size; rank++) {
		if (context->is_participant[rank] && n++ < room)
			ranks[n - 1] = rank;
		*count = n;
	}
	pthread_mutex_unlock(&remote->lock);
	context_leave(remote, context);
	return status;
}

struct remote_step {
	struct remote *remote;
	struct remote_context *context;
	const tutti_rpc_step_config *config;
	struct remote_peers *peers;
	struct step_order order;
	tutti_step_info *info;
};

static tutti_status remote_step_check_config(const tutti_rpc_step_config *config)
{
	if (!config)
		return fail_invalid("tutti_rpc_context_step: config is NULL.");
	if (config->items < 0 || !isfinite(config->items) || isnan(config->max_grad_norm) ||
	    config->max_grad_norm < 0)
		return fail_invalid("tutti_rpc_context_step: %g items and a norm of at most %g; "
				    "both are at least 0.",
				    config->items, (double)config->max_grad_norm);
	return optimizer_groups_check("tutti_rpc_context_step", config->groups, config->num_groups);
}

static void remote_step_call_all(struct remote_step *step, const char *function,
				 tutti_status (*here)(void *arg, struct remote_peer *self))
{
	const tutti_rpc_piece pieces[] = {
		{&step->order, sizeof step->order},
		{step->config->groups,
		 (size_t)step->config->num_groups * sizeof *step->config->groups},
	};

	remote_peers_call(step->remote, step->peers, function, pieces, step->config->timeout_ms,
			  here, step);
}

/* The cause: an error that does not follow from another rank's, or else the first one. */
static const struct remote_peer *remote_step_cause_of(const struct remote_peers *peers)
{
	const struct remote_peer *cause = NULL;

	for (int i = 0; i < peers->count; i++) {
		const struct remote_peer *peer = &peers->each[i];
		if (peer->failure.status == TUTTI_OK)
			continue;
		if (!cause || (status_is_secondary(cause->failure.status) &&
			       !status_is_secondary(peer->failure.status)))
			cause = peer;
	}
	return cause;
}

static tutti_status remote_step_no_rank_updated(const struct remote_peer *cause)
{
	return fail(cause->failure.status, "tutti_rpc_context_step: no rank has updated: %s",
		    cause->failure.message);
}

/* Digits of sums that other ranks have sent are added without a look at each. */
static bool remote_step_is_sound(const struct remote_peer *peer, bool is_self)
{
	const struct step_measure *measure = &peer->measure;
	size_t least = offsetof(struct step_measure, bad_name);

	if (is_self)
		return true;
	if (peer->answer.bytes != (measure->bad_param < 0 ? least : sizeof *measure) ||
	    measure->squares.nonfinite < 0)
		return false;
	for (int i = 0; i < EXACT_SUM_LIMBS; i++)
		if (measure->squares.limbs[i] < 0 || measure->squares.limbs[i] > UINT32_MAX)
			return false;
	return measure->bad_param < 0 || memchr(measure->bad_name, 0, sizeof measure->bad_name);
}

static tutti_status remote_step_measure_here(void *arg, struct remote_peer *self)
{
	const struct remote_step *step = arg;

	return update_measure(step->remote, &step->order, step->config->groups, &self->measure);
}

/* The sum of all ranks; *bad: the first with a gradient that is not finite, or NULL. */
static tutti_status remote_step_add_up(const struct remote_step *step, struct exact_sum *sum,
				       const struct remote_peer **bad)
{
	*sum = (struct exact_sum){0};
	*bad = NULL;
	for (int i = 0; i < step->peers->count; i++) {
		const struct remote_peer *peer = &step->peers->each[i];
		if (!remote_step_is_sound(peer, peer->rank == step->remote->rank))
			return fail(TUTTI_ERR_INTERNAL,
				    "tutti_rpc_context_step: no rank has updated: rank %d "
				    "has sent %zu bytes that are no part of a norm.",
				    peer->rank, peer->answer.bytes);
		exact_sum_merge(sum, &peer->measure.squares);
		if (!*bad && peer->measure.bad_param >= 0)
			*bad = peer;
	}
	return TUTTI_OK;
}

/* The norm, the factor of the update, and whether all ranks skip it. */
static tutti_status remote_step_measure(struct remote_step *step, const struct remote_peer **bad)
{
	const double limit = (double)step->config->max_grad_norm;
	tutti_step_info *info = step->info;
	struct exact_sum sum;

	remote_step_call_all(step, "tutti.context.measure", remote_step_measure_here);
	const struct remote_peer *cause = remote_step_cause_of(step->peers);
	if (cause)
		return remote_step_no_rank_updated(cause);
	TRY(remote_step_add_up(step, &sum, bad));
	info->grad_norm = (float)(sqrt(exact_sum_value(&sum)) / info->items);
	/* In f32, the type of updates. */
	info->skipped = !isfinite(info->grad_norm) || !isfinite((float)(1 / info->items));
	double clip =
		limit > 0 && (double)info->grad_norm > limit ? limit / (double)info->grad_norm : 1;
	step->order.scale = (float)(clip / info->items);
	return TUTTI_OK;
}

static tutti_status remote_step_explain_skip(const struct remote_step *step,
					     const struct remote_peer *bad)
{
	if (bad)
		fail(TUTTI_OK,
		     "tutti_rpc_context_step: the step was skipped: parameter '%s' of rank "
		     "%d has a gradient that is not finite.",
		     bad->measure.bad_name, bad->rank);
	else
		fail(TUTTI_OK,
		     "tutti_rpc_context_step: the step was skipped: the gradients' norm, or "
		     "1 / %g, the number of items, is too large for f32.",
		     step->config->items);
	return TUTTI_OK;
}

static tutti_status remote_step_apply_here(void *arg, struct remote_peer *self)
{
	const struct remote_step *step = arg;

	(void)self;
	return update_apply(step->remote, &step->order, step->config->groups,
			    rpc_timeout_ms(step->remote->rpc, step->config->timeout_ms));
}

/* "1, 2 and 5 more" */
static void remote_step_list_ranks(const struct remote_peers *peers, bool updated, char *text,
				   size_t room)
{
	int listed = 0, more = 0;
	size_t n = 0;

	snprintf(text, room, "none");
	for (int i = 0; i < peers->count; i++) {
		if ((peers->each[i].failure.status == TUTTI_OK) != updated)
			continue;
		if (listed < 8) {
			n += (size_t)snprintf(text + n, room - n, "%s%d", listed ? ", " : "",
					      peers->each[i].rank);
			listed++;
		} else {
			more++;
		}
	}
	if (more)
		snprintf(text + n, room - n, " and %d more", more);
}

static tutti_status remote_step_update(struct remote_step *step)
{
	char done[96], other[96];

	remote_step_call_all(step, "tutti.context.update", remote_step_apply_here);
	const struct remote_peer *cause = remote_step_cause_of(step->peers);
	if (!cause)
		return TUTTI_OK;
	remote_step_list_ranks(step->peers, true, done, sizeof done);
	remote_step_list_ranks(step->peers, false, other, sizeof other);
	return fail(cause->failure.status,
		    "tutti_rpc_context_step: ranks that have updated: %s; ranks that failed, "
		    "died or left, and may have updated: %s; rank %d: %s",
		    done, other, cause->rank, cause->failure.message);
}

static tutti_status remote_step_run(struct remote_step *step)
{
	const struct remote_peer *bad = NULL;

	for (int i = 0; i < step->peers->count; i++)
		if (!tutti_rpc_is_alive(step->remote->rpc, step->peers->each[i].rank))
			return fail(TUTTI_ERR_PEER,
				    "tutti_rpc_context_step: no rank has updated: rank %d, "
				    "which has gradients of this context, has died, or left.",
				    step->peers->each[i].rank);
	TRY(remote_step_measure(step, &bad));
	return step->info->skipped ? remote_step_explain_skip(step, bad) : remote_step_update(step);
}

tutti_status tutti_rpc_context_step(tutti_rpc *rpc, uint64_t number,
				    const tutti_rpc_step_config *config, tutti_step_info *info)
{
	tutti_status status;
	tutti_step_info own;
	struct remote *remote = remote_of(rpc, "tutti_rpc_context_step", &status);
	struct remote_step step = {.remote = remote, .config = config, .info = info ? info : &own};

	if (!remote)
		return status;
	TRY(rpc_may_wait("tutti_rpc_context_step"));
	TRY(remote_step_check_config(config));
	TRY(remote_step_context_take(remote, "tutti_rpc_context_step", number, CONTEXT_STEPS,
				     &step.context));
	*step.info =
		(tutti_step_info){.items = config->items > 0 ? config->items : 1, .loss_scale = 1};
	step.order = (struct step_order){.context = number, .num_groups = config->num_groups};
	status = remote_peers_of(remote, step.context, &step.peers);
	if (status == TUTTI_OK) {
		status = remote_step_run(&step);
		free(step.peers);
	}
	remote_step_context_give(remote, step.context,
				 status == TUTTI_OK && !step.info->skipped ? CONTEXT_ADDS
									   : CONTEXT_STEPS);
	return status;
}

/* ---- the functions for parameters ---- */

enum { LOCK_MS = 60000 }; /* tutti_rpc_param_lock's, where the caller names none */

static bool remote_step_name_is_good(const char *name)
{
	size_t n = name ? strnlen(name, REMOTE_NAME_BYTES + 1) : 0;

	for (size_t i = 0; i < n; i++)
		if (!isprint((unsigned char)name[i]))
			return false;
	return n >= 1 && n <= REMOTE_NAME_BYTES;
}

static tutti_status remote_step_param_check(const tutti_rpc_param *param, const int *number)
{
	if (!param || !number)
		return fail_invalid("tutti_rpc_param_add: param or number is NULL.");
	if (!remote_step_name_is_good(param->name))
		return fail_invalid("tutti_rpc_param_add: a parameter's name has 1 to %d "
				    "printable bytes.",
				    REMOTE_NAME_BYTES);
	if (!param->values && param->count > 0)
		return fail_invalid("tutti_rpc_param_add: parameter '%s' has %zu values at NULL.",
				    param->name, param->count);
	if (param->count > SIZE_MAX / sizeof(float))
		return fail_invalid("tutti_rpc_param_add: parameter '%s' has %zu values, more "
				    "than memory can have.",
				    param->name, param->count);
	if (param->group < 0 || (param->flags & ~TUTTI_PARAM_NO_DECAY))
		return fail_invalid("tutti_rpc_param_add: parameter '%s' has group %d and flags "
				    "0x%x; groups count from 0, and the only flag is "
				    "TUTTI_PARAM_NO_DECAY.",
				    param->name, param->group, (unsigned)param->flags);
	return TUTTI_OK;
}

tutti_status tutti_rpc_param_add(tutti_rpc *rpc, const tutti_rpc_param *param, int *number)
{
	tutti_status status;
	struct remote *remote = remote_of(rpc, "tutti_rpc_param_add", &status);

	if (!remote)
		return status;
	TRY(remote_step_param_check(param, number));
	struct remote_param *made = calloc(1, sizeof *made);
	if (!made)
		return fail_no_memory("parameter '%s'", param->name);
	*made = (struct remote_param){.values = param->values,
				      .count = param->count,
				      .group = param->group,
				      .flags = param->flags,
				      .release = param->release,
				      .release_arg = param->release_arg,
				      .kind = -1};
	snprintf(made->name, sizeof made->name, "%s", param->name);
	pthread_mutex_lock(&remote->lock);
	status = remote_params_insert(remote, made, number);
	pthread_mutex_unlock(&remote->lock);
	if (status != TUTTI_OK)
		free(made);
	return status;
}

tutti_status tutti_rpc_param_remove(tutti_rpc *rpc, int number)
{
	tutti_status status;
	struct remote *remote = remote_of(rpc, "tutti_rpc_param_remove", &status);
	struct remote_param *gone = NULL;

	if (!remote)
		return status;
	pthread_mutex_lock(&remote->lock);
	struct remote_param *param = remote_param_of(remote, number);
	if (param) {
		param->is_removed = true;
		gone = remote_params_look(remote, number);
		pthread_cond_broadcast(&remote->unlocked); /* what waits for it gets INVALID */
	} else {
		status = remote_param_unknown(remote, "tutti_rpc_param_remove", number);
	}
	pthread_mutex_unlock(&remote->lock);
	remote_param_end(gone);
	return status;
}

static struct remote *remote_step_check_lock(tutti_rpc *rpc, const char *call, const int *numbers,
					     int count, tutti_status *status)
{
	struct remote *remote = remote_of(rpc, call, status);

	if (!remote || (numbers && count >= 0))
		return remote;
	*status = fail_invalid("%s: %d parameters at %p.", call, count, (const void *)numbers);
	return NULL;
}

tutti_status tutti_rpc_param_lock(tutti_rpc *rpc, const int *numbers, int count, int timeout_ms)
{
	tutti_status status;
	struct remote *remote =
		remote_step_check_lock(rpc, "tutti_rpc_param_lock", numbers, count, &status);

	if (!remote)
		return status;
	TRY(rpc_may_wait("tutti_rpc_param_lock"));
	return param_locks_take(remote, numbers, count, false,
				timeout_ms == 0 ? LOCK_MS : timeout_ms);
}

tutti_status tutti_rpc_param_unlock(tutti_rpc *rpc, const int *numbers, int count)
{
	tutti_status status;
	struct remote *remote =
		remote_step_check_lock(rpc, "tutti_rpc_param_unlock", numbers, count, &status);

	return remote ? param_locks_drop(remote, numbers, count, false) : status;
}
