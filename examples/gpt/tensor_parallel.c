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

/* Rows of a rank. */
static int product_rows(const struct product *p)
{
	return p->n / p->split->axis.size;
}

/* A rank's rows of an array; block: those of the one that travels. */
static float *product_at(const struct product *p, const float *array, int width, int rank,
			 float *block)
{
	if (!array || array == p->own)
		return array ? block : NULL;
	return (float *)(uintptr_t)array + rank * product_rows(p) * width;
}

/* With transposed weights a product is as the gradient of one with the weight as it lies, and the
 * other way around. At the end of a branch the bias is added once to each row. */
static tutti_status product_compute(void *arg, int rank, void *block, size_t count)
{
	const struct product *p = arg;
	bool has_bias = !p->ends_branch || rank == p->split->axis.rank;
	const float *in = product_at(p, p->in, p->ins, rank, block);
	const float *out_grad = product_at(p, p->out_grad, p->outs, rank, block);
	float *out = product_at(p, p->out, p->outs, rank, block);
	struct linear_grads grads = p->grads, outs = {.in = out, .scratch = grads.scratch};
	int n = product_rows(p), ins = p->ins, width = p->outs;

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
	const struct split *split = p.split;
	bool is_scatter = own == p.out || own == p.grads.in;
	int count = product_rows(&p) * (own == p.in || own == p.grads.in ? p.ins : p.outs);

	p.own = own;
	if (is_scatter)
		split_scatter(split, (float *)(uintptr_t)own, count, product_compute, &p);
	else
		split_gather(split, own, count, product_compute, &p);
}

void product_forward(struct product p)
{
	product_run(p, p.ends_branch ? p.out : p.in);
}

void product_backward(struct product p)
{
	struct product in = p, weight = p;

	in.grads.weight = in.grads.bias = NULL;
	weight.grads.in = NULL;
	if (p.ends_branch)
		product_run(p, p.out_grad);
	if (!p.ends_branch && p.grads.in)
		product_run(in, p.grads.in);
	if (!p.ends_branch && p.grads.weight)
		product_run(weight, p.in);
}

static tutti_status embedding_compute(void *arg, int rank, void *block, size_t count)
{
	const struct embedding *e = arg;
	bool is_own = rank == e->split->axis.rank;
	struct embedding_shape shape = e->shape;

	(void)count;
	shape.n /= e->split->axis.size;
	shape.first_row = rank * shape.n;
	if (e->token_grad)
		embed_backward(e->token_grad, is_own ? e->position_grad : NULL, block,
			       e->tokens + shape.first_row, shape);
	else
		embed_forward(block, e->tokens + shape.first_row, e->token_w,
			      is_own ? e->position_w : NULL, shape);
	return TUTTI_OK;
}

void embedding_run(struct embedding e, float *out)
{
	int count = e.shape.n / e.split->axis.size * e.shape.channels;

	if (e.token_grad)
		split_gather(e.split, out, count, embedding_compute, &e);
	else
		split_scatter(e.split, out, count, embedding_compute, &e);
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
