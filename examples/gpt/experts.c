/* The gate, and the way of a token through its experts: forward and backward. */
#include "experts.h"

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

/* Fills chances, chosen, places and sent of n rows. */
static void gate_choose(const struct experts *x, struct expert_memory *memory, const float *in,
			const float *weight, int n)
{
	int before[EXPERTS_MAX] = {0};

	linear_forward(memory->chances, in, weight, NULL, n, x->channels, x->count);
	memset(memory->sent, 0, (size_t)x->count * sizeof *memory->sent);
	for (int r = 0; r < n; r++) {
		float *chances = memory->chances + r * x->count;
		layers_softmax(chances, x->count);
		gate_choose_best(memory->chosen + r * EXPERTS_CHOSEN, chances, x->count);
	}
	for (int first = 0; first < n; first += x->group)
		gate_take_group(x, memory, first);
	for (int e = 1; e < x->count; e++)
		before[e] = before[e - 1] + memory->sent[e - 1];
	for (int i = 0; i < n * EXPERTS_CHOSEN; i++)
		if (memory->places[i] >= 0)
			memory->places[i] += before[memory->chosen[i]];
}

/* The chance of the k-th choice of a row. */
static float gate_chance(const struct experts *x, const struct expert_memory *memory, int row,
			 int k)
{
	return memory->chances[row * x->count + memory->chosen[row * EXPERTS_CHOSEN + k]];
}

/* The weight of choice i of n * EXPERTS_CHOSEN: its chance among those that the token chose. */
static float gate_weight(const struct experts *x, const struct expert_memory *memory, int i)
{
	int row = i / EXPERTS_CHOSEN;

	return gate_chance(x, memory, row, i % EXPERTS_CHOSEN) /
	       (gate_chance(x, memory, row, 0) + gate_chance(x, memory, row, 1));
}

/* The gradient of a choice's weight; none where it was not taken. */
static float gate_weight_grad(const struct experts *x, const struct expert_memory *memory,
			      const float *out_grad, int i)
{
	int c = x->channels, place = memory->places[i];

	if (place < 0)
		return 0;
	return layers_dot(out_grad + i / EXPERTS_CHOSEN * c, memory->back + place * c, c);
}

/* Adds the gradients of a row's two weights, a / (a + b) and b / (a + b). */
static void gate_add_weight_grads(const struct experts *x, float *chances_grad,
				  const struct expert_memory *memory, const float *out_grad,
				  int row)
{
	int i = row * EXPERTS_CHOSEN;
	float a = gate_chance(x, memory, row, 0), b = gate_chance(x, memory, row, 1), sum = a + b;
	float slope = (gate_weight_grad(x, memory, out_grad, i) -
		       gate_weight_grad(x, memory, out_grad, i + 1)) /
		      (sum * sum);

	chances_grad[memory->chosen[i]] += b * slope;
	chances_grad[memory->chosen[i + 1]] -= a * slope;
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

/* grad (n, count): of chances, then of scores */
static void gate_backward(const struct experts *x, float *grad, const struct expert_memory *memory,
			  const float *out_grad, int n, float grad_scale)
{
	for (int first = 0; first < n; first += x->group)
		gate_balance(x, grad, memory, first, grad_scale);
	for (int r = 0; r < n; r++) {
		int at = r * x->count;
		gate_add_weight_grads(x, grad + at, memory, out_grad, r);
		layers_softmax_backward(grad + at, memory->chances + at, x->count);
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

static struct rooms experts_divide(const struct experts *x, float *scratch)
{
	size_t room = experts_room(x), c = (size_t)x->channels;
	struct rooms s = {.packed = scratch};

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

static void experts_tell_counts(const struct experts *x, struct expert_memory *memory)
{
	if (x->size == 1)
		memcpy(memory->received, memory->sent, (size_t)x->count * sizeof(int));
	else
		must(tutti_all_to_all(memory->sent, memory->received, (size_t)x->own, TUTTI_I32,
				      x->comm, NULL));
}

/* Packed rows to the ranks of their experts, or from there. */
static void experts_exchange(const struct experts *x, const struct expert_memory *memory, float *to,
			     const float *from, bool is_back)
{
	size_t there[EXPERTS_MAX] = {0}, here[EXPERTS_MAX] = {0};

	for (int e = 0; e < x->count; e++) {
		there[e / x->own] += (size_t)(memory->sent[e] * x->channels);
		here[e / x->own] += (size_t)(memory->received[e] * x->channels);
	}
	if (x->size == 1)
		memcpy(to, from, there[0] * sizeof *to);
	else
		must(tutti_all_to_allv(from, is_back ? here : there, NULL, to,
				       is_back ? there : here, NULL, TUTTI_F32, x->comm, NULL));
}

/* to (zeros) += from for each choice that was taken: to the place of packed rows from its row, or
 * the other way around. */
static void experts_add_rows(const struct experts *x, const struct expert_memory *memory, int n,
			     float *to, const float *from, bool is_packing, bool is_weighted)
{
	int c = x->channels;

	for (int i = 0; i < n * EXPERTS_CHOSEN; i++) {
		int place = memory->places[i] * c, row = i / EXPERTS_CHOSEN * c;
		if (place >= 0)
			layers_add_row(to + (is_packing ? place : row),
				       is_weighted ? gate_weight(x, memory, i) : 1,
				       from + (is_packing ? row : place), c);
	}
}

/* Rows of one expert from one rank lie behind each other. */
static void experts_compute(const struct experts *x, float *results,
			    const struct expert_memory *memory, struct expert_params w)
{
	int c = x->channels, hidden = x->hidden;

	for (int i = 0, first = 0; i < x->count; first += memory->received[i++]) {
		int e = i % x->own, count = memory->received[i];
		float *up = memory->up + first * hidden, *gelu = memory->gelu + first * hidden;
		linear_forward(up, memory->in + first * c, w.up_w + e * c * hidden,
			       w.up_b + e * hidden, count, c, hidden);
		gelu_forward(gelu, up, count * hidden);
		linear_forward(results + first * c, gelu, w.down_w + e * hidden * c,
			       w.down_b + e * c, count, hidden, c);
	}
}

void experts_forward(const struct experts *x, float *out, struct expert_memory *memory,
		     const float *in, struct expert_params weights, float *scratch, int n)
{
	struct rooms s = experts_divide(x, scratch);

	gate_choose(x, memory, in, weights.gate_w, n);
	experts_tell_counts(x, memory);
	clear(s.packed, experts_room(x) * (size_t)x->channels);
	experts_add_rows(x, memory, n, s.packed, in, true, false);
	experts_exchange(x, memory, memory->in, s.packed, false);
	experts_compute(x, s.results, memory, weights);
	experts_exchange(x, memory, memory->back, s.results, true);
	clear(out, (size_t)n * (size_t)x->channels);
	experts_add_rows(x, memory, n, out, memory->back, false, true);
}

/* results: gradients of results, then of what came in */
static void experts_compute_backward(const struct experts *x, const struct rooms *s,
				     const struct expert_memory *memory, struct expert_params w,
				     struct expert_params g)
{
	int c = x->channels, hidden = x->hidden;

	for (int i = 0, first = 0; i < x->count; first += memory->received[i++]) {
		int e = i % x->own, count = memory->received[i];
		float *grad = s->results + first * c;
		struct linear_grads down = {s->inner, g.down_w + e * hidden * c, g.down_b + e * c,
					    s->transposed};
		struct linear_grads up = {grad, g.up_w + e * c * hidden, g.up_b + e * hidden,
					  s->transposed};
		linear_backward(&down, grad, memory->gelu + first * hidden,
				w.down_w + e * hidden * c, count, hidden, c);
		gelu_backward(s->inner, memory->up + first * hidden, count * hidden);
		linear_backward(&up, s->inner, memory->in + first * c, w.up_w + e * c * hidden,
				count, c, hidden);
	}
}

void experts_backward(const struct experts *x, float *in_grad, struct expert_params grads,
		      const float *out_grad, const struct expert_memory *memory, const float *in,
		      struct expert_params weights, float *scratch, int n, float grad_scale)
{
	struct rooms s = experts_divide(x, scratch);
	struct linear_grads gate = {in_grad, grads.gate_w, NULL, s.transposed};

	gate_backward(x, s.gate, memory, out_grad, n, grad_scale);
	linear_backward(&gate, s.gate, in, weights.gate_w, n, x->channels, x->count);
	clear(s.packed, experts_room(x) * (size_t)x->channels);
	experts_add_rows(x, memory, n, s.packed, out_grad, true, true);
	experts_exchange(x, memory, s.results, s.packed, false);
	experts_compute_backward(x, &s, memory, weights, grads);
	experts_exchange(x, memory, s.packed, s.results, true);
	experts_add_rows(x, memory, n, in_grad, s.packed, false, false);
}
