/* Layers whose rows come or go rank by rank: forward and backward side by side. */
#include "gpt.h"

/* Calls fn with the count elements of each rank, this one's first. */
static void split_gather(const struct split *split, const float *own, int count, tutti_block_fn fn,
			 void *arg)
{
	if (split->axis.size == 1)
		must(fn(arg, 0, (void *)(uintptr_t)own, (size_t)count));
	else
		must(tutti_all_gather_each(own, (size_t)count, TUTTI_F32, fn, arg, split->axis.comm,
					   NULL));
}

/* own (count) = the sum over ranks of what fn writes for this one. */
static void split_scatter(const struct split *split, float *own, int count, tutti_block_fn fn,
			  void *arg)
{
	if (split->axis.size == 1)
		must(fn(arg, 0, own, (size_t)count));
	else
		must(tutti_reduce_scatter_each(own, (size_t)count, TUTTI_F32, TUTTI_SUM, fn, arg,
					       split->axis.comm, NULL));
}

/* A product of all rows, one rank's after the other: forward if there is out. Arrays are of all
 * ranks' rows, but own, which is one of them, and of which only this rank's are here. */
struct split_product {
	const struct split *split;
	const struct product *product;
	const float *own;
	float *out, *scratch;
	const float *in, *out_grad;
	struct linear_grads grads;
	int count; /* rows of a rank */
};

/* A rank's rows of an array; block: those of own. */
static float *split_rows(const struct split_product *s, const float *array, int width, int rank,
			 float *block)
{
	if (!array || array == s->own)
		return array ? block : NULL;
	return (float *)(uintptr_t)array + (size_t)rank * (size_t)s->count * (size_t)width;
}

/* As the gradient of a product with the weight as it lies, and the other way around. */
static void split_multiply_transposed(const struct split_product *s, float *out, const float *in,
				      const float *out_grad, const struct linear_grads *grads)
{
	const struct product *p = s->product;

	if (out)
		linear_backward(&(struct linear_grads){.in = out, .scratch = s->scratch}, in, NULL,
				p->weight, s->count, p->outs, p->ins);
	if (grads->in)
		linear_forward(grads->in, out_grad, p->weight, NULL, s->count, p->outs, p->ins);
	if (grads->weight)
		linear_backward(&(struct linear_grads){.weight = grads->weight}, in, out_grad, NULL,
				s->count, p->outs, p->ins);
}

/* At the end of a branch the bias is added once to each row. */
static tutti_status split_multiply(void *arg, int rank, void *block, size_t count)
{
	const struct split_product *s = arg;
	const struct product *p = s->product;
	bool has_bias = !p->ends_branch || rank == s->split->axis.rank;
	const float *in = split_rows(s, s->in, p->ins, rank, block);
	const float *out_grad = split_rows(s, s->out_grad, p->outs, rank, block);
	float *out = split_rows(s, s->out, p->outs, rank, block);
	struct linear_grads grads = {split_rows(s, s->grads.in, p->ins, rank, block),
				     s->grads.weight, has_bias ? s->grads.bias : NULL, s->scratch};

	(void)count;
	if (p->is_transposed)
		split_multiply_transposed(s, out, in, out_grad, &grads);
	else if (out)
		linear_forward(out, in, p->weight, has_bias ? p->bias : NULL, s->count, p->ins,
			       p->outs);
	else
		linear_backward(&grads, out_grad, in, p->weight, s->count, p->ins, p->outs);
	return TUTTI_OK;
}

void split_forward(const struct split *split, const struct product *p, float *out, const float *in,
		   float *scratch, int n)
{
	struct split_product s = {split, p,         p->ends_branch ? out : in, out, scratch, in,
				  NULL,  {.in = 0}, n / split->axis.size};

	if (p->ends_branch)
		split_scatter(split, out, s.count * p->outs, split_multiply, &s);
	else
		split_gather(split, in, s.count * p->ins, split_multiply, &s);
}

void split_backward(const struct split *split, const struct product *p,
		    const struct linear_grads *grads, const float *out_grad, const float *in, int n)
{
	struct split_product s = {split,
				  p,
				  out_grad,
				  NULL,
				  grads->scratch,
				  in,
				  out_grad,
				  *grads,
				  n / split->axis.size};

	if (p->ends_branch) {
		split_gather(split, out_grad, s.count * p->outs, split_multiply, &s);
		return;
	}
	if (grads->in) {
		s.own = grads->in;
		s.grads.weight = s.grads.bias = NULL;
		split_scatter(split, grads->in, s.count * p->ins, split_multiply, &s);
	}
	if (grads->weight) {
		s.own = in;
		s.grads = *grads;
		s.grads.in = NULL;
		split_gather(split, in, s.count * p->ins, split_multiply, &s);
	}
}

/* Of a token all ranks know the row where it goes, one knows its embedding, and that of the row its
 * position. Backward if there is token_grad. */
struct split_embedding {
	int rank;
	const unsigned char *tokens;
	const float *token_w, *position_w;
	float *token_grad, *position_grad;
	struct embedding_shape shape; /* of a rank's rows */
};

static tutti_status split_embed(void *arg, int rank, void *block, size_t count)
{
	const struct split_embedding *e = arg;
	struct embedding_shape shape = e->shape;

	(void)count;
	shape.first_row = rank * shape.n;
	if (e->token_grad)
		embed_backward(e->token_grad, rank == e->rank ? e->position_grad : NULL, block,
			       e->tokens + shape.first_row, shape);
	else
		embed_forward(block, e->tokens + shape.first_row, e->token_w,
			      rank == e->rank ? e->position_w : NULL, shape);
	return TUTTI_OK;
}

void split_embed_forward(const struct split *split, float *out, const unsigned char *tokens,
			 const float *token_w, const float *position_w, struct embedding_shape s)
{
	s.n /= split->axis.size;
	split_scatter(split, out, s.n * s.channels, split_embed,
		      &(struct split_embedding){split->axis.rank, tokens, token_w, position_w, NULL,
						NULL, s});
}

void split_embed_backward(const struct split *split, float *token_grad, float *position_grad,
			  const float *out_grad, const unsigned char *tokens,
			  struct embedding_shape s)
{
	s.n /= split->axis.size;
	split_gather(split, out_grad, s.n * s.channels, split_embed,
		     &(struct split_embedding){split->axis.rank, tokens, NULL, NULL, token_grad,
					       position_grad, s});
}

static void split_reduce(const void *arg, float *x, int n, tutti_op op)
{
	const struct split *split = arg;

	must(tutti_all_reduce(x, x, (size_t)n, TUTTI_F32, op, split->axis.comm, NULL));
}

void split_loss(const struct split *split, double *sum, float *scores, const unsigned char *targets,
		float *scratch, int n, const float *grad_scale)
{
	struct loss_shape shape = {n, split->vocab, split->first,
				   split->axis.size > 1 ? split_reduce : NULL, split};

	softmax_loss(sum, scores, targets, scratch, shape, grad_scale);
}
