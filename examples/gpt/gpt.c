/* The GPT, unit by unit, forward and backward side by side. The arithmetic is in layers.c, or for a
 * GPU in examples/gpt_cuda/layers.c. A block has two branches:
 *
 * middle = in + proj(attention(qkv(norm1(in)))); out = middle + down(gelu(up(norm2(middle))))
 *
 * Each unit's part is between its begin and its end, in forward and in backward. That is all the
 * trainer needs: the end of a unit's backward starts its gradients on their way to the other ranks.
 */
#include "gpt.h"

#include "place.h"

#include <string.h>

/* A unit at work. */
struct unit {
	struct gpt *gpt;
	const int *ids; /* of its parameters                                       */
	struct gpt_activations *a;
	struct unit_activations *b;
	int n, own, c; /* rows in a branch, of the stream; channels of the stream */
	int part;      /* this rank's channels inside of attention                */
	int what;      /* gradients to make                                       */
};

static struct unit gpt_unit(struct gpt *gpt, int unit, int what)
{
	struct gpt_activations *a = gpt->activations;
	int c = gpt->shape.channels;

	return (struct unit){gpt, gpt->units[unit],         a,   &a->units[unit], a->n, a->own,
			     c,   c / gpt->split.axis.size, what};
}

static float *unit_data(const struct unit *u, int param)
{
	return gpt_data(u->gpt, u->ids[param]);
}

/* The gradients that are wanted now of what products and norms read, and of parameters. */
static float *unit_in_grad(const struct unit *u, float *in)
{
	return u->what & GPT_INPUTS ? in : NULL;
}

static float *unit_grad(const struct unit *u, int param)
{
	return u->what & GPT_WEIGHTS ? gpt_grad(u->gpt, u->ids[param]) : NULL;
}

static void unit_norm(const struct unit *u, int weight, float *out, struct norm_stats stats,
		      const float *in)
{
	layernorm_forward(out, stats, in, unit_data(u, weight), unit_data(u, weight + 1), u->own,
			  u->c);
}

/* Adds to the stream's gradient. */
static void unit_norm_back(const struct unit *u, int weight, const float *out_grad,
			   struct norm_stats stats, const float *in)
{
	struct norm_grads grads = {unit_in_grad(u, u->a->shared.stream_grad), unit_grad(u, weight),
				   unit_grad(u, weight + 1)};

	layernorm_backward(grads, out_grad, in, stats, unit_data(u, weight), u->own, u->c);
}

/* ---- rows that come or go rank by rank ---- */

/* Calls fn with the count elements of each rank, this one's first. */
static void split_gather(const struct axis *tp, const float *own, int count, tutti_block_fn fn,
			 void *arg)
{
	if (tp->size == 1)
		must(fn(arg, 0, (void *)(uintptr_t)own, (size_t)count));
	else
		must(tutti_all_gather_each(own, (size_t)count, TUTTI_F32, fn, arg, tp->comm, NULL));
}

/* own (count) = the sum over ranks of what fn writes for this one. */
static void split_scatter(const struct axis *tp, float *own, int count, tutti_block_fn fn,
			  void *arg)
{
	if (tp->size == 1)
		must(fn(arg, 0, own, (size_t)count));
	else
		must(tutti_reduce_scatter_each(own, (size_t)count, TUTTI_F32, TUTTI_SUM, fn, arg,
					       tp->comm, NULL));
}

/* out = in * weight + bias. One that begins a branch has in (rows, ins) of each rank, and out (n,
 * outs) of all rows. One that ends it has in (n, ins), and out (rows, outs): this rank's rows of
 * the sum over ranks. */
struct product {
	const struct axis *tp;
	int rows, ins, outs;        /* rows: of each rank                                    */
	const float *weight, *bias; /* (ins, outs), (outs): this rank's; bias may be NULL    */
	bool ends_branch;
	bool is_transposed;         /* weight (outs, ins), and there is no bias              */
	const float *in, *out_grad; /* out_grad: as out, for backward                        */
	float *out;                 /* for forward; else NULL                                */
	/* grads.in as in. At the end of a branch grads.bias is a part of the gradient: of this
	 * rank's rows. */
	struct linear_grads grads;
	const float *own; /* that of these arrays whose rows travel                */
};

/* A rank's rows of an array; block: those of the one that travels. */
static float *product_at(const struct product *p, const float *array, int width, int rank,
			 float *block)
{
	if (!array || array == p->own)
		return array ? block : NULL;
	return (float *)(uintptr_t)array + rank * p->rows * width;
}

/* With transposed weights a product is as the gradient of one with the weight as it lies, and the
 * other way around. At the end of a branch the bias is added once to each row. */
static tutti_status product_compute(void *arg, int rank, void *block, size_t count)
{
	const struct product *p = arg;
	bool has_bias = !p->ends_branch || rank == p->tp->rank;
	const float *in = product_at(p, p->in, p->ins, rank, block);
	const float *out_grad = product_at(p, p->out_grad, p->outs, rank, block);
	float *out = product_at(p, p->out, p->outs, rank, block);
	struct linear_grads grads = p->grads, outs = {.in = out, .scratch = grads.scratch};
	int n = p->rows, ins = p->ins, width = p->outs;

	(void)count;
	grads.in = product_at(p, grads.in, ins, rank, block);
	grads.bias = has_bias ? grads.bias : NULL;
	if (!p->is_transposed && out)
		linear_forward(out, in, p->weight, has_bias ? p->bias : NULL, n, ins, width);
	else if (!p->is_transposed)
		linear_backward(&grads, out_grad, in, p->weight, n, ins, width);
	else if (out)
		linear_backward(&outs, in, NULL, p->weight, n, width, ins);
	else if (grads.in)
		linear_forward(grads.in, out_grad, p->weight, NULL, n, width, ins);
	else
		linear_backward(&grads, in, out_grad, NULL, n, width, ins);
	return TUTTI_OK;
}

static void product_run(struct product p, const float *own)
{
	int count = p.rows * (own == p.in || own == p.grads.in ? p.ins : p.outs);

	p.own = own;
	if (own == p.out || own == p.grads.in)
		split_scatter(p.tp, (float *)(uintptr_t)own, count, product_compute, &p);
	else
		split_gather(p.tp, own, count, product_compute, &p);
}

static struct product unit_product(const struct unit *u, int weight, int ins, int outs)
{
	bool has_bias = weight != TOKEN_W;

	return (struct product){.tp = &u->gpt->split.axis,
				.rows = u->own,
				.ins = ins,
				.outs = outs,
				.weight = unit_data(u, weight),
				.bias = has_bias ? unit_data(u, weight + 1) : NULL,
				.ends_branch = weight == PROJ_W || weight == DOWN_W,
				.is_transposed = !has_bias,
				.grads = {.scratch = u->a->shared.scratch}};
}

static void unit_multiply(const struct unit *u, int weight, float *out, const float *in, int ins,
			  int outs)
{
	struct product p = unit_product(u, weight, ins, outs);

	p.in = in;
	p.out = out;
	product_run(p, p.ends_branch ? out : in);
}

static void unit_multiply_back(const struct unit *u, int weight, float *in_grad,
			       const float *out_grad, const float *in, int ins, int outs)
{
	struct product p = unit_product(u, weight, ins, outs), of_weight;

	p.in = in;
	p.out_grad = out_grad;
	of_weight = p;
	of_weight.grads.weight = unit_grad(u, weight);
	of_weight.grads.bias = p.bias ? unit_grad(u, weight + 1) : NULL;
	p.grads.in = unit_in_grad(u, in_grad);
	if (p.ends_branch) { /* both of the rows of a rank as they come */
		of_weight.grads.in = p.grads.in;
		product_run(of_weight, out_grad);
		return;
	}
	if (p.grads.in)
		product_run(p, p.grads.in);
	if (of_weight.grads.weight)
		product_run(of_weight, in);
}

/* ---- the embedding and the head ---- */

/* Of a token all ranks know the row where it goes, one knows its embedding, and that of the row its
 * position. */
struct embedding {
	const struct unit *u;
	float *token, *position; /* values, or for backward gradients; those of position are of this
				  * rank's rows */
};

static tutti_status embedding_compute(void *arg, int rank, void *block, size_t count)
{
	const struct embedding *e = arg;
	const struct unit *u = e->u;
	const struct gpt *gpt = u->gpt;
	float *position = rank == gpt->split.axis.rank ? e->position : NULL;
	const unsigned char *tokens = u->a->tokens + rank * u->own;
	const struct embedding_shape shape = {.n = u->own,
					      .length = gpt->context.length,
					      .channels = u->c,
					      .vocab = gpt->split.vocab,
					      .part = gpt->context.axis.rank,
					      .parts = gpt->context.axis.size,
					      .first_row = rank * u->own,
					      .first_token = gpt->split.first};

	(void)count;
	if (u->what)
		embed_backward(e->token, position, block, tokens, shape);
	else
		embed_forward(block, tokens, e->token, position, shape);
	return TUTTI_OK;
}

static void embedding_forward(const struct unit *u, float *out)
{
	struct embedding e = {u, unit_data(u, TOKEN_W), unit_data(u, POSITION_W)};

	split_scatter(&u->gpt->split.axis, out, u->own * u->c, embedding_compute, &e);
}

static void embedding_backward(const struct unit *u, const float *out_grad)
{
	struct embedding e = {u, unit_grad(u, TOKEN_W), unit_grad(u, POSITION_W)};

	split_gather(&u->gpt->split.axis, out_grad, u->own * u->c, embedding_compute, &e);
}

static void head_forward(const struct unit *u)
{
	unit_norm(u, NORM1_W, u->b->norm1, u->b->stats1, u->b->in);
	unit_multiply(u, TOKEN_W, u->b->logits, u->b->norm1, u->c, u->gpt->split.vocab);
}

/* Logits are their own gradient by now. */
static void head_backward(const struct unit *u)
{
	unit_multiply_back(u, TOKEN_W, u->b->norm1_grad, u->b->logits, u->b->norm1, u->c,
			   u->gpt->split.vocab);
	if (u->what & GPT_INPUTS)
		clear(u->a->shared.stream_grad, (size_t)u->own * (size_t)u->c);
	unit_norm_back(u, NORM1_W, u->b->norm1_grad, u->b->stats1, u->b->in);
}

/* ---- a block ---- */

static struct attention attention_of(const struct unit *u)
{
	const struct gpt *gpt = u->gpt;

	return (struct attention){.context = &gpt->context,
				  .s = {u->a->sequences, gpt->context.length, u->part,
					gpt->shape.heads / gpt->split.axis.size},
				  .out = u->b->mixed,
				  .weights = u->b->weights,
				  .qkv = u->b->qkv,
				  .scratch = u->a->shared.scratch};
}

/* In either pass: the experts' gradients are made with those of inputs. */
static struct experts experts_of(const struct unit *u)
{
	struct experts x = u->gpt->experts;

	x.memory = &u->b->experts;
	x.in = u->b->norm2;
	x.scratch = u->a->shared.scratch;
	x.n = u->own;
	for (int i = 0; i < EXPERT_PARAMS; i++) {
		x.values[i] = unit_data(u, GATE_W + i);
		x.grads[i] = u->what ? gpt_grad(u->gpt, u->ids[GATE_W + i]) : NULL;
	}
	return x;
}

/* is_again: of its input once more, for backward, which needs all but the last product. */
static void block_forward(const struct unit *u, bool is_again)
{
	const struct gpt *gpt = u->gpt;
	struct unit_activations *b = u->b;
	struct attention attention = attention_of(u);
	float *branch = u->a->shared.narrow_grad; /* not yet used for gradients */

	unit_norm(u, NORM1_W, b->norm1, b->stats1, b->in);
	unit_multiply(u, QKV_W, b->qkv, b->norm1, u->c, 3 * u->part);
	context_attention_forward(&attention);
	unit_multiply(u, PROJ_W, branch, b->mixed, u->part, u->c);
	add(b->middle, b->in, branch, u->own * u->c);
	unit_norm(u, NORM2_W, b->norm2, b->stats2, b->middle);
	if (gpt->experts.count > 0) {
		struct experts x = experts_of(u);
		experts_forward(&x, branch);
	} else {
		unit_multiply(u, UP_W, b->up, b->norm2, u->c, 4 * u->part);
		gelu_forward(b->gelu, b->up, u->n * 4 * u->part);
		if (!is_again)
			unit_multiply(u, DOWN_W, branch, b->gelu, 4 * u->part, u->c);
	}
	if (!is_again)
		add(b[1].in, b->middle, branch, u->own * u->c);
}

/* The stream's gradient where a branch ends, which stays the same until the branch begins. */
static void block_keep_stream_grad(const struct unit *u, float *place)
{
	const float *grad = u->a->shared.stream_grad;

	if (u->what & GPT_INPUTS && place != grad)
		memcpy(place, grad, (size_t)u->own * (size_t)u->c * sizeof *grad);
}

/* stream_grad is the gradient of the block's output, and becomes that of its input. */
static void block_backward(const struct unit *u)
{
	const struct gpt *gpt = u->gpt;
	const struct unit_activations *b = u->b;
	const struct gpt_scratch *s = &u->a->shared;
	struct attention attention = attention_of(u);
	bool has_inputs = u->what & GPT_INPUTS;

	if (gpt->config.recompute)
		block_forward(u, true);
	if (gpt->experts.count == 0) {
		block_keep_stream_grad(u, b->down_grad);
		unit_multiply_back(u, DOWN_W, b->up_grad, b->down_grad, b->gelu, 4 * u->part, u->c);
		if (has_inputs)
			gelu_backward(b->up_grad, b->up, u->n * 4 * u->part);
		unit_multiply_back(u, UP_W, b->norm2_grad, b->up_grad, b->norm2, u->c, 4 * u->part);
	} else if (has_inputs) {
		struct experts x = experts_of(u);
		experts_backward(&x, b->norm2_grad, s->stream_grad, tutti_grad_scale(gpt->trainer));
	}
	unit_norm_back(u, NORM2_W, b->norm2_grad, b->stats2, b->middle);
	block_keep_stream_grad(u, b->proj_grad);
	unit_multiply_back(u, PROJ_W, s->narrow_grad, b->proj_grad, b->mixed, u->part, u->c);
	if (has_inputs)
		context_attention_backward(&attention, b->qkv_grad, s->narrow_grad);
	unit_multiply_back(u, QKV_W, b->norm1_grad, b->qkv_grad, b->norm1, u->c, 3 * u->part);
	unit_norm_back(u, NORM1_W, b->norm1_grad, b->stats1, b->in);
}

/* ---- stages ---- */

int gpt_position(const struct gpt *gpt, int token)
{
	return part_position(gpt->context.axis.rank, gpt->context.axis.size, gpt->context.length,
			     token);
}

size_t gpt_stream_count(const struct gpt *gpt, int sequences)
{
	return (size_t)sequences * (size_t)gpt->context.length / (size_t)gpt->split.axis.size *
	       (size_t)gpt->shape.channels;
}

static size_t gpt_stream_bytes(const struct gpt *gpt)
{
	return gpt_stream_count(gpt, gpt->activations->sequences) * sizeof(float);
}

int gpt_first_unit(const struct gpt *gpt, int stage)
{
	int layers = gpt->shape.layers;

	return stage == 0             ? 0
	       : stage == gpt->stages ? layers + 2
				      : layers * stage / gpt->stages + 1;
}

/* The stages' streams lie in host memory. */
void gpt_stage_forward(struct gpt *gpt, int stage, const unsigned char *tokens, int sequences,
		       const float *in, float *out)
{
	int first = gpt_first_unit(gpt, stage), end = gpt_first_unit(gpt, stage + 1);
	struct gpt_activations *a = gpt->activations;

	a->sequences = sequences;
	a->n = sequences * gpt->context.length;
	a->own = a->n / gpt->split.axis.size;
	if (stage > 0)
		memcpy(a->units[first].in, in, gpt_stream_bytes(gpt));
	else
		place_upload(a->tokens, tokens, (size_t)a->n);
	for (int i = first; i < end; i++) {
		struct unit u = gpt_unit(gpt, i, 0);
		must(tutti_forward_begin(gpt->trainer, i));
		if (i == 0)
			embedding_forward(&u, a->units[1].in);
		else if (i <= gpt->shape.layers)
			block_forward(&u, false);
		else
			head_forward(&u);
		must(tutti_forward_end(gpt->trainer, i));
	}
	if (stage + 1 < gpt->stages)
		memcpy(out, a->units[end].in, gpt_stream_bytes(gpt));
}

void gpt_forward(struct gpt *gpt, const unsigned char *tokens, int sequences)
{
	gpt_stage_forward(gpt, 0, tokens, sequences, NULL, NULL);
}

const float *gpt_logits(const struct gpt *gpt)
{
	const struct gpt_activations *a = gpt->activations;
	size_t count = (size_t)a->n * (size_t)gpt->split.vocab;

	return place_view(a->units[gpt->shape.layers + 1].logits, count * sizeof(float));
}

static void gpt_reduce(const void *arg, float *x, int n, tutti_op op)
{
	const struct gpt *gpt = arg;

	must(tutti_all_reduce(x, x, (size_t)n, TUTTI_F32, op, gpt->split.axis.comm, NULL));
}

/* Of all ranks' scores: one MAX and one SUM of a number for each row. */
void gpt_loss(struct gpt *gpt, const unsigned char *targets, int with_gradient)
{
	const struct gpt_activations *a = gpt->activations;
	const struct split *split = &gpt->split;
	const float scale = tutti_grad_scale(gpt->trainer);
	const struct loss_shape shape = {a->n, split->vocab, split->first,
					 split->axis.size > 1 ? gpt_reduce : NULL, gpt};

	place_upload(a->targets, targets, (size_t)a->n);
	softmax_loss(a->shared.loss, a->units[gpt->shape.layers + 1].logits, a->targets,
		     a->shared.wide_grad, shape, with_gradient ? &scale : NULL);
}

double gpt_loss_sum(struct gpt *gpt)
{
	static const double zero;
	double *loss = gpt->activations->shared.loss;
	double sum = *(const double *)place_view(loss, sizeof sum);

	place_upload(loss, &zero, sizeof zero);
	if (gpt->split.axis.size > 1)
		must(tutti_all_reduce(&sum, &sum, 1, TUTTI_F64, TUTTI_SUM, gpt->split.axis.comm,
				      NULL));
	return sum;
}

void gpt_stage_backward(struct gpt *gpt, int stage, int what, const float *out_grad, float *in_grad)
{
	int first = gpt_first_unit(gpt, stage), end = gpt_first_unit(gpt, stage + 1);
	const struct gpt_activations *a = gpt->activations;
	bool has_inputs = what & GPT_INPUTS;

	if (has_inputs && stage + 1 < gpt->stages)
		memcpy(a->shared.stream_grad, out_grad, gpt_stream_bytes(gpt));
	for (int i = end - 1; i >= first; i--) {
		struct unit u = gpt_unit(gpt, i, what);
		if (i == 0)
			block_keep_stream_grad(&u, a->embed_grad);
		if (i == 0 && !(what & GPT_WEIGHTS))
			continue;
		must(tutti_backward_begin(gpt->trainer, i));
		if (i == 0)
			embedding_backward(&u, a->embed_grad);
		else if (i <= gpt->shape.layers)
			block_backward(&u);
		else
			head_backward(&u);
		must(tutti_backward_end(gpt->trainer, i));
	}
	if (has_inputs && stage > 0)
		memcpy(in_grad, a->shared.stream_grad, gpt_stream_bytes(gpt));
}

void gpt_backward(struct gpt *gpt)
{
	gpt_stage_backward(gpt, 0, GPT_INPUTS | GPT_WEIGHTS, NULL, NULL);
}
