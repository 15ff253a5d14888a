/* The GPT's parameters: what is registered, which part a rank has, first values. */
#include "activations.h"
#include "place.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

jmp_buf *rescue;

void must(tutti_status status)
{
	if (status == TUTTI_OK)
		return;
	fprintf(stderr, "gpt: %s: %s\n", tutti_status_string(status), tutti_comm_error(NULL));
	if (rescue && (status == TUTTI_ERR_PEER || status == TUTTI_ERR_TIMEOUT ||
		       status == TUTTI_ERR_ABORTED))
		longjmp(*rescue, 1);
	exit(1);
}

int must_index(int index)
{
	if (index < 0)
		must(TUTTI_ERR_INVALID);
	return index;
}

/* Where parameters are being registered. */
struct unit {
	tutti_model *model;
	int index;
	const char *name;
};

static struct unit model_add_unit(tutti_model *model, const char *name)
{
	return (struct unit){model, must_index(tutti_model_unit(model, name)), name};
}

static int add_tensor(struct gpt *gpt, struct unit unit, const char *name, int ndim,
		      const int64_t *shape, unsigned flags)
{
	char full[64];

	snprintf(full, sizeof full, "%s.%s", unit.name, name);
	int param = must_index(tutti_model_param(unit.model, unit.index, full, ndim, shape, flags));
	gpt->counts[param] = 1;
	for (int i = 0; i < ndim; i++)
		gpt->counts[param] *= (size_t)shape[i];
	gpt->params = param + 1;
	return param;
}

static int add_matrix(struct gpt *gpt, struct unit unit, const char *name, int rows, int cols)
{
	return add_tensor(gpt, unit, name, 2, (int64_t[]){rows, cols}, 0);
}

/* Norms and biases do not decay. */
static int add_vector(struct gpt *gpt, struct unit unit, const char *name, int count)
{
	return add_tensor(gpt, unit, name, 1, (int64_t[]){count}, TUTTI_PARAM_NO_DECAY);
}

/* Of that size along dim, which the axis divides where there is one. */
static int divide_over(struct gpt *gpt, tutti_model *model, const char *axis, int param, int dim,
		       int size)
{
	must(tutti_model_param_split(model, param, axis, dim));
	gpt->split_sizes[param] = size;
	return param;
}

static int model_divide(struct gpt *gpt, tutti_model *model, int param, int dim, int size)
{
	return divide_over(gpt, model, "tp", param, dim, size);
}

/* Ranks of "tp" have other rows of the stream, and gradients of what is computed there. */
static int model_partial(tutti_model *model, int param)
{
	must(tutti_model_param_partial(model, param, "tp"));
	return param;
}

/* Queries, keys and values are a dimension of their own, so that a rank's piece has its heads of
 * each. */
static void register_attention(struct gpt *gpt, struct unit unit, struct gpt_block_ids *ids)
{
	int c = gpt->shape.channels;
	const int64_t qkv[] = {c, 3, c};
	tutti_model *model = unit.model;

	ids->qkv_w = model_divide(gpt, model, add_tensor(gpt, unit, "qkv_w", 3, qkv, 0), 2, c);
	ids->qkv_b = model_divide(
		gpt, model, add_tensor(gpt, unit, "qkv_b", 2, qkv + 1, TUTTI_PARAM_NO_DECAY), 1, c);
	ids->proj_w = model_divide(gpt, model, add_matrix(gpt, unit, "proj_w", c, c), 0, c);
	ids->proj_b = model_partial(model, add_vector(gpt, unit, "proj_b", c));
}

static void register_products(struct gpt *gpt, struct unit unit, struct gpt_block_ids *ids)
{
	int c = gpt->shape.channels;
	tutti_model *model = unit.model;

	ids->up_w = model_divide(gpt, model, add_matrix(gpt, unit, "up_w", c, 4 * c), 1, 4 * c);
	ids->up_b = model_divide(gpt, model, add_vector(gpt, unit, "up_b", 4 * c), 0, 4 * c);
	ids->down_w = model_divide(gpt, model, add_matrix(gpt, unit, "down_w", 4 * c, c), 0, 4 * c);
	ids->down_b = model_partial(model, add_vector(gpt, unit, "down_b", c));
}

/* Of all experts, one behind the other. */
static int add_experts(struct gpt *gpt, struct unit unit, const char *name, int rows, int cols)
{
	int experts = gpt->shape.experts, is_matrix = cols > 0;
	const int64_t shape[] = {experts, rows, cols};
	int param = add_tensor(gpt, unit, name, is_matrix ? 3 : 2, shape,
			       is_matrix ? 0 : TUTTI_PARAM_NO_DECAY);

	return model_partial(unit.model, divide_over(gpt, unit.model, "ep", param, 0, experts));
}

static void register_experts(struct gpt *gpt, struct unit unit, struct gpt_block_ids *ids)
{
	int c = gpt->shape.channels;

	ids->gate_w =
		model_partial(unit.model, add_matrix(gpt, unit, "gate_w", c, gpt->shape.experts));
	ids->up_w = add_experts(gpt, unit, "expert_up_w", c, 4 * c);
	ids->up_b = add_experts(gpt, unit, "expert_up_b", 4 * c, 0);
	ids->down_w = add_experts(gpt, unit, "expert_down_w", 4 * c, c);
	ids->down_b = add_experts(gpt, unit, "expert_down_b", c, 0);
}

static void register_block(struct gpt *gpt, tutti_model *model, int layer)
{
	struct gpt_block_ids *ids = &gpt->blocks[layer];
	int c = gpt->shape.channels;
	char name[32];

	snprintf(name, sizeof name, "block.%d", layer);
	struct unit unit = model_add_unit(model, name);
	ids->unit = unit.index;
	ids->norm1_w = model_partial(model, add_vector(gpt, unit, "norm1_w", c));
	ids->norm1_b = model_partial(model, add_vector(gpt, unit, "norm1_b", c));
	register_attention(gpt, unit, ids);
	ids->norm2_w = model_partial(model, add_vector(gpt, unit, "norm2_w", c));
	ids->norm2_b = model_partial(model, add_vector(gpt, unit, "norm2_b", c));
	if (gpt->shape.experts > 0)
		register_experts(gpt, unit, ids);
	else
		register_products(gpt, unit, ids);
}

/* Layers are divided evenly; the embedding is on the first stage, the head on the last. */
static void set_stages(const struct gpt *gpt, tutti_model *model)
{
	int layers = gpt->shape.layers;

	must(tutti_model_unit_stage(model, gpt->embed_unit, 0));
	for (int s = 0; s < gpt->stages; s++)
		for (int l = layers * s / gpt->stages; l < layers * (s + 1) / gpt->stages; l++)
			must(tutti_model_unit_stage(model, gpt->blocks[l].unit, s));
	must(tutti_model_unit_stage(model, gpt->head_unit, gpt->stages - 1));
}

void gpt_register(struct gpt *gpt, struct gpt_shape shape, int stages, tutti_model *model)
{
	memset(gpt, 0, sizeof *gpt);
	gpt->shape = shape;
	gpt->stages = stages;
	struct unit embedding = model_add_unit(model, "embedding");
	gpt->embed_unit = embedding.index;
	gpt->token_w = model_divide(
		gpt, model, add_matrix(gpt, embedding, "token_w", shape.vocab, shape.channels), 0,
		shape.vocab);
	gpt->position_w = model_partial(
		model, add_matrix(gpt, embedding, "position_w", shape.length, shape.channels));
	for (int l = 0; l < shape.layers; l++)
		register_block(gpt, model, l);
	struct unit head = model_add_unit(model, "head");
	gpt->head_unit = head.index;
	gpt->norm_w = model_partial(model, add_vector(gpt, head, "norm_w", shape.channels));
	gpt->norm_b = model_partial(model, add_vector(gpt, head, "norm_b", shape.channels));
	/* Tied: the head scores a token by its embedding, so both add to one gradient. */
	must(tutti_model_unit_uses(model, gpt->head_unit, gpt->token_w));
	set_stages(gpt, model);
}

/* Deviations of first values. They are larger than GPT-2's 0.02: on a small residual stream
 * layernorm magnifies the differences that rounding makes between one rank and four a thousandfold.
 */
static const float embedding_std = 0.1f, weight_std = 0.08f;

static void init_block(const struct gpt *gpt, const struct gpt_block_ids *ids)
{
	/* Layers that add to the residual stream start smaller, the more of them there are. */
	float small = weight_std / sqrtf(2 * (float)gpt->shape.layers);

	must(tutti_param_init_constant(gpt->trainer, ids->norm1_w, 1));
	must(tutti_param_init_constant(gpt->trainer, ids->norm2_w, 1));
	must(tutti_param_init_normal(gpt->trainer, ids->qkv_w, 0, weight_std));
	if (gpt->shape.experts > 0)
		must(tutti_param_init_normal(gpt->trainer, ids->gate_w, 0, weight_std));
	must(tutti_param_init_normal(gpt->trainer, ids->proj_w, 0, small));
	must(tutti_param_init_normal(gpt->trainer, ids->up_w, 0, weight_std));
	must(tutti_param_init_normal(gpt->trainer, ids->down_w, 0, small));
}

/* Parameters of 16 bits are computed with in f32. */
static void make_room_for_wide(struct gpt *gpt)
{
	for (int p = 0; p < gpt->params && gpt->config.dtype != TUTTI_F32; p++) {
		gpt->wide[p] = place_alloc(gpt->counts[p] * sizeof(float));
		if (!gpt->wide[p]) {
			fprintf(stderr, "gpt: there is no memory for the parameters in f32\n");
			exit(1);
		}
	}
}

/* The communicator of an axis that divides something. */
static tutti_comm *comm_of(tutti_mesh *mesh, const char *axis)
{
	return tutti_mesh_size(mesh, axis) > 1 ? tutti_mesh_comm(mesh, axis) : NULL;
}

/* This rank's part of the vocabulary, where it has the embedding. */
static struct split find_split(const struct gpt *gpt, tutti_mesh *mesh)
{
	int64_t first, count;

	must(tutti_param_piece(gpt->trainer, gpt->token_w, &first, &count));
	return (struct split){.comm = comm_of(mesh, "tp"),
			      .rank = tutti_mesh_coord(mesh, "tp"),
			      .size = tutti_mesh_size(mesh, "tp"),
			      .first = (int)first,
			      .vocab = (int)count};
}

static struct context find_context(const struct gpt *gpt, tutti_mesh *mesh)
{
	int size = tutti_mesh_size(mesh, "cp");

	return (struct context){.comm = comm_of(mesh, "cp"),
				.rank = tutti_mesh_coord(mesh, "cp"),
				.size = size,
				.length = gpt->shape.length / size,
				.by_heads = size > 1 && gpt->config.by_heads};
}

/* A group's tokens make EXPERTS_CHOSEN choices each. */
static struct experts find_experts(const struct gpt *gpt, tutti_mesh *mesh)
{
	int size = tutti_mesh_size(mesh, "ep"), count = gpt->shape.experts;
	int group = gpt->config.group;
	float even = count > 0 ? (float)(EXPERTS_CHOSEN * group) / (float)count : 0;
	int capacity = (int)ceilf(even * gpt->config.capacity);

	return (struct experts){.comm = comm_of(mesh, "ep"),
				.rank = tutti_mesh_coord(mesh, "ep"),
				.size = size,
				.count = count,
				.own = count / size,
				.group = group,
				.capacity = capacity < group ? capacity : group,
				.most = gpt->config.max_sequences * gpt->context.length /
					gpt->split.size,
				.channels = gpt->shape.channels,
				.hidden = 4 * gpt->shape.channels,
				.balance = gpt->config.balance};
}

void gpt_start(struct gpt *gpt, tutti_trainer *trainer, tutti_mesh *mesh,
	       const struct gpt_config *config)
{
	gpt->trainer = trainer;
	gpt->config = *config;
	gpt->split = find_split(gpt, mesh);
	gpt->context = find_context(gpt, mesh);
	gpt->experts = find_experts(gpt, mesh);
	if (gpt->split.size * gpt->context.size > 1)
		gpt->peers = tutti_mesh_comm(mesh, "cp,tp");
	gpt->activations = gpt_make_activations(gpt, config->max_sequences);
	make_room_for_wide(gpt);
	must(tutti_param_init_normal(trainer, gpt->token_w, 0, embedding_std));
	must(tutti_param_init_normal(trainer, gpt->position_w, 0, embedding_std));
	must(tutti_param_init_constant(trainer, gpt->norm_w, 1));
	for (int l = 0; l < gpt->shape.layers; l++)
		init_block(gpt, &gpt->blocks[l]);
}

size_t gpt_param_count(const struct gpt *gpt)
{
	size_t sum = 0;

	for (int p = 0; p < gpt->params; p++)
		sum += gpt->counts[p];
	return sum;
}

/* FNV-1a, a 32-bit word at a time. */
uint64_t gpt_fingerprint(const struct gpt *gpt)
{
	enum { CHUNK = 4096 };
	uint64_t hash = 0xcbf29ce484222325u;
	uint32_t words[CHUNK];
	float values[CHUNK];

	for (int p = 0; p < gpt->params; p++)
		for (size_t i = 0; i < gpt->counts[p]; i += CHUNK) {
			size_t count = gpt->counts[p] - i < CHUNK ? gpt->counts[p] - i : CHUNK;
			must(tutti_param_read(gpt->trainer, p, i, count, values));
			memcpy(words, values, count * sizeof *words);
			for (size_t j = 0; j < count; j++)
				hash = (hash ^ words[j]) * 0x100000001b3u;
		}
	return hash;
}

void gpt_finish(struct gpt *gpt)
{
	gpt_free_activations(gpt->activations);
	gpt->activations = NULL;
	for (int p = 0; p < gpt->params; p++) {
		place_free(gpt->wide[p]);
		gpt->wide[p] = NULL;
	}
}
