/* Forward and backward side by side, branch by branch:
 *
 * middle = in + proj(attention(qkv(norm1(in)))); out = middle + down(gelu(up(norm2(middle)))) */
#include "block.h"

#include "activations.h"

#include <stdbool.h>
#include <string.h>

struct block {
	struct gpt *gpt;
	const struct gpt_block_ids *id;
	struct gpt_activations *a;
	struct block_activations *b;
	int n, own, c; /* rows in a branch, of the stream; channels of the stream */
	int part;      /* this rank's channels inside of attention                */
	float *out;    /* the stream behind the block                             */
};

static struct block gpt_block_of(struct gpt *gpt, int layer)
{
	struct gpt_activations *a = gpt->activations;
	int c = gpt->shape.channels;

	return (struct block){gpt,
			      &gpt->blocks[layer],
			      a,
			      &a->blocks[layer],
			      a->n,
			      a->own,
			      c,
			      c / gpt->split.size,
			      block_stream_after(gpt, layer)};
}

float *block_stream_after(const struct gpt *gpt, int layer)
{
	struct gpt_activations *a = gpt->activations;

	return layer + 1 < gpt->shape.layers ? a->blocks[layer + 1].in : a->out;
}

static struct product product_of(const struct gpt *gpt, int weight, int bias, int ins, int outs)
{
	return (struct product){gpt_data(gpt, weight), gpt_data(gpt, bias), ins, outs};
}

static struct product qkv_of(const struct block *k)
{
	return product_of(k->gpt, k->id->qkv_w, k->id->qkv_b, k->c, 3 * k->part);
}

static struct product proj_of(const struct block *k)
{
	return product_of(k->gpt, k->id->proj_w, k->id->proj_b, k->part, k->c);
}

static struct product up_of(const struct block *k)
{
	return product_of(k->gpt, k->id->up_w, k->id->up_b, k->c, 4 * k->part);
}

static struct product down_of(const struct block *k)
{
	return product_of(k->gpt, k->id->down_w, k->id->down_b, 4 * k->part, k->c);
}

static struct attention_shape block_attention_of(const struct block *k)
{
	return (struct attention_shape){k->a->sequences, k->gpt->context.length, k->part,
					k->gpt->shape.heads / k->gpt->split.size};
}

static struct expert_weights experts_of(const struct block *k)
{
	const struct gpt *gpt = k->gpt;

	return (struct expert_weights){gpt_data(gpt, k->id->gate_w), gpt_data(gpt, k->id->up_w),
				       gpt_data(gpt, k->id->up_b), gpt_data(gpt, k->id->down_w),
				       gpt_data(gpt, k->id->down_b)};
}

static void attention_branch(const struct block *k, float *branch)
{
	const struct gpt *gpt = k->gpt;
	struct block_activations *b = k->b;
	struct product qkv = qkv_of(k), proj = proj_of(k);
	float *rows = gpt->context.by_heads ? k->a->wide_grad : b->attention.qkv;

	layernorm_forward(b->norm1, b->stats1, b->in, gpt_data(gpt, k->id->norm1_w),
			  gpt_data(gpt, k->id->norm1_b), k->own, k->c);
	split_gather_forward(&gpt->split, rows, b->norm1, &qkv, k->n);
	context_attention_forward(&gpt->context, b->mixed, &b->attention, rows, k->a->scratch,
				  block_attention_of(k));
	split_scatter_forward(&gpt->split, branch, b->mixed, &proj, k->n);
}

/* The values of the second branch that backward needs. */
static void begin_second_branch(const struct block *k)
{
	const struct gpt *gpt = k->gpt;
	struct block_activations *b = k->b;

	layernorm_forward(b->norm2, b->stats2, b->middle, gpt_data(gpt, k->id->norm2_w),
			  gpt_data(gpt, k->id->norm2_b), k->own, k->c);
	if (gpt->experts.count > 0)
		return;
	struct product up = up_of(k);
	split_gather_forward(&gpt->split, b->up, b->norm2, &up, k->n);
	gelu_forward(b->gelu, b->up, k->n * 4 * k->part);
}

static void end_second_branch(const struct block *k, float *branch)
{
	const struct gpt *gpt = k->gpt;

	if (gpt->experts.count > 0) {
		experts_forward(&gpt->experts, branch, &k->b->experts, k->b->norm2, experts_of(k),
				k->a->scratch, k->own);
		return;
	}
	struct product down = down_of(k);
	split_scatter_forward(&gpt->split, branch, k->b->gelu, &down, k->n);
}

void block_forward(struct gpt *gpt, int layer)
{
	struct block k = gpt_block_of(gpt, layer);
	float *branch = k.a->narrow_grad; /* not yet used for gradients */

	attention_branch(&k, branch);
	add(k.b->middle, k.b->in, branch, k.own * k.c);
	begin_second_branch(&k);
	end_second_branch(&k, branch);
	add(k.out, k.b->middle, branch, k.own * k.c);
}

/* Once more, of b->in: all but the last product. */
static void block_recompute(const struct block *k)
{
	float *branch = k->a->narrow_grad;

	attention_branch(k, branch);
	add(k->b->middle, k->b->in, branch, k->own * k->c);
	begin_second_branch(k);
	if (k->gpt->experts.count > 0)
		end_second_branch(k, branch);
}

/* The gradients that a product's backward writes; those of weights may be left for later. */
static struct linear_grads grads_of(const struct block *k, float *in, int weight, int bias)
{
	bool is_later = k->gpt->config.weights_later;

	return (struct linear_grads){in, is_later ? NULL : gpt_grad(k->gpt, weight),
				     is_later ? NULL : gpt_grad(k->gpt, bias), k->a->scratch};
}

static struct linear_grads weight_grads_of(const struct block *k, int weight, int bias)
{
	return (struct linear_grads){NULL, gpt_grad(k->gpt, weight), gpt_grad(k->gpt, bias), NULL};
}

/* Keeps a gradient (own, c) for block_weights. */
static void block_keep(const struct block *k, float *place, const float *grad)
{
	if (place)
		memcpy(place, grad, (size_t)k->own * (size_t)k->c * sizeof(float));
}

/* narrow_grad: of norm2 */
static void products_backward(const struct block *k)
{
	const struct gpt *gpt = k->gpt;
	const struct block_activations *b = k->b;
	float *wide = b->up_grad ? b->up_grad : k->a->wide_grad;
	struct product up = up_of(k), down = down_of(k);
	struct linear_grads down_grads = grads_of(k, wide, k->id->down_w, k->id->down_b);
	struct linear_grads up_grads = grads_of(k, k->a->narrow_grad, k->id->up_w, k->id->up_b);

	block_keep(k, b->down_grad, k->a->stream_grad);
	split_scatter_backward(&gpt->split, &down_grads, k->a->stream_grad, b->gelu, &down, k->n);
	gelu_backward(wide, b->up, k->n * 4 * k->part);
	split_gather_backward(&gpt->split, &up_grads, wide, b->norm2, &up, k->n);
}

static void mixture_backward(const struct block *k)
{
	const struct gpt *gpt = k->gpt;
	struct expert_grads grads = {gpt_grad(gpt, k->id->gate_w), gpt_grad(gpt, k->id->up_w),
				     gpt_grad(gpt, k->id->up_b), gpt_grad(gpt, k->id->down_w),
				     gpt_grad(gpt, k->id->down_b)};

	experts_backward(&gpt->experts, k->a->narrow_grad, grads, k->a->stream_grad, &k->b->experts,
			 k->b->norm2, experts_of(k), k->a->scratch, k->own,
			 tutti_grad_scale(gpt->trainer));
}

/* narrow_grad: of norm1 */
static void attention_back(const struct block *k)
{
	const struct gpt *gpt = k->gpt;
	const struct block_activations *b = k->b;
	float *wide = b->qkv_grad ? b->qkv_grad : k->a->wide_grad;
	struct product qkv = qkv_of(k), proj = proj_of(k);
	struct linear_grads proj_grads =
		grads_of(k, k->a->narrow_grad, k->id->proj_w, k->id->proj_b);
	struct linear_grads qkv_grads = grads_of(k, k->a->narrow_grad, k->id->qkv_w, k->id->qkv_b);

	block_keep(k, b->proj_grad, k->a->stream_grad);
	split_scatter_backward(&gpt->split, &proj_grads, k->a->stream_grad, b->mixed, &proj, k->n);
	context_attention_backward(&gpt->context, wide, k->a->narrow_grad, &b->attention,
				   k->a->scratch, block_attention_of(k));
	split_gather_backward(&gpt->split, &qkv_grads, wide, b->norm1, &qkv, k->n);
}

/* A norm of the block, and where what it writes leaves its gradient for block_weights, if it does.
 */
struct norm {
	const float *in;
	struct norm_stats stats;
	int weight, bias;
	float *out_grad;
};

static struct norm norm1_of(const struct block *k)
{
	return (struct norm){k->b->in, k->b->stats1, k->id->norm1_w, k->id->norm1_b,
			     k->b->norm1_grad};
}

static struct norm norm2_of(const struct block *k)
{
	return (struct norm){k->b->middle, k->b->stats2, k->id->norm2_w, k->id->norm2_b,
			     k->b->norm2_grad};
}

static void norm_back(const struct block *k, struct norm norm)
{
	struct norm_grads grads = {.in = k->a->stream_grad};

	block_keep(k, norm.out_grad, k->a->narrow_grad);
	if (!norm.out_grad) {
		grads.weight = gpt_grad(k->gpt, norm.weight);
		grads.bias = gpt_grad(k->gpt, norm.bias);
	}
	layernorm_backward(grads, k->a->narrow_grad, norm.in, norm.stats,
			   gpt_data(k->gpt, norm.weight), k->own, k->c);
}

static void norm_weights(const struct block *k, struct norm norm)
{
	struct norm_grads grads = {NULL, gpt_grad(k->gpt, norm.weight),
				   gpt_grad(k->gpt, norm.bias)};

	layernorm_backward(grads, norm.out_grad, norm.in, norm.stats, gpt_data(k->gpt, norm.weight),
			   k->own, k->c);
}

void block_backward(struct gpt *gpt, int layer)
{
	struct block k = gpt_block_of(gpt, layer);

	if (gpt->config.recompute)
		block_recompute(&k);
	if (gpt->experts.count > 0)
		mixture_backward(&k);
	else
		products_backward(&k);
	norm_back(&k, norm2_of(&k));
	attention_back(&k);
	norm_back(&k, norm1_of(&k));
}

void block_weights(struct gpt *gpt, int layer)
{
	struct block k = gpt_block_of(gpt, layer);
	struct product qkv = qkv_of(&k), proj = proj_of(&k);
	struct linear_grads qkv_grads = weight_grads_of(&k, k.id->qkv_w, k.id->qkv_b);
	struct linear_grads proj_grads = weight_grads_of(&k, k.id->proj_w, k.id->proj_b);

	if (gpt->experts.count == 0) {
		struct product up = up_of(&k), down = down_of(&k);
		struct linear_grads up_grads = weight_grads_of(&k, k.id->up_w, k.id->up_b);
		struct linear_grads down_grads = weight_grads_of(&k, k.id->down_w, k.id->down_b);
		split_scatter_backward(&gpt->split, &down_grads, k.b->down_grad, k.b->gelu, &down,
				       k.n);
		split_gather_backward(&gpt->split, &up_grads, k.b->up_grad, k.b->norm2, &up, k.n);
	}
	norm_weights(&k, norm2_of(&k));
	split_scatter_backward(&gpt->split, &proj_grads, k.b->proj_grad, k.b->mixed, &proj, k.n);
	split_gather_backward(&gpt->split, &qkv_grads, k.b->qkv_grad, k.b->norm1, &qkv, k.n);
	norm_weights(&k, norm1_of(&k));
}
