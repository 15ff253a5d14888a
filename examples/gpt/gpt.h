/* A small GPT: characters in, the next character out. Its parameters belong to a trainer. */
#ifndef EXAMPLES_GPT_GPT_H
#define EXAMPLES_GPT_GPT_H

#include "layers.h"

#include <setjmp.h>
#include <stdbool.h>
#include <tutti/parallel.h>

/* ---- how ranks divide a layer: in host memory, and all but experts, alone, on a GPU, too ---- */

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

/* ---- the model ---- */

enum {
	GPT_MAX_LAYERS = 16,
	GPT_MAX_UNITS = GPT_MAX_LAYERS + 2,
	GPT_MAX_PARAMS = 4 + 13 * GPT_MAX_LAYERS,
	GPT_MAX_LENGTH = 4096,
	GPT_MAX_VOCAB = 256,                           /* tokens are bytes                     */
};

struct gpt_shape {
	int vocab, length, layers, heads, channels;    /* length: tokens in a sequence         */
	int experts;                                   /* of each block; 0: it has none        */
};

/* Parameters of a unit, which is the embedding, a block or the head; a bias follows its weight. up and
 * down are the experts', where there are some. The head has norm1, and uses the embedding of tokens. */
enum gpt_param {
	TOKEN_W, POSITION_W, NORM1_W, NORM1_B, QKV_W, QKV_B, PROJ_W, PROJ_B, NORM2_W, NORM2_B, GATE_W,
	UP_W, UP_B, DOWN_W, DOWN_B, GPT_UNIT_PARAMS,
};

/* How a rank computes its part. */
struct gpt_config {
	int max_sequences;
	tutti_dtype dtype;                             /* of parameters: f32, bf16 or f16      */
	int group;                                     /* tokens that share experts' capacity  */
	float capacity, balance;                       /* times what all would have evenly; above */
	bool recompute;                                /* keep only the streams between blocks */
	bool weights_later;                            /* a backward of weights follows        */
};

/* The values that forward leaves for backward in a unit, but the embedding. Ranks of "tp" divide the rows of
 * the streams and norms, own of n; inside of a branch they have all n rows and divide channels. */
struct unit_activations {
	float *in;                                    /* the stream before it (own, c)        */
	float *norm1, *qkv, *weights, *mixed;         /* weights: of attention                */
	float *middle, *norm2, *up, *gelu;            /* middle: the stream after attention   */
	struct norm_stats stats1, stats2;
	struct expert_memory experts;                 /* instead of up and gelu               */
	float *logits;                                /* of the head                          */
	/* What products and norms write has these gradients: with weights_later the unit's own, else
	 * those of a moment, which all units share. */
	float *norm1_grad, *qkv_grad, *proj_grad, *norm2_grad, *up_grad, *down_grad;
};

struct gpt_activations {
	int sequences, n, own;                        /* of the last forward                  */
	unsigned char *tokens, *targets;
	struct unit_activations units[GPT_MAX_UNITS];
	float *embed_grad;                            /* as those of a unit                   */
	/* Of a moment: the same in all activations. wide_grad (n, 4, part of c), narrow_grad (own, c). */
	struct gpt_scratch {
		float *stream_grad, *wide_grad, *narrow_grad, *scratch;
		double *loss;
		struct unit_activations block;        /* with recompute: that of all blocks   */
	} shared;
	float *memory;                                /* of all of these                      */
	bool is_shared;                               /* memory: with peers; else of place.h  */
};

enum { GPT_INPUTS = 1, GPT_WEIGHTS = 2 };             /* gradients that a backward makes      */

struct gpt {
	struct gpt_shape shape;
	struct gpt_config config;
	tutti_trainer *trainer;
	float *wide[GPT_MAX_PARAMS];                   /* of 16 bits: the open unit's in f32   */
	int units[GPT_MAX_UNITS][GPT_UNIT_PARAMS];     /* indices in the model                 */
	int stages;                                    /* of a pipeline; 1: none               */
	int params;                                    /* their indices are 0 .. params - 1    */
	const struct gpt_tensor *tensors[GPT_MAX_PARAMS];
	size_t counts[GPT_MAX_PARAMS];                 /* elements of each whole one           */
	struct split split;
	struct context context;
	struct experts experts;
	tutti_comm *peers;                             /* ranks of "cp" and "tp"; NULL: alone  */
	struct gpt_activations *activations;
};

/* Describes the parameters in units: the embedding, each block, the head; and in so many stages. */
void gpt_register(struct gpt *gpt, struct gpt_shape shape, int stages, tutti_model *model);
/* The trainer was made of that model, on that mesh or none: sets first values, makes room. */
void gpt_start(struct gpt *gpt, tutti_trainer *trainer, tutti_mesh *mesh, const struct gpt_config *config);
void gpt_finish(struct gpt *gpt);
size_t gpt_param_count(const struct gpt *gpt);
/* The same number only where every bit of the parameters is the same. Collective. */
uint64_t gpt_fingerprint(const struct gpt *gpt);

/* Where "cp" divides sequences, length below is context.length, of this rank's part: tokens are those at gpt_position. */
int gpt_position(const struct gpt *gpt, int token);
/* tokens (sequences, length). Afterwards gpt_logits has the scores of every next token. */
void gpt_forward(struct gpt *gpt, const unsigned char *tokens, int sequences);
/* (sequences, length, gpt->split.vocab): those of this rank's part of the vocabulary */
const float *gpt_logits(const struct gpt *gpt);
/* Adds the cross entropy with all targets (sequences, length) to a sum. Logits turn into gradients for
 * gpt_backward when with_gradient. */
void gpt_loss(struct gpt *gpt, const unsigned char *targets, int with_gradient);
/* That sum since the last call, collective over "tp". Only it and gpt_logits wait for a GPU. */
double gpt_loss_sum(struct gpt *gpt);
void gpt_backward(struct gpt *gpt);
/* The same of one stage. in, out and their gradients are what the stages before and behind have: of gpt_stream_count
 * floats. The first stage has tokens instead of in, the last one ends with logits. */
size_t gpt_stream_count(const struct gpt *gpt, int sequences);
void gpt_stage_forward(struct gpt *gpt, int stage, const unsigned char *tokens, int sequences, const float *in,
		       float *out);
/* what: GPT_INPUTS, then with weights_later GPT_WEIGHTS; else both at once. */
void gpt_stage_backward(struct gpt *gpt, int stage, int what, const float *out_grad, float *in_grad);
/* The units of a stage are those from this on to the next one's first: 0 is the embedding, layers + 1 the head. */
int gpt_first_unit(const struct gpt *gpt, int stage);
/* The values and gradients of parameters, while their unit is open. */
float *gpt_data(const struct gpt *gpt, int param);
float *gpt_grad(const struct gpt *gpt, int param);
/* Room for so many sequences at most. What is shared is that of gpt->activations, if there are some. */
struct gpt_activations *gpt_make_activations(const struct gpt *gpt, int sequences);
void gpt_free_activations(struct gpt_activations *activations);

/* For calls that can only fail when ranks or machines do: says why, and goes where rescue says when a rank has died or
 * fallen silent, if it says anything; else ends the program. */
void must(tutti_status status);
extern jmp_buf *rescue;
int must_index(int index);

#endif
