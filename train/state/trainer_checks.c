/* The checks at the beginning of a call on a trainer. */
#include "train/base/train_error.h"
#include "train/state/trainer_collectives.h"

tutti_status trainer_check(const tutti_trainer *trainer, const char *function)
{
	if (!trainer)
		return train_fail(TUTTI_ERR_INVALID, "%s needs a trainer, not NULL.", function);
	return TUTTI_OK;
}

tutti_status trainer_check_param(const tutti_trainer *trainer, const char *function, int param)
{
	TRY(trainer_check(trainer, function));
	if (param < 0 || param >= trainer->model.param_count)
		return train_fail(TUTTI_ERR_INVALID, "%s: there is no parameter %d among %d.",
				  function, param, trainer->model.param_count);
	return TUTTI_OK;
}

tutti_status trainer_check_closed(const tutti_trainer *trainer, const char *function)
{
	TRY(trainer_check(trainer, function));
	if (trainer->step != STEP_CLOSED || trainer->open_pass != UNIT_NONE)
		return train_fail(TUTTI_ERR_INVALID,
				  "%s: a step has begun: finish it first, because a checkpoint has "
				  "no gradients.",
				  function);
	return TUTTI_OK;
}

tutti_status trainer_check_averaged(const tutti_trainer *trainer, const char *function)
{
	const tutti_train_config *config = &trainer->config;

	if (config->strategy != TUTTI_LOCAL_SGD || trainer->size == 1 ||
	    !(trainer->owes_update || trainer->needs_average))
		return TUTTI_OK;
	return train_fail(TUTTI_ERR_INVALID,
			  "%s: after %llu steps each rank has values of its own: ranks average "
			  "every %d steps.",
			  function, (unsigned long long)trainer->steps, config->local_sgd_steps);
}
