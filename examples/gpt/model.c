/* The GPT's parameters and its memory: what is registered, first values, activations. */
#include "activations.h"
#include "place.h"

#include <limits.h>
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

static struct unit add_unit(tutti_model *model, const char *name)
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

/* Of that size along dim, which "tp" divides where there is one. */
static int divide(struct gpt *gpt, tutti_model *model, int param, int dim, int size)
{
	must(tutti_model_param_split(model, param, "tp", dim));
	gpt->split_sizes[param] = size;
	return param;
}

/* Queries, keys and values are a dimension of their own, so that a rank's piece has its heads of
 * each. */
static void register_attention(struct gpt *gpt, struct unit unit, struct gpt_block_ids *ids)
{
	int c = gpt->shape.channels;
	const int64_t qkv[] = {c, 3, c};
	tutti_model *model = unit.model;

	ids->qkv_w = divide(gpt, model, add_tensor(gpt, unit, "qkv_w", 3, qkv, 0), 2, c);
	ids->qkv_b = divide(gpt, model,
			    add_tensor(gpt, unit, "qkv_b", 2, qkv + 1, TUTTI_PARAM_NO_DECAY), 1, c);
	ids->proj_w = divide(gpt, model, add_matrix(gpt, unit, "proj_w", c, c), 0, c);
	ids->proj_b = add_vector(gpt, unit, "proj_b", c);
}

static void register_block(struct gpt *gpt, tutti_model *model, int layer)
{
	struct gpt_block_ids *ids = &gpt->blocks[layer];
	int c = gpt->shape.channels;
	char name[32];

	snprintf(name, sizeof name, "block.%d", layer);
	struct unit unit = add_unit(model, name);
	ids->unit = unit.index;
	ids->norm1_w = add_vector(gpt, unit, "norm1_w", c);
	ids->norm1_b = add_vector(gpt, unit, "norm1_b", c);
	register_attention(gpt, unit, ids);
	ids->norm2_w = add_vector(gpt, unit, "norm2_w", c);
	ids->norm2_b = add_vector(gpt, unit, "norm2_b", c);
	ids->up_w = divide(gpt, model, add_matrix(gpt, unit, "up_w", c, 4 * c), 1, 4 * c);
	ids->up_b = divide(gpt, model, add_vector(gpt, unit, "up_b", 4 * c), 0, 4 * c);
	ids->down_w = divide(gpt, model, add_matrix(gpt, unit, "down_w", 4 * c, c), 0, 4 * c);
	ids->down_b = add_vector(gpt, unit, "down_b", c);
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
	gpt->split = (struct split){.size = 1, .vocab = shape.vocab};
	struct unit embedding = add_unit(model, "embedding");
	gpt->embed_unit = embedding.index;
	gpt->token_w = divide(gpt, model,
			      add_matrix(gpt, embedding, "token_w", shape.vocab, shape.channels), 0,
			      shape.vocab);
	gpt->position_w = add_matrix(gpt, embedding, "position_w", shape.length, shape.channels);
	for (int l = 0; l < shape.layers; l++)
		register_block(gpt, model, l);
	struct unit head = add_unit(model, "head");
	gpt->head_unit = head.index;
	gpt->norm_w = add_vector(gpt, head, "norm_w", shape.channels);
	gpt->norm_b = add_vector(gpt, head, "norm_b", shape.channels);
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
	must(tutti_param_init_normal(gpt->trainer, ids->proj_w, 0, small));
	must(tutti_param_init_normal(gpt->trainer, ids->up_w, 0, weight_std));
	must(tutti_param_init_normal(gpt->trainer, ids->down_w, 0, small));
}

/* Where tensors of floats lie one behind the other; with memory NULL they are only counted. */
struct room {
	float *memory;
	size_t used, largest;
};

static float *carve(struct room *room, size_t count)
{
	float *piece = room->memory ? room->memory + room->used : NULL;
	room->used += (count + 15) & ~(size_t)15;
	room->largest = count > room->largest ? count : room->largest;
	return piece;
}

/* Where a parameter is on another stage, so is what its layer computes. */
static int is_here(const struct gpt *gpt, int param)
{
	int64_t first, count;

	must(tutti_param_piece(gpt->trainer, param, &first, &count));
	return count > 0;
}

/* Ranks of "tp" divide heads and what is inside of a branch: own channels. */
static void lay_out_block(struct block_activations *b, const struct gpt *gpt, size_t n,
			  struct room *room)
{
	size_t ranks = (size_t)gpt->split.size, length = (size_t)gpt->shape.length;
	size_t c = (size_t)gpt->shape.channels, heads = (size_t)gpt->shape.heads / ranks;
	size_t own = c / ranks;

	b->norm1 = carve(room, n * c);
	b->qkv = carve(room, n * 3 * own);
	b->weights = carve(room, n * heads * length);
	b->mixed = carve(room, n * own);
	b->middle = carve(room, n * c);
	b->norm2 = carve(room, n * c);
	b->up = carve(room, n * 4 * own);
	b->gelu = carve(room, n * 4 * own);
	b->stats1.mean = carve(room, n);
	b->stats1.rstd = carve(room, n);
	b->stats2.mean = carve(room, n);
	b->stats2.rstd = carve(room, n);
}

static void lay_out_head(struct gpt_activations *a, const struct gpt *gpt, size_t n,
			 struct room *room)
{
	size_t vocab = (size_t)gpt->shape.vocab;

	a->norm = carve(room, n * (size_t)gpt->shape.channels);
	a->logits = carve(room, n * vocab);
	a->all_logits = gpt->split.size > 1 ? carve(room, n * vocab) : NULL;
	a->stats.mean = carve(room, n);
	a->stats.rstd = carve(room, n);
}

static void lay_out(struct gpt_activations *a, const struct gpt *gpt, int sequences,
		    struct room *room)
{
	struct gpt_shape s = gpt->shape;
	size_t n = (size_t)sequences * (size_t)s.length, c = (size_t)s.channels;
	size_t vocab = (size_t)s.vocab, own = c / (size_t)gpt->split.size;
	size_t widest = vocab > 4 * c ? vocab : 4 * c;
	size_t weights = attention_scratch(
		(struct attention_shape){sequences, s.length, s.channels, s.heads});

	for (int l = 0; l < s.layers; l++) {
		a->blocks[l].in =
			carve(room, n * c); /* a stage's last stream is the next one's first */
		if (is_here(gpt, gpt->blocks[l].proj_b))
			lay_out_block(&a->blocks[l], gpt, n, room);
	}
	a->out = carve(room, n * c);
	if (is_here(gpt, gpt->norm_w))
		lay_out_head(a, gpt, n, room);
	a->stream_grad = carve(room, n * c);
	a->wide_grad = carve(room, n * 4 * own);
	a->narrow_grad = carve(room, n * c);
	a->scratch = carve(room, c * widest > weights ? c * widest : weights);
	a->tokens = (unsigned char *)carve(room, n / sizeof(float) + 1);
	a->targets = (unsigned char *)carve(room, n / sizeof(float) + 1);
	a->loss = (double *)carve(room, sizeof(double) / sizeof(float));
}

/* Parameters of 16 bits are computed with in f32. */
static void make_room_for_wide(struct gpt *gpt, tutti_dtype dtype)
{
	gpt->dtype = dtype;
	for (int p = 0; p < gpt->params && dtype != TUTTI_F32; p++) {
		gpt->wide[p] = place_alloc(gpt->counts[p] * sizeof(float));
		if (!gpt->wide[p]) {
			fprintf(stderr, "gpt: there is no memory for the parameters in f32\n");
			exit(1);
		}
	}
}

/* Layers find their way in a tensor by int. */
static struct gpt_activations *make_activations(const struct gpt *gpt, int sequences)
{
	struct gpt_activations *a = calloc(1, sizeof *a);
	struct room room = {0};

	if (a)
		lay_out(a, gpt, sequences, &room);
	if (room.largest > INT_MAX) {
		fprintf(stderr,
			"gpt: room for %d sequences of %d characters would be a tensor of %zu "
			"numbers, where %d are possible: take fewer, or more ranks\n",
			sequences, gpt->shape.length, room.largest, INT_MAX);
		exit(1);
	}
	room.memory = a ? place_alloc(room.used * sizeof(float)) : NULL;
	if (!room.memory) {
		fprintf(stderr, "gpt: there is no memory for %d sequences\n", sequences);
		exit(1);
	}
	room.used = 0;
	lay_out(a, gpt, sequences, &room);
	a->memory = room.memory;
	return a;
}

struct gpt_activations *gpt_more_activations(const struct gpt *gpt, int sequences)
{
	struct gpt_activations *more = make_activations(gpt, sequences);

	more->loss = gpt->activations->loss;
	return more;
}

void gpt_free_activations(struct gpt_activations *activations)
{
	if (activations)
		place_free(activations->memory);
	free(activations);
}

/* This rank's part of the vocabulary, where it has the embedding. */
static void find_part(struct gpt *gpt, tutti_mesh *mesh)
{
	int64_t first, count;

	must(tutti_param_piece(gpt->trainer, gpt->token_w, &first, &count));
	gpt->split = (struct split){.rank = tutti_mesh_coord(mesh, "tp"),
				    .size = tutti_mesh_size(mesh, "tp"),
				    .first = (int)first,
				    .vocab = (int)count};
	if (gpt->split.size > 1)
		gpt->split.comm = tutti_mesh_comm(mesh, "tp");
}

void gpt_start(struct gpt *gpt, tutti_trainer *trainer, tutti_mesh *mesh, int max_sequences,
	       tutti_dtype dtype)
{
	gpt->trainer = trainer;
	find_part(gpt, mesh);
	gpt->activations = make_activations(gpt, max_sequences);
	make_room_for_wide(gpt, dtype);
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
