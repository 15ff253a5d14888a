/* Where the activations of a rank's part lie: one behind the other in one piece of memory. */
#include "gpt.h"

#include "place.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>

/* Where tensors of floats lie one behind the other; with memory NULL they are only counted. */
struct room {
	const struct gpt *gpt;
	size_t n, own, c, part; /* rows in a branch, of the stream; channels, this rank's */
	float *memory;
	size_t used, largest;
};

static float *room_carve(struct room *room, size_t count)
{
	float *piece = room->memory ? room->memory + room->used : NULL;

	room->used += (count + 15) & ~(size_t)15;
	room->largest = count > room->largest ? count : room->largest;
	return piece;
}

static int *room_carve_ints(struct room *room, size_t count)
{
	_Static_assert(sizeof(int) == sizeof(float), "numbers of one size");
	return (int *)(void *)room_carve(room, count);
}

/* A tensor of the stream's shape, of the rows in a branch, and two numbers of each row. */
static float *room_carve_stream(struct room *room)
{
	return room_carve(room, room->own * room->c);
}

static float *room_carve_branch(struct room *room, size_t times)
{
	return room_carve(room, room->n * times * room->part);
}

static struct norm_stats room_carve_stats(struct room *room)
{
	float *both = room_carve(room, 2 * room->own);

	return (struct norm_stats){both, both ? both + room->own : NULL};
}

static struct attention_shape activations_attention(const struct room *room)
{
	const struct gpt *gpt = room->gpt;

	return (struct attention_shape){(int)room->n / gpt->context.length, gpt->context.length,
					(int)room->part, gpt->shape.heads / gpt->split.axis.size};
}

static void lay_out_experts(struct expert_memory *m, struct room *room)
{
	const struct experts *experts = &room->gpt->experts;
	size_t rows = experts_room(experts), hidden = (size_t)experts->hidden;

	m->chances = room_carve(room, room->own * (size_t)experts->count);
	m->chosen = room_carve_ints(room, room->own * EXPERTS_CHOSEN);
	m->places = room_carve_ints(room, room->own * EXPERTS_CHOSEN);
	m->sent = room_carve_ints(room, (size_t)experts->count);
	m->received = room_carve_ints(room, (size_t)experts->count);
	m->in = room_carve(room, rows * room->c);
	m->up = room_carve(room, rows * hidden);
	m->gelu = room_carve(room, rows * hidden);
	m->back = room_carve(room, rows * room->c);
}

/* All but the streams. */
static struct unit_activations lay_out_unit(struct room *room, const struct gpt_scratch *shared,
					    bool is_head)
{
	const struct gpt *gpt = room->gpt;
	bool has_grads = gpt->config.weights_later, is_dense = gpt->experts.count == 0;
	struct unit_activations b = {.norm1_grad = shared->narrow_grad,
				     .qkv_grad = shared->wide_grad,
				     .proj_grad = shared->stream_grad,
				     .norm2_grad = shared->narrow_grad,
				     .up_grad = shared->wide_grad,
				     .down_grad = shared->stream_grad};

	b.norm1 = room_carve_stream(room);
	b.stats1 = room_carve_stats(room);
	if (has_grads)
		b.norm1_grad = room_carve_stream(room);
	if (is_head) {
		b.logits = room_carve(room, room->n * (size_t)gpt->split.vocab);
		return b;
	}
	b.qkv = room_carve_branch(room, 3);
	b.weights = room_carve(room, context_weights(&gpt->context, activations_attention(room)));
	b.mixed = room_carve_branch(room, 1);
	b.middle = room_carve_stream(room);
	b.norm2 = room_carve_stream(room);
	b.stats2 = room_carve_stats(room);
	if (!is_dense)
		lay_out_experts(&b.experts, room);
	b.up = is_dense ? room_carve_branch(room, 4) : NULL;
	b.gelu = is_dense ? room_carve_branch(room, 4) : NULL;
	if (!has_grads)
		return b;
	b.qkv_grad = room_carve_branch(room, 3);
	b.proj_grad = room_carve_stream(room);
	b.norm2_grad = room_carve_stream(room);
	b.up_grad = is_dense ? room_carve_branch(room, 4) : NULL;
	b.down_grad = is_dense ? room_carve_stream(room) : NULL;
	return b;
}

/* Of the largest layer: transposed weights, or what attention or experts need. */
static size_t activations_scratch(const struct room *room)
{
	const struct gpt *gpt = room->gpt;
	size_t vocab = (size_t)gpt->shape.vocab, c = room->c;
	size_t most = c * (vocab > 4 * c ? vocab : 4 * c);
	size_t attention = context_scratch(&gpt->context, activations_attention(room));
	size_t experts = gpt->experts.count > 0 ? experts_scratch(&gpt->experts) : 0;

	most = attention > most ? attention : most;
	return experts > most ? experts : most;
}

static struct gpt_scratch lay_out_shared(struct room *room)
{
	struct gpt_scratch s = {0};

	s.stream_grad = room_carve_stream(room);
	s.wide_grad = room_carve_branch(room, 4);
	s.narrow_grad = room_carve_stream(room);
	s.scratch = room_carve(room, activations_scratch(room));
	s.loss = (double *)room_carve(room, sizeof(double) / sizeof(float));
	if (room->gpt->config.recompute)
		s.block = lay_out_unit(room, &s, false);
	return s;
}

/* Whether the rank has the unit. */
static bool activations_are_here(const struct gpt *gpt, int unit)
{
	int64_t first, count;

	must(tutti_param_piece(gpt->trainer, gpt->units[unit][NORM1_W], &first, &count));
	return count > 0;
}

/* A stage's last stream is the next one's first. */
static void activations_lay_out(struct gpt_activations *a, struct room *room)
{
	const struct gpt *gpt = room->gpt;
	int head = gpt->shape.layers + 1;

	a->shared = gpt->activations ? gpt->activations->shared : lay_out_shared(room);
	a->embed_grad = gpt->config.weights_later ? room_carve_stream(room) : a->shared.stream_grad;
	for (int u = 1; u <= head; u++) {
		if (u < head && gpt->config.recompute)
			a->units[u] = a->shared.block;
		else if (activations_are_here(gpt, u))
			a->units[u] = lay_out_unit(room, &a->shared, u == head);
		a->units[u].in = room_carve_stream(room);
	}
	a->tokens = (unsigned char *)room_carve(room, room->n / sizeof(float) + 1);
	a->targets = (unsigned char *)room_carve(room, room->n / sizeof(float) + 1);
}

static struct room room_of(const struct gpt *gpt, int sequences, float *memory)
{
	size_t n = (size_t)sequences * (size_t)gpt->context.length;
	size_t ranks = (size_t)gpt->split.axis.size, c = (size_t)gpt->shape.channels;

	return (struct room){gpt, n, n / ranks, c, c / ranks, memory, 0, 0};
}

/* With peers of tutti_mem_alloc, so that gathers of blocks copy nothing where they are on one node.
 * Where there is too little of it the ranks hear so together. */
static void activations_allocate(struct gpt_activations *a, const struct gpt *gpt, size_t bytes)
{
	uint64_t most = bytes;
	void *memory = NULL;

	if (gpt->peers) {
		must(tutti_all_reduce(&most, &most, 1, TUTTI_U64, TUTTI_MAX, gpt->peers, NULL));
		tutti_status status = tutti_mem_alloc(&memory, most, gpt->peers);
		if (status != TUTTI_ERR_MEMORY)
			must(status);
	}
	a->is_shared = memory != NULL;
	a->memory = memory ? memory : place_alloc(bytes);
}

/* Layers find their way in a tensor by int. */
struct gpt_activations *gpt_make_activations(const struct gpt *gpt, int sequences)
{
	struct gpt_activations *a = calloc(1, sizeof *a);
	struct room room = room_of(gpt, sequences, NULL);

	if (a)
		activations_lay_out(a, &room);
	if (room.largest > INT_MAX) {
		fprintf(stderr,
			"gpt: room for %d sequences of %d characters would be a tensor of %zu "
			"numbers, where %d are possible: take fewer, or more ranks\n",
			sequences, gpt->shape.length, room.largest, INT_MAX);
		exit(1);
	}
	if (a)
		activations_allocate(a, gpt, room.used * sizeof(float));
	if (!a || !a->memory) {
		fprintf(stderr, "gpt: there is no memory for %d sequences\n", sequences);
		exit(1);
	}
	room = room_of(gpt, sequences, a->memory);
	activations_lay_out(a, &room);
	return a;
}

void gpt_free_activations(struct gpt_activations *activations)
{
	if (activations && activations->is_shared)
		tutti_mem_free(activations->memory);
	else if (activations)
		place_free(activations->memory);
	free(activations);
}
