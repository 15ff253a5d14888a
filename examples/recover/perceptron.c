/* The perceptron's units, forward and backward. */
#include "perceptron.h"

#include <math.h>

enum { INPUTS = 8, HIDDEN = 48, SAMPLES = 256 };
enum { UNIT_HIDDEN, UNIT_OUTPUT };
enum { WEIGHT, BIAS, OUTPUT_WEIGHT, OUTPUT_BIAS, PARAMS };

#define TRY(expression)                                                                            \
	do {                                                                                       \
		tutti_status try_status_ = (expression);                                           \
		if (try_status_ != TUTTI_OK)                                                       \
			return try_status_;                                                        \
	} while (0)

struct sample {
	float input[INPUTS], hidden[HIDDEN], output, target;
};

tutti_status perceptron_register(tutti_model **model)
{
	TRY(tutti_model_create(model));
	tutti_model_unit(*model, "hidden");
	tutti_model_param(*model, UNIT_HIDDEN, "weight", 2, (int64_t[]){HIDDEN, INPUTS}, 0);
	tutti_model_param(*model, UNIT_HIDDEN, "bias", 1, (int64_t[]){HIDDEN}, 0);
	tutti_model_unit(*model, "output");
	tutti_model_param(*model, UNIT_OUTPUT, "output weight", 1, (int64_t[]){HIDDEN}, 0);
	if (tutti_model_param(*model, UNIT_OUTPUT, "output bias", 1, (int64_t[]){1}, 0) >= 0)
		return TUTTI_OK;
	tutti_model_destroy(*model);
	return TUTTI_ERR_MEMORY;
}

tutti_status perceptron_init(tutti_trainer *trainer)
{
	for (int p = 0; p < PARAMS; p++)
		TRY(tutti_param_init_normal(trainer, p, 0, p == WEIGHT ? 0.5f : 0.2f));
	return TUTTI_OK;
}

static void perceptron_draw(struct sample *sample, int64_t batch, int number)
{
	sample->target = 0;
	for (int i = 0; i < INPUTS; i++) {
		uint32_t bits = tutti_random(1, (uint64_t)batch, (uint64_t)number, (uint64_t)i);
		sample->input[i] = (float)(bits >> 8) / (1 << 23) - 1;
		sample->target += sinf(3 * sample->input[i]) / (float)(i + 1);
	}
}

static void forward_hidden(tutti_trainer *trainer, struct sample *s)
{
	const float *weight = tutti_param_data(trainer, WEIGHT);
	const float *bias = tutti_param_data(trainer, BIAS);

	for (int h = 0; h < HIDDEN; h++) {
		float sum = bias[h];
		for (int i = 0; i < INPUTS; i++)
			sum += weight[h * INPUTS + i] * s->input[i];
		s->hidden[h] = tanhf(sum);
	}
}

static void forward_output(tutti_trainer *trainer, struct sample *s)
{
	const float *weight = tutti_param_data(trainer, OUTPUT_WEIGHT);

	s->output = *(const float *)tutti_param_data(trainer, OUTPUT_BIAS);
	for (int h = 0; h < HIDDEN; h++)
		s->output += weight[h] * s->hidden[h];
}

/* Leaves the gradients of the hidden values in their place. */
static void backward_output(tutti_trainer *trainer, struct sample *s)
{
	const float *weight = tutti_param_data(trainer, OUTPUT_WEIGHT);
	float *weight_grad = tutti_param_grad(trainer, OUTPUT_WEIGHT);
	float *bias_grad = tutti_param_grad(trainer, OUTPUT_BIAS);
	float grad = 2 * (s->output - s->target);

	*bias_grad += grad;
	for (int h = 0; h < HIDDEN; h++) {
		weight_grad[h] += grad * s->hidden[h];
		s->hidden[h] = grad * weight[h] * (1 - s->hidden[h] * s->hidden[h]);
	}
}

static void backward_hidden(tutti_trainer *trainer, const struct sample *s)
{
	float *weight_grad = tutti_param_grad(trainer, WEIGHT);
	float *bias_grad = tutti_param_grad(trainer, BIAS);

	for (int h = 0; h < HIDDEN; h++) {
		bias_grad[h] += s->hidden[h];
		for (int i = 0; i < INPUTS; i++)
			weight_grad[h * INPUTS + i] += s->hidden[h] * s->input[i];
	}
}

static tutti_status recover_perceptron_forward(tutti_trainer *trainer, struct sample *samples,
					       int count)
{
	TRY(tutti_forward_begin(trainer, UNIT_HIDDEN));
	for (int i = 0; i < count; i++)
		forward_hidden(trainer, &samples[i]);
	TRY(tutti_forward_end(trainer, UNIT_HIDDEN));
	TRY(tutti_forward_begin(trainer, UNIT_OUTPUT));
	for (int i = 0; i < count; i++)
		forward_output(trainer, &samples[i]);
	return tutti_forward_end(trainer, UNIT_OUTPUT);
}

static tutti_status recover_perceptron_backward(tutti_trainer *trainer, struct sample *samples,
						int count)
{
	TRY(tutti_backward_begin(trainer, UNIT_OUTPUT));
	for (int i = 0; i < count; i++)
		backward_output(trainer, &samples[i]);
	TRY(tutti_backward_end(trainer, UNIT_OUTPUT));
	TRY(tutti_backward_begin(trainer, UNIT_HIDDEN));
	for (int i = 0; i < count; i++)
		backward_hidden(trainer, &samples[i]);
	return tutti_backward_end(trainer, UNIT_HIDDEN);
}

tutti_status perceptron_pass(tutti_trainer *trainer, tutti_pass pass, int64_t batch, int first,
			     int last, double *loss)
{
	struct sample samples[SAMPLES];
	int count = last - first;

	*loss = 0;
	if (count > SAMPLES)
		return TUTTI_ERR_INVALID;
	for (int i = 0; i < count; i++)
		perceptron_draw(&samples[i], batch, first + i);
	TRY(tutti_micro_batch(trainer, pass, count, NULL));
	TRY(recover_perceptron_forward(trainer, samples, count));
	for (int i = 0; i < count; i++) {
		double off = (double)(samples[i].output - samples[i].target);
		*loss += off * off;
	}
	return pass == TUTTI_PASS_EVAL ? TUTTI_OK
				       : recover_perceptron_backward(trainer, samples, count);
}
