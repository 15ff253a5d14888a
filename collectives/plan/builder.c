/* A plan from its first step to its arrays. The operations of an algorithm append steps and say
 * which chunks these read and write; the builder infers which earlier steps each one waits for. */
#include "collectives/plan/plan.h"

#include <assert.h>
#include <stdlib.h>

/* Which step last wrote a chunk, which have read it since, and in which chunk of TMP the transport
 * finds the same bytes. Numbers are index + 1; 0 is none. */
struct tracked {
	uint32_t writer, readers, staged;
};

struct reader {
	uint32_t step, next;
};

struct edge {
	uint32_t from, to;
};

/* What is known of a plan while it is built. */
struct builder {
	struct tracked *chunk[BUF_COUNT];
	struct edge *edge;
	struct reader *reader;
	uint32_t *lane_of[2]; /* [sends][peer] -> lane + 1; local work is peer == size */
	uint32_t *told;       /* [step]: the latest step that waits for it, + 1        */
	uint32_t *scaled_of;  /* [chunk of IN]: its scaled copy in TMP, + 1            */
	uint32_t edges, readers, refs;
	uint32_t edge_cap, reader_cap, ref_cap, step_cap, told_cap, lane_cap, tmp_cap, chunk_cap;
	uint32_t pace_from, pace_to; /* sends wait for the receives among these steps    */
	bool is_partial, failed;
};

/* Makes room for one more; on failure the builder stays usable and plan_end says so. */
static void *builder_grow(struct builder *b, void *array, uint32_t need, uint32_t *cap, size_t size)
{
	if (need < *cap)
		return array;
	uint32_t bigger = *cap ? *cap * 2 : 32;
	void *moved = realloc(array, bigger * size);
	if (!moved) {
		b->failed = true;
		return array;
	}
	*cap = bigger;
	return moved;
}

static void builder_open(struct plan *p)
{
	struct builder *b = p->builder;
	for (int buf = 0; buf < 2; buf++)
		if (!(b->chunk[buf] = calloc(p->chunks[buf] + 1, sizeof(struct tracked))))
			b->failed = true;
	for (int s = 0; s < 2; s++)
		if (!(b->lane_of[s] = calloc((size_t)p->size + 1, sizeof(uint32_t))))
			b->failed = true;
	if (!(b->scaled_of = calloc(p->chunks[BUF_IN] + 1, sizeof(uint32_t))))
		b->failed = true;
	b->readers = 1;
}

static void builder_free(struct builder *b)
{
	for (int buf = 0; buf < BUF_COUNT; buf++)
		free(b->chunk[buf]);
	free(b->edge);
	free(b->reader);
	free(b->told);
	free(b->scaled_of);
	free(b->lane_of[0]);
	free(b->lane_of[1]);
	free(b);
}

/* After a failure (failed) nothing is appended any more, and plan_end says so. */
static struct tracked *builder_chunk(struct plan *p, struct ref r)
{
	assert(r.chunk < p->chunks[r.buf]);
	return &p->builder->chunk[r.buf][r.chunk];
}

/* Step to waits for step from - 1, or for none if from is 0. */
static void builder_depend(struct plan *p, uint32_t from, uint32_t to)
{
	struct builder *b = p->builder;
	if (from == 0 || from - 1 == to || b->told[from - 1] == to + 1)
		return;
	b->edge = builder_grow(b, b->edge, b->edges, &b->edge_cap, sizeof *b->edge);
	if (b->failed)
		return;
	b->edge[b->edges++] = (struct edge){from - 1, to};
	b->told[from - 1] = to + 1;
	p->steps[from - 1].succs++;
	p->steps[to].deps++;
}

/* Names r in step, without an order. */
static void builder_ref(struct plan *p, uint32_t step, struct ref r)
{
	struct builder *b = p->builder;
	p->refs = builder_grow(b, p->refs, b->refs, &b->ref_cap, sizeof *p->refs);
	if (b->failed)
		return;
	p->refs[b->refs++] = r;
	if (++p->steps[step].refs > p->max_refs)
		p->max_refs = p->steps[step].refs;
}

static void builder_reads(struct plan *p, uint32_t step, struct ref r)
{
	struct builder *b = p->builder;
	struct tracked *c = builder_chunk(p, r);
	builder_ref(p, step, r);
	b->reader = builder_grow(b, b->reader, b->readers, &b->reader_cap, sizeof *b->reader);
	if (b->failed)
		return;
	builder_depend(p, c->writer, step); /* read after write */
	b->reader[b->readers] = (struct reader){step + 1, c->readers};
	c->readers = b->readers++;
}

/* Appends a step; callers then say what it reads and, last, what it writes. False: no memory. */
static void builder_writes(struct plan *p, uint32_t step, struct ref r)
{
	struct builder *b = p->builder;
	if (b->failed)
		return;
	struct tracked *c = builder_chunk(p, r);
	if (!c->readers)
		builder_depend(p, c->writer, step); /* write after write */
	for (uint32_t i = c->readers; i; i = b->reader[i].next)
		builder_depend(p, b->reader[i].step, step); /* write after read */
	*c = (struct tracked){step + 1, 0, 0};
}

static uint32_t builder_lane(struct plan *p, int peer, bool sends)
{
	struct builder *b = p->builder;
	uint32_t *slot = &b->lane_of[sends][peer < 0 ? p->size : peer];
	if (!*slot) {
		p->lanes = builder_grow(b, p->lanes, p->lane_count, &b->lane_cap, sizeof *p->lanes);
		if (b->failed)
			return 0;
		p->lanes[p->lane_count++] = (struct lane){.peer = peer, .sends = sends};
		*slot = p->lane_count;
	}
	p->lanes[*slot - 1].count++;
	return *slot - 1;
}

static bool builder_append(struct plan *p, enum step_kind kind, int peer, struct ref dst)
{
	struct builder *b = p->builder;
	p->steps = builder_grow(b, p->steps, p->count, &b->step_cap, sizeof *p->steps);
	b->told = builder_grow(b, b->told, p->count, &b->told_cap, sizeof *b->told);
	uint32_t on = builder_lane(p, peer, kind == STEP_SEND);
	if (b->failed)
		return false;
	b->told[p->count] = 0;
	p->steps[p->count++] =
		(struct step){.kind = kind, .peer = peer, .dst = dst, .ref = b->refs, .lane = on};
	return true;
}

/* A fresh chunk of scratch. */
static struct ref builder_scratch(struct plan *p, uint32_t shape, enum tmp_pool pool)
{
	struct builder *b = p->builder;
	uint32_t n = p->chunks[BUF_TMP];
	p->tmp = builder_grow(b, p->tmp, n, &b->tmp_cap, sizeof *p->tmp);
	b->chunk[BUF_TMP] =
		builder_grow(b, b->chunk[BUF_TMP], n, &b->chunk_cap, sizeof(struct tracked));
	if (b->failed)
		return (struct ref){BUF_TMP, 0};
	p->tmp[n] = (struct tmp_chunk){shape, p->pool_chunks[pool]++, pool};
	b->chunk[BUF_TMP][n] = (struct tracked){0};
	p->chunks[BUF_TMP]++;
	return (struct ref){BUF_TMP, n};
}

struct plan *plan_new(int rank, int size, struct plan_shape shape, struct plan_options options)
{
	struct plan *p = calloc(1, sizeof *p);
	struct builder *b = calloc(1, sizeof *b);
	if (!p || !b) {
		free(p);
		free(b);
		return NULL;
	}
	*p = (struct plan){.rank = rank,
			   .size = size,
			   .chunks = {shape.in_chunks, shape.out_chunks, 0},
			   .shape_base = {shape.in_base, shape.out_base},
			   .options = options,
			   .max_refs = 1,
			   .builder = b};
	builder_open(p);
	return p;
}

/* Sorts edges by the step they leave, steps by lane. */
static void builder_flatten(struct plan *p)
{
	struct builder *b = p->builder;
	uint32_t at = 0;
	for (uint32_t i = 0; i < p->count; i++) {
		p->steps[i].succ = at;
		at += p->steps[i].succs;
		p->steps[i].succs = 0;
	}
	for (uint32_t e = 0; e < b->edges; e++) {
		struct step *s = &p->steps[b->edge[e].from];
		p->edges[s->succ + s->succs++] = b->edge[e].to;
	}
	at = 0;
	for (uint32_t l = 0; l < p->lane_count; l++) {
		p->lanes[l].first = at;
		at += p->lanes[l].count;
		p->lanes[l].count = 0;
	}
	for (uint32_t i = 0; i < p->count; i++) {
		struct lane *l = &p->lanes[p->steps[i].lane];
		p->order[l->first + l->count++] = i;
		l->reduces |= p->steps[i].kind == STEP_RECV_REDUCE;
	}
}

struct plan *plan_end(struct plan *p)
{
	struct builder *b = p->builder;
	p->edges = calloc(b->edges + 1, sizeof *p->edges);
	p->order = calloc(p->count + 1, sizeof *p->order);
	if (!p->edges || !p->order || b->failed) {
		plan_free(p);
		return NULL;
	}
	builder_flatten(p);
	p->options.direct = NULL;
	builder_free(b);
	p->builder = NULL;
	return p;
}

void plan_free(struct plan *p)
{
	if (!p)
		return;
	if (p->builder)
		builder_free(p->builder);
	free(p->steps);
	free(p->lanes);
	free(p->order);
	free(p->edges);
	free(p->refs);
	free(p->tmp);
	free(p);
}

/* The operations of an algorithm, as steps of its plan. */

/* Whether the transport to peer reads and writes r where it lies. */
static bool builder_is_reachable(const struct plan *p, int peer, struct ref r)
{
	const struct plan_options *o = &p->options;

	return !o->staged || (o->direct && o->direct[peer] & o->direct_kind) ||
	       (r.buf == BUF_TMP && p->tmp[r.chunk].pool == POOL_HOST);
}

static enum tmp_pool builder_scratch_pool(const struct plan *p)
{
	return p->options.staged ? POOL_KIND : POOL_HOST;
}

/* A step of this rank alone: to = from. */
static void builder_local_step(struct plan *p, enum step_kind kind, struct ref to, struct ref from)
{
	if (p->builder->failed || !builder_append(p, kind, -1, to))
		return;
	assert(plan_shape_of(p, to) == plan_shape_of(p, from) || to.buf != from.buf);
	builder_reads(p, p->count - 1, from);
	builder_writes(p, p->count - 1, to);
}

/* Called for the chunks that an algorithm reads. The first time it reads this rank's own data, a
 * scaled plan scales them: in place, or once into scratch. */
static struct ref builder_source(struct plan *p, struct ref r)
{
	struct builder *b = p->builder;
	if (!p->options.scaled || b->failed || r.buf == BUF_TMP || builder_chunk(p, r)->writer)
		return r;
	if (r.buf == BUF_OUT) {
		builder_local_step(p, STEP_SCALE, r, r);
		return r;
	}
	if (!b->scaled_of[r.chunk]) {
		struct ref copy = builder_scratch(p, plan_shape_of(p, r), builder_scratch_pool(p));
		builder_local_step(p, STEP_SCALE, copy, r);
		b->scaled_of[r.chunk] = copy.chunk + 1;
	}
	return (struct ref){BUF_TMP, b->scaled_of[r.chunk] - 1};
}

static struct ref builder_chunk_of(struct span s, uint32_t i)
{
	return (struct ref){s.buf, span_chunk(s, i)};
}

/* Where the transport finds the bytes of r: copied there once, however many ranks they go to. */
static struct ref builder_staged_source(struct plan *p, int peer, struct ref r)
{
	if (p->builder->failed || builder_is_reachable(p, peer, r))
		return r;
	if (builder_chunk(p, r)->staged)
		return (struct ref){BUF_TMP, builder_chunk(p, r)->staged - 1};
	struct ref staged = builder_scratch(p, plan_shape_of(p, r), POOL_HOST);
	builder_local_step(p, STEP_COPY, staged, r);
	builder_chunk(p, r)->staged = staged.chunk + 1;
	return staged;
}

/* Room for the chunks of a message on the stack; longer messages take it from the heap. */
#define REFS_AT_HAND 64

static struct ref *builder_refs_of(struct plan *p, struct span s, struct ref *at_hand)
{
	struct ref *refs = s.count <= REFS_AT_HAND ? at_hand : malloc(s.count * sizeof *refs);
	if (!refs)
		p->builder->failed = true;
	return refs;
}

void plan_send(struct plan *p, int peer, struct span src)
{
	struct builder *b = p->builder;
	struct ref at_hand[REFS_AT_HAND], *refs = builder_refs_of(p, src, at_hand);

	assert(peer >= 0 && peer < p->size && peer != p->rank);
	for (uint32_t i = 0; i < src.count && !b->failed; i++)
		refs[i] =
			builder_staged_source(p, peer, builder_source(p, builder_chunk_of(src, i)));
	if (!b->failed && src.count && builder_append(p, STEP_SEND, peer, (struct ref){0})) {
		for (uint32_t i = 0; i < src.count; i++)
			builder_reads(p, p->count - 1, refs[i]);
		for (uint32_t i = b->pace_from; i < b->pace_to && !b->failed; i++)
			if (p->steps[i].kind == STEP_RECV || p->steps[i].kind == STEP_RECV_REDUCE)
				builder_depend(p, i + 1, p->count - 1);
	}
	if (refs != at_hand)
		free(refs);
}

void plan_pace(struct plan *p)
{
	p->builder->pace_from = p->builder->pace_to;
	p->builder->pace_to = p->count;
}

/* Receives one message into the chunks landed. */
static void builder_receive(struct plan *p, int peer, const struct ref *landed, uint32_t n)
{
	if (p->builder->failed || n == 0 || !builder_append(p, STEP_RECV, peer, (struct ref){0}))
		return;
	for (uint32_t i = 0; i < n; i++) {
		builder_ref(p, p->count - 1, landed[i]);
		builder_writes(p, p->count - 1, landed[i]);
	}
}

/* An adapter writes a message into one place. */
static bool builder_is_one_place(const struct plan *p, struct span dst)
{
	bool is_one = dst.count == 1 || (p->options.whole && dst.buf != BUF_TMP);

	for (uint32_t i = 1; i < dst.count && is_one; i++)
		is_one = span_chunk(dst, i) == span_chunk(dst, 0) + i;
	return is_one;
}

void plan_recv(struct plan *p, int peer, struct span dst)
{
	struct ref at_hand[REFS_AT_HAND], *landed = builder_refs_of(p, dst, at_hand);

	assert(peer >= 0 && peer < p->size && peer != p->rank);
	bool is_staged = p->options.staged && !builder_is_one_place(p, dst);
	for (uint32_t i = 0; i < dst.count && !p->builder->failed; i++) {
		landed[i] = builder_chunk_of(dst, i);
		if (is_staged || !builder_is_reachable(p, peer, landed[i]))
			landed[i] = builder_scratch(p, plan_shape_of(p, landed[i]), POOL_HOST);
	}
	if (!p->builder->failed)
		builder_receive(p, peer, landed, dst.count);
	for (uint32_t i = 0; i < dst.count && !p->builder->failed; i++)
		if (landed[i].buf != dst.buf || landed[i].chunk != span_chunk(dst, i)) {
			builder_local_step(p, STEP_COPY, builder_chunk_of(dst, i), landed[i]);
			builder_chunk(p, builder_chunk_of(dst, i))->staged = landed[i].chunk + 1;
		}
	if (landed != at_hand)
		free(landed);
}

static void builder_reduce_two(struct plan *p, int peer, struct ref to, const struct ref *from,
			       uint32_t n)
{
	if (!builder_append(p, peer >= 0 ? STEP_RECV_REDUCE : STEP_REDUCE, peer, to))
		return;
	for (uint32_t i = 0; i < n; i++)
		builder_reads(p, p->count - 1, from[i]);
	builder_writes(p, p->count - 1, to);
}

/* A receive must never wait for this rank's own sends, or two ranks that send to each other first
 * would wait forever. So where the reduction has to wait, the bytes land in scratch at once and
 * only the reduction waits. */
void plan_recv_reduce(struct plan *p, int peer, struct span dst, struct span src)
{
	assert(peer >= 0 && peer < p->size && peer != p->rank && dst.count == src.count);
	if (p->builder->failed || dst.count == 0)
		return;
	struct ref to = builder_chunk_of(dst, 0),
		   from = builder_source(p, builder_chunk_of(src, 0));
	bool waits = builder_chunk(p, to)->writer || builder_chunk(p, to)->readers ||
		     builder_chunk(p, from)->writer;
	if (dst.count == 1 && !waits && !p->options.staged) {
		builder_reduce_two(p, peer, to, &from, 1);
		return;
	}
	struct span landed = plan_scratch(p, dst);
	plan_recv(p, peer, landed);
	for (uint32_t i = 0; i < dst.count && !p->builder->failed; i++) {
		struct ref both[2] = {builder_source(p, builder_chunk_of(src, i)),
				      builder_chunk_of(landed, i)};
		builder_reduce_two(p, -1, builder_chunk_of(dst, i), both, 2);
	}
}

void plan_reduce(struct plan *p, struct span dst, const struct span *src, uint32_t n)
{
	for (uint32_t i = 0; i < dst.count && !p->builder->failed; i++) {
		for (uint32_t k = 0; k < n; k++)
			builder_source(
				p, builder_chunk_of(src[k],
						    i)); /* scaling steps come before this one */
		if (!builder_append(p, STEP_REDUCE, -1, builder_chunk_of(dst, i)))
			return;
		uint32_t step = p->count - 1;
		p->steps[step].ends_average = !p->builder->is_partial;
		for (uint32_t k = 0; k < n; k++)
			builder_reads(p, step, builder_source(p, builder_chunk_of(src[k], i)));
		builder_writes(p, step, builder_chunk_of(dst, i));
	}
}

void plan_copy(struct plan *p, struct span dst, struct span src)
{
	for (uint32_t i = 0; i < dst.count && !p->builder->failed; i++) {
		struct ref to = builder_chunk_of(dst, i),
			   from = builder_source(p, builder_chunk_of(src, i));
		if (to.buf != from.buf || to.chunk != from.chunk)
			builder_local_step(p, STEP_COPY, to, from);
	}
}

void plan_finish(struct plan *p, struct span dst)
{
	for (uint32_t i = 0; i < dst.count && !p->builder->is_partial; i++)
		builder_local_step(p, STEP_FINISH, builder_chunk_of(dst, i),
				   builder_chunk_of(dst, i));
}

void plan_partial(struct plan *p, bool partial)
{
	p->builder->is_partial = partial;
}

static struct span builder_scratch_in(struct plan *p, struct span like, enum tmp_pool pool)
{
	uint32_t first = p->chunks[BUF_TMP];
	for (uint32_t i = 0; i < like.count && !p->builder->failed; i++)
		builder_scratch(p, plan_shape_of(p, builder_chunk_of(like, i)), pool);
	return span(BUF_TMP, first, like.count);
}

struct span plan_scratch(struct plan *p, struct span like)
{
	return builder_scratch_in(p, like, builder_scratch_pool(p));
}

struct span plan_filled(struct plan *p, struct span like)
{
	assert(p->options.staged);
	return builder_scratch_in(p, like, POOL_FILLED);
}
