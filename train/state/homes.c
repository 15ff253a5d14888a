/* Homes of a trainer: their GPUs and communicators, and the order of their streams. */
#include "train/base/base.h"
#include "train/state/trainer_state.h"

#include <stdlib.h>
#include <string.h>

static tutti_status check_place(bool is_there, const char *what, const char *name)
{
	return is_there ? TUTTI_OK
			: fail_invalid("With on_device %s '%s' must lie in %s memory.", what, name,
				       strcmp(what, "buffer") == 0 ? "host" : "device");
}

/* Pointers of the caller's parameter are of its unit's GPU. */
static tutti_status homes_check_param(const tutti_trainer *trainer, const struct param *param)
{
	int home = trainer->layout.unit_homes[param->unit];
	const struct train_device *device = trainer->homes[home].device;
	const void *const pointers[] = {param->data, param->grad};
	int own = train_device_ordinal(device), other;

	for (int i = 0; i < (param_is_trained(param) ? 2 : 1); i++) {
		other = train_device_of(pointers[i]);
		TRY(check_place(other >= 0, "parameter", param->name));
		if (other != own)
			return fail_invalid("Parameter '%s' is memory of CUDA device %d, but the "
					    "stream of its unit '%s' is of device %d: see "
					    "tutti_model_unit_stream.",
					    param->name, other,
					    trainer->model.units[param->unit].name, own);
	}
	return TUTTI_OK;
}

/* The caller's memory must be where the trainer reads it. */
static tutti_status check_places(const tutti_trainer *trainer)
{
	for (int p = 0; p < trainer->model.param_count; p++)
		if (trainer->model.params[p].is_extern && trainer->model.params[p].count > 0)
			TRY(homes_check_param(trainer, &trainer->model.params[p]));
	for (int b = 0; b < trainer->model.buffer_count; b++) {
		const struct buffer *buffer = &trainer->model.buffers[b];
		TRY(check_place(train_device_of(buffer->data) < 0, "buffer", buffer->name));
	}
	return TUTTI_OK;
}

static const char *homes_name_of(const tutti_trainer *trainer, int home)
{
	return trainer->model.units[home_unit(&trainer->layout, &trainer->model, home)].name;
}

/* Two streams of a GPU would be two sets of communicators on it. */
static tutti_status check_gpu(const tutti_trainer *trainer, int home)
{
	int ordinal = train_device_ordinal(trainer->homes[home].device);

	for (int h = 0; h < home; h++)
		if (train_device_ordinal(trainer->homes[h].device) == ordinal)
			return fail_invalid("Units '%s' and '%s' have two streams of CUDA device "
					    "%d: all units of a GPU have one stream.",
					    homes_name_of(trainer, h), homes_name_of(trainer, home),
					    ordinal);
	return TUTTI_OK;
}

static tutti_status open_gpus(tutti_trainer *trainer)
{
	for (int h = 0; h < trainer->home_count; h++) {
		struct home *home = &trainer->homes[h];
		int unit = home_unit(&trainer->layout, &trainer->model, h);
		home->stream = unit < 0 ? trainer->config.stream
					: unit_stream(&trainer->model, &trainer->config, unit);
		TRY(train_device_open(&home->device, home->stream));
		TRY(check_gpu(trainer, h));
	}
	return check_places(trainer);
}

tutti_status homes_open(tutti_trainer *trainer)
{
	int count = trainer->layout.home_count;

	trainer->homes = calloc((size_t)count, sizeof *trainer->homes);
	if (!trainer->homes)
		return fail_no_memory("a trainer's tables");
	trainer->home_count = count;
	for (int h = 0; h < count; h++)
		trainer->homes[h].data_pool.home = trainer->homes[h].grad_pool.home =
			&trainer->homes[h];
	return trainer->config.on_device ? open_gpus(trainer) : TUTTI_OK;
}

static tutti_status state_homes_split(const tutti_trainer *trainer, struct home *home,
				      const tutti_config *config)
{
	int shards = trainer->layout.shard_size, group = trainer->rank / shards;

	if (shards > 1) {
		TRY(tutti_comm_split(trainer->comm, group, trainer->rank, config, &home->gather));
		TRY(tutti_comm_split(trainer->comm, group, trainer->rank, config, &home->reduce));
	}
	if (shards > 1 && trainer->replica_count == 1)
		return TUTTI_OK;
	return tutti_comm_split(trainer->comm, trainer->shard_rank, trainer->rank, config,
				&home->replicas);
}

/* Without a named device a communicator would have that of the caller's, or the current one. */
tutti_status homes_split(tutti_trainer *trainer)
{
	tutti_config config;

	TRY(tutti_comm_config(trainer->comm, &config));
	config.deterministic |= trainer->config.deterministic != 0;
	for (int h = 0; h < trainer->home_count; h++) {
		struct home *home = &trainer->homes[h];
		if (home->device)
			config.device = train_device_ordinal(home->device) + 1;
		TRY(state_homes_split(trainer, home, &config));
	}
	return TUTTI_OK;
}

void homes_close(tutti_trainer *trainer)
{
	for (int h = 0; h < trainer->home_count; h++) {
		train_device_close(trainer->homes[h].device);
		tutti_comm_destroy(trainer->homes[h].gather);
		tutti_comm_destroy(trainer->homes[h].reduce);
		tutti_comm_destroy(trainer->homes[h].replicas);
	}
	free(trainer->homes);
}

tutti_status homes_failure(const tutti_trainer *trainer)
{
	for (int h = 0; h < trainer->home_count; h++)
		if (trainer->homes[h].device)
			TRY(train_device_failure(trainer->homes[h].device));
	return TUTTI_OK;
}

void homes_wait(const tutti_trainer *trainer)
{
	for (int h = 0; h < trainer->home_count; h++)
		if (trainer->homes[h].device)
			train_device_wait(trainer->homes[h].device);
}

void home_follow(const struct home *home, const struct home *other)
{
	if (home != other)
		train_device_follow(home->device, other->device);
}

void homes_join(const tutti_trainer *trainer)
{
	for (int h = 1; h < trainer->home_count; h++)
		home_follow(&trainer->homes[0], &trainer->homes[h]);
}

void homes_enter_unit(const tutti_trainer *trainer, int unit)
{
	const struct home *own = &trainer->homes[trainer->layout.unit_homes[unit]];

	for (const int *span = trainer->layout.unit_spans[unit]; *span >= 0; span++)
		home_follow(own, trainer->buckets[*span].home);
}

void homes_leave_unit(const tutti_trainer *trainer, int unit)
{
	const struct home *own = &trainer->homes[trainer->layout.unit_homes[unit]];

	for (const int *span = trainer->layout.unit_spans[unit]; *span >= 0; span++)
		home_follow(trainer->buckets[*span].home, own);
}
