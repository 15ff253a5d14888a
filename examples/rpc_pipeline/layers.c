/* The layers' arithmetic, forward and backward. */
#include "layers.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <tutti/train.h>

/* y[rows][out] = x[rows][in] w[out][in] + b[out] */
static void layers_linear(int rows, int in, int out, const float *x, const float *w, const float *b,
			  float *y)
{
	for (int r = 0; r < rows; r++)
		for (int o = 0; o < out; o++) {
			float sum = b[o];
			for (int i = 0; i < in; i++)
				sum += w[o * in + i] * x[r * in + i];
			y[r * out + o] = sum;
		}
}

/* dw[out][in], db[out] and, += , dx[rows][in] */
static void layers_linear_backward(int rows, int in, int out, const float *x, const float *w,
				   const float *dy, float *dw, float *db, float *dx)
{
	memset(dw, 0, (size_t)(in * out) * sizeof *dw);
	memset(db, 0, (size_t)out * sizeof *db);
	for (int r = 0; r < rows; r++)
		for (int o = 0; o < out; o++) {
			float d = dy[r * out + o];
			db[o] += d;
			for (int i = 0; i < in; i++) {
				dw[o * in + i] += d * x[r * in + i];
				dx[r * in + i] += d * w[o * in + i];
			}
		}
}

static int is_block(const struct layer *layer)
{
	return layer->number > 0 && layer->number < LAYERS - 1;
}

static float *random_values(const struct layer *layer, int which, size_t count, int inputs)
{
	float *values = malloc(count * sizeof *values);

	for (size_t i = 0; values && i < count; i++) {
		uint32_t bits = tutti_random(3, (uint64_t)layer->number, (uint64_t)which, i);
		values[i] = ((float)(bits >> 8) / (1 << 23) - 1) / sqrtf((float)inputs);
	}
	return values;
}

int layer_make(struct layer *layer, int number)
{
	*layer = (struct layer){.number = number,
				.inputs = number ? WIDTH : INPUTS,
				.outputs = number == LAYERS - 1 ? CLASSES : WIDTH};
	size_t in = (size_t)layer->inputs, out = (size_t)layer->outputs;
	size_t middle = is_block(layer) ? HIDDEN : out;

	layer->count[0] = middle * in;
	layer->count[1] = middle;
	layer->count[2] = is_block(layer) ? out * middle : 0;
	layer->count[3] = is_block(layer) ? out : 0;
	for (int p = 0; p < LAYER_PARAMS && layer->count[p]; p++) {
		layer->param[p] =
			random_values(layer, p, layer->count[p], p < 2 ? (int)in : HIDDEN);
		if (!layer->param[p])
			return 0;
	}
	return 1;
}

void layer_forward(const struct layer *layer, int rows, const float *x, float *hidden, float *y)
{
	float *const *p = layer->param;

	if (!is_block(layer)) {
		layers_linear(rows, layer->inputs, layer->outputs, x, p[0], p[1], y);
		return;
	}
	layers_linear(rows, WIDTH, HIDDEN, x, p[0], p[1], hidden);
	for (int i = 0; i < rows * HIDDEN; i++)
		hidden[i] = tanhf(hidden[i]);
	layers_linear(rows, HIDDEN, WIDTH, hidden, p[2], p[3], y);
	for (int i = 0; i < rows * WIDTH; i++)
		y[i] += x[i];
}

static void layers_block_backward(const struct layer *layer, int rows, const float *x,
				  const float *hidden, const float *dy, float *dx,
				  float *const *grad)
{
	float *dhidden = calloc((size_t)(rows * HIDDEN), sizeof *dhidden);

	if (!dhidden)
		abort();
	layers_linear_backward(rows, HIDDEN, WIDTH, hidden, layer->param[2], dy, grad[2], grad[3],
			       dhidden);
	for (int i = 0; i < rows * HIDDEN; i++)
		dhidden[i] *= 1 - hidden[i] * hidden[i];
	memcpy(dx, dy, (size_t)(rows * WIDTH) * sizeof *dx);
	layers_linear_backward(rows, WIDTH, HIDDEN, x, layer->param[0], dhidden, grad[0], grad[1],
			       dx);
	free(dhidden);
}

void layer_backward(const struct layer *layer, int rows, const float *x, const float *hidden,
		    const float *dy, float *dx, float *const grad[LAYER_PARAMS])
{
	if (is_block(layer)) {
		layers_block_backward(layer, rows, x, hidden, dy, dx, grad);
		return;
	}
	memset(dx, 0, (size_t)(rows * layer->inputs) * sizeof *dx);
	layers_linear_backward(rows, layer->inputs, layer->outputs, x, layer->param[0], dy, grad[0],
			       grad[1], dx);
}

double cross_entropy(int rows, float *logits, const int32_t *labels)
{
	double loss = 0;

	for (int r = 0; r < rows; r++) {
		float *row = logits + r * CLASSES, most = row[0];
		double sum = 0;
		for (int c = 1; c < CLASSES; c++)
			most = fmaxf(most, row[c]);
		for (int c = 0; c < CLASSES; c++)
			sum += exp((double)(row[c] - most));
		loss += log(sum) - (double)(row[labels[r]] - most);
		for (int c = 0; c < CLASSES; c++)
			row[c] = (float)(exp((double)(row[c] - most)) / sum) -
				 (c == labels[r] ? 1.0f : 0.0f);
	}
	return loss;
}
