/* Sizes of GPTs, and what follows from them. */
#include "layout_model.h"

#include "tools/must.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

/* GPT-2's, then GPT-3's. That of 13 billion has 40 heads of 128. */
static const struct preset {
	const char *name;
	struct gpt_sizes sizes;
} presets[] = {
	{"gpt-small", {12, 12, 768, 50257, 1024}},  {"gpt-medium", {24, 16, 1024, 50257, 1024}},
	{"gpt-large", {36, 20, 1280, 50257, 1024}}, {"gpt-1.5B", {48, 25, 1600, 50257, 1024}},
	{"gpt-2.7B", {32, 32, 2560, 50257, 2048}},  {"gpt-6.7B", {32, 32, 4096, 50257, 2048}},
	{"gpt-13B", {40, 40, 5120, 50257, 2048}},   {"gpt-175B", {96, 96, 12288, 50257, 2048}},
};
#define PRESETS ((int)(sizeof presets / sizeof *presets))

enum { SIZE_MOST = 1 << 20 };

const char *gpt_preset(int i)
{
	return i < PRESETS ? presets[i].name : NULL;
}

/* "heads=25", up to a comma or the end. Returns what follows, or NULL. */
static const char *layout_model_read_size(struct gpt_sizes *sizes, const char *text)
{
	static const char *const names[] = {"layers", "heads", "channels", "vocab", "length"};
	int *const to[] = {&sizes->layers, &sizes->heads, &sizes->channels, &sizes->vocab,
			   &sizes->length};
	const char *equals = strchr(text, '=');
	char *end;

	for (int i = 0; equals && i < 5; i++) {
		size_t n = strlen(names[i]);
		if ((size_t)(equals - text) != n || memcmp(text, names[i], n) != 0)
			continue;
		long value = strtol(equals + 1, &end, 10);
		if (*to[i] || !isdigit((unsigned char)equals[1]) || value < 1 ||
		    value > SIZE_MOST || (*end && *end != ','))
			return NULL;
		*to[i] = (int)value;
		return end;
	}
	return NULL;
}

bool gpt_sizes_read(struct gpt_sizes *sizes, const char *text)
{
	for (int i = 0; i < PRESETS; i++)
		if (strcmp(presets[i].name, text) == 0) {
			*sizes = presets[i].sizes;
			return true;
		}
	*sizes = (struct gpt_sizes){0};
	for (const char *at = text; (at = layout_model_read_size(sizes, at)); at++)
		if (!*at)
			return sizes->layers && sizes->heads && sizes->channels && sizes->vocab &&
			       sizes->length && sizes->channels % sizes->heads == 0;
	return false;
}

double gpt_attention_work(const struct gpt_sizes *s)
{
	return 2.0 * s->length * s->channels;
}

/* Matrices: 3 c * c of queries, keys and values, c * c behind attention, twice 4 c * c. */
struct token_work gpt_layer_work(const struct gpt_sizes *s)
{
	double products = 24.0 * s->channels * s->channels, attention = gpt_attention_work(s);

	return (struct token_work){products + attention, products + 2 * attention, products};
}

struct token_work gpt_head_work(const struct gpt_sizes *s)
{
	double product = 2.0 * s->channels * s->vocab;

	return (struct token_work){product, product, product};
}

double gpt_layer_elements(const struct gpt_sizes *s, int tp)
{
	double c = s->channels;

	return (12 * c * c + 7 * c) / tp + 6 * c;
}

double gpt_tokens_elements(const struct gpt_sizes *s, int tp)
{
	return (double)s->vocab * s->channels / tp;
}

double gpt_embedding_elements(const struct gpt_sizes *s, int tp)
{
	return gpt_tokens_elements(s, tp) + (double)s->length * s->channels;
}

double gpt_head_elements(const struct gpt_sizes *s)
{
	return 2.0 * s->channels;
}

int gpt_first_layer(const struct gpt_sizes *s, int stages, int stage)
{
	return (int)((long)s->layers * stage / stages);
}

/* Where parameters are being registered. */
struct place {
	tutti_model *model;
	int unit;
	const char *name;
};

/* "tp" divides dimension `split`; -1: none, and its ranks have gradients of their own rows. */
static int layout_model_add(const struct place *place, const char *name, int ndim,
			    const int64_t *shape, int split)
{
	char full[64];

	snprintf(full, sizeof full, "%s.%s", place->name, name);
	int param = tutti_model_param(place->model, place->unit, full, ndim, shape, 0);
	must_have(param >= 0 ? place->model : NULL);
	tutti_status status = split >= 0 ? tutti_model_param_split(place->model, param, "tp", split)
					 : tutti_model_param_partial(place->model, param, "tp");
	must_have(status == TUTTI_OK ? place->model : NULL);
	return param;
}

static void layout_model_add_layer(const struct place *place, int c)
{
	const int64_t qkv[] = {c, 3, c}, up[] = {c, 4 * c}, down[] = {4 * c, c}, square[] = {c, c};

	layout_model_add(place, "norm1_w", 1, square, -1);
	layout_model_add(place, "norm1_b", 1, square, -1);
	layout_model_add(place, "qkv_w", 3, qkv, 2);
	layout_model_add(place, "qkv_b", 2, qkv + 1, 1);
	layout_model_add(place, "proj_w", 2, square, 0);
	layout_model_add(place, "proj_b", 1, square, -1);
	layout_model_add(place, "norm2_w", 1, square, -1);
	layout_model_add(place, "norm2_b", 1, square, -1);
	layout_model_add(place, "up_w", 2, up, 1);
	layout_model_add(place, "up_b", 1, up + 1, 0);
	layout_model_add(place, "down_w", 2, down, 0);
	layout_model_add(place, "down_b", 1, square, -1);
}

static struct place layout_model_add_unit(tutti_model *model, const char *name, int stage)
{
	struct place place = {model, tutti_model_unit(model, name), name};

	must_have(place.unit >= 0 ? model : NULL);
	if (tutti_model_unit_stage(model, place.unit, stage) != TUTTI_OK)
		must_have(NULL);
	return place;
}

tutti_model *gpt_describe(const struct gpt_sizes *s, int stages)
{
	tutti_model *model = NULL;
	char name[32];

	if (tutti_model_create(&model) != TUTTI_OK)
		must_have(NULL);
	struct place embedding = layout_model_add_unit(model, "embedding", 0);
	int tokens =
		layout_model_add(&embedding, "token_w", 2, (int64_t[]){s->vocab, s->channels}, 0);
	layout_model_add(&embedding, "position_w", 2, (int64_t[]){s->length, s->channels}, -1);
	for (int stage = 0; stage < stages; stage++)
		for (int l = gpt_first_layer(s, stages, stage);
		     l < gpt_first_layer(s, stages, stage + 1); l++) {
			snprintf(name, sizeof name, "block.%d", l);
			struct place layer = layout_model_add_unit(model, name, stage);
			layout_model_add_layer(&layer, s->channels);
		}
	struct place head = layout_model_add_unit(model, "head", stages - 1);
	layout_model_add(&head, "norm_w", 1, (int64_t[]){s->channels}, -1);
	layout_model_add(&head, "norm_b", 1, (int64_t[]){s->channels}, -1);
	if (tutti_model_unit_uses(model, head.unit, tokens) != TUTTI_OK)
		must_have(NULL);
	return model;
}
