/* The GPT: which layers, in which units, and where the hooks are. The arithmetic is in layers.c, or
 * for a GPU in examples/gpt_cuda/layers.c.
 *
 * Each unit's part is between its begin and its end, in forward and in backward. That is all the
 * trainer needs: the end of a unit's backward starts its gradients on their way to the other ranks.
 */
#include "activations.h"
#include "place.h"

#include <string.h>

/* Elements of a parameter on this rank. */
static size_t own_count(const struct gpt *gpt, int param)
{
	int64_t first, count;

	if (!gpt->split_sizes[param])
		return gpt->counts[param];
	must(tutti_param_piece(gpt->trainer, param, &first, &count));
	return gpt->counts[param] / (size_t)gpt->split_sizes[param] * (size_t)count;
}

static const float *data(const struct gpt *gpt, int param)
{
	const void *values = tutti_param_data(gpt->trainer, param);

	if (gpt->dtype == TUTTI_F32)
		return values;
	widen(gpt->wide[param], values, own_count(gpt, param), gpt->dtype);
	return gpt->wide[param];
}

static float *grad(const struct gpt *gpt, int param)
{
	return tutti_param_grad(gpt->trainer, param);
}

/* The stream that a layer writes: the next block's, or the head's. */
static float *stream_after(const struct gpt *gpt, int layer)
{
	struct gpt_activations *a = gpt->activations;
	return layer + 1 < gpt->shape.layers ? a->blocks[layer + 1].in : a->out;
}

/* A rank of "tp" has so many of them. */
static int own(const struct gpt *gpt, int count)
{
	return count / gpt->split.size;
}

/* The bias of products whose rows are divided: added by one rank of "tp". */
static const float *bias_once(const struct gpt *gpt, int param)
{
	return gpt->split.rank == 0 ? data(gpt, param) : NULL;
}

static struct attention_shape attention_of(const struct gpt *gpt)
{
	return (struct attention_shape){gpt->activations->sequences, gpt->shape.length,
					own(gpt, gpt->shape.channels), own(gpt, gpt->shape.heads)};
}

static struct embedding_shape embedding_of(const struct gpt *gpt)
{
	return (struct embedding_shape){gpt->activations->n, gpt->shape.length, gpt->shape.channels,
					gpt->shape.vocab};
}

static void embedding_forward(struct gpt *gpt)
{
	float *out = stream_after(gpt, -1);
	const unsigned char *tokens = gpt->activations->tokens;
	const float *token_w = data(gpt, gpt->token_w), *position_w = data(gpt, gpt->position_w);

	if (gpt->split.size == 1) {
		embed_forward(out, tokens, token_w, position_w, embedding_of(gpt));
		return;
	}
	split_embed_forward(&gpt->split, out, tokens, token_w, position_w, embedding_of(gpt));
	split_sum(&gpt->split, out, gpt->activations->n * gpt->shape.channels);
}

static void embedding_backward(struct gpt *gpt)
{
	float *token_w = grad(gpt, gpt->token_w), *position_w = grad(gpt, gpt->position_w);
	const struct gpt_activations *a = gpt->activations;

	if (gpt->split.size == 1)
		embed_backward(token_w, position_w, a->stream_grad, a->tokens, embedding_of(gpt));
	else
		split_embed_backward(&gpt->split, token_w, position_w, a->stream_grad, a->tokens,
				     embedding_of(gpt));
}

/* Ranks of "tp" have parts of the products that end a branch, and of the gradients where it begins:
 * each is summed once.
 *
 * middle = in + proj(attention(qkv(norm1(in)))); out = middle + down(gelu(up(norm2(middle)))) */
static void block_forward(struct gpt *gpt, int layer)
{
	const struct gpt_block_ids *id = &gpt->blocks[layer];
	const struct block_activations *b = &gpt->activations->blocks[layer];
	float *branch = gpt->activations->narrow_grad; /* not yet used for gradients */
	int n = gpt->activations->n, c = gpt->shape.channels, part = own(gpt, c);

	layernorm_forward(b->norm1, b->stats1, b->in, data(gpt, id->norm1_w),
			  data(gpt, id->norm1_b), n, c);
	linear_forward(b->qkv, b->norm1, data(gpt, id->qkv_w), data(gpt, id->qkv_b), n, c,
		       3 * part);
	attention_forward(b->mixed, b->weights, b->qkv, attention_of(gpt));
	linear_forward(branch, b->mixed, data(gpt, id->proj_w), bias_once(gpt, id->proj_b), n, part,
		       c);
	split_sum(&gpt->split, branch, n * c);
	add(b->middle, b->in, branch, n * c);

	layernorm_forward(b->norm2, b->stats2, b->middle, data(gpt, id->norm2_w),
			  data(gpt, id->norm2_b), n, c);
	linear_forward(b->up, b->norm2, data(gpt, id->up_w), data(gpt, id->up_b), n, c, 4 * part);
	gelu_forward(b->gelu, b->up, n * 4 * part);
	linear_forward(branch, b->gelu, data(gpt, id->down_w), bias_once(gpt, id->down_b), n,
		       4 * part, c);
	split_sum(&gpt->split, branch, n * c);
	add(stream_after(gpt, layer), b->middle, branch, n * c);
}

/* stream_grad is the gradient of the block's output, then of its middle, then of its input. */
static void block_backward(struct gpt *gpt, int layer)
{
	const struct gpt_block_ids *id = &gpt->blocks[layer];
	const struct gpt_activations *a = gpt->activations;
	const struct block_activations *b = &a->blocks[layer];
	int n = a->n, c = gpt->shape.channels, part = own(gpt, c);
	struct linear_grads down = {a->wide_grad, grad(gpt, id->down_w), grad(gpt, id->down_b),
				    a->scratch};
	struct linear_grads up = {a->narrow_grad, grad(gpt, id->up_w), grad(gpt, id->up_b),
				  a->scratch};
	struct linear_grads proj = {a->narrow_grad, grad(gpt, id->proj_w), grad(gpt, id->proj_b),
				    a->scratch};
	struct linear_grads qkv = {a->narrow_grad, grad(gpt, id->qkv_w), grad(gpt, id->qkv_b),
				   a->scratch};
	struct norm_grads norm2 = {a->stream_grad, grad(gpt, id->norm2_w), grad(gpt, id->norm2_b)};
	struct norm_grads norm1 = {a->stream_grad, grad(gpt, id->norm1_w), grad(gpt, id->norm1_b)};

	linear_backward(&down, a->stream_grad, b->gelu, data(gpt, id->down_w), n, 4 * part, c);
	gelu_backward(a->wide_grad, b->up, n * 4 * part);
	linear_backward(&up, a->wide_grad, b->norm2, data(gpt, id->up_w), n, c, 4 * part);
	split_sum(&gpt->split, a->narrow_grad, n * c);
	layernorm_backward(norm2, a->narrow_grad, b->middle, b->stats2, data(gpt, id->norm2_w), n,
			   c);

	linear_backward(&proj, a->stream_grad, b->mixed, data(gpt, id->proj_w), n, part, c);
	attention_backward(a->wide_grad, a->scratch, a->narrow_grad, b->qkv, b->weights,
			   attention_of(gpt));
	linear_backward(&qkv, a->wide_grad, b->norm1, data(gpt, id->qkv_w), n, c, 3 * part);
	split_sum(&gpt->split, a->narrow_grad, n * c);
	layernorm_backward(norm1, a->narrow_grad, b->in, b->stats1, data(gpt, id->norm1_w), n, c);
}

/* logits = norm(out) * transposed token_w */
static void head_forward(struct gpt *gpt)
{
	const struct gpt_activations *a = gpt->activations;
	int n = a->n, c = gpt->shape.channels;

	layernorm_forward(a->norm, a->stats, a->out, data(gpt, gpt->norm_w), data(gpt, gpt->norm_b),
			  n, c);
	scores_forward(a->logits, a->scratch, a->norm, data(gpt, gpt->token_w), n, c,
		       gpt->split.vocab);
}

/* logits are their own gradient by now. */
static void head_backward(struct gpt *gpt)
{
	const struct gpt_activations *a = gpt->activations;
	int n = a->n, c = gpt->shape.channels;
	struct norm_grads norm = {a->stream_grad, grad(gpt, gpt->norm_w), grad(gpt, gpt->norm_b)};

	scores_backward(a->narrow_grad, grad(gpt, gpt->token_w), a->logits, a->norm,
			data(gpt, gpt->token_w), n, c, gpt->split.vocab);
	split_sum(&gpt->split, a->narrow_grad, n * c);
	clear(a->stream_grad, (size_t)n * (size_t)c);
	layernorm_backward(norm, a->narrow_grad, a->out, a->stats, data(gpt, gpt->norm_w), n, c);
}

static size_t stream_bytes(const struct gpt *gpt)
{
	return (size_t)gpt->activations->n * (size_t)gpt->shape.channels * sizeof(float);
}

static int first_layer(const struct gpt *gpt, int stage)
{
	return gpt->shape.layers * stage / gpt->stages;
}

/* The stages' streams lie in host memory. */
static void begin_stream(struct gpt *gpt, int stage, const unsigned char *tokens, const float *in)
{
	if (stage > 0) {
		memcpy(stream_after(gpt, first_layer(gpt, stage) - 1), in, stream_bytes(gpt));
		return;
	}
	place_upload(gpt->activations->tokens, tokens, (size_t)gpt->activations->n);
	must(tutti_forward_begin(gpt->trainer, gpt->embed_unit));
	embedding_forward(gpt);
	must(tutti_forward_end(gpt->trainer, gpt->embed_unit));
}

void gpt_stage_forward(struct gpt *gpt, int stage, const unsigned char *tokens, int sequences,
		       const float *in, float *out)
{
	int last = first_layer(gpt, stage + 1);

	gpt->activations->sequences = sequences;
	gpt->activations->n = sequences * gpt->shape.length;
	begin_stream(gpt, stage, tokens, in);
	for (int l = first_layer(gpt, stage); l < last; l++) {
		must(tutti_forward_begin(gpt->trainer, gpt->blocks[l].unit));
		block_forward(gpt, l);
		must(tutti_forward_end(gpt->trainer, gpt->blocks[l].unit));
	}
	if (stage + 1 < gpt->stages) {
		memcpy(out, stream_after(gpt, last - 1), stream_bytes(gpt));
		return;
	}
	must(tutti_forward_begin(gpt->trainer, gpt->head_unit));
	head_forward(gpt);
	must(tutti_forward_end(gpt->trainer, gpt->head_unit));
}

void gpt_forward(struct gpt *gpt, const unsigned char *tokens, int sequences)
{
	gpt_stage_forward(gpt, 0, tokens, sequences, NULL, NULL);
}

const float *gpt_logits(const struct gpt *gpt)
{
	struct gpt_activations *a = gpt->activations;
	size_t count = (size_t)a->n * (size_t)gpt->shape.vocab;

	if (gpt->split.size == 1)
		return place_view(a->logits, count * sizeof(float));
	split_gather_logits(&gpt->split, a->all_logits, a->logits, a->n, gpt->shape.vocab);
	return a->all_logits;
}

void gpt_loss(struct gpt *gpt, const unsigned char *targets, int with_gradient)
{
	const struct gpt_activations *a = gpt->activations;
	const float scale = tutti_grad_scale(gpt->trainer);

	place_upload(a->targets, targets, (size_t)a->n);
	if (gpt->split.size == 1)
		softmax_loss(a->loss, a->logits, a->targets, a->narrow_grad, a->n, gpt->shape.vocab,
			     with_gradient ? &scale : NULL);
	else
		split_softmax_loss(&gpt->split, a->loss, a->logits, a->targets, a->narrow_grad,
				   a->n, with_gradient ? &scale : NULL);
}

double gpt_loss_sum(struct gpt *gpt)
{
	static const double zero;
	double sum = *(const double *)place_view(gpt->activations->loss, sizeof sum);

	place_upload(gpt->activations->loss, &zero, sizeof zero);
	if (gpt->split.size > 1)
		must(tutti_all_reduce(&sum, &sum, 1, TUTTI_F64, TUTTI_SUM, gpt->split.comm, NULL));
	return sum;
}

/* The gradient of what the last layer before or the stage behind made. */
static void begin_grad(struct gpt *gpt, int stage, const float *out_grad)
{
	if (stage + 1 < gpt->stages) {
		memcpy(gpt->activations->stream_grad, out_grad, stream_bytes(gpt));
		return;
	}
	must(tutti_backward_begin(gpt->trainer, gpt->head_unit));
	head_backward(gpt);
	must(tutti_backward_end(gpt->trainer, gpt->head_unit));
}

void gpt_stage_backward(struct gpt *gpt, int stage, const float *out_grad, float *in_grad)
{
	begin_grad(gpt, stage, out_grad);
	for (int l = first_layer(gpt, stage + 1) - 1; l >= first_layer(gpt, stage); l--) {
		must(tutti_backward_begin(gpt->trainer, gpt->blocks[l].unit));
		block_backward(gpt, l);
		must(tutti_backward_end(gpt->trainer, gpt->blocks[l].unit));
	}
	if (stage > 0) {
		memcpy(in_grad, gpt->activations->stream_grad, stream_bytes(gpt));
		return;
	}
	must(tutti_backward_begin(gpt->trainer, gpt->embed_unit));
	embedding_backward(gpt);
	must(tutti_backward_end(gpt->trainer, gpt->embed_unit));
}

void gpt_backward(struct gpt *gpt)
{
	gpt_stage_backward(gpt, 0, NULL, NULL);
}
