/* A small GPT: characters in, the next character out. Its parameters belong to a trainer. */
#ifndef EXAMPLES_GPT_GPT_H
#define EXAMPLES_GPT_GPT_H

#include "context_parallel.h"
#include "experts.h"
#include "tensor_parallel.h"

#include <setjmp.h>

enum {
	GPT_MAX_LAYERS = 16,
	GPT_MAX_PARAMS = 4 + 13 * GPT_MAX_LAYERS,
	GPT_MAX_LENGTH = 4096,
	GPT_MAX_VOCAB = 256,                           /* tokens are bytes                     */
};

struct gpt_shape {
	int vocab, length, layers, heads, channels;    /* length: tokens in a sequence         */
	int experts;                                   /* of each block; 0: it has none        */
};

/* Indices in the model. up and down are the experts', where there are some. */
struct gpt_block_ids {
	int unit;
	int norm1_w, norm1_b, qkv_w, qkv_b, proj_w, proj_b;
	int norm2_w, norm2_b, gate_w, up_w, up_b, down_w, down_b;
};

/* How a rank computes its part. */
struct gpt_config {
	int max_sequences;
	tutti_dtype dtype;                             /* of parameters: f32, bf16 or f16      */
	int by_heads;                                  /* context parallelism in this form     */
	int group;                                     /* tokens that share experts' capacity  */
	float capacity, balance;                       /* times what all would have evenly; experts.h */
	int recompute;                                 /* keep only the streams between blocks */
	int weights_later;                             /* gpt_stage_weights follows            */
};

struct gpt_activations;

struct gpt {
	struct gpt_shape shape;
	struct gpt_config config;
	tutti_trainer *trainer;
	float *wide[GPT_MAX_PARAMS];                   /* of 16 bits: the open unit's in f32   */
	int embed_unit, head_unit, token_w, position_w, norm_w, norm_b;
	struct gpt_block_ids blocks[GPT_MAX_LAYERS];
	int stages;                                    /* of a pipeline; 1: none               */
	int params;                                    /* their indices are 0 .. params - 1    */
	size_t counts[GPT_MAX_PARAMS];                 /* elements of each whole one           */
	int split_sizes[GPT_MAX_PARAMS];               /* of the dimension that is divided; or 0 */
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

/* Where "cp" divides sequences, length below is that of this rank's part: tokens are those at gpt_position. */
int gpt_length(const struct gpt *gpt);
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
void gpt_stage_backward(struct gpt *gpt, int stage, const float *out_grad, float *in_grad);
/* With weights_later: the gradients of products' weights, which gpt_stage_backward leaves out. */
void gpt_stage_weights(struct gpt *gpt, int stage);
/* Room for so many sequences at most. What is not kept between calls, and the loss, is in gpt->activations for all. */
struct gpt_activations *gpt_make_activations(const struct gpt *gpt, int sequences);
void gpt_free_activations(struct gpt_activations *activations);

/* For calls that can only fail when ranks or machines do: says why, and goes where rescue says when a rank has died or
 * fallen silent, if it says anything; else ends the program. */
void must(tutti_status status);
extern jmp_buf *rescue;
int must_index(int index);

#endif
