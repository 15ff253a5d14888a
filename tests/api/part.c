/* What a random program's call is, where its blocks lie, and what must be in them at the end. */
#include "part.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PATTERN 0xa5 /* of a buffer that nobody wrote to, as buffer_create leaves it */

enum side { NOTHING, WHOLE, BLOCKS, ROOT_WHOLE, ROOT_BLOCKS };

static const struct {
	const char *name;
	enum side send, recv;
	bool reduces, varies, may_be_in_place;
	bool own_block; /* what comes in is the receiver's block of what the sender has */
} traits[PARTS] = {
	[PART_ALL_REDUCE] = {"all_reduce", WHOLE, WHOLE, true, false, true, false},
	[PART_REDUCE] = {"reduce", WHOLE, ROOT_WHOLE, true, false, true, false},
	[PART_BROADCAST] = {"broadcast", ROOT_WHOLE, WHOLE, false, false, true, false},
	[PART_ALL_GATHER] = {"all_gather", WHOLE, BLOCKS, false, false, true, false},
	[PART_REDUCE_SCATTER] = {"reduce_scatter", BLOCKS, WHOLE, true, false, true, true},
	[PART_GATHER] = {"gather", WHOLE, ROOT_BLOCKS, false, false, true, false},
	[PART_SCATTER] = {"scatter", ROOT_BLOCKS, WHOLE, false, false, true, true},
	[PART_ALL_TO_ALL] = {"all_to_all", BLOCKS, BLOCKS, false, false, false, true},
	[PART_ALL_GATHERV] = {"all_gatherv", WHOLE, BLOCKS, false, true, true, false},
	[PART_REDUCE_SCATTERV] = {"reduce_scatterv", BLOCKS, WHOLE, true, true, true, true},
	[PART_GATHERV] = {"gatherv", WHOLE, ROOT_BLOCKS, false, true, true, false},
	[PART_SCATTERV] = {"scatterv", ROOT_BLOCKS, WHOLE, false, true, true, true},
	[PART_ALL_TO_ALLV] = {"all_to_allv", BLOCKS, BLOCKS, false, true, false, true},
	[PART_BARRIER] = {"barrier", NOTHING, NOTHING, false, false, false, false},
	[PART_LETTER] = {"letter", NOTHING, NOTHING, false, false, false, false},
};

static bool is_root(const struct part *p)
{
	return p->place.rank == p->root;
}

bool part_sends(const struct part *p)
{
	return p->name == PART_LETTER && p->place.rank == p->from;
}

bool part_receives(const struct part *p)
{
	return p->name == PART_LETTER && p->place.rank == p->to;
}

static size_t words(char *text, size_t at, const char *format, size_t number)
{
	int n = snprintf(text + at, PART_TEXT - at, format, number);
	return at + (size_t)n < PART_TEXT ? at + (size_t)n : PART_TEXT - 1;
}

const char *part_describe(const struct part *p, char *text)
{
	bool reduces = traits[p->name].reduces;
	int n = snprintf(text, PART_TEXT,
			 "%s(%s%s%s, root %d, %s) in communicator %d of %d ranks, here as rank %d",
			 traits[p->name].name, data_dtype_name(p->data.dtype), reduces ? ", " : "",
			 reduces ? data_op_name(&p->data) : "", p->root,
			 p->in_place ? "in place" : "not in place", p->place.level, p->place.size,
			 p->place.rank);
	size_t at = words(text, (size_t)n, ", count %zu", p->count);

	if (p->name == PART_LETTER) {
		at = words(text, at, ", from %zu", (size_t)p->from);
		at = words(text, at, " to %zu", (size_t)p->to);
		at = words(text, at, ", tag %zu", (size_t)p->tag);
	}
	if (!traits[p->name].varies)
		return text;
	at = words(text, at, "; blocks of send of %zu:", p->send.span);
	for (int i = 0; i < p->send.blocks; i++)
		at = words(text, words(text, at, " %zu", p->send.count[i]), "@%zu",
			   p->send.offset[i]);
	at = words(text, at, "; of recv of %zu:", p->recv.span);
	for (int i = 0; i < p->recv.blocks; i++)
		at = words(text, words(text, at, " %zu", p->recv.count[i]), "@%zu",
			   p->recv.offset[i]);
	return text;
}

static size_t draw_count(uint64_t *random, uint64_t most)
{
	uint64_t kind = random_below(random, 16);
	return kind == 0   ? 0
	       : kind < 8  ? random_below(random, 50)
	       : kind < 14 ? random_below(random, most / 16 + 1)
			   : random_below(random, most + 1);
}

static void draw(struct part *p, uint64_t *random)
{
	uint64_t size = (uint64_t)p->place.size, most = 24000 / size;

	p->root = (int)random_below(random, size);
	p->data = (struct data){.kind = traits[p->name].reduces ? DATA_EXACT : DATA_BITS,
				.seed = random_next(random),
				.dtype = (tutti_dtype)random_below(random, DTYPES),
				.ranks = p->place.size};
	do
		p->data.op = (tutti_op)random_below(random, OPS_BUILT_IN);
	while (!data_fits(p->data.op, p->data.dtype));
	if (traits[p->name].reduces)
		own_op_draw(&p->data, random);
	if (p->name == PART_ALL_REDUCE || p->name == PART_BROADCAST || p->name == PART_LETTER)
		most = 24000;
	p->count = p->name == PART_BARRIER ? 0 : draw_count(random, most);
	for (int r = 0; r < p->place.size; r++) {
		p->counts[r] = p->count;
		if (traits[p->name].varies)
			p->counts[r] = random_below(random, 3) ? draw_count(random, most) : 0;
	}
	p->pairs = random_next(random);
	p->from = (int)random_below(random, size);
	p->to = (int)random_below(random, size);
	p->from_anybody = random_below(random, 4) == 0;
	p->tag = p->from_anybody ? (int)random_below(random, 1u << 30) + 1000
				 : (int)random_below(random, 3);
	p->all_in_place = random_below(random, 3) == 0;
	p->all_shared = random_below(random, 4) == 0;
}

static size_t pair_count(const struct part *p, int from, int to)
{
	uint64_t random = p->pairs + (uint64_t)(from * API_RANKS + to) * 7919;
	return random_below(&random, 3) ? draw_count(&random, 24000 / (uint64_t)p->place.size) : 0;
}

static int blocks_of(const struct part *p, enum side side)
{
	bool here = side == WHOLE || side == BLOCKS || is_root(p);
	if (side == NOTHING || !here)
		return 0;
	return side == BLOCKS || side == ROOT_BLOCKS ? p->place.size : 1;
}

/* The blocks one after the other, v-variants' in any order and with gaps: each rank as it likes. */
static void spread(struct part *p, struct layout *l, uint64_t *own)
{
	int order[API_RANKS];

	l->packed = !traits[p->name].varies || l->blocks <= 1 || random_below(own, 4) == 0;
	for (int i = 0; i < l->blocks; i++) {
		int j = l->packed ? i : (int)random_below(own, (uint64_t)i + 1);
		order[i] = order[j];
		order[j] = i;
	}
	for (int i = 0; i < l->blocks; i++) {
		if (!l->packed && random_below(own, 2))
			l->span += random_below(own, 20);
		l->offset[order[i]] = l->span;
		l->span += l->count[order[i]];
	}
	if (!l->packed)
		l->span += random_below(own, 5);
}

static void lay_out(struct part *p, uint64_t *own)
{
	int me = p->place.rank;

	p->send.blocks = blocks_of(p, traits[p->name].send);
	p->recv.blocks = blocks_of(p, traits[p->name].recv);
	if (p->name == PART_LETTER) {
		p->send.blocks = part_sends(p);
		p->recv.blocks = part_receives(p);
	}
	for (int i = 0; i < p->place.size; i++) {
		bool pairs = p->name == PART_ALL_TO_ALLV;
		p->send.count[i] = pairs                 ? pair_count(p, me, i)
				   : p->send.blocks == 1 ? p->counts[me]
							 : p->counts[i];
		p->recv.count[i] = pairs                 ? pair_count(p, i, me)
				   : p->recv.blocks == 1 ? p->counts[me]
							 : p->counts[i];
	}
	spread(p, &p->send, own);
	spread(p, &p->recv, own);
}

static void create_buffers(struct part *p, struct api *api)
{
	size_t width = data_bytes(p->data.dtype);
	bool shared = p->all_shared || random_below(&api->own, 4) == 0;
	enum buffer_kind kind = shared ? BUFFER_SHARED : BUFFER_HOST;
	/* All ranks of the call, or none. A letter has a call, and so would only be enqueued. */
	if (api->device && p->data.seed % 2 && p->data.maker != DATA_USER && p->name != PART_LETTER)
		kind = (enum buffer_kind)api->device;
	bool sends_own = p->send.blocks < p->recv.blocks;
	struct layout *larger = sends_own ? &p->recv : &p->send;

	if (!p->in_place) {
		buffer_create(&p->send_buffer, api, kind, p->send.span * width);
		buffer_create(&p->recv_buffer, api, kind, p->recv.span * width);
		p->send_ptr = p->send_buffer.data;
		p->recv_ptr = p->recv_buffer.data;
		return;
	}
	buffer_create(&p->recv_buffer, api, kind, larger->span * width);
	p->send_ptr = p->recv_ptr = p->recv_buffer.data;
	if (p->send.blocks < p->recv.blocks)
		p->send_ptr += p->recv.offset[p->place.rank] * width;
	if (p->recv.blocks < p->send.blocks)
		p->recv_ptr += p->send.offset[p->place.rank] * width;
}

/* Block i of what a rank has begins here in data's numbering. */
static size_t numbered(int i)
{
	return (size_t)i << 32;
}

static void put_sent(const struct part *p, char *at)
{
	size_t width = data_bytes(p->data.dtype);
	for (int i = 0; i < p->send.blocks; i++)
		data_fill(&p->data, p->place.rank, p->send.blocks == 1 ? 0 : numbered(i),
			  p->send.count[i], at + p->send.offset[i] * width);
}

static void put_received(const struct part *p, char *at)
{
	size_t width = data_bytes(p->data.dtype);
	size_t first = traits[p->name].own_block ? numbered(p->place.rank) : 0;

	for (int i = 0; i < p->recv.blocks; i++) {
		char *block = at + p->recv.offset[i] * width;
		int from = p->name == PART_LETTER ? p->from : p->recv.blocks > 1 ? i : p->root;
		if (traits[p->name].reduces)
			data_expect(&p->data, first, p->recv.count[i], block);
		else
			data_fill(&p->data, from, first, p->recv.count[i], block);
	}
}

static char *image_of(const struct buffer *b, struct api *api)
{
	char *image = malloc(b->bytes + 1);
	CHECK(api, image, "no memory");
	memset(image, PATTERN, b->bytes);
	return image;
}

static void fill(struct part *p, struct api *api)
{
	struct buffer *b = p->in_place ? &p->recv_buffer : &p->send_buffer;
	char *image = image_of(b, api);

	put_sent(p, image + (p->send_ptr - b->data));
	buffer_write(b, 0, image, b->bytes);
	free(image);
}

static void check_bytes(const struct part *p, struct api *api, int step, bool is_recv)
{
	const struct buffer *b = is_recv ? &p->recv_buffer : &p->send_buffer;
	char *want = image_of(b, api), *got = malloc(b->bytes + 1), text[PART_TEXT];
	size_t at = 0, width = data_bytes(p->data.dtype);

	CHECK(api, got, "no memory");
	if (!is_recv || p->in_place)
		put_sent(p, want + (p->send_ptr - b->data));
	if (is_recv)
		put_received(p, want + (p->recv_ptr - b->data));
	buffer_read(b, 0, got, b->bytes);
	while (at < b->bytes && want[at] == got[at])
		at++;
	CHECK(api, at == b->bytes,
	      "step %d, %s: byte %zu (element %zu) of %s is %#x, should be %#x", step,
	      part_describe(p, text), at, at / width, is_recv ? "recv" : "send",
	      (unsigned char)got[at], (unsigned char)want[at]);
	CHECK(api, buffer_guards_hold(b), "step %d, %s: bytes beside %s were written", step,
	      part_describe(p, text), is_recv ? "recv" : "send");
	free(want);
	free(got);
}

void part_check(const struct part *p, struct api *api, int step)
{
	char text[PART_TEXT];

	check_bytes(p, api, step, true);
	if (!p->in_place)
		check_bytes(p, api, step, false);
	if (part_receives(p))
		CHECK(api, p->source == p->from, "step %d, %s: the source is %d", step,
		      part_describe(p, text), p->source);
}

void part_create(struct part *p, struct api *api, const struct place *place, uint64_t seed,
		 enum part_name name)
{
	*p = (struct part){.place = *place, .source = -1};
	p->name = name == PARTS ? (enum part_name)random_below(&seed, PART_LETTER) : name;
	draw(p, &seed);
	bool likes = p->all_in_place || random_below(&api->own, 3) == 0;
	lay_out(p, &api->own);
	p->in_place = likes && traits[p->name].may_be_in_place && p->send.blocks && p->recv.blocks;
	create_buffers(p, api);
	fill(p, api);
	CHECK_OK(api, own_op_open(&p->data, place->rank, &p->op));
	p->op_is_open = p->data.maker != DATA_BUILT_IN;
}

void part_close_op(struct part *p)
{
	if (p->op_is_open)
		own_op_close(&p->data, p->op);
	p->op_is_open = false;
}

void part_destroy(struct part *p)
{
	part_close_op(p);
	buffer_destroy(&p->recv_buffer);
	if (!p->in_place)
		buffer_destroy(&p->send_buffer);
}
