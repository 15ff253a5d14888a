/* The checks at the beginning of a call on a trainer. */
#include "train/base/base.h"
#include "train/state/trainer_state.h"

tutti_status trainer_check(const tutti_trainer *trainer, const char *function)
{
	if (!trainer)
		return fail_invalid("%s needs a trainer, not NULL.", function);
	return homes_failure(trainer);
}

tutti_status trainer_find_param(const tutti_trainer *trainer, const char *function, int *param)
{
	TRY(trainer_check(trainer, function));
	int count = trainer_whole(trainer)->param_count;
	if (*param < 0 || *param >= count)
		return fail_invalid("%s: there is no parameter %d among %d.", function, *param,
				    count);
	if (trainer->mesh)
		*param = trainer->mesh->locals[*param];
	return TUTTI_OK;
}

tutti_status trainer_need_param(const tutti_trainer *trainer, const char *function, int *param)
{
	int asked = *param;

	TRY(trainer_find_param(trainer, function, param));
	if (*param >= 0)
		return TUTTI_OK;
	const struct tutti_model *whole = &trainer->mesh->whole;
	const struct param *of = &whole->params[asked];
	return fail_invalid("%s: parameter '%s' is not on this rank: its unit '%s' is of stage %d "
			    "of 'pp'.",
			    function, of->name, whole->units[of->unit].name,
			    whole->units[of->unit].stage);
}

const char *pass_name(enum unit_pass pass)
{
	return pass == UNIT_FORWARD ? "forward" : "backward";
}

tutti_status trainer_check_no_unit(const tutti_trainer *trainer, const char *function)
{
	if (trainer->batch.open_pass == UNIT_NONE)
		return TUTTI_OK;
	const char *pass = pass_name(trainer->batch.open_pass);
	return fail_invalid("%s: unit '%s' is still in %s: call tutti_%s_end for it first.",
			    function, trainer->model.units[trainer->batch.open_unit].name, pass,
			    pass);
}

tutti_status trainer_check_closed(const tutti_trainer *trainer, const char *function)
{
	TRY(trainer_check(trainer, function));
	if (trainer->step.state != STEP_CLOSED)
		return fail_invalid("%s: a step has begun: finish it first.", function);
	return trainer_check_no_unit(trainer, function);
}

tutti_status trainer_check_averaged(const tutti_trainer *trainer, const char *function)
{
	if (!trainer_is_local(trainer) || trainer->size == 1 ||
	    !(trainer->owes_update || trainer->local.needs_average))
		return TUTTI_OK;
	return fail_invalid("%s: after %llu steps each rank has values of its own: ranks average "
			    "every %d steps.",
			    function, (unsigned long long)trainer->steps,
			    trainer->config.local_sgd_steps);
}
