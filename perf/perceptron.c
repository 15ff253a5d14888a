/* The perceptron's arithmetic, on one thread, and its step of a trainer. */
#include "perceptron.h"

#include "measure.h"

#include <string.h>

enum { LAYERS = PERCEPTRON_LAYERS, WIDTH = PERCEPTRON_WIDTH, WEIGHTS = PERCEPTRON_WEIGHTS };

tutti_model *perceptron_model(void)
{
	const int64_t shape[] = {WIDTH, WIDTH};
	tutti_model *model;
	int made = 0;

	if (tutti_model_create(&model) != TUTTI_OK)
		return NULL;
	for (int l = 0; l < LAYERS; l++) {
		char name[24];
		snprintf(name, sizeof name, "layer.%d", l);
		int unit = tutti_model_unit(model, name);
		made += tutti_model_param(model, unit, name, 2, shape, 0) == l;
	}
	if (made == LAYERS)
		return model;
	tutti_model_destroy(model);
	return NULL;
}

/* relu halves the variance of what it gets. */
tutti_status perceptron_init(tutti_trainer *trainer)
{
	float *weights = malloc(sizeof *weights * WEIGHTS);
	tutti_status status = TUTTI_OK;

	if (!weights)
		return tutti_set_error(TUTTI_ERR_MEMORY, "There is no memory for first weights.");
	for (int l = 0; l < LAYERS && status == TUTTI_OK; l++) {
		for (size_t i = 0; i < WEIGHTS; i++)
			weights[i] =
				((float)tutti_random(1, 0, (uint64_t)l, i) / 4294967296.0f - 0.5f) *
				0.155f;
		status = tutti_param_write(trainer, l, 0, WEIGHTS, weights);
	}
	free(weights);
	return status;
}

void perceptron_fill(float *inputs, size_t first, size_t samples)
{
	for (size_t s = 0; s < samples; s++)
		for (size_t i = 0; i < WIDTH; i++)
			inputs[s * WIDTH + i] = (float)(((first + s) * 31 + i * 17) % 100) / 50;
}

static float perceptron_dot(const float *a, const float *b)
{
	float sums[16] = {0}, sum = 0;
	for (int i = 0; i + 16 <= WIDTH; i += 16)
		for (int k = 0; k < 16; k++)
			sums[k] += a[i + k] * b[i + k];
	for (int i = WIDTH / 16 * 16; i < WIDTH; i++)
		sum += a[i] * b[i];
	for (int k = 0; k < 16; k++)
		sum += sums[k];
	return sum;
}

static void add_scaled(float *to, const float *from, float factor)
{
	for (int i = 0; i < WIDTH; i++)
		to[i] += factor * from[i];
}

void perceptron_forward(const float *w, const float *in, float *out, size_t samples)
{
	for (size_t row = 0; row < WIDTH; row++)
		for (size_t s = 0; s < samples; s++) {
			float z = perceptron_dot(w + row * WIDTH, in + s * WIDTH);
			out[s * WIDTH + row] = z > 0 ? z : 0;
		}
}

void perceptron_backward(const float *w, struct perceptron_grads to, const float *in,
			 const float *out, size_t samples)
{
	memset(to.spare, 0, sizeof *to.spare * WIDTH * samples);
	for (size_t row = 0; row < WIDTH; row++)
		for (size_t s = 0; s < samples; s++) {
			size_t at = s * WIDTH + row;
			float d = out[at] > 0 ? to.dz[at] : 0;
			add_scaled(to.dw + row * WIDTH, in + s * WIDTH, d);
			add_scaled(to.spare + s * WIDTH, w + row * WIDTH, d);
		}
	memcpy(to.dz, to.spare, sizeof *to.dz * WIDTH * samples);
}

double perceptron_loss(const float *out, float *grad, size_t samples)
{
	double sum = 0;

	for (size_t i = 0; i < samples * WIDTH; i++) {
		grad[i] = out[i] - 1;
		sum += 0.5 * (double)(grad[i] * grad[i]);
	}
	return sum;
}

float *perceptron_floats(size_t count)
{
	float *made = calloc(count ? count : 1, sizeof *made);

	MUST(made ? TUTTI_OK
		  : tutti_set_error(TUTTI_ERR_MEMORY, "There is no memory for activations."));
	return made;
}

void perceptron_work_create(struct perceptron_work *w, size_t samples)
{
	for (int l = 1; l < LAYERS; l++)
		w->hidden[l] = perceptron_floats(samples * WIDTH);
	w->dz = perceptron_floats(samples * WIDTH);
	w->spare = perceptron_floats(samples * WIDTH);
}

void perceptron_work_destroy(struct perceptron_work *w)
{
	for (int l = 1; l < LAYERS; l++)
		free(w->hidden[l]);
	free(w->dz);
	free(w->spare);
}

float *perceptron_output(struct perceptron_work *w, int l, float *outputs)
{
	float *out = l + 1 < LAYERS ? w->hidden[l + 1] : outputs;

	w->x[l + 1] = out;
	return out;
}

double perceptron_step(tutti_trainer *trainer, const tutti_optimizer *optimizer,
		       struct perceptron_work *w, const float *inputs, float *outputs,
		       size_t samples)
{
	double sum;

	MUST(tutti_micro_batch(trainer, TUTTI_PASS_LAST, (double)samples, NULL));
	w->x[0] = inputs;
	for (int l = 0; l < LAYERS; l++) {
		MUST(tutti_forward_begin(trainer, l));
		perceptron_forward(tutti_param_data(trainer, l), w->x[l],
				   perceptron_output(w, l, outputs), samples);
		MUST(tutti_forward_end(trainer, l));
	}
	sum = perceptron_loss(outputs, w->dz, samples);
	for (int l = LAYERS - 1; l >= 0; l--) {
		MUST(tutti_backward_begin(trainer, l));
		perceptron_backward(
			tutti_param_data(trainer, l),
			(struct perceptron_grads){tutti_param_grad(trainer, l), w->dz, w->spare},
			w->x[l], w->x[l + 1], samples);
		MUST(tutti_backward_end(trainer, l));
	}
	MUST(tutti_step(trainer, optimizer, 1, NULL));
	return sum;
}
