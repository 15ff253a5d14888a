/* The values and gradients of parameters, as the author reads and sets them. */
#include "train/base/base.h"
#include "train/precision/precision.h"
#include "train/strategies/strategies.h"
#include "train/trainer.h"

#include <stdlib.h>

enum { CHUNK = 1024 };

void *tutti_param_data(tutti_trainer *trainer, int param)
{
	if (trainer_check_param(trainer, "tutti_param_data", param) != TUTTI_OK)
		return NULL;
	if (publish_wait(trainer, trainer->layout.places[param].span) != TUTTI_OK)
		return NULL;
	void *data = param_data(trainer, param);
	if (!data)
		train_invalid("tutti_param_data: parameter '%s' is not gathered: with sharded "
			      "parameters it is there from a begin to the end of a unit that uses "
			      "it.",
			      trainer->model.params[param].name);
	return data;
}

void *tutti_param_grad(tutti_trainer *trainer, int param)
{
	if (trainer_check_param(trainer, "tutti_param_grad", param) != TUTTI_OK)
		return NULL;
	void *grad = param_grad(trainer, param);
	const struct param *of = &trainer->model.params[param];
	if (!grad)
		train_invalid("tutti_param_grad: parameter '%s' %s.", of->name,
			      param_is_trained(of) ? "has no gradient now: it is there in the "
						     "backward of a unit that uses it"
						   : "is frozen and has no gradient");
	return grad;
}

static size_t larger(size_t a, size_t b)
{
	return a > b ? a : b;
}

/* Sets elements [first, first + count) in all places on this rank. */
static void set_values(tutti_trainer *trainer, int param, size_t first, size_t count,
		       const float *values)
{
	const struct piece *piece = piece_of(trainer, param);
	tutti_dtype dtype = trainer->config.param_dtype;
	void *data =
		bucket_of(trainer, param)->span->is_sharded ? NULL : param_data(trainer, param);

	if (data)
		values_write(bucket_of(trainer, param)->home, element_at(data, dtype, first), dtype,
			     values, count);
	if (!piece)
		return;
	size_t begin = larger(first, piece->first),
	       end = smaller(first + count, piece->first + piece->count);
	if (begin < end)
		piece_write(trainer, piece, begin - piece->first, end - begin,
			    values + (begin - first));
}

/* After this call no copy has the old values. */
static tutti_status prepare_to_set(tutti_trainer *trainer, const char *function, int param)
{
	TRY(trainer_check_param(trainer, function, param));
	TRY(trainer_check_no_unit(trainer, function));
	return params_begin_write(trainer);
}

tutti_status tutti_param_init_normal(tutti_trainer *trainer, int param, float mean, float std)
{
	float values[CHUNK];

	TRY(prepare_to_set(trainer, "tutti_param_init_normal", param));
	size_t whole = trainer->model.params[param].count;
	for (size_t first = 0; first < whole; first += CHUNK) {
		size_t count = smaller(CHUNK, whole - first);
		for (size_t i = 0; i < count; i++) {
			double normal = random_normal(trainer->config.seed, param, first + i);
			values[i] = (float)((double)mean + (double)std * normal);
		}
		set_values(trainer, param, first, count, values);
	}
	return TUTTI_OK;
}

tutti_status tutti_param_init_constant(tutti_trainer *trainer, int param, float value)
{
	float values[CHUNK];

	TRY(prepare_to_set(trainer, "tutti_param_init_constant", param));
	for (size_t i = 0; i < CHUNK; i++)
		values[i] = value;
	size_t whole = trainer->model.params[param].count;
	for (size_t first = 0; first < whole; first += CHUNK)
		set_values(trainer, param, first, smaller(CHUNK, whole - first), values);
	return TUTTI_OK;
}

static tutti_status check_range(const tutti_trainer *trainer, const char *function, int param,
				size_t first, size_t count, const void *values)
{
	TRY(trainer_check_param(trainer, function, param));
	size_t whole = trainer->model.params[param].count;
	if (first > whole || count > whole - first)
		return train_invalid(
			"%s: elements %zu to %zu are outside of parameter '%s', which has %zu.",
			function, first, first + count, trainer->model.params[param].name, whole);
	if (!values && count)
		return train_invalid("%s: the values of parameter '%s' are at NULL.", function,
				     trainer->model.params[param].name);
	return TUTTI_OK;
}

/* Each rank of the shard group broadcasts the elements that it has. */
static tutti_status read_shards(tutti_trainer *trainer, int param, size_t first, size_t count,
				float *values)
{
	const struct param_span *span = bucket_of(trainer, param)->span;
	const struct piece *piece = piece_of(trainer, param);

	for (int r = 0; r < trainer->layout.shard_size; r++) {
		struct element_range part =
			param_part(&trainer->layout, &trainer->model, param, span_part(span, r));
		size_t begin = larger(first, part.first), end = smaller(first + count, part.last);
		if (begin >= end)
			continue;
		if (r == trainer->shard_rank)
			piece_read(trainer, piece, begin - piece->first, end - begin,
				   values + (begin - first));
		TRY(trainer_shard_broadcast(trainer, values + (begin - first), end - begin, r));
	}
	return TUTTI_OK;
}

tutti_status tutti_param_read(tutti_trainer *trainer, int param, size_t first, size_t count,
			      float *values)
{
	TRY(check_range(trainer, "tutti_param_read", param, first, count, values));
	if (count == 0)
		return TUTTI_OK;
	if (bucket_of(trainer, param)->span->is_split)
		return read_shards(trainer, param, first, count, values);
	piece_read(trainer, piece_of(trainer, param), first, count, values);
	return TUTTI_OK;
}

/* MISMATCH on all ranks: one of them passes something else than rank 0. */
static tutti_status compare_values(tutti_trainer *trainer, int param, size_t first, size_t count,
				   const float *values)
{
	const uint64_t range[3] = {(uint64_t)param, first, count};
	uint64_t *hashes = calloc((size_t)trainer->size, sizeof *hashes);
	int other = 1;

	TRY(trainer_agree(trainer, hashes ? TUTTI_OK : train_no_memory("a trainer's tables")));
	hashes[trainer->rank] =
		random_mix(random_hash(range, sizeof range) ^
			   (count ? random_hash(values, count * sizeof *values) : 0));
	tutti_status status = trainer_all_gather(trainer, hashes, sizeof *hashes);
	while (other < trainer->size && hashes[other] == hashes[0])
		other++;
	free(hashes);
	TRY(status);
	if (other == trainer->size)
		return TUTTI_OK;
	return train_fail(TUTTI_ERR_MISMATCH,
			  "tutti_param_write: rank %d passes other values, or another range, than "
			  "rank 0, so no rank sets any: pass the same on all ranks. Here it is "
			  "elements %zu to %zu of parameter '%s'.",
			  other, first, first + count, trainer->model.params[param].name);
}

tutti_status tutti_param_write(tutti_trainer *trainer, int param, size_t first, size_t count,
			       const float *values)
{
	TRY(trainer_check(trainer, "tutti_param_write"));
	tutti_status status =
		check_range(trainer, "tutti_param_write", param, first, count, values);
	TRY(trainer_agree(trainer, status));
	TRY(compare_values(trainer, param, first, count, values));
	TRY(prepare_to_set(trainer, "tutti_param_write", param));
	if (count)
		set_values(trainer, param, first, count, values);
	return TUTTI_OK;
}

tutti_status tutti_param_shard(tutti_trainer *trainer, int param, tutti_shard *shard)
{
	TRY(trainer_check_param(trainer, "tutti_param_shard", param));
	if (!shard)
		return train_invalid("tutti_param_shard needs a shard, not NULL.");
	const struct piece *piece = piece_of(trainer, param);
	tutti_dtype dtype = trainer->config.grad_dtype;
	char *grad = param_grad(trainer, param);
	*shard = (tutti_shard){0};
	if (!piece)
		return TUTTI_OK;
	*shard = (tutti_shard){.first = piece->first,
			       .count = piece->count,
			       .values = piece->value,
			       .grad = piece->sum,
			       .grad_dtype = piece->sum_dtype};
	bool stays = bucket_of(trainer, param)->span->keeps_grad;
	if (grad && stays && dtype == TUTTI_F32) { /* at least as precise as the sum */
		shard->grad = grad + piece->first * sizeof(float);
		shard->grad_dtype = dtype;
	}
	return TUTTI_OK;
}

tutti_status tutti_params_updated(tutti_trainer *trainer)
{
	TRY(trainer_check(trainer, "tutti_params_updated"));
	TRY(trainer_check_no_unit(trainer, "tutti_params_updated"));
	shadow_expire(trainer);
	pieces_narrow(trainer);
	bool owed = trainer->owes_update;
	TRY(params_publish(trainer));
	return owed ? step_run_scheduled(trainer) : TUTTI_OK;
}
