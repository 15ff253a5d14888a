/* Sums over the ranks of "tp", and the layers that look at the vocabulary. */
#include "tensor_parallel.h"

#include "gpt.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static void reduce(const struct split *split, float *x, int count, tutti_op op)
{
	if (split->size > 1)
		must(tutti_all_reduce(x, x, (size_t)count, TUTTI_F32, op, split->comm, NULL));
}

void split_sum(const struct split *split, float *x, int count)
{
	reduce(split, x, count, TUTTI_SUM);
}

/* The row of the token on this rank; -1: it is another rank's. */
static int row_of(const struct split *split, int token)
{
	int row = token - split->first;

	return row >= 0 && row < split->vocab ? row : -1;
}

void split_embed_forward(const struct split *split, float *out, const unsigned char *tokens,
			 const float *token_w, const float *position_w, struct embedding_shape s)
{
	int c = s.channels;

	for (int r = 0; r < s.n; r++) {
		int row = row_of(split, tokens[r]);
		const float *position = position_w + r % s.length * c;
		for (int j = 0; j < c; j++)
			out[r * c + j] = (row >= 0 ? token_w[row * c + j] : 0) +
					 (split->rank == 0 ? position[j] : 0);
	}
}

void split_embed_backward(const struct split *split, float *token_grad, float *position_grad,
			  const float *out_grad, const unsigned char *tokens,
			  struct embedding_shape s)
{
	int c = s.channels;

	for (int r = 0; r < s.n; r++) {
		int row = row_of(split, tokens[r]);
		for (int j = 0; j < c; j++) {
			position_grad[r % s.length * c + j] += out_grad[r * c + j];
			if (row >= 0)
				token_grad[row * c + j] += out_grad[r * c + j];
		}
	}
}

/* The largest logit of each row, over all ranks. */
static void find_most(const struct split *split, float *most, const float *logits, int n)
{
	for (int r = 0; r < n; r++) {
		const float *x = logits + r * split->vocab;
		most[r] = x[0];
		for (int v = 1; v < split->vocab; v++)
			most[r] = x[v] > most[r] ? x[v] : most[r];
	}
	reduce(split, most, n, TUTTI_MAX);
}

/* Of the cross entropy, log(all) - (right - most), the rank of a target has the second part, and
 * the first rank the first. */
void split_softmax_loss(const struct split *split, double *sum, float *logits,
			const unsigned char *targets, float *scratch, int n,
			const float *grad_scale)
{
	const float scale = grad_scale ? *grad_scale : 1;
	float *most = scratch, *all = malloc((size_t)n * sizeof *all);
	double loss = 0;

	if (!all)
		must(tutti_set_error(TUTTI_ERR_MEMORY, "There is no memory for the loss."));
	find_most(split, most, logits, n);
	for (int r = 0; r < n; r++) {
		float *x = logits + r * split->vocab;
		int right = row_of(split, targets[r]);
		all[r] = 0;
		loss -= right >= 0 ? (double)(x[right] - most[r]) : 0;
		for (int v = 0; v < split->vocab; v++)
			all[r] += expf(x[v] - most[r]);
	}
	reduce(split, all, n, TUTTI_SUM);
	for (int r = 0; r < n; r++) {
		float *x = logits + r * split->vocab;
		int right = row_of(split, targets[r]);
		loss += split->rank == 0 ? (double)logf(all[r]) : 0;
		for (int v = 0; grad_scale && v < split->vocab; v++)
			x[v] = (expf(x[v] - most[r]) / all[r] - (v == right)) * scale;
	}
	*sum += loss;
	free(all);
}

void split_gather_logits(const struct split *split, float *all, const float *logits, int n,
			 int vocab)
{
	size_t *counts = calloc((size_t)split->size, sizeof *counts);
	float *blocks = malloc((size_t)n * (size_t)vocab * sizeof *blocks), *block = blocks;
	int64_t first = 0;

	if (!counts || !blocks)
		must(tutti_set_error(TUTTI_ERR_MEMORY, "There is no memory for the logits."));
	counts[split->rank] = (size_t)n * (size_t)split->vocab;
	must(tutti_all_gather(&counts[split->rank], counts, 1, TUTTI_U64, split->comm, NULL));
	must(tutti_all_gatherv(logits, blocks, counts, NULL, TUTTI_F32, split->comm, NULL));
	for (int rank = 0; rank < split->size; rank++) {
		int64_t own = (int64_t)counts[rank] / n;
		for (int r = 0; r < n; r++)
			memcpy(all + r * vocab + first, block + r * own, (size_t)own * sizeof *all);
		block += counts[rank];
		first += own;
	}
	free(blocks);
	free(counts);
}
