/* A perceptron of 5 million parameters, for benchmarks of training: layers of (WIDTH, WIDTH)
 * weights, each followed by relu. Arrays of samples are (samples, WIDTH). */
#ifndef PERF_PERCEPTRON_H
#define PERF_PERCEPTRON_H

#include <stddef.h>
#include <tutti/train.h>

enum {
	PERCEPTRON_LAYERS = 5,
	PERCEPTRON_WIDTH = 1000,
	PERCEPTRON_WEIGHTS = PERCEPTRON_WIDTH * PERCEPTRON_WIDTH, /* of a layer */
	PERCEPTRON_PARAMS = PERCEPTRON_LAYERS * PERCEPTRON_WEIGHTS,
};

/* A unit and a parameter for each layer, numbered as the layers. NULL, with an error: no memory. */
tutti_model *perceptron_model(void);
/* First weights of all layers, with which activations stay near 1. Collective. */
tutti_status perceptron_init(tutti_trainer *trainer);
/* The inputs of sample number first and those that follow. */
void perceptron_fill(float *inputs, size_t first, size_t samples);

/* out = max(0, w in) */
void perceptron_forward(const float *w, const float *in, float *out, size_t samples);
/* dz is the gradient of out, and becomes that of in; dw gets the weights' added. spare is as large
 * as dz. */
struct perceptron_grads {
	float *dw, *dz, *spare;
};
void perceptron_backward(const float *w, struct perceptron_grads to, const float *in,
			 const float *out, size_t samples);
/* Of the loss (out - 1)^2 / 2: its sum, and the gradient. */
double perceptron_loss(const float *out, float *grad, size_t samples);

/* One replica's activations: x[l] goes into layer l. */
struct perceptron_work {
	const float *x[PERCEPTRON_LAYERS + 1];
	float *hidden[PERCEPTRON_LAYERS]; /* x[1] to x[LAYERS - 1] */
	float *dz, *spare;
};
/* Zeros; without memory the program ends. */
float *perceptron_floats(size_t count);
void perceptron_work_create(struct perceptron_work *work, size_t samples);
void perceptron_work_destroy(struct perceptron_work *work);
/* Of layer l, which becomes the next one's input; of the last one outputs. */
float *perceptron_output(struct perceptron_work *work, int l, float *outputs);
/* One step of a trainer, from inputs to outputs; the sum of the losses. The program ends if a call
 * fails. */
double perceptron_step(tutti_trainer *trainer, const tutti_optimizer *optimizer,
		       struct perceptron_work *work, const float *inputs, float *outputs,
		       size_t samples);

#endif
