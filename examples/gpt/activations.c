/* Where the activations of a rank's part lie: one behind the other in one piece of memory. */
#include "activations.h"

#include "place.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>

/* Where tensors of floats lie one behind the other; with memory NULL they are only counted. */
struct room {
	const struct gpt *gpt;
	const struct gpt_activations *lender; /* NULL: none, else whose scratch is used, too */
	size_t n, own, c, part; /* rows in a branch, of the stream; channels, this rank's */
	float *memory;
	size_t used, largest;
};

static float *activations_carve(struct room *room, size_t count)
{
	float *piece = room->memory ? room->memory + room->used : NULL;
	room->used += (count + 15) & ~(size_t)15;
	room->largest = count > room->largest ? count : room->largest;
	return piece;
}

static int *carve_ints(struct room *room, size_t count)
{
	_Static_assert(sizeof(int) == sizeof(float), "numbers of one size");
	return (int *)(void *)activations_carve(room, count);
}

static struct attention_shape activations_attention_of(const struct room *room)
{
	const struct gpt *gpt = room->gpt;

	return (struct attention_shape){(int)room->n / gpt->context.length, gpt->context.length,
					(int)room->part, gpt->shape.heads / gpt->split.size};
}

static void lay_out_experts(struct expert_memory *m, struct room *room)
{
	const struct experts *experts = &room->gpt->experts;
	size_t rows = experts_room(experts);

	m->chances = activations_carve(room, room->own * (size_t)experts->count);
	m->chosen = carve_ints(room, room->own * EXPERTS_CHOSEN);
	m->places = carve_ints(room, room->own * EXPERTS_CHOSEN);
	m->sent = carve_ints(room, (size_t)experts->count);
	m->received = carve_ints(room, (size_t)experts->count);
	m->in = activations_carve(room, rows * room->c);
	m->up = activations_carve(room, rows * (size_t)experts->hidden);
	m->gelu = activations_carve(room, rows * (size_t)experts->hidden);
	m->back = activations_carve(room, rows * room->c);
}

static void lay_out_later(struct block_activations *b, struct room *room)
{
	b->norm1_grad = activations_carve(room, room->own * room->c);
	b->norm2_grad = activations_carve(room, room->own * room->c);
	b->qkv_grad = activations_carve(room, room->n * 3 * room->part);
	b->proj_grad = activations_carve(room, room->own * room->c);
	if (room->gpt->experts.count > 0)
		return;
	b->up_grad = activations_carve(room, room->n * 4 * room->part);
	b->down_grad = activations_carve(room, room->own * room->c);
}

/* All but the stream before it. */
static void lay_out_block(struct block_activations *b, struct room *room)
{
	const struct gpt *gpt = room->gpt;
	size_t n = room->n, own = room->own, c = room->c, part = room->part;

	b->norm1 = activations_carve(room, own * c);
	b->attention.qkv = activations_carve(room, n * 3 * part);
	b->attention.weights = activations_carve(
		room, context_weights(&gpt->context, activations_attention_of(room)));
	b->mixed = activations_carve(room, n * part);
	b->attention.out = b->mixed;
	b->middle = activations_carve(room, own * c);
	b->norm2 = activations_carve(room, own * c);
	b->stats1.mean = activations_carve(room, own);
	b->stats1.rstd = activations_carve(room, own);
	b->stats2.mean = activations_carve(room, own);
	b->stats2.rstd = activations_carve(room, own);
	if (gpt->experts.count > 0) {
		lay_out_experts(&b->experts, room);
	} else {
		b->up = activations_carve(room, n * 4 * part);
		b->gelu = activations_carve(room, n * 4 * part);
	}
	if (gpt->config.weights_later)
		lay_out_later(b, room);
}

/* Where a parameter is on another stage, so is what its layer computes. */
static int activations_is_here(const struct gpt *gpt, int param)
{
	int64_t first, count;

	must(tutti_param_piece(gpt->trainer, param, &first, &count));
	return count > 0;
}

/* With recompute all blocks use one set, that of the block whose turn it is. */
static void lay_out_blocks(struct gpt_activations *a, struct room *room)
{
	const struct gpt *gpt = room->gpt;
	struct block_activations shared = {0};

	if (gpt->config.recompute && room->lender)
		shared = room->lender->blocks[0];
	else if (gpt->config.recompute)
		lay_out_block(&shared, room);
	for (int l = 0; l < gpt->shape.layers; l++) {
		struct block_activations *b = &a->blocks[l];
		*b = shared;
		b->in = activations_carve(room, room->own * room->c); /* a stage's last stream is
							     the next one's first */
		if (!gpt->config.recompute && activations_is_here(gpt, gpt->blocks[l].proj_b))
			lay_out_block(b, room);
	}
}

static void lay_out_head(struct gpt_activations *a, struct room *room)
{
	a->norm = activations_carve(room, room->own * room->c);
	a->logits = activations_carve(room, room->n * (size_t)room->gpt->split.vocab);
	a->stats.mean = activations_carve(room, room->own);
	a->stats.rstd = activations_carve(room, room->own);
}

/* Of the largest layer: transposed weights, or what attention or experts need. */
static size_t scratch_count(const struct room *room)
{
	const struct gpt *gpt = room->gpt;
	size_t vocab = (size_t)gpt->shape.vocab, c = room->c;
	size_t most = c * (vocab > 4 * c ? vocab : 4 * c);
	size_t others[] = {context_scratch(&gpt->context, activations_attention_of(room)),
			   gpt->experts.count > 0 ? experts_scratch(&gpt->experts) : 0};

	for (int i = 0; i < 2; i++)
		most = others[i] > most ? others[i] : most;
	return most;
}

/* Values of one call only. */
static void lay_out_scratch(struct gpt_activations *a, struct room *room)
{
	a->stream_grad = activations_carve(room, room->own * room->c);
	a->wide_grad = activations_carve(room, room->n * 4 * room->part);
	a->narrow_grad = activations_carve(room, room->own * room->c);
	a->scratch = activations_carve(room, scratch_count(room));
	a->loss = (double *)activations_carve(room, sizeof(double) / sizeof(float));
}

static void borrow_scratch(struct gpt_activations *a, const struct gpt_activations *lender)
{
	a->stream_grad = lender->stream_grad;
	a->wide_grad = lender->wide_grad;
	a->narrow_grad = lender->narrow_grad;
	a->scratch = lender->scratch;
	a->loss = lender->loss;
}

static void activations_lay_out(struct gpt_activations *a, struct room *room)
{
	const struct gpt *gpt = room->gpt;

	if (room->lender)
		borrow_scratch(a, room->lender);
	else
		lay_out_scratch(a, room);
	lay_out_blocks(a, room);
	a->out = activations_carve(room, room->own * room->c);
	if (activations_is_here(gpt, gpt->norm_w))
		lay_out_head(a, room);
	a->embed_grad =
		gpt->config.weights_later ? activations_carve(room, room->own * room->c) : NULL;
	a->norm_grad =
		gpt->config.weights_later ? activations_carve(room, room->own * room->c) : NULL;
	a->tokens = (unsigned char *)activations_carve(room, room->n / sizeof(float) + 1);
	a->targets = (unsigned char *)activations_carve(room, room->n / sizeof(float) + 1);
}

static struct room room_of(const struct gpt *gpt, int sequences, float *memory)
{
	size_t n = (size_t)sequences * (size_t)gpt->context.length;
	size_t ranks = (size_t)gpt->split.size, c = (size_t)gpt->shape.channels;

	return (struct room){gpt, gpt->activations, n, n / ranks, c, c / ranks, memory, 0, 0};
}

/* Of tutti_mem_alloc, so that gathers of blocks copy nothing where peers are on one node. Where
 * there is too little of it the ranks hear so together. */
static float *activations_share(const struct gpt *gpt, size_t bytes)
{
	uint64_t most = bytes;
	void *memory = NULL;

	must(tutti_all_reduce(&most, &most, 1, TUTTI_U64, TUTTI_MAX, gpt->peers, NULL));
	tutti_status status = tutti_mem_alloc(&memory, most, gpt->peers);
	if (status == TUTTI_ERR_MEMORY)
		return NULL;
	must(status);
	return memory;
}

static void activations_take_memory(struct gpt_activations *a, const struct gpt *gpt, size_t bytes)
{
	if (gpt->peers)
		a->memory = activations_share(gpt, bytes);
	a->is_shared = a->memory != NULL;
	if (!a->memory)
		a->memory = place_alloc(bytes);
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
		activations_take_memory(a, gpt, room.used * sizeof(float));
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
