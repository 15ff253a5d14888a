/* The plan builder: appends steps and infers, from the chunks they read and write, which earlier
 * steps each one waits for. */
#include "collectives/plan.h"

#include <assert.h>
#include <stdlib.h>

/* Who last wrote a chunk, and who has read it since. Numbers are index + 1; 0 is none. */
struct tracked {
	uint32_t writer, readers;
};

struct reader {
	uint32_t step, next;
};

struct edge {
	uint32_t from, to;
};

struct builder {
	struct tracked *chunk[BUF_COUNT];
	struct edge *edge;
	struct reader *reader;
	uint32_t *lane_of[2]; /* [sends][peer] -> lane + 1; local work is peer == size */
	uint32_t edges, readers, refs;
	uint32_t edge_cap, reader_cap, ref_cap, step_cap, lane_cap, tmp_cap, chunk_cap;
	bool failed;
};

/* Makes room for one more; on failure the builder stays usable and plan_end says so. */
static void *grow(struct builder *b, void *array, uint32_t need, uint32_t *cap, size_t size)
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

struct plan *plan_new(int rank, int size, struct plan_shape shape, bool staged)
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
			   .staged = staged,
			   .max_srcs = 1,
			   .builder = b};
	for (int buf = 0; buf < 2; buf++)
		if (!(b->chunk[buf] = calloc(p->chunks[buf] + 1, sizeof(struct tracked))))
			b->failed = true;
	for (int s = 0; s < 2; s++)
		if (!(b->lane_of[s] = calloc((size_t)size + 1, sizeof(uint32_t))))
			b->failed = true;
	b->readers = 1;
	return p;
}

static uint32_t shape_of(const struct plan *p, struct ref r)
{
	return r.buf == BUF_TMP ? p->tmp[r.chunk].shape : r.chunk + p->shape_base[r.buf];
}

static struct tracked *tracked(struct plan *p, struct ref r)
{
	assert(r.chunk < p->chunks[r.buf]);
	return &p->builder->chunk[r.buf][r.chunk];
}

static void depend(struct plan *p, uint32_t from, uint32_t to)
{
	struct builder *b = p->builder;
	if (from == 0 || from - 1 == to)
		return;
	b->edge = grow(b, b->edge, b->edges, &b->edge_cap, sizeof *b->edge);
	if (b->failed)
		return;
	b->edge[b->edges++] = (struct edge){from - 1, to};
	p->steps[from - 1].succs++;
	p->steps[to].deps++;
}

static void reads(struct plan *p, uint32_t step, struct ref r)
{
	struct builder *b = p->builder;
	struct tracked *c = tracked(p, r);
	b->reader = grow(b, b->reader, b->readers, &b->reader_cap, sizeof *b->reader);
	p->refs = grow(b, p->refs, b->refs, &b->ref_cap, sizeof *p->refs);
	if (b->failed)
		return;
	depend(p, c->writer, step); /* read after write */
	b->reader[b->readers] = (struct reader){step + 1, c->readers};
	c->readers = b->readers++;
	p->refs[b->refs++] = r;
	p->steps[step].srcs++;
	if (p->steps[step].srcs > p->max_srcs)
		p->max_srcs = p->steps[step].srcs;
}

static void writes(struct plan *p, uint32_t step, struct ref r)
{
	struct builder *b = p->builder;
	struct tracked *c = tracked(p, r);
	if (!c->readers)
		depend(p, c->writer, step); /* write after write */
	for (uint32_t i = c->readers; i; i = b->reader[i].next)
		depend(p, b->reader[i].step, step); /* write after read */
	*c = (struct tracked){step + 1, 0};
}

static uint32_t lane(struct plan *p, int peer, bool sends)
{
	struct builder *b = p->builder;
	uint32_t *slot = &b->lane_of[sends][peer < 0 ? p->size : peer];
	if (!*slot) {
		p->lanes = grow(b, p->lanes, p->lane_count, &b->lane_cap, sizeof *p->lanes);
		if (b->failed)
			return 0;
		p->lanes[p->lane_count++] = (struct lane){.peer = peer, .sends = sends};
		*slot = p->lane_count;
	}
	p->lanes[*slot - 1].count++;
	return *slot - 1;
}

/* Appends a step; callers then say what it reads and, last, what it writes. False: out of memory.
 */
static bool append(struct plan *p, enum step_kind kind, int peer, struct ref dst, uint32_t shape)
{
	struct builder *b = p->builder;
	p->steps = grow(b, p->steps, p->count, &b->step_cap, sizeof *p->steps);
	uint32_t on = lane(p, peer, kind == STEP_SEND);
	if (b->failed)
		return false;
	p->steps[p->count++] = (struct step){
		.kind = kind, .peer = peer, .dst = dst, .src = b->refs, .shape = shape, .lane = on};
	return true;
}

static struct ref scratch(struct plan *p, uint32_t shape, enum tmp_pool pool)
{
	struct builder *b = p->builder;
	uint32_t n = p->chunks[BUF_TMP];
	p->tmp = grow(b, p->tmp, n, &b->tmp_cap, sizeof *p->tmp);
	b->chunk[BUF_TMP] = grow(b, b->chunk[BUF_TMP], n, &b->chunk_cap, sizeof(struct tracked));
	if (b->failed)
		return (struct ref){BUF_TMP, 0};
	p->tmp[n] = (struct tmp_chunk){shape, p->pool_chunks[pool]++, pool};
	b->chunk[BUF_TMP][n] = (struct tracked){0};
	p->chunks[BUF_TMP]++;
	return (struct ref){BUF_TMP, n};
}

static bool is_reachable(const struct plan *p, struct ref r)
{
	return !p->staged || (r.buf == BUF_TMP && p->tmp[r.chunk].pool == POOL_HOST);
}

static void copy_chunk(struct plan *p, struct ref to, struct ref from)
{
	if (p->builder->failed || !append(p, STEP_COPY, -1, to, shape_of(p, to)))
		return;
	assert(shape_of(p, to) == shape_of(p, from) || to.buf != from.buf);
	reads(p, p->count - 1, from);
	writes(p, p->count - 1, to);
}

static void receive_chunk(struct plan *p, int peer, struct ref to)
{
	bool direct = is_reachable(p, to);
	struct ref landed = direct ? to : scratch(p, shape_of(p, to), POOL_HOST);
	if (p->builder->failed || !append(p, STEP_RECV, peer, landed, shape_of(p, to)))
		return;
	writes(p, p->count - 1, landed);
	if (!direct)
		copy_chunk(p, to, landed);
}

void plan_send(struct plan *p, int peer, struct span src)
{
	assert(peer >= 0 && peer < p->size && peer != p->rank);
	for (uint32_t i = 0; i < src.count && !p->builder->failed; i++) {
		struct ref from = {src.buf, src.first + i};
		if (!is_reachable(p, from)) {
			struct ref staged = scratch(p, shape_of(p, from), POOL_HOST);
			if (p->builder->failed)
				return;
			copy_chunk(p, staged, from);
			from = staged;
		}
		if (append(p, STEP_SEND, peer, (struct ref){0}, shape_of(p, from)))
			reads(p, p->count - 1, from);
	}
}

void plan_recv(struct plan *p, int peer, struct span dst)
{
	assert(peer >= 0 && peer < p->size && peer != p->rank);
	for (uint32_t i = 0; i < dst.count && !p->builder->failed; i++)
		receive_chunk(p, peer, (struct ref){dst.buf, dst.first + i});
}

/* A receive must never wait for this rank's own sends, or two ranks that send to each other first
 * would wait forever. So where the reduction has to wait, the bytes land in scratch at once and
 * only the reduction waits. */
void plan_recv_reduce(struct plan *p, int peer, struct span dst, struct span src)
{
	assert(peer >= 0 && peer < p->size && peer != p->rank && dst.count == src.count);
	for (uint32_t i = 0; i < dst.count && !p->builder->failed; i++) {
		struct ref to = {dst.buf, dst.first + i}, from = {src.buf, src.first + i};
		struct tracked *t = tracked(p, to);
		bool waits = t->writer || t->readers || tracked(p, from)->writer;
		bool lands = waits || p->staged;
		enum tmp_pool pool = p->staged ? POOL_KIND : POOL_HOST;
		struct ref landed = lands ? scratch(p, shape_of(p, to), pool) : to;
		if (p->builder->failed)
			return;
		if (lands)
			receive_chunk(p, peer, landed);
		if (!append(p, lands ? STEP_REDUCE : STEP_RECV_REDUCE, lands ? -1 : peer, to,
			    shape_of(p, to)))
			return;
		reads(p, p->count - 1, from);
		if (lands)
			reads(p, p->count - 1, landed);
		writes(p, p->count - 1, to);
	}
}

void plan_reduce(struct plan *p, struct span dst, const struct span *src, uint32_t n)
{
	for (uint32_t i = 0; i < dst.count && !p->builder->failed; i++) {
		struct ref to = {dst.buf, dst.first + i};
		if (!append(p, STEP_REDUCE, -1, to, shape_of(p, to)))
			return;
		p->steps[p->count - 1].ends_average = true;
		for (uint32_t k = 0; k < n; k++)
			reads(p, p->count - 1, (struct ref){src[k].buf, src[k].first + i});
		if (!p->builder->failed)
			writes(p, p->count - 1, to);
	}
}

void plan_copy(struct plan *p, struct span dst, struct span src)
{
	if (dst.buf == src.buf && dst.first == src.first)
		return;
	for (uint32_t i = 0; i < dst.count; i++)
		copy_chunk(p, (struct ref){dst.buf, dst.first + i},
			   (struct ref){src.buf, src.first + i});
}

void plan_finish(struct plan *p, struct span dst)
{
	for (uint32_t i = 0; i < dst.count && !p->builder->failed; i++) {
		struct ref to = {dst.buf, dst.first + i};
		if (!append(p, STEP_FINISH, -1, to, shape_of(p, to)))
			return;
		reads(p, p->count - 1, to);
		if (!p->builder->failed)
			writes(p, p->count - 1, to);
	}
}

struct span plan_scratch(struct plan *p, struct span like)
{
	uint32_t first = p->chunks[BUF_TMP];
	for (uint32_t i = 0; i < like.count && !p->builder->failed; i++)
		scratch(p, shape_of(p, (struct ref){like.buf, like.first + i}),
			p->staged ? POOL_KIND : POOL_HOST);
	return span(BUF_TMP, first, like.count);
}

/* Sorts edges by the step they leave, steps by lane. */
static void flatten(struct plan *p)
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

static void builder_free(struct builder *b)
{
	for (int buf = 0; buf < BUF_COUNT; buf++)
		free(b->chunk[buf]);
	free(b->edge);
	free(b->reader);
	free(b->lane_of[0]);
	free(b->lane_of[1]);
	free(b);
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
	flatten(p);
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
