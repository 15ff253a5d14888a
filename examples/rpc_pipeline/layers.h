/* The layers of a small model: a linear one, six residual blocks, and a linear one whose cross
 * entropy is the loss. Rows are samples. Parameters begin the same on every rank. */
#ifndef EXAMPLES_RPC_PIPELINE_LAYERS_H
#define EXAMPLES_RPC_PIPELINE_LAYERS_H

#include <stddef.h>
#include <stdint.h>

enum { INPUTS = 16, WIDTH = 48, HIDDEN = 96, CLASSES = 8, LAYERS = 8, LAYER_PARAMS = 4 };

/* Layer 0 is inputs to width, the last one width to classes, the others width to width:
 * y = x + w2 tanh(w1 x + b1) + b2. Linear layers have w1 and b1 alone. */
struct layer {
	int number, inputs, outputs;
	float *param[LAYER_PARAMS]; /* w1, b1, w2, b2; NULL: none */
	size_t count[LAYER_PARAMS];
};

/* 0: there is no memory. The caller frees each param. */
int layer_make(struct layer *layer, int number);
/* hidden: rows x HIDDEN, of blocks alone, is kept for backward. */
void layer_forward(const struct layer *layer, int rows, const float *x, float *hidden, float *y);
/* Writes the gradients of all parameters to grad, and of x to dx. */
void layer_backward(const struct layer *layer, int rows, const float *x, const float *hidden,
		    const float *dy, float *dx, float *const grad[LAYER_PARAMS]);
/* The sum of losses over rows; logits become its gradient. */
double cross_entropy(int rows, float *logits, const int32_t *labels);

#endif
