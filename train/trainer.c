/* Making and unmaking a trainer. */
#include "train/bucket.h"
#include "train/explain.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

double seconds_now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

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

static tutti_status check_memory(const tutti_trainer *trainer)
{
	const tutti_train_stats *stats = &trainer->stats;
	size_t sum = stats->param_bytes + stats->grad_bytes + stats->optimizer_bytes;

	if (trainer->config.memory_limit == 0 || sum <= trainer->config.memory_limit)
		return TUTTI_OK;
	return train_fail(TUTTI_ERR_MEMORY,
			  "This model needs %zu bytes on each rank (%zu of parameters, %zu of "
			  "gradients, %zu of optimizer state), more than the memory_limit of %zu.",
			  sum, stats->param_bytes, stats->grad_bytes, stats->optimizer_bytes,
			  trainer->config.memory_limit);
}

static tutti_status allocate_tables(tutti_trainer *trainer)
{
	const struct tutti_model *model = &trainer->model;

	trainer->tensors = calloc((size_t)model->param_count + 1, sizeof *trainer->tensors);
	trainer->units = calloc((size_t)model->unit_count + 1, sizeof *trainer->units);
	trainer->ballots = calloc((size_t)trainer->size, sizeof *trainer->ballots);
	if (!trainer->tensors || !trainer->units || !trainer->ballots)
		return train_fail(TUTTI_ERR_MEMORY, "There is no memory for a trainer's tables.");
	return TUTTI_OK;
}

/* Our own parameters lie one after the other in memory of the node. */
static tutti_status place_params(tutti_trainer *trainer)
{
	const struct tutti_model *model = &trainer->model;
	size_t elements = 0, next = 0;

	for (int p = 0; p < model->param_count; p++)
		elements += model->params[p].is_extern ? 0 : padded(model->params[p].count);
	if (elements)
		TRY(tutti_mem_alloc(&trainer->data_memory, elements * sizeof(float),
				    trainer->comm));
	for (int p = 0; p < model->param_count; p++) {
		struct tensor *tensor = &trainer->tensors[p];
		tensor->optimizer = -1;
		tensor->data = model->params[p].data;
		if (model->params[p].is_extern)
			continue;
		tensor->data = (float *)trainer->data_memory + next;
		next += padded(model->params[p].count);
	}
	return TUTTI_OK;
}

/* Our own parameters are zero on every rank until they are initialised. */
static tutti_status broadcast_values(tutti_trainer *trainer)
{
	for (int p = 0; p < trainer->model.param_count; p++)
		if (trainer->model.params[p].is_extern)
			TRY(trainer_broadcast(trainer, trainer->tensors[p].data,
					      trainer->model.params[p].count, TUTTI_F32, 0));
	return TUTTI_OK;
}

static tutti_status build(tutti_trainer *trainer)
{
	TRY(allocate_tables(trainer));
	TRY(compare_models(trainer));
	trainer_memory(&trainer->model, &trainer->stats);
	TRY(check_memory(trainer));
	trainer->stats.optimizer_bytes = 0; /* until the first step makes it */
	TRY(place_params(trainer));
	TRY(buckets_create(trainer));
	return broadcast_values(trainer);
}

tutti_status tutti_trainer_create(tutti_trainer **trainer, tutti_model *model, tutti_comm *comm,
				  const tutti_train_config *config)
{
	const tutti_train_config zero = {0};

	if (!trainer || !model || !comm)
		return train_fail(
			TUTTI_ERR_INVALID,
			"tutti_trainer_create needs a place for the trainer, a model and a "
			"communicator, not NULL.");
	config = config ? config : &zero;
	TRY(config_check(config));
	tutti_trainer *made = calloc(1, sizeof *made);
	if (!made)
		return train_fail(TUTTI_ERR_MEMORY, "There is no memory for a trainer.");
	made->comm = comm;
	made->rank = tutti_rank(comm);
	made->size = tutti_size(comm);
	made->config = *config;
	tutti_status status = model_copy(&made->model, model);
	if (status == TUTTI_OK)
		status = build(made);
	if (status != TUTTI_OK) {
		struct kept_error why = train_keep_error();
		tutti_trainer_destroy(made);
		return tutti_set_error(status, why.sentence);
	}
	*trainer = made;
	return TUTTI_OK;
}

void tutti_trainer_destroy(tutti_trainer *trainer)
{
	if (!trainer)
		return;
	buckets_destroy(trainer);
	for (int p = 0; trainer->tensors && p < trainer->model.param_count; p++) {
		free(trainer->tensors[p].m);
		free(trainer->tensors[p].v);
	}
	if (trainer->data_memory)
		tutti_mem_free(trainer->data_memory);
	free(trainer->tensors);
	free(trainer->units);
	free(trainer->ballots);
	model_finish(&trainer->model);
	free(trainer);
}

tutti_status tutti_trainer_stats(const tutti_trainer *trainer, tutti_train_stats *stats)
{
	TRY(trainer_check(trainer, "tutti_trainer_stats"));
	if (!stats)
		return train_fail(TUTTI_ERR_INVALID, "tutti_trainer_stats needs stats, not NULL.");
	*stats = trainer->stats;
	return TUTTI_OK;
}
