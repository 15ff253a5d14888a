/* Forward and backward side by side, block by block of rows. */
#include "vocabulary.h"

#include "gpt.h"

#include <math.h>
#include <stdlib.h>

/* One call: of all ranks' rows, but for what comes or goes in blocks. */
struct rows {
	struct vocabulary v;
	int count; /* of a rank */
	const unsigned char *tokens;
	const float *token_w, *position_w, *scores_grad;
	float *scores, *scratch, *token_grad, *position_grad;
};

/* The row of the token on this rank; -1: it is another rank's. */
static int vocabulary_row_of(const struct split *split, int token)
{
	int row = token - split->first;

	return row >= 0 && row < split->vocab ? row : -1;
}

/* Alone with whole sequences: the plain layers, which may be a GPU's. */
static int vocabulary_is_plain(struct vocabulary v)
{
	return v.split->size == 1 && v.context->size == 1;
}

static struct embedding_shape vocabulary_plain(struct vocabulary v, int n)
{
	return (struct embedding_shape){n, v.context->length, v.channels, v.split->vocab};
}

static void vocabulary_gather(struct rows *rows, const float *own, tutti_block_fn fn)
{
	split_gather_rows(rows->v.split, own, rows->count * rows->v.channels, fn, rows);
}

static void vocabulary_scatter(struct rows *rows, float *own, tutti_block_fn fn)
{
	split_scatter_rows(rows->v.split, own, rows->count * rows->v.channels, fn, rows);
}

/* Positions are added once to each row. */
static tutti_status vocabulary_embed(void *arg, int rank, void *block, size_t count)
{
	const struct rows *rows = arg;
	struct vocabulary v = rows->v;
	int c = v.channels, is_own = rank == v.split->rank;

	(void)count;
	for (int i = 0; i < rows->count; i++) {
		int r = rank * rows->count + i, row = vocabulary_row_of(v.split, rows->tokens[r]);
		const float *position =
			rows->position_w + context_position(v.context, v.context->rank, r) * c;
		float *out = (float *)block + i * c;
		for (int j = 0; j < c; j++)
			out[j] = (row >= 0 ? rows->token_w[row * c + j] : 0) +
				 (is_own ? position[j] : 0);
	}
	return TUTTI_OK;
}

void vocabulary_embed_forward(struct vocabulary v, float *out, const unsigned char *tokens,
			      const float *token_w, const float *position_w, int n)
{
	struct rows rows = {.v = v,
			    .count = n / v.split->size,
			    .tokens = tokens,
			    .token_w = token_w,
			    .position_w = position_w};

	if (vocabulary_is_plain(v))
		embed_forward(out, tokens, token_w, position_w, vocabulary_plain(v, n));
	else
		vocabulary_scatter(&rows, out, vocabulary_embed);
}

/* block: of the gradient of out */
static tutti_status embed_back(void *arg, int rank, void *block, size_t count)
{
	const struct rows *rows = arg;
	struct vocabulary v = rows->v;
	int c = v.channels, is_own = rank == v.split->rank;

	(void)count;
	for (int i = 0; i < rows->count; i++) {
		int r = rank * rows->count + i, row = vocabulary_row_of(v.split, rows->tokens[r]);
		float *position =
			rows->position_grad + context_position(v.context, v.context->rank, r) * c;
		const float *grad = (const float *)block + i * c;
		for (int j = 0; is_own && j < c; j++)
			position[j] += grad[j];
		for (int j = 0; row >= 0 && j < c; j++)
			rows->token_grad[row * c + j] += grad[j];
	}
	return TUTTI_OK;
}

void vocabulary_embed_backward(struct vocabulary v, float *token_grad, float *position_grad,
			       const float *out_grad, const unsigned char *tokens, int n)
{
	struct rows rows = {.v = v,
			    .count = n / v.split->size,
			    .tokens = tokens,
			    .token_grad = token_grad,
			    .position_grad = position_grad};

	if (vocabulary_is_plain(v))
		embed_backward(token_grad, position_grad, out_grad, tokens, vocabulary_plain(v, n));
	else
		vocabulary_gather(&rows, out_grad, embed_back);
}

/* Where the scores of a rank's rows begin. */
static size_t scores_at(const struct rows *rows, int rank)
{
	return (size_t)rank * (size_t)rows->count * (size_t)rows->v.split->vocab;
}

/* block: of in, as in add_token_grad */
static tutti_status vocabulary_score(void *arg, int rank, void *block, size_t count)
{
	const struct rows *rows = arg;

	(void)count;
	scores_forward(rows->scores + scores_at(rows, rank), rows->scratch, block, rows->token_w,
		       rows->count, rows->v.channels, rows->v.split->vocab);
	return TUTTI_OK;
}

void vocabulary_scores_forward(struct vocabulary v, float *scores, float *scratch, const float *in,
			       const float *token_w, int n)
{
	struct rows rows = {.v = v,
			    .count = n / v.split->size,
			    .scores = scores,
			    .scratch = scratch,
			    .token_w = token_w};

	vocabulary_gather(&rows, in, vocabulary_score);
}

/* block: of the gradient of in */
static tutti_status vocabulary_fill_in_grad(void *arg, int rank, void *block, size_t count)
{
	const struct rows *rows = arg;

	(void)count;
	scores_backward(block, NULL, rows->scores_grad + scores_at(rows, rank), NULL, rows->token_w,
			rows->count, rows->v.channels, rows->v.split->vocab);
	return TUTTI_OK;
}

static tutti_status add_token_grad(void *arg, int rank, void *block, size_t count)
{
	const struct rows *rows = arg;

	(void)count;
	scores_backward(NULL, rows->token_grad, rows->scores_grad + scores_at(rows, rank), block,
			rows->token_w, rows->count, rows->v.channels, rows->v.split->vocab);
	return TUTTI_OK;
}

void vocabulary_scores_backward(struct vocabulary v, float *in_grad, float *token_grad,
				const float *scores_grad, const float *in, const float *token_w,
				int n)
{
	struct rows rows = {.v = v,
			    .count = n / v.split->size,
			    .scores_grad = scores_grad,
			    .token_w = token_w,
			    .token_grad = token_grad};

	if (in_grad)
		vocabulary_scatter(&rows, in_grad, vocabulary_fill_in_grad);
	if (token_grad)
		vocabulary_gather(&rows, in, add_token_grad);
}

static void vocabulary_reduce(const struct split *split, float *x, int count, tutti_op op)
{
	must(tutti_all_reduce(x, x, (size_t)count, TUTTI_F32, op, split->comm, NULL));
}

/* The largest score of each row, over all ranks. */
static void find_most(const struct split *split, float *most, const float *scores, int n)
{
	for (int r = 0; r < n; r++) {
		const float *x = scores + r * split->vocab;
		most[r] = x[0];
		for (int v = 1; v < split->vocab; v++)
			most[r] = x[v] > most[r] ? x[v] : most[r];
	}
	vocabulary_reduce(split, most, n, TUTTI_MAX);
}

/* all (n): sums of exponentials over all ranks. Returns what this rank has of the other part of the
 * cross entropy, log(all) - (right - most). */
static double vocabulary_add_up(const struct split *split, float *all, const float *most,
				const float *scores, const unsigned char *targets, int n)
{
	double loss = 0;

	for (int r = 0; r < n; r++) {
		const float *x = scores + r * split->vocab;
		int right = vocabulary_row_of(split, targets[r]);
		all[r] = 0;
		loss -= right >= 0 ? (double)(x[right] - most[r]) : 0;
		for (int v = 0; v < split->vocab; v++)
			all[r] += expf(x[v] - most[r]);
	}
	vocabulary_reduce(split, all, n, TUTTI_SUM);
	return loss;
}

void vocabulary_loss(struct vocabulary of, double *sum, float *scores, const unsigned char *targets,
		     float *scratch, int n, const float *grad_scale)
{
	const struct split *split = of.split;
	float *most = scratch, *all;

	if (split->size == 1) {
		softmax_loss(sum, scores, targets, scratch, n, split->vocab, grad_scale);
		return;
	}
	all = malloc((size_t)n * sizeof *all + 1);
	if (!all)
		must(tutti_set_error(TUTTI_ERR_MEMORY, "There is no memory for the loss."));
	find_most(split, most, scores, n);
	*sum += vocabulary_add_up(split, all, most, scores, targets, n);
	for (int r = 0; r < n; r++) {
		float *x = scores + r * split->vocab;
		int right = vocabulary_row_of(split, targets[r]);
		*sum += split->rank == 0 ? (double)logf(all[r]) : 0;
		for (int v = 0; grad_scale && v < split->vocab; v++)
			x[v] = (expf(x[v] - most[r]) / all[r] - (v == right)) * *grad_scale;
	}
	free(all);
}
