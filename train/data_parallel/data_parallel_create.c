/* Makes the replicas of DataParallel and Mirrored, and ends them. */
#include "train/data_parallel/data_parallel.h"

#include "core/callback.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { REPLICAS_MAX = 1024 };

static tutti_status check_functions(const char *function, const tutti_data_parallel_config *c)
{
	const tutti_data_parallel_config zero = {0};

	if (!c || !c->model)
		return fail_invalid("%s needs a config with a model, not NULL.", function);
	if (!c->forward || !c->loss || !c->backward)
		return fail_invalid("%s needs the functions forward, loss and backward; %s is "
				    "NULL.",
				    function,
				    !c->forward ? "forward"
				    : !c->loss  ? "loss"
						: "backward");
	if (c->output_count == 0)
		return fail_invalid("%s: output_count is 0: an item has at least one output.",
				    function);
	if (memcmp(c->reserved, zero.reserved, sizeof zero.reserved) != 0)
		return fail_invalid("%s: config.reserved is not zero: zero-initialise it.",
				    function);
	return TUTTI_OK;
}

/* is_all: they are all ranks of their communicator. */
static tutti_status check_comms(const char *function, tutti_comm *const *comms, int n, bool is_all)
{
	if (!comms || n < 1 || n > REPLICAS_MAX)
		return fail_invalid("%s needs the communicators of 1 to %d ranks; n is %d%s.",
				    function, REPLICAS_MAX, n, comms ? "" : " and comms NULL");
	for (int r = 0; r < n; r++) {
		if (!comms[r])
			return fail_invalid("%s: comms[%d] of %d is NULL.", function, r, n);
		if (tutti_size(comms[r]) != tutti_size(comms[0]) ||
		    (r > 0 && tutti_rank(comms[r]) <= tutti_rank(comms[r - 1])))
			return fail_invalid("%s: comms[%d] is rank %d of %d, behind rank %d of "
					    "%d: pass ranks of one communicator in order, as "
					    "tutti_init_all writes them.",
					    function, r, tutti_rank(comms[r]), tutti_size(comms[r]),
					    tutti_rank(comms[r ? r - 1 : 0]), tutti_size(comms[0]));
	}
	if (is_all && tutti_size(comms[0]) != n)
		return fail_invalid("%s: DataParallel is one process with all ranks of the "
				    "communicator: it has %d, n is %d.",
				    function, tutti_size(comms[0]), n);
	return TUTTI_OK;
}

static tutti_status refuse_memory(const char *what, const char *name, int n)
{
	return fail_invalid("tutti_mirrored_create: %s '%s' is one memory of the caller's, to "
			    "which each of %d replicas would write: %s.",
			    what, name, n,
			    strcmp(what, "Parameter") == 0
				    ? "register it with tutti_model_param"
				    : "leave it out of the model, and keep it in the program");
}

static tutti_status check_mirrored(const tutti_data_parallel_config *config, int n)
{
	const struct tutti_model *model = config->model;
	const tutti_train_config *train = config->train;

	if (train && train->strategy != TUTTI_DDP && train->strategy != TUTTI_ZERO1)
		return fail(TUTTI_ERR_UNSUPPORTED,
			    "tutti_mirrored_create: functions of a replica read all "
			    "parameters at any time, and replicas are the same after each "
			    "step: set train.strategy to TUTTI_DDP or TUTTI_ZERO1.");
	if (train && train->on_device)
		return fail(TUTTI_ERR_UNSUPPORTED,
			    "tutti_mirrored_create: replicas compute in host memory: set "
			    "train.on_device to 0.");
	if (n == 1)
		return TUTTI_OK;
	for (int p = 0; p < model->param_count; p++)
		if (model->params[p].is_extern)
			return refuse_memory("Parameter", model->params[p].name, n);
	if (model->buffer_count > 0)
		return refuse_memory("Buffer", model->buffers[0].name, n);
	if (model->state_count > 0)
		return refuse_memory("State", model->states[0].name, n);
	return TUTTI_OK;
}

static tutti_status data_parallel_create_make_trainer(struct replica *replica)
{
	struct tutti_data_parallel *dp = replica->of;

	return tutti_trainer_create(&replica->trainer, dp->config.model, replica->comm, &dp->train);
}

static tutti_status data_parallel_create_build(struct tutti_data_parallel *dp,
					       tutti_comm *const *comms)
{
	dp->replicas = calloc((size_t)dp->count, sizeof *dp->replicas);
	if (!dp->replicas)
		return fail_no_memory("%d replicas", dp->count);
	for (int r = 0; r < dp->count; r++) {
		struct replica *replica = &dp->replicas[r];
		replica->of = dp;
		replica->comm = comms[r];
		replica->view.index = r;
		replica->view.count = dp->count;
		replica->view.arg = dp->config.arg;
	}
	TRY(model_copy(&dp->model, dp->config.model));
	TRY(replica_threads_create(&dp->threads, dp->count));
	return dp->is_mirrored ? replicas_run(dp, data_parallel_create_make_trainer)
			       : copies_create(dp);
}

/* The config is checked. */
static tutti_status data_parallel_create_any(tutti_data_parallel **dp, tutti_comm *const *comms,
					     int n, const tutti_data_parallel_config *config,
					     bool is_mirrored)
{
	struct tutti_data_parallel *made = calloc(1, sizeof *made);

	if (!made)
		return fail_no_memory("%d replicas", n);
	made->config = *config;
	if (config->train)
		made->train = *config->train;
	made->count = n;
	made->is_mirrored = is_mirrored;
	made->owner = getpid();
	tutti_status status = data_parallel_create_build(made, comms);
	if (status != TUTTI_OK) {
		struct kept_error why = kept_error_of(status);
		tutti_data_parallel_destroy(made);
		return kept_error_return(&why);
	}
	made->config.model = NULL; /* the caller's may go now */
	made->config.train = NULL;
	*dp = made;
	return TUTTI_OK;
}

tutti_status tutti_data_parallel_create(tutti_data_parallel **dp, tutti_comm *const *comms, int n,
					const tutti_data_parallel_config *config)
{
	const char *const function = "tutti_data_parallel_create";

	TRY(tutti_group_refuse(function));
	if (!dp)
		return fail_invalid("%s needs a place for the result, not NULL.", function);
	TRY(check_functions(function, config));
	TRY(check_comms(function, comms, n, true));
	TRY(copies_check(config));
	return data_parallel_create_any(dp, comms, n, config, false);
}

tutti_status tutti_mirrored_create(tutti_data_parallel **dp, tutti_comm *const *comms, int n,
				   const tutti_data_parallel_config *config)
{
	const char *const function = "tutti_mirrored_create";

	TRY(tutti_group_refuse(function));
	if (!dp)
		return fail_invalid("%s needs a place for the result, not NULL.", function);
	TRY(check_functions(function, config));
	TRY(check_comms(function, comms, n, false));
	if (config->share_params)
		return fail_invalid("%s: share_params is for DataParallel: replicas of Mirrored "
				    "keep their own parameters.",
				    function);
	TRY(check_mirrored(config, n));
	return data_parallel_create_any(dp, comms, n, config, true);
}

void tutti_data_parallel_destroy(tutti_data_parallel *dp)
{
	if (!dp || dp->owner != getpid()) /* the threads, and what they use, are the parent's */
		return;
	if (callback_refuses("tutti_data_parallel_destroy"))
		return;
	if (dp->is_busy) {
		callback_keep("tutti_data_parallel_destroy",
			      "a function of a replica runs, or was left by longjmp");
		atomic_store(&dp->was_kept, true);
		return;
	}
	replica_threads_destroy(dp->threads);
	for (int r = 0; dp->replicas && r < dp->count; r++)
		tutti_trainer_destroy(dp->replicas[r].trainer);
	if (!dp->is_mirrored && dp->replicas)
		copies_destroy(dp);
	model_finish(&dp->model);
	free(dp->replicas);
	free(dp->outputs);
	free(dp->output_grads);
	free(dp);
}
