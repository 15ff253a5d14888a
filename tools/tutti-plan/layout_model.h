/* The GPTs that tutti-plan layout knows: their sizes, parameters, and the work of a token. */
#ifndef TUTTI_PLAN_LAYOUT_MODEL_H
#define TUTTI_PLAN_LAYOUT_MODEL_H

#include <tutti/parallel.h>

#include <stdbool.h>
#include <stddef.h>

struct gpt_sizes {
	int layers, heads, channels, vocab, length; /* length: tokens of a sequence */
};

/* "gpt-1.5B", or "layers=48,heads=25,channels=1600,vocab=50257,length=1024" in any order; false: it
 * is neither. */
bool gpt_sizes_read(struct gpt_sizes *sizes, const char *text);
/* NULL past the last one. */
const char *gpt_preset(int i);

/* Operations for a token, of which a product of matrices has two for each number of its matrix.
 * inputs and weights: the gradients. Attention is causal: a token sees half of its sequence. */
struct token_work {
	double forward, inputs, weights;
};
struct token_work gpt_layer_work(const struct gpt_sizes *sizes);
double gpt_attention_work(const struct gpt_sizes *sizes); /* of a layer's forward, without products */
struct token_work gpt_head_work(const struct gpt_sizes *sizes);

/* Elements on a rank of `tp` that divide the tensors. */
double gpt_layer_elements(const struct gpt_sizes *sizes, int tp);
double gpt_tokens_elements(const struct gpt_sizes *sizes, int tp); /* embedding and head are tied */
double gpt_embedding_elements(const struct gpt_sizes *sizes, int tp);
double gpt_head_elements(const struct gpt_sizes *sizes); /* without the tied ones */

/* Stage s of so many has layers [gpt_first_layer(s), gpt_first_layer(s + 1)). */
int gpt_first_layer(const struct gpt_sizes *sizes, int stages, int stage);
/* Registered as examples/gpt does, on so many stages. The caller destroys it. */
tutti_model *gpt_describe(const struct gpt_sizes *sizes, int stages);

#endif
