/* Products that begin and end a branch, block by block of rows: forward and backward side by side.
 */
#include "tensor_parallel.h"

#include "gpt.h"

/* One call. What is all ranks' has a block of rows for each; blocks come, or go, one by one. */
struct rows {
	const struct split *split;
	const struct product *product;
	struct linear_grads grads;
	float *out; /* these three: of all ranks' rows */
	const float *in, *out_grad;
	int count; /* rows of a rank */
};

void split_gather_rows(const struct split *split, const float *own, int count, tutti_block_fn fn,
		       void *arg)
{
	if (split->size == 1)
		must(fn(arg, 0, (void *)(uintptr_t)own, (size_t)count));
	else
		must(tutti_all_gather_each(own, (size_t)count, TUTTI_F32, fn, arg, split->comm,
					   NULL));
}

void split_scatter_rows(const struct split *split, float *own, int count, tutti_block_fn fn,
			void *arg)
{
	if (split->size == 1)
		must(fn(arg, 0, own, (size_t)count));
	else
		must(tutti_reduce_scatter_each(own, (size_t)count, TUTTI_F32, TUTTI_SUM, fn, arg,
					       split->comm, NULL));
}

static struct rows tensor_parallel_rows_of(const struct split *split, const struct product *product,
					   int n)
{
	return (struct rows){.split = split, .product = product, .count = n / split->size};
}

static void tensor_parallel_gather(struct rows *rows, const float *own, int width,
				   tutti_block_fn fn)
{
	split_gather_rows(rows->split, own, rows->count * width, fn, rows);
}

static void tensor_parallel_scatter(struct rows *rows, float *own, int width, tutti_block_fn fn)
{
	split_scatter_rows(rows->split, own, rows->count * width, fn, rows);
}

/* Where the rows of a rank begin in an array of all of them. */
static size_t block_at(const struct rows *rows, int rank, int width)
{
	return (size_t)rank * (size_t)rows->count * (size_t)width;
}

static tutti_status multiply_gathered(void *arg, int rank, void *block, size_t count)
{
	const struct rows *rows = arg;
	const struct product *p = rows->product;

	(void)count;
	linear_forward(rows->out + block_at(rows, rank, p->outs), block, p->weight, p->bias,
		       rows->count, p->ins, p->outs);
	return TUTTI_OK;
}

void split_gather_forward(const struct split *split, float *out, const float *in,
			  const struct product *product, int n)
{
	struct rows rows = tensor_parallel_rows_of(split, product, n);

	rows.out = out;
	tensor_parallel_gather(&rows, in, product->ins, multiply_gathered);
}

/* block: of the gradient of in */
static tutti_status tensor_parallel_fill_in_grad(void *arg, int rank, void *block, size_t count)
{
	const struct rows *rows = arg;
	const struct product *p = rows->product;
	struct linear_grads grads = {.in = block, .scratch = rows->grads.scratch};

	(void)count;
	linear_backward(&grads, rows->out_grad + block_at(rows, rank, p->outs), NULL, p->weight,
			rows->count, p->ins, p->outs);
	return TUTTI_OK;
}

/* block: of in */
static tutti_status add_weight_grad(void *arg, int rank, void *block, size_t count)
{
	const struct rows *rows = arg;
	const struct product *p = rows->product;
	struct linear_grads grads = {.weight = rows->grads.weight, .bias = rows->grads.bias};

	(void)count;
	linear_backward(&grads, rows->out_grad + block_at(rows, rank, p->outs), block, p->weight,
			rows->count, p->ins, p->outs);
	return TUTTI_OK;
}

void split_gather_backward(const struct split *split, const struct linear_grads *grads,
			   const float *out_grad, const float *in, const struct product *product,
			   int n)
{
	struct rows rows = tensor_parallel_rows_of(split, product, n);

	rows.grads = *grads;
	rows.out_grad = out_grad;
	if (grads->in)
		tensor_parallel_scatter(&rows, grads->in, product->ins,
					tensor_parallel_fill_in_grad);
	if (grads->weight)
		tensor_parallel_gather(&rows, in, product->ins, add_weight_grad);
}

/* block: of out. The bias is added once to each row. */
static tutti_status fill_out(void *arg, int rank, void *block, size_t count)
{
	const struct rows *rows = arg;
	const struct product *p = rows->product;

	(void)count;
	linear_forward(block, rows->in + block_at(rows, rank, p->ins), p->weight,
		       rank == rows->split->rank ? p->bias : NULL, rows->count, p->ins, p->outs);
	return TUTTI_OK;
}

void split_scatter_forward(const struct split *split, float *out, const float *in,
			   const struct product *product, int n)
{
	struct rows rows = tensor_parallel_rows_of(split, product, n);

	rows.in = in;
	tensor_parallel_scatter(&rows, out, product->outs, fill_out);
}

/* block: of the gradient of out */
static tutti_status go_back(void *arg, int rank, void *block, size_t count)
{
	const struct rows *rows = arg;
	const struct product *p = rows->product;
	struct linear_grads grads = rows->grads;
	size_t at = block_at(rows, rank, p->ins);

	(void)count;
	grads.in = grads.in ? grads.in + at : NULL;
	grads.bias = rank == rows->split->rank ? grads.bias : NULL;
	linear_backward(&grads, block, rows->in + at, p->weight, rows->count, p->ins, p->outs);
	return TUTTI_OK;
}

void split_scatter_backward(const struct split *split, const struct linear_grads *grads,
			    const float *out_grad, const float *in, const struct product *product,
			    int n)
{
	struct rows rows = tensor_parallel_rows_of(split, product, n);

	rows.grads = *grads;
	rows.in = in;
	tensor_parallel_gather(&rows, out_grad, product->outs, go_back);
}
