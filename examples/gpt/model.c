/* The GPT's parameters: what is registered, which part a rank has, first values. */
#include "gpt.h"

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

/* First values: all 0 or 1, or drawn. Norms and biases, which are not drawn, do not decay.
 *
 * Deviations are larger than GPT-2's 0.02: on a small residual stream layernorm magnifies the
 * differences that rounding makes between one rank and four a thousandfold. Layers that add to the
 * residual stream start smaller, the more of them there are. */
enum values { ZEROS, ONES, EMBEDDINGS, WEIGHTS, SMALL_WEIGHTS };

/* A letter for each dimension: channels, heads' 3 vectors, inside of a branch (4 * channels),
 * vocab, length, experts. Ranks of an axis divide dimension dim. Those of "tp" have other rows of
 * the stream, and so parts of the gradients of what they do not divide. */
static const struct gpt_tensor {
	enum gpt_param param;
	enum { EMBEDDING, BLOCK, DENSE, MIXTURE, HEAD } unit; /* blocks may have experts */
	const char *name, *dims, *axis;
	int dim;
	enum values values;
} model_tensors[] = {
	{TOKEN_W, EMBEDDING, "token_w", "vc", "tp", 0, EMBEDDINGS},
	{POSITION_W, EMBEDDING, "position_w", "lc", NULL, 0, EMBEDDINGS},
	{NORM1_W, BLOCK, "norm1_w", "c", NULL, 0, ONES},
	{NORM1_B, BLOCK, "norm1_b", "c", NULL, 0, ZEROS},
	/* Queries, keys and values are a dimension of their own, so that a rank's piece has its
	 * heads of each. */
	{QKV_W, BLOCK, "qkv_w", "c3c", "tp", 2, WEIGHTS},
	{QKV_B, BLOCK, "qkv_b", "3c", "tp", 1, ZEROS},
	{PROJ_W, BLOCK, "proj_w", "cc", "tp", 0, SMALL_WEIGHTS},
	{PROJ_B, BLOCK, "proj_b", "c", NULL, 0, ZEROS},
	{NORM2_W, BLOCK, "norm2_w", "c", NULL, 0, ONES},
	{NORM2_B, BLOCK, "norm2_b", "c", NULL, 0, ZEROS},
	{UP_W, DENSE, "up_w", "ci", "tp", 1, WEIGHTS},
	{UP_B, DENSE, "up_b", "i", "tp", 0, ZEROS},
	{DOWN_W, DENSE, "down_w", "ic", "tp", 0, SMALL_WEIGHTS},
	{DOWN_B, DENSE, "down_b", "c", NULL, 0, ZEROS},
	{GATE_W, MIXTURE, "gate_w", "ce", NULL, 0, WEIGHTS},
	{UP_W, MIXTURE, "expert_up_w", "eci", "ep", 0, WEIGHTS},
	{UP_B, MIXTURE, "expert_up_b", "ei", "ep", 0, ZEROS},
	{DOWN_W, MIXTURE, "expert_down_w", "eic", "ep", 0, SMALL_WEIGHTS},
	{DOWN_B, MIXTURE, "expert_down_b", "ec", "ep", 0, ZEROS},
	{NORM1_W, HEAD, "norm_w", "c", NULL, 0, ONES},
	{NORM1_B, HEAD, "norm_b", "c", NULL, 0, ZEROS},
};

static int model_size(const struct gpt_shape *shape, char dim)
{
	const int sizes[] = {
		['c'] = shape->channels, ['i'] = 4 * shape->channels, ['v'] = shape->vocab,
		['l'] = shape->length,   ['e'] = shape->experts,      ['3'] = 3};

	return sizes[(int)dim];
}

/* Returns the parameter's index. */
static int model_add(struct gpt *gpt, tutti_model *model, int unit, const char *prefix,
		     const struct gpt_tensor *t)
{
	int ndim = (int)strlen(t->dims);
	unsigned flags = t->values == ZEROS || t->values == ONES ? TUTTI_PARAM_NO_DECAY : 0;
	size_t count = 1;
	int64_t shape[3];
	char name[64];

	for (int i = 0; i < ndim; i++) {
		shape[i] = model_size(&gpt->shape, t->dims[i]);
		count *= (size_t)shape[i];
	}
	snprintf(name, sizeof name, "%s.%s", prefix, t->name);
	int param = must_index(tutti_model_param(model, unit, name, ndim, shape, flags));
	if (t->axis)
		must(tutti_model_param_split(model, param, t->axis, t->dim));
	if (!t->axis || strcmp(t->axis, "tp") != 0)
		must(tutti_model_param_partial(model, param, "tp"));
	gpt->tensors[param] = t;
	gpt->counts[param] = count;
	gpt->params = param + 1;
	return param;
}

static bool model_has(const struct gpt *gpt, int unit, const struct gpt_tensor *t)
{
	if (unit == 0 || unit > gpt->shape.layers)
		return t->unit == (unit == 0 ? EMBEDDING : HEAD);
	return t->unit == BLOCK || t->unit == (gpt->shape.experts > 0 ? MIXTURE : DENSE);
}

static void model_add_unit(struct gpt *gpt, tutti_model *model, int unit, int stage)
{
	char name[32];

	snprintf(name, sizeof name, "block.%d", unit - 1);
	if (unit == 0 || unit > gpt->shape.layers)
		snprintf(name, sizeof name, unit == 0 ? "embedding" : "head");
	if (must_index(tutti_model_unit(model, name)) != unit)
		must(tutti_set_error(TUTTI_ERR_INVALID, "The model has other units."));
	must(tutti_model_unit_stage(model, unit, stage));
	for (size_t i = 0; i < sizeof model_tensors / sizeof *model_tensors; i++) {
		const struct gpt_tensor *t = &model_tensors[i];
		if (model_has(gpt, unit, t))
			gpt->units[unit][t->param] = model_add(gpt, model, unit, name, t);
	}
}

void gpt_register(struct gpt *gpt, struct gpt_shape shape, int stages, tutti_model *model)
{
	int head = shape.layers + 1;

	memset(gpt, 0, sizeof *gpt);
	gpt->shape = shape;
	gpt->stages = stages;
	for (int stage = 0; stage < stages; stage++)
		for (int u = gpt_first_unit(gpt, stage); u < gpt_first_unit(gpt, stage + 1); u++)
			model_add_unit(gpt, model, u, stage);
	/* Tied: the head scores a token by its embedding, so both add to one gradient. */
	gpt->units[head][TOKEN_W] = gpt->units[0][TOKEN_W];
	must(tutti_model_unit_uses(model, head, gpt->units[0][TOKEN_W]));
}

static void model_set_first_values(const struct gpt *gpt, int param)
{
	const float weight = 0.08f, small = weight / sqrtf(2 * (float)gpt->shape.layers);
	const float deviations[] = {
		[EMBEDDINGS] = 0.1f, [WEIGHTS] = weight, [SMALL_WEIGHTS] = small};
	enum values values = gpt->tensors[param]->values;

	if (values == ONES)
		must(tutti_param_init_constant(gpt->trainer, param, 1));
	else if (values != ZEROS)
		must(tutti_param_init_normal(gpt->trainer, param, 0, deviations[values]));
}

static struct axis model_axis(tutti_mesh *mesh, const char *name)
{
	int size = tutti_mesh_size(mesh, name);

	return (struct axis){size > 1 ? tutti_mesh_comm(mesh, name) : NULL,
			     tutti_mesh_coord(mesh, name), size};
}

/* A group's tokens make EXPERTS_CHOSEN choices each. */
static struct experts model_experts(const struct gpt *gpt, tutti_mesh *mesh)
{
	const struct gpt_config *config = &gpt->config;
	struct axis axis = model_axis(mesh, "ep");
	int count = gpt->shape.experts, group = config->group;
	float even = count > 0 ? (float)(EXPERTS_CHOSEN * group) / (float)count : 0;
	int capacity = (int)ceilf(even * config->capacity);
	int most = config->max_sequences * gpt->context.length / gpt->split.axis.size;

	return (struct experts){.axis = axis,
				.count = count,
				.own = count / axis.size,
				.group = group,
				.capacity = capacity < group ? capacity : group,
				.most = most,
				.channels = gpt->shape.channels,
				.hidden = 4 * gpt->shape.channels,
				.balance = config->balance};
}

void gpt_start(struct gpt *gpt, tutti_trainer *trainer, tutti_mesh *mesh,
	       const struct gpt_config *config)
{
	struct axis cp = model_axis(mesh, "cp");
	int64_t first, count;

	gpt->trainer = trainer;
	gpt->config = *config;
	must(tutti_param_piece(trainer, gpt->units[0][TOKEN_W], &first, &count));
	gpt->split = (struct split){model_axis(mesh, "tp"), (int)first, (int)count};
	gpt->context = (struct context){cp, gpt->shape.length / cp.size};
	gpt->experts = model_experts(gpt, mesh);
	if (gpt->split.axis.size * cp.size > 1)
		gpt->peers = tutti_mesh_comm(mesh, "cp,tp");
	gpt->activations = gpt_make_activations(gpt, config->max_sequences);
	for (int p = 0; p < gpt->params; p++)
		model_set_first_values(gpt, p);
	for (int p = 0; p < gpt->params && config->dtype != TUTTI_F32; p++) {
		gpt->wide[p] = place_alloc(gpt->counts[p] * sizeof(float));
		if (!gpt->wide[p]) {
			fprintf(stderr, "gpt: there is no memory for the parameters in f32\n");
			exit(1);
		}
	}
}

/* Parameters of 16 bits are computed with in f32. */
float *gpt_data(const struct gpt *gpt, int param)
{
	const struct gpt_tensor *t = gpt->tensors[param];
	void *values = tutti_param_data(gpt->trainer, param);
	size_t count = gpt->counts[param];
	int64_t first, piece;

	if (gpt->config.dtype == TUTTI_F32)
		return values;
	if (t->axis) {
		must(tutti_param_piece(gpt->trainer, param, &first, &piece));
		count = count / (size_t)model_size(&gpt->shape, t->dims[t->dim]) * (size_t)piece;
	}
	widen(gpt->wide[param], values, count, gpt->config.dtype);
	return gpt->wide[param];
}

float *gpt_grad(const struct gpt *gpt, int param)
{
	return tutti_param_grad(gpt->trainer, param);
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
