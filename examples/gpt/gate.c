/* Choices of tokens and their gradients. */
#include "gate.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

static void gate_softmax(float *x, int count)
{
	float most = x[0], sum = 0;

	for (int i = 1; i < count; i++)
		most = x[i] > most ? x[i] : most;
	for (int i = 0; i < count; i++)
		sum += x[i] = expf(x[i] - most);
	for (int i = 0; i < count; i++)
		x[i] /= sum;
}

/* The best two; of equal ones the first. */
static void gpt_gate_choose(int chosen[EXPERTS_CHOSEN], const float *chances, int count)
{
	chosen[0] = chances[1] > chances[0];
	chosen[1] = !chosen[0];
	for (int e = 2; e < count; e++)
		if (chances[e] > chances[chosen[0]]) {
			chosen[1] = chosen[0];
			chosen[0] = e;
		} else if (chances[e] > chances[chosen[1]]) {
			chosen[1] = e;
		}
}

/* First choices come before second ones. places: the number among those of its expert that are
 * sent; -1 where the expert has enough of this group. */
static void gate_take_group(const struct experts *x, struct expert_memory *memory, int first)
{
	int taken[EXPERTS_MAX] = {0};

	for (int k = 0; k < EXPERTS_CHOSEN; k++)
		for (int r = first; r < first + x->group; r++) {
			int i = r * EXPERTS_CHOSEN + k, e = memory->chosen[i];
			bool is_taken = taken[e] < x->capacity;
			taken[e] += is_taken;
			memory->places[i] = is_taken ? memory->sent[e]++ : -1;
		}
}

void gate_choose(const struct experts *x, struct expert_memory *memory, const float *in,
		 const float *weight, int n)
{
	int before[EXPERTS_MAX] = {0};

	linear_forward(memory->chances, in, weight, NULL, n, x->channels, x->count);
	memset(memory->sent, 0, (size_t)x->count * sizeof *memory->sent);
	for (int r = 0; r < n; r++) {
		gate_softmax(memory->chances + r * x->count, x->count);
		gpt_gate_choose(memory->chosen + r * EXPERTS_CHOSEN, memory->chances + r * x->count,
				x->count);
	}
	for (int first = 0; first < n; first += x->group)
		gate_take_group(x, memory, first);
	for (int e = 1; e < x->count; e++)
		before[e] = before[e - 1] + memory->sent[e - 1];
	for (int i = 0; i < n * EXPERTS_CHOSEN; i++)
		if (memory->places[i] >= 0)
			memory->places[i] += before[memory->chosen[i]];
}

/* The chances of what a row has chosen. */
static void chances_of(const struct experts *x, const struct expert_memory *memory, int row,
		       float chances[EXPERTS_CHOSEN])
{
	for (int k = 0; k < EXPERTS_CHOSEN; k++)
		chances[k] =
			memory->chances[row * x->count + memory->chosen[row * EXPERTS_CHOSEN + k]];
}

float gate_weight(const struct experts *x, const struct expert_memory *memory, int i)
{
	float chances[EXPERTS_CHOSEN];

	chances_of(x, memory, i / EXPERTS_CHOSEN, chances);
	return chances[i % EXPERTS_CHOSEN] / (chances[0] + chances[1]);
}

/* The gradient of a choice's weight; none where it was not taken. */
static float weight_grad(const struct experts *x, const struct expert_memory *memory,
			 const float *out_grad, int i)
{
	float sum = 0;

	if (memory->places[i] < 0)
		return 0;
	const float *back = memory->back + (size_t)memory->places[i] * (size_t)x->channels;
	const float *grad = out_grad + (size_t)(i / EXPERTS_CHOSEN) * (size_t)x->channels;
	for (int j = 0; j < x->channels; j++)
		sum += grad[j] * back[j];
	return sum;
}

/* Adds the gradients of a row's two weights, a / (a + b) and b / (a + b). */
static void add_weight_grads(const struct experts *x, float *chances_grad,
			     const struct expert_memory *memory, const float *out_grad, int row)
{
	const int *chosen = memory->chosen + row * EXPERTS_CHOSEN;
	float chances[EXPERTS_CHOSEN];

	chances_of(x, memory, row, chances);
	float sum = chances[0] + chances[1];
	float slope = (weight_grad(x, memory, out_grad, row * EXPERTS_CHOSEN) -
		       weight_grad(x, memory, out_grad, row * EXPERTS_CHOSEN + 1)) /
		      (sum * sum);
	chances_grad[chosen[0]] += chances[1] * slope;
	chances_grad[chosen[1]] -= chances[0] * slope;
}

/* The load-balance loss pulls the chances of an expert down by the share of tokens it has. */
static void gate_balance(const struct experts *x, float *chances_grad,
			 const struct expert_memory *memory, int first, float grad_scale)
{
	float share[EXPERTS_MAX] = {0};

	for (int r = first; r < first + x->group; r++)
		share[memory->chosen[r * EXPERTS_CHOSEN]] += 1 / (float)x->group;
	for (int r = first; r < first + x->group; r++)
		for (int e = 0; e < x->count; e++)
			chances_grad[r * x->count + e] =
				x->balance * (float)x->count * share[e] * grad_scale;
}

/* grad: of softmax(x) = chances, becomes that of x */
static void softmax_backward(float *grad, const float *chances, int count)
{
	float sum = 0;

	for (int e = 0; e < count; e++)
		sum += grad[e] * chances[e];
	for (int e = 0; e < count; e++)
		grad[e] = chances[e] * (grad[e] - sum);
}

void gate_go_back(const struct experts *x, float *in_grad, const struct expert_memory *memory,
		  const struct gate_backward *gate, int n)
{
	struct linear_grads grads = {
		.in = in_grad, .weight = gate->weight_grad, .scratch = gate->scratch};
	float *grad = gate->scores_grad;

	for (int first = 0; first < n; first += x->group)
		gate_balance(x, grad, memory, first, gate->grad_scale);
	for (int r = 0; r < n; r++) {
		add_weight_grads(x, grad + r * x->count, memory, gate->out_grad, r);
		softmax_backward(grad + r * x->count, memory->chances + r * x->count, x->count);
	}
	linear_backward(&grads, grad, gate->in, gate->weight, n, x->channels, x->count);
}
