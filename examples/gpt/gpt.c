/* The GPT: which units, and where the hooks are. Blocks are in block.c, the arithmetic in layers.c,
 * or for a GPU in examples/gpt_cuda/layers.c.
 *
 * Each unit's part is between its begin and its end, in forward and in backward. That is all the
 * trainer needs: the end of a unit's backward starts its gradients on their way to the other ranks.
 */
#include "activations.h"
#include "block.h"
#include "place.h"
#include "vocabulary.h"

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

const float *gpt_data(const struct gpt *gpt, int param)
{
	const void *values = tutti_param_data(gpt->trainer, param);

	if (gpt->config.dtype == TUTTI_F32)
		return values;
	widen(gpt->wide[param], values, own_count(gpt, param), gpt->config.dtype);
	return gpt->wide[param];
}

float *gpt_grad(const struct gpt *gpt, int param)
{
	return tutti_param_grad(gpt->trainer, param);
}

static struct vocabulary vocabulary_of(const struct gpt *gpt)
{
	return (struct vocabulary){&gpt->split, &gpt->context, gpt->shape.channels};
}

static void embedding_forward(struct gpt *gpt)
{
	vocabulary_embed_forward(vocabulary_of(gpt), block_stream_after(gpt, -1),
				 gpt->activations->tokens, gpt_data(gpt, gpt->token_w),
				 gpt_data(gpt, gpt->position_w), gpt->activations->n);
}

static void embedding_backward(struct gpt *gpt, const float *out_grad)
{
	vocabulary_embed_backward(vocabulary_of(gpt), gpt_grad(gpt, gpt->token_w),
				  gpt_grad(gpt, gpt->position_w), out_grad,
				  gpt->activations->tokens, gpt->activations->n);
}

/* logits = norm(out) * transposed token_w */
static void head_forward(struct gpt *gpt)
{
	const struct gpt_activations *a = gpt->activations;

	layernorm_forward(a->norm, a->stats, a->out, gpt_data(gpt, gpt->norm_w),
			  gpt_data(gpt, gpt->norm_b), a->own, gpt->shape.channels);
	vocabulary_scores_forward(vocabulary_of(gpt), a->logits, a->scratch, a->norm,
				  gpt_data(gpt, gpt->token_w), a->n);
}

/* logits are their own gradient by now, narrow_grad or norm_grad that of the norm. */
static void head_weights(struct gpt *gpt)
{
	const struct gpt_activations *a = gpt->activations;
	struct norm_grads norm = {NULL, gpt_grad(gpt, gpt->norm_w), gpt_grad(gpt, gpt->norm_b)};
	const float *norm_grad = a->norm_grad ? a->norm_grad : a->narrow_grad;

	layernorm_backward(norm, norm_grad, a->out, a->stats, gpt_data(gpt, gpt->norm_w), a->own,
			   gpt->shape.channels);
	vocabulary_scores_backward(vocabulary_of(gpt), NULL, gpt_grad(gpt, gpt->token_w), a->logits,
				   a->norm, gpt_data(gpt, gpt->token_w), a->n);
}

static void head_backward(struct gpt *gpt)
{
	const struct gpt_activations *a = gpt->activations;
	size_t count = (size_t)a->own * (size_t)gpt->shape.channels;

	vocabulary_scores_backward(vocabulary_of(gpt), a->narrow_grad, NULL, a->logits, a->norm,
				   gpt_data(gpt, gpt->token_w), a->n);
	if (a->norm_grad)
		memcpy(a->norm_grad, a->narrow_grad, count * sizeof(float));
	else
		head_weights(gpt);
	clear(a->stream_grad, count);
	layernorm_backward((struct norm_grads){.in = a->stream_grad}, a->narrow_grad, a->out,
			   a->stats, gpt_data(gpt, gpt->norm_w), a->own, gpt->shape.channels);
}

int gpt_length(const struct gpt *gpt)
{
	return gpt->context.length;
}

int gpt_position(const struct gpt *gpt, int token)
{
	return context_position(&gpt->context, gpt->context.rank, token);
}

size_t gpt_stream_count(const struct gpt *gpt, int sequences)
{
	return (size_t)sequences * (size_t)gpt->context.length / (size_t)gpt->split.size *
	       (size_t)gpt->shape.channels;
}

static size_t stream_bytes(const struct gpt *gpt)
{
	return gpt_stream_count(gpt, gpt->activations->sequences) * sizeof(float);
}

static int first_layer(const struct gpt *gpt, int stage)
{
	return gpt->shape.layers * stage / gpt->stages;
}

/* The stages' streams lie in host memory. */
static void begin_stream(struct gpt *gpt, int stage, const unsigned char *tokens, const float *in)
{
	if (stage > 0) {
		memcpy(block_stream_after(gpt, first_layer(gpt, stage) - 1), in, stream_bytes(gpt));
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
	gpt->activations->n = sequences * gpt->context.length;
	gpt->activations->own = gpt->activations->n / gpt->split.size;
	begin_stream(gpt, stage, tokens, in);
	for (int l = first_layer(gpt, stage); l < last; l++) {
		must(tutti_forward_begin(gpt->trainer, gpt->blocks[l].unit));
		block_forward(gpt, l);
		must(tutti_forward_end(gpt->trainer, gpt->blocks[l].unit));
	}
	if (stage + 1 < gpt->stages) {
		memcpy(out, block_stream_after(gpt, last - 1), stream_bytes(gpt));
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
	const struct gpt_activations *a = gpt->activations;

	return place_view(a->logits, (size_t)a->n * (size_t)gpt->split.vocab * sizeof *a->logits);
}

void gpt_loss(struct gpt *gpt, const unsigned char *targets, int with_gradient)
{
	const struct gpt_activations *a = gpt->activations;
	const float scale = tutti_grad_scale(gpt->trainer);

	place_upload(a->targets, targets, (size_t)a->n);
	vocabulary_loss(vocabulary_of(gpt), a->loss, a->logits, a->targets, a->narrow_grad, a->n,
			with_gradient ? &scale : NULL);
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
	if (gpt->config.weights_later) {
		memcpy(gpt->activations->embed_grad, gpt->activations->stream_grad,
		       stream_bytes(gpt));
		return;
	}
	must(tutti_backward_begin(gpt->trainer, gpt->embed_unit));
	embedding_backward(gpt, gpt->activations->stream_grad);
	must(tutti_backward_end(gpt->trainer, gpt->embed_unit));
}

void gpt_stage_weights(struct gpt *gpt, int stage)
{
	if (stage + 1 == gpt->stages) {
		must(tutti_backward_begin(gpt->trainer, gpt->head_unit));
		head_weights(gpt);
		must(tutti_backward_end(gpt->trainer, gpt->head_unit));
	}
	for (int l = first_layer(gpt, stage + 1) - 1; l >= first_layer(gpt, stage); l--) {
		must(tutti_backward_begin(gpt->trainer, gpt->blocks[l].unit));
		block_weights(gpt, l);
		must(tutti_backward_end(gpt->trainer, gpt->blocks[l].unit));
	}
	if (stage > 0)
		return;
	must(tutti_backward_begin(gpt->trainer, gpt->embed_unit));
	embedding_backward(gpt, gpt->activations->embed_grad);
	must(tutti_backward_end(gpt->trainer, gpt->embed_unit));
}

void gpt_backward(struct gpt *gpt)
{
	gpt_stage_backward(gpt, 0, NULL, NULL);
}
