/* The way of a token through its experts, forward and backward. */
#include "experts.h"

#include "gate.h"
#include "gpt.h"

#include <string.h>

/* Each expert takes capacity rows of a group at most, and a group has few. */
size_t experts_room(const struct experts *x)
{
	size_t groups = (size_t)(x->most / x->group);

	return groups * (size_t)x->count * (size_t)x->capacity;
}

/* Rows that are packed, rows of results, gradients inside of an expert, of the gate, and the
 * transposed weights of a product. */
size_t experts_scratch(const struct experts *x)
{
	size_t room = experts_room(x), c = (size_t)x->channels, hidden = (size_t)x->hidden;

	return room * (2 * c + hidden) + (size_t)x->most * (size_t)x->count +
	       c * (hidden > (size_t)x->count ? hidden : (size_t)x->count);
}

struct scratch {
	float *packed, *results, *inner, *gate, *transposed;
};

static struct scratch experts_divide(const struct experts *x, float *scratch)
{
	size_t room = experts_room(x), c = (size_t)x->channels;
	struct scratch s = {.packed = scratch};

	s.results = s.packed + room * c;
	s.inner = s.results + room * c;
	s.gate = s.inner + room * (size_t)x->hidden;
	s.transposed = s.gate + (size_t)x->most * (size_t)x->count;
	return s;
}

/* For each rank the elements of rows that go there, or come from there. */
struct traffic {
	size_t there[EXPERTS_MAX], here[EXPERTS_MAX];
};

static struct traffic traffic_of(const struct experts *x, const struct expert_memory *memory)
{
	struct traffic t = {0};

	for (int rank = 0; rank < x->size; rank++)
		for (int e = rank * x->own; e < (rank + 1) * x->own; e++) {
			t.there[rank] += (size_t)memory->sent[e] * (size_t)x->channels;
			t.here[rank] += (size_t)memory->received[e] * (size_t)x->channels;
		}
	return t;
}

/* Rows to the ranks of their experts. */
static void send_there(const struct experts *x, const struct traffic *t, float *here,
		       const float *there)
{
	if (x->size == 1)
		memcpy(here, there, t->there[0] * sizeof *here);
	else
		must(tutti_all_to_allv(there, t->there, NULL, here, t->here, NULL, TUTTI_F32,
				       x->comm, NULL));
}

/* And back. */
static void send_back(const struct experts *x, const struct traffic *t, float *there,
		      const float *here)
{
	if (x->size == 1)
		memcpy(there, here, t->here[0] * sizeof *here);
	else
		must(tutti_all_to_allv(here, t->here, NULL, there, t->there, NULL, TUTTI_F32,
				       x->comm, NULL));
}

static void tell_counts(const struct experts *x, struct expert_memory *memory)
{
	if (x->size == 1)
		memcpy(memory->received, memory->sent, (size_t)x->count * sizeof(int));
	else
		must(tutti_all_to_all(memory->sent, memory->received, (size_t)x->own, TUTTI_I32,
				      x->comm, NULL));
}

static float *experts_row_of(const struct experts *x, float *rows, int row)
{
	return rows + (size_t)row * (size_t)x->channels;
}

/* rows += weight * row */
static void experts_add_row(float *restrict to, float weight, const float *restrict from, int count)
{
	for (int i = 0; i < count; i++)
		to[i] += weight * from[i];
}

static void experts_pack(const struct experts *x, float *packed, const struct expert_memory *memory,
			 const float *in, int n)
{
	for (int i = 0; i < n * EXPERTS_CHOSEN; i++)
		if (memory->places[i] >= 0)
			memcpy(experts_row_of(x, packed, memory->places[i]),
			       in + (size_t)(i / EXPERTS_CHOSEN) * (size_t)x->channels,
			       (size_t)x->channels * sizeof *packed);
}

/* Rows of one expert that lie behind each other: they came from one rank. */
struct segment {
	int expert, first, count;
};

static int next_segment(const struct experts *x, const struct expert_memory *memory, int i,
			struct segment *segment)
{
	if (i == x->count)
		return 0;
	segment->first += segment->count;
	segment->expert = i % x->own;
	segment->count = memory->received[i];
	return 1;
}

static void experts_compute(const struct experts *x, float *results,
			    const struct expert_memory *memory, struct expert_weights w)
{
	struct segment s = {0};
	size_t c = (size_t)x->channels, hidden = (size_t)x->hidden;

	for (int i = 0; next_segment(x, memory, i, &s); i++) {
		size_t e = (size_t)s.expert, first = (size_t)s.first;
		float *up = memory->up + first * hidden, *gelu = memory->gelu + first * hidden;
		linear_forward(up, memory->in + first * c, w.up_w + e * c * hidden,
			       w.up_b + e * hidden, s.count, x->channels, x->hidden);
		gelu_forward(gelu, up, s.count * x->hidden);
		linear_forward(results + first * c, gelu, w.down_w + e * hidden * c,
			       w.down_b + e * c, s.count, x->hidden, x->channels);
	}
}

void experts_forward(const struct experts *x, float *out, struct expert_memory *memory,
		     const float *in, struct expert_weights weights, float *scratch, int n)
{
	struct scratch s = experts_divide(x, scratch);
	struct traffic traffic;

	gate_choose(x, memory, in, weights.gate_w, n);
	tell_counts(x, memory);
	traffic = traffic_of(x, memory);
	experts_pack(x, s.packed, memory, in, n);
	send_there(x, &traffic, memory->in, s.packed);
	experts_compute(x, s.results, memory, weights);
	send_back(x, &traffic, memory->back, s.results);
	clear(out, (size_t)n * (size_t)x->channels);
	for (int i = 0; i < n * EXPERTS_CHOSEN; i++)
		if (memory->places[i] >= 0)
			experts_add_row(experts_row_of(x, out, i / EXPERTS_CHOSEN),
					gate_weight(x, memory, i),
					experts_row_of(x, memory->back, memory->places[i]),
					x->channels);
}

/* results: gradients of results, then of what came in */
static void compute_backward(const struct experts *x, const struct scratch *scratch,
			     const struct expert_memory *memory, struct expert_weights w,
			     struct expert_grads g)
{
	struct segment s = {0};
	size_t c = (size_t)x->channels, hidden = (size_t)x->hidden;

	for (int i = 0; next_segment(x, memory, i, &s); i++) {
		size_t e = (size_t)s.expert, first = (size_t)s.first;
		float *grad = scratch->results + first * c, *inner = scratch->inner;
		struct linear_grads down = {inner, g.down_w + e * hidden * c, g.down_b + e * c,
					    scratch->transposed};
		struct linear_grads up = {grad, g.up_w + e * c * hidden, g.up_b + e * hidden,
					  scratch->transposed};
		linear_backward(&down, grad, memory->gelu + first * hidden,
				w.down_w + e * hidden * c, s.count, x->hidden, x->channels);
		gelu_backward(inner, memory->up + first * hidden, s.count * x->hidden);
		linear_backward(&up, inner, memory->in + first * c, w.up_w + e * c * hidden,
				s.count, x->channels, x->hidden);
	}
}

void experts_backward(const struct experts *x, float *in_grad, struct expert_grads grads,
		      const float *out_grad, const struct expert_memory *memory, const float *in,
		      struct expert_weights weights, float *scratch, int n, float grad_scale)
{
	struct scratch s = experts_divide(x, scratch);
	struct traffic traffic = traffic_of(x, memory);
	struct gate_backward gate = {.out_grad = out_grad,
				     .in = in,
				     .weight = weights.gate_w,
				     .weight_grad = grads.gate_w,
				     .grad_scale = grad_scale,
				     .scores_grad = s.gate,
				     .scratch = s.transposed};

	gate_go_back(x, in_grad, memory, &gate, n);
	clear(s.packed, experts_room(x) * (size_t)x->channels);
	for (int i = 0; i < n * EXPERTS_CHOSEN; i++)
		if (memory->places[i] >= 0)
			experts_add_row(experts_row_of(x, s.packed, memory->places[i]),
					gate_weight(x, memory, i),
					out_grad +
						(size_t)(i / EXPERTS_CHOSEN) * (size_t)x->channels,
					x->channels);
	send_there(x, &traffic, s.results, s.packed);
	compute_backward(x, &s, memory, weights, grads);
	send_back(x, &traffic, s.packed, s.results);
	for (int i = 0; i < n * EXPERTS_CHOSEN; i++)
		if (memory->places[i] >= 0)
			experts_add_row(experts_row_of(x, in_grad, i / EXPERTS_CHOSEN), 1,
					experts_row_of(x, s.packed, memory->places[i]),
					x->channels);
}
