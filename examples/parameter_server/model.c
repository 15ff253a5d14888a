/* The recommender's data, forward and backward. */
#include "model.h"

#include <math.h>
#include <string.h>
#include <tutti/train.h>

enum { SEED_SAMPLES = 1, SEED_TASTES, SEED_DENSE, SEED_ROWS };

struct activations {
	float input[2 * DIM], hidden[HIDDEN], rating;
};

/* In [-1, 1). */
static float model_uniform(uint64_t seed, uint64_t stream, uint64_t index)
{
	return (float)(tutti_random(seed, 0, stream, index) >> 8) / (1 << 23) - 1;
}

struct sample sample_of(int64_t step, int index)
{
	uint32_t user = tutti_random(SEED_SAMPLES, (uint64_t)step, 0, (uint64_t)index) % USERS;
	uint32_t thing = tutti_random(SEED_SAMPLES, (uint64_t)step, 1, (uint64_t)index) % THINGS;
	float mild = model_uniform(SEED_TASTES, 0, user),
	      good = model_uniform(SEED_TASTES, 1, thing);

	return (struct sample){(int)user, USERS + (int)thing,
			       tanhf(1.5f * (mild + good)) * cosf(2 * mild * good)};
}

struct share share_of(int samples, int worker, int workers)
{
	return (struct share){samples * worker / workers, samples * (worker + 1) / workers};
}

float dense_init(int index)
{
	if (index >= B2 || (index >= B1 && index < W2))
		return 0;
	return model_uniform(SEED_DENSE, 0, (uint64_t)index) * (index < B1 ? 0.6f : 0.4f);
}

float row_init(int row, int element)
{
	return model_uniform(SEED_ROWS, (uint64_t)row, (uint64_t)element);
}

static void model_forward(const struct model *m, const struct sample *s, struct activations *a)
{
	memcpy(a->input, m->rows[m->slot_of[s->user]], sizeof(float[DIM]));
	memcpy(a->input + DIM, m->rows[m->slot_of[s->thing]], sizeof(float[DIM]));
	a->rating = m->dense[B2];
	for (int h = 0; h < HIDDEN; h++) {
		float sum = m->dense[B1 + h];
		for (int i = 0; i < 2 * DIM; i++)
			sum += m->dense[W1 + h * 2 * DIM + i] * a->input[i];
		a->hidden[h] = tanhf(sum);
		a->rating += m->dense[W2 + h] * a->hidden[h];
	}
}

static void model_backward(struct model *m, const struct sample *s, const struct activations *a)
{
	float *grads[2] = {m->rows_grad[m->slot_of[s->user]], m->rows_grad[m->slot_of[s->thing]]};
	float error = 2 * (a->rating - s->rating);

	m->dense_grad[B2] += error;
	for (int h = 0; h < HIDDEN; h++) {
		float inner = error * m->dense[W2 + h] * (1 - a->hidden[h] * a->hidden[h]);
		m->dense_grad[W2 + h] += error * a->hidden[h];
		m->dense_grad[B1 + h] += inner;
		for (int i = 0; i < 2 * DIM; i++) {
			m->dense_grad[W1 + h * 2 * DIM + i] += inner * a->input[i];
			grads[i / DIM][i % DIM] += inner * m->dense[W1 + h * 2 * DIM + i];
		}
	}
}

static double squared_error(const struct sample *s, const struct activations *a)
{
	double off = (double)(a->rating - s->rating);

	return off * off;
}

double model_loss(const struct model *model, const struct sample *samples, int count)
{
	struct activations a;
	double loss = 0;

	for (int i = 0; i < count; i++) {
		model_forward(model, &samples[i], &a);
		loss += squared_error(&samples[i], &a);
	}
	return loss;
}

double model_gradients(struct model *model, const struct sample *samples, int count, int num_rows)
{
	struct activations a;
	double loss = 0;

	memset(model->dense_grad, 0, sizeof model->dense_grad);
	memset(model->rows_grad, 0, (size_t)num_rows * sizeof *model->rows_grad);
	for (int i = 0; i < count; i++) {
		model_forward(model, &samples[i], &a);
		model_backward(model, &samples[i], &a);
		loss += squared_error(&samples[i], &a);
	}
	return loss;
}
