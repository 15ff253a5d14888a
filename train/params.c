/* Parameters' values and gradients, as the author reads and sets them. */
#include "train/explain.h"
#include "train/random.h"
#include "train/trainer.h"

#include <string.h>

void *tutti_param_data(tutti_trainer *trainer, int param)
{
	if (trainer_check_param(trainer, "tutti_param_data", param) != TUTTI_OK)
		return NULL;
	return trainer->tensors[param].data;
}

void *tutti_param_grad(tutti_trainer *trainer, int param)
{
	if (trainer_check_param(trainer, "tutti_param_grad", param) != TUTTI_OK)
		return NULL;
	return trainer->tensors[param].grad;
}

tutti_status tutti_param_init_normal(tutti_trainer *trainer, int param, float mean, float std)
{
	TRY(trainer_check_param(trainer, "tutti_param_init_normal", param));
	float *data = trainer->tensors[param].data;
	for (size_t i = 0; i < trainer->model.params[param].count; i++) {
		double normal = random_normal(trainer->config.seed, param, i);
		data[i] = (float)((double)mean + (double)std * normal);
	}
	return TUTTI_OK;
}

tutti_status tutti_param_init_constant(tutti_trainer *trainer, int param, float value)
{
	TRY(trainer_check_param(trainer, "tutti_param_init_constant", param));
	float *data = trainer->tensors[param].data;
	for (size_t i = 0; i < trainer->model.params[param].count; i++)
		data[i] = value;
	return TUTTI_OK;
}

static tutti_status check_range(const tutti_trainer *trainer, int param, size_t first, size_t count,
				const void *values)
{
	TRY(trainer_check_param(trainer, "tutti_param_read or _write", param));
	size_t whole = trainer->model.params[param].count;
	if (first > whole || count > whole - first)
		return train_fail(TUTTI_ERR_INVALID,
				  "Elements %zu to %zu of parameter '%s', which has %zu.", first,
				  first + count, trainer->model.params[param].name, whole);
	if (!values && count)
		return train_fail(TUTTI_ERR_INVALID, "The values of parameter '%s' are at NULL.",
				  trainer->model.params[param].name);
	return TUTTI_OK;
}

tutti_status tutti_param_read(tutti_trainer *trainer, int param, size_t first, size_t count,
			      float *values)
{
	TRY(check_range(trainer, param, first, count, values));
	if (count)
		memcpy(values, trainer->tensors[param].data + first, count * sizeof *values);
	return TUTTI_OK;
}

tutti_status tutti_param_write(tutti_trainer *trainer, int param, size_t first, size_t count,
			       const float *values)
{
	TRY(check_range(trainer, param, first, count, values));
	if (count)
		memcpy(trainer->tensors[param].data + first, values, count * sizeof *values);
	return TUTTI_OK;
}
