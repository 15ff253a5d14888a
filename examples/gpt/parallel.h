/* How ranks divide a layer. For arrays in host memory; all but experts, where there is one rank, also for
 * those of a GPU. */
#ifndef EXAMPLES_GPT_PARALLEL_H
#define EXAMPLES_GPT_PARALLEL_H

#include "layers.h"

#include <tutti/parallel.h>

#include <stdbool.h>

/* A rank's place on an axis of the mesh. */
struct axis {
	tutti_comm *comm;   /* NULL: alone */
	int rank, size;
};

/* Tensor and sequence parallelism: the ranks of "tp" divide the products of a layer, each has some
 * columns of the weight that begins a branch and some rows of the one that ends it. Between the
 * branches they divide the rows of the residual stream. A branch begins with a gather of rows and
 * ends with a scatter of their sums; while a product of one rank's rows is computed those of other
 * ranks travel. They divide the vocabulary, too. */
struct split {
	struct axis axis;   /* "tp"               */
	int first, vocab;   /* this rank's tokens */
};

/* Context parallelism: the ranks of "cp" divide each sequence (part_position). Causal attention gives
 * all of them the same work. Only attention looks at other ranks' tokens: keys and values of one rank
 * after another come to the queries of this one, in a ring. */
struct context {
	struct axis axis;   /* "cp"                                  */
	int length;         /* of this rank's part of each sequence  */
};

/* Backward reads what forward has left in these arrays, but the scratch. */
struct attention {
	const struct context *context;
	struct attention_shape s;    /* of this rank's rows: s.length is context->length        */
	float *out;                  /* (sequences, length, channels)                           */
	float *weights;              /* softmax; of several ranks: logarithms of sums of exponentials */
	float *qkv;                  /* (sequences, length, 3, channels)                        */
	float *scratch;
};

/* Floats of the weights, and of the scratch of both functions. */
size_t context_weights(const struct context *context, struct attention_shape s);
size_t context_scratch(const struct context *context, struct attention_shape s);
void context_attention_forward(const struct attention *attention);
void context_attention_backward(const struct attention *attention, float *qkv_grad,
				const float *out_grad);

/* A mixture of experts in the place of a block's second branch. A gate scores the experts for each
 * token, and the best two compute it, weighted. The ranks of "ep" divide the experts: a token's row
 * goes to the ranks of its experts and comes back, by two all_to_allv.
 *
 * Tokens are in groups of neighbours. An expert takes at most capacity tokens of a group, first those
 * that chose it first; the branch of a token that is not taken has nothing of this expert. So what
 * is computed does not depend on how tokens are divided among ranks, as long as groups stay whole. */
enum { EXPERTS_CHOSEN = 2, EXPERTS_MAX = 64 };

/* A rank's experts one behind the other: (channels, count), (own, channels, hidden), (own, hidden),
 * (own, hidden, channels), (own, channels). */
enum expert_param { EXPERT_GATE, EXPERT_UP, EXPERT_UP_BIAS, EXPERT_DOWN, EXPERT_DOWN_BIAS, EXPERT_PARAMS };

/* The values that backward needs of forward. At most experts_room rows travel, either way: as many as
 * all ranks of "ep" together could send to one. */
struct expert_memory {
	float *chances;        /* (n, count): softmax of the gate's scores                        */
	int *chosen;           /* (n, EXPERTS_CHOSEN)                                             */
	int *places;           /* the same: the row that is sent; -1: it was not taken            */
	int *sent, *received;  /* rows for each expert (count); from each rank for each own one   */
	float *in, *up, *gelu; /* rows here: (room, channels), (room, hidden) twice               */
	float *back;           /* (room, channels): results, as the rows were sent                */
};

struct experts {
	struct axis axis;      /* "ep"                                                  */
	int count, own;        /* of all; of this rank                                  */
	int group, capacity;   /* tokens of a group; of these that an expert takes      */
	int most;              /* tokens of any rank in a call: a multiple of group     */
	int channels, hidden;  /* of a token; inside of an expert                       */
	float balance;         /* the load-balance loss, times this                     */
	/* Of a call: */
	struct expert_memory *memory;
	float *values[EXPERT_PARAMS], *grads[EXPERT_PARAMS];
	const float *in;       /* (n, channels)                                         */
	float *scratch;
	int n;                 /* a multiple of group, which may differ between ranks   */
};

size_t experts_room(const struct experts *experts);
/* Floats of the scratch. */
size_t experts_scratch(const struct experts *experts);
/* out (n, channels) = the branch of in */
void experts_forward(const struct experts *experts, float *out);
/* in_grad (n, channels). Gradients are also those of the load-balance loss, which no loss that is
 * printed contains: for each token balance * count * the sum over experts of (the share of its group
 * that chose the expert first) * (the group's mean chance of it). */
void experts_backward(const struct experts *experts, float *in_grad, const float *out_grad,
		      float grad_scale);

#endif
