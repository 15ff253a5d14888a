/* Compares the model of all ranks.
 *
 * The config, every parameter and every buffer is a line of text. Ranks compare a hash of the text.
 * Only if hashes differ rank 0's text is broadcast, and the first rank whose text differs writes
 * the message. */
#include "train/base/base.h"
#include "train/state/trainer_state.h"
#include "train/trainer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { EXPLANATION_BYTES = 480, SHOWN_BYTES = 150 };

/* The fields that change the collectives or the update. */
static void describe_config(FILE *text, const tutti_train_config *c)
{
	fprintf(text,
		"config with strategy %d, types %d %d %d, stochastic_rounding %d, loss_scale %a, "
		"max_grad_norm %a, "
		"bucket_bytes %zu, prefetch_units %d, keep_after_forward %d, whole_tensors %d\n",
		(int)c->strategy, (int)c->param_dtype, (int)c->grad_dtype, (int)c->reduce_dtype,
		c->stochastic_rounding, (double)c->loss_scale, (double)c->max_grad_norm,
		c->bucket_bytes, c->prefetch_units, c->keep_after_forward, c->whole_tensors);
	fprintf(text,
		"config with deterministic %d, check_replicas_every %d, memory_limit %zu, "
		"local_sgd_steps %d, "
		"local_sgd_state %d, shard_size %d, seed %llu\n",
		c->deterministic, c->check_replicas_every, c->memory_limit, c->local_sgd_steps,
		c->local_sgd_state, c->shard_size, (unsigned long long)c->seed);
}

static void describe_param(FILE *text, const struct tutti_model *model, int p)
{
	const struct param *param = &model->params[p];

	static const char *const types[] = {
		[TUTTI_F32] = "f32", [TUTTI_F16] = "f16", [TUTTI_BF16] = "bf16"};

	fprintf(text, "%s '%s' of unit '%s': %s [",
		param->is_extern ? "extern parameter" : "parameter", param->name,
		model->units[param->unit].name, types[param->dtype]);
	for (int i = 0; i < param->ndim; i++)
		fprintf(text, "%s%lld", i ? ", " : "", (long long)param->shape[i]);
	fprintf(text, "], flags 0x%x, group %d", param->flags, param->group);
	for (int i = 0; i < model->use_count; i++)
		if (model->uses[i].param == p && model->uses[i].unit != param->unit)
			fprintf(text, ", used by '%s'", model->units[model->uses[i].unit].name);
	fprintf(text, "\n");
}

static void describe(FILE *text, const tutti_trainer *trainer)
{
	describe_config(text, &trainer->config);
	for (int p = 0; p < trainer->model.param_count; p++)
		describe_param(text, &trainer->model, p);
	for (int b = 0; b < trainer->model.buffer_count; b++) {
		const struct buffer *buffer = &trainer->model.buffers[b];
		fprintf(text, "buffer '%s': %zu of type %d\n", buffer->name, buffer->count,
			(int)buffer->dtype);
	}
	for (int s = 0; s < trainer->model.state_count; s++) {
		const struct state *state = &trainer->model.states[s];
		fprintf(text, "state '%s': %zu bytes%s\n", state->name, state->bytes,
			state->per_rank ? " of each rank" : "");
	}
	for (int u = 0; u < trainer->model.unit_count; u++)
		fprintf(text, "unit '%s'\n", trainer->model.units[u].name);
	fprintf(text, "nothing more\n");
}

/* The number of the first line that differs, or -1. *a and *b then point to the line. */
static int first_difference(const char **a, const char **b)
{
	for (int line = 0; **a && **b; line++) {
		size_t a_bytes = strcspn(*a, "\n"), b_bytes = strcspn(*b, "\n");
		if (a_bytes != b_bytes || memcmp(*a, *b, a_bytes) != 0)
			return line;
		*a += a_bytes + 1;
		*b += b_bytes + 1;
	}
	return -1;
}

static int shown(const char *line)
{
	size_t bytes = strcspn(line, "\n");
	return bytes < SHOWN_BYTES ? (int)bytes : SHOWN_BYTES;
}

/* The rank whose text differs in the first line writes the message; of several, the lowest. */
static tutti_status explain(tutti_trainer *trainer, const char *own, const char *first_rank,
			    int32_t *lines)
{
	char message[EXPLANATION_BYTES] = "";
	int reporter = 0;

	lines[trainer->rank] = first_difference(&own, &first_rank);
	TRY(trainer_all_gather(trainer, lines, sizeof *lines));
	for (int r = 1; r < trainer->size; r++)
		if (lines[r] >= 0 && (lines[reporter] < 0 || lines[r] < lines[reporter]))
			reporter = r;
	if (reporter == trainer->rank)
		snprintf(message, sizeof message,
			 "The models differ: rank %d has %.*s, but rank 0 has %.*s; register the "
			 "same model in the same order on every rank.",
			 reporter, shown(own), own, shown(first_rank), first_rank);
	TRY(trainer_broadcast(trainer, message, sizeof message, TUTTI_I8, reporter));
	return train_fail(TUTTI_ERR_MISMATCH, "%s", message);
}

static tutti_status no_memory(void)
{
	return train_no_memory("comparing models");
}

/* A rank's text. */
struct model_text {
	char *bytes;
	size_t count;
};

static tutti_status make_text(struct model_text *text, const tutti_trainer *trainer)
{
	FILE *stream = open_memstream(&text->bytes, &text->count);

	if (!stream)
		return no_memory();
	describe(stream, trainer);
	return fclose(stream) == 0 ? TUTTI_OK : no_memory();
}

/* bytes: of rank 0's text. */
static tutti_status explain_difference(tutti_trainer *trainer, const struct model_text *text,
				       size_t bytes)
{
	size_t line_bytes = (size_t)trainer->size * sizeof(int32_t);
	char *memory = calloc(1, line_bytes + bytes + 1);
	char *first_rank = memory ? memory + line_bytes : NULL;
	tutti_status status = trainer_agree(trainer, memory ? TUTTI_OK : no_memory());

	if (status == TUTTI_OK && trainer->rank == 0)
		memcpy(first_rank, text->bytes, bytes);
	if (status == TUTTI_OK)
		status = trainer_broadcast(trainer, first_rank, bytes, TUTTI_I8, 0);
	if (status == TUTTI_OK)
		status = explain(trainer, text->bytes, first_rank, (int32_t *)(void *)memory);
	free(memory);
	return status;
}

/* Stands for the text of a rank. */
struct digest {
	uint64_t bytes, hash;
};

static tutti_status compare_texts(tutti_trainer *trainer, const struct model_text *text,
				  struct digest *all)
{
	bool differs = false;

	all[trainer->rank] = (struct digest){text->count, random_hash(text->bytes, text->count)};
	TRY(trainer_all_gather(trainer, all, sizeof *all));
	for (int r = 1; r < trainer->size; r++)
		differs = differs || memcmp(&all[r], &all[0], sizeof *all) != 0;
	return differs ? explain_difference(trainer, text, (size_t)all[0].bytes) : TUTTI_OK;
}

tutti_status compare_models(tutti_trainer *trainer)
{
	struct digest *all = calloc((size_t)trainer->size, sizeof *all);
	struct model_text text = {0};

	tutti_status status = make_text(&text, trainer);
	if (!all)
		status = no_memory();
	status = trainer_agree(trainer, status);
	if (status == TUTTI_OK)
		status = compare_texts(trainer, &text, all);
	free(text.bytes);
	free(all);
	return status;
}
