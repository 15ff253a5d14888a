/* The gate, and the way of a token through its experts: forward and backward. */
#include "gpt.h"

#include <math.h>
#include <string.h>

/* ---- the gate ---- */

/* The best two; of equal ones the first. */
static void gate_choose_best(int chosen[EXPERTS_CHOSEN], const float *chances, int count)
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
static void gate_take_group(const struct experts *x, int first)
{
	int taken[EXPERTS_MAX] = {0};

	for (int k = 0; k < EXPERTS_CHOSEN; k++)
		for (int r = first; r < first + x->group; r++) {
			int i = r * EXPERTS_CHOSEN + k, e = x->memory->chosen[i];
			bool is_taken = taken[e] < x->capacity;
			taken[e] += is_taken;
			x->memory->places[i] = is_taken ? x->memory->sent[e]++ : -1;
		}
}

/* Fills chances, chosen, places and sent of all rows. */
static void gate_choose(const struct experts *x)
{
	int before[EXPERTS_MAX] = {0};

	linear_forward(x->memory->chances, x->in, x->values[EXPERT_GATE], NULL, x->n, x->channels,
		       x->count);
	memset(x->memory->sent, 0, (size_t)x->count * sizeof *x->memory->sent);
	for (int r = 0; r < x->n; r++) {
		float *chances = x->memory->chances + r * x->count;
		layers_softmax(chances, x->count);
		gate_choose_best(x->memory->chosen + r * EXPERTS_CHOSEN, chances, x->count);
	}
	for (int first = 0; first < x->n; first += x->group)
		gate_take_group(x, first);
	for (int e = 1; e < x->count; e++)
		before[e] = before[e - 1] + x->memory->sent[e - 1];
	for (int i = 0; i < x->n * EXPERTS_CHOSEN; i++)
		if (x->memory->places[i] >= 0)
			x->memory->places[i] += before[x->memory->chosen[i]];
}

/* The chance of the k-th choice of a row. */
static float gate_chance(const struct experts *x, int row, int k)
{
	return x->memory->chances[row * x->count + x->memory->chosen[row * EXPERTS_CHOSEN + k]];
}

/* The weight of choice i of n * EXPERTS_CHOSEN: its chance among those that the token chose. */
static float gate_weight(const struct experts *x, int i)
{
	int row = i / EXPERTS_CHOSEN;

	return gate_chance(x, row, i % EXPERTS_CHOSEN) /
	       (gate_chance(x, row, 0) + gate_chance(x, row, 1));
}

/* The gradient of a choice's weight; none where it was not taken. */
static float gate_weight_grad(const struct experts *x, const float *out_grad, int i)
{
	int c = x->channels, place = x->memory->places[i];

	if (place < 0)
		return 0;
	return layers_dot(out_grad + i / EXPERTS_CHOSEN * c, x->memory->back + place * c, c);
}

/* Adds the gradients of a row's two weights, a / (a + b) and b / (a + b). */
static void gate_add_weight_grads(const struct experts *x, float *chances_grad,
				  const float *out_grad, int row)
{
	int i = row * EXPERTS_CHOSEN;
	float a = gate_chance(x, row, 0), b = gate_chance(x, row, 1), sum = a + b;
	float slope = (gate_weight_grad(x, out_grad, i) - gate_weight_grad(x, out_grad, i + 1)) /
		      (sum * sum);

	chances_grad[x->memory->chosen[i]] += b * slope;
	chances_grad[x->memory->chosen[i + 1]] -= a * slope;
}

/* The load-balance loss pulls the chances of an expert down by the share of tokens it has. */
static void gate_balance(const struct experts *x, float *chances_grad, int first, float grad_scale)
{
	float share[EXPERTS_MAX] = {0};

	for (int r = first; r < first + x->group; r++)
		share[x->memory->chosen[r * EXPERTS_CHOSEN]] += 1 / (float)x->group;
	for (int r = first; r < first + x->group; r++)
		for (int e = 0; e < x->count; e++)
			chances_grad[r * x->count + e] =
				x->balance * (float)x->count * share[e] * grad_scale;
}

/* grad (n, count): of chances, then of scores */
static void gate_backward(const struct experts *x, float *grad, const float *out_grad,
			  float grad_scale)
{
	for (int first = 0; first < x->n; first += x->group)
		gate_balance(x, grad, first, grad_scale);
	for (int r = 0; r < x->n; r++) {
		int at = r * x->count;
		gate_add_weight_grads(x, grad + at, out_grad, r);
		layers_softmax_backward(grad + at, x->memory->chances + at, x->count);
	}
}

/* ---- rows to the experts' ranks, and back ---- */

/* Each expert takes capacity rows of a group at most, and a group has few. */
size_t experts_room(const struct experts *x)
{
	size_t groups = (size_t)(x->most / x->group);

	return groups * (size_t)x->count * (size_t)x->capacity;
}

/* Rows that are packed, rows of results, gradients inside of an expert, of the gate, and the
 * transposed weights of a product. */
struct rooms {
	float *packed, *results, *inner, *gate, *transposed;
};

static struct rooms experts_divide(const struct experts *x)
{
	size_t room = experts_room(x), c = (size_t)x->channels;
	struct rooms s = {.packed = x->scratch};

	s.results = s.packed + room * c;
	s.inner = s.results + room * c;
	s.gate = s.inner + room * (size_t)x->hidden;
	s.transposed = s.gate + (size_t)x->most * (size_t)x->count;
	return s;
}

size_t experts_scratch(const struct experts *x)
{
	size_t room = experts_room(x), c = (size_t)x->channels, hidden = (size_t)x->hidden;

	return room * (2 * c + hidden) + (size_t)x->most * (size_t)x->count +
	       c * (hidden > (size_t)x->count ? hidden : (size_t)x->count);
}

static void experts_tell_counts(const struct experts *x)
{
	if (x->axis.size == 1)
		memcpy(x->memory->received, x->memory->sent, (size_t)x->count * sizeof(int));
	else
		must(tutti_all_to_all(x->memory->sent, x->memory->received, (size_t)x->own,
				      TUTTI_I32, x->axis.comm, NULL));
}

/* Packed rows to the ranks of their experts, or from there. */
static void experts_exchange(const struct experts *x, float *to, const float *from, bool is_back)
{
	size_t there[EXPERTS_MAX] = {0}, here[EXPERTS_MAX] = {0};

	for (int e = 0; e < x->count; e++) {
		there[e / x->own] += (size_t)(x->memory->sent[e] * x->channels);
		here[e / x->own] += (size_t)(x->memory->received[e] * x->channels);
	}
	if (x->axis.size == 1)
		memcpy(to, from, there[0] * sizeof *to);
	else
		must(tutti_all_to_allv(from, is_back ? here : there, NULL, to,
				       is_back ? there : here, NULL, TUTTI_F32, x->axis.comm,
				       NULL));
}

/* to (zeros) += from for each choice that was taken: to the place of packed rows from its row, or
 * the other way around. */
static void experts_add_rows(const struct experts *x, float *to, const float *from, bool is_packing,
			     bool is_weighted)
{
	int c = x->channels;

	for (int i = 0; i < x->n * EXPERTS_CHOSEN; i++) {
		int place = x->memory->places[i] * c, row = i / EXPERTS_CHOSEN * c;
		if (place >= 0)
			layers_add_row(to + (is_packing ? place : row),
				       is_weighted ? gate_weight(x, i) : 1,
				       from + (is_packing ? row : place), c);
	}
}

/* Rows of one expert from one rank lie behind each other. */
static void experts_compute(const struct experts *x, float *results)
{
	int c = x->channels, hidden = x->hidden;

	for (int i = 0, first = 0; i < x->count; first += x->memory->received[i++]) {
		int e = i % x->own, count = x->memory->received[i];
		float *up = x->memory->up + first * hidden,
		      *gelu = x->memory->gelu + first * hidden;
		linear_forward(up, x->memory->in + first * c, x->values[EXPERT_UP] + e * c * hidden,
			       x->values[EXPERT_UP_BIAS] + e * hidden, count, c, hidden);
		gelu_forward(gelu, up, count * hidden);
		linear_forward(results + first * c, gelu, x->values[EXPERT_DOWN] + e * hidden * c,
			       x->values[EXPERT_DOWN_BIAS] + e * c, count, hidden, c);
	}
}

void experts_forward(const struct experts *x, float *out)
{
	struct rooms s = experts_divide(x);
	size_t c = (size_t)x->channels;

	gate_choose(x);
	experts_tell_counts(x);
	clear(s.packed, experts_room(x) * c);
	experts_add_rows(x, s.packed, x->in, true, false);
	experts_exchange(x, x->memory->in, s.packed, false);
	experts_compute(x, s.results);
	experts_exchange(x, x->memory->back, s.results, true);
	clear(out, (size_t)x->n * c);
	experts_add_rows(x, out, x->memory->back, false, true);
}

/* results: gradients of results, then of what came in */
static void experts_compute_backward(const struct experts *x, const struct rooms *s)
{
	int c = x->channels, hidden = x->hidden;

	for (int i = 0, first = 0; i < x->count; first += x->memory->received[i++]) {
		int e = i % x->own, count = x->memory->received[i];
		float *grad = s->results + first * c;
		struct linear_grads down = {s->inner, x->grads[EXPERT_DOWN] + e * hidden * c,
					    x->grads[EXPERT_DOWN_BIAS] + e * c, s->transposed};
		struct linear_grads up = {grad, x->grads[EXPERT_UP] + e * c * hidden,
					  x->grads[EXPERT_UP_BIAS] + e * hidden, s->transposed};
		linear_backward(&down, grad, x->memory->gelu + first * hidden,
				x->values[EXPERT_DOWN] + e * hidden * c, count, hidden, c);
		gelu_backward(s->inner, x->memory->up + first * hidden, count * hidden);
		linear_backward(&up, s->inner, x->memory->in + first * c,
				x->values[EXPERT_UP] + e * c * hidden, count, c, hidden);
	}
}

void experts_backward(const struct experts *x, float *in_grad, const float *out_grad,
		      float grad_scale)
{
	struct rooms s = experts_divide(x);
	struct linear_grads gate = {in_grad, x->grads[EXPERT_GATE], NULL, s.transposed};

	gate_backward(x, s.gate, out_grad, grad_scale);
	linear_backward(&gate, s.gate, x->in, x->values[EXPERT_GATE], x->n, x->channels, x->count);
	clear(s.packed, experts_room(x) * (size_t)x->channels);
	experts_add_rows(x, s.packed, out_grad, true, true);
	experts_exchange(x, s.results, s.packed, false);
	experts_compute_backward(x, &s);
	experts_exchange(x, s.packed, s.results, true);
	experts_add_rows(x, in_grad, s.packed, false, false);
}
