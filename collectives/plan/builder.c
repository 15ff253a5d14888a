/* A plan from its first step to its arrays. The builder infers, from the chunks that steps read and
 * write, which earlier steps each one waits for. */
#include "collectives/plan/builder.h"

#include <assert.h>
#include <stdlib.h>

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

struct tracked *builder_chunk(struct plan *p, struct ref r)
{
	assert(r.chunk < p->chunks[r.buf]);
	return &p->builder->chunk[r.buf][r.chunk];
}

void builder_depend(struct plan *p, uint32_t from, uint32_t to)
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

void builder_ref(struct plan *p, uint32_t step, struct ref r)
{
	struct builder *b = p->builder;
	p->refs = builder_grow(b, p->refs, b->refs, &b->ref_cap, sizeof *p->refs);
	if (b->failed)
		return;
	p->refs[b->refs++] = r;
	if (++p->steps[step].refs > p->max_refs)
		p->max_refs = p->steps[step].refs;
}

void builder_reads(struct plan *p, uint32_t step, struct ref r)
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

void builder_writes(struct plan *p, uint32_t step, struct ref r)
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

bool builder_append(struct plan *p, enum step_kind kind, int peer, struct ref dst)
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

struct ref builder_scratch(struct plan *p, uint32_t shape, enum tmp_pool pool)
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
