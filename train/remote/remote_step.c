/* A step of a context, on its beginner: all participants measure, then all update. */
#include "train/remote/remote.h"

#include "rpc/extension.h"
#include "train/optimizer/optimizer_groups.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

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
static const struct remote_peer *cause_of(const struct remote_peers *peers)
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

static tutti_status no_rank_updated(const struct remote_peer *cause)
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

static tutti_status measure_here(void *arg, struct remote_peer *self)
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

	remote_step_call_all(step, "tutti.context.measure", measure_here);
	const struct remote_peer *cause = cause_of(step->peers);
	if (cause)
		return no_rank_updated(cause);
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

static tutti_status apply_here(void *arg, struct remote_peer *self)
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

	remote_step_call_all(step, "tutti.context.update", apply_here);
	const struct remote_peer *cause = cause_of(step->peers);
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
	TRY(context_take(remote, "tutti_rpc_context_step", number, CONTEXT_STEPS, &step.context));
	*step.info =
		(tutti_step_info){.items = config->items > 0 ? config->items : 1, .loss_scale = 1};
	step.order = (struct step_order){.context = number, .num_groups = config->num_groups};
	status = remote_peers_of(remote, step.context, &step.peers);
	if (status == TUTTI_OK) {
		status = remote_step_run(&step);
		free(step.peers);
	}
	context_give(remote, step.context,
		     status == TUTTI_OK && !step.info->skipped ? CONTEXT_ADDS : CONTEXT_STEPS);
	return status;
}
