/* A small recommender: how much a user likes a thing, from a row of an embedding table for each of
 * the two, and a perceptron on both rows. Plain arrays of floats, which know nothing of ranks.
 *
 *     rating = w2 . tanh(w1 [row of the user, row of the thing] + b1) + b2
 *
 * The data set is made up: ratings follow from tastes that nobody is told. */
#ifndef EXAMPLES_PARAMETER_SERVER_MODEL_H
#define EXAMPLES_PARAMETER_SERVER_MODEL_H

#include <stdint.h>

enum {
	USERS = 192,
	THINGS = 128,
	ROWS = USERS + THINGS, /* of the embedding table: users first        */
	DIM = 8,               /* floats of a row                            */
	HIDDEN = 24,
	W1 = 0, /* where each dense parameter begins in model.dense */
	B1 = W1 + HIDDEN * 2 * DIM,
	W2 = B1 + HIDDEN,
	B2 = W2 + HIDDEN,
	DENSE = B2 + 1,
	BATCH = 64,            /* samples of a step, over all workers        */
	BATCH_ROWS = 2 * BATCH /* rows that they can use, at most            */
};

struct sample {
	int user, thing; /* their rows */
	float rating;
};

/* The part of the model that a worker has: dense parameters, and the rows that its samples use. */
struct model {
	float dense[DENSE], dense_grad[DENSE];
	float (*rows)[DIM], (*rows_grad)[DIM]; /* the caller's */
	const int32_t *slot_of;                /* [ROWS]: where a row is in rows */
};

/* Sample number index of a step; step -1 has the samples that no step trains on. */
struct sample sample_of(int64_t step, int index);
/* The samples [begin, end) of a batch that are one worker's. */
struct share {
	int begin, end;
};
struct share share_of(int samples, int worker, int workers);

/* First values: of parameter index of the dense ones, and of a row's element. */
float dense_init(int index);
float row_init(int row, int element);

/* The sum of the squared errors over the samples. */
double model_loss(const struct model *model, const struct sample *samples, int count);
/* The same, and sets the gradients of it: of dense, and of the first num_rows rows. */
double model_gradients(struct model *model, const struct sample *samples, int count, int num_rows);

#endif
