/* The operations of an algorithm, as steps of its plan. */
#include "collectives/plan/builder.h"

#include <assert.h>
#include <stdlib.h>

/* Whether the transport to peer reads and writes r where it lies. */
static bool is_reachable(const struct plan *p, int peer, struct ref r)
{
	const struct plan_options *o = &p->options;

	return !o->staged || (o->direct && o->direct[peer] & o->direct_kind) ||
	       (r.buf == BUF_TMP && p->tmp[r.chunk].pool == POOL_HOST);
}

static enum tmp_pool scratch_pool(const struct plan *p)
{
	return p->options.staged ? POOL_KIND : POOL_HOST;
}

/* A step of this rank alone: to = from. */
static void local_step(struct plan *p, enum step_kind kind, struct ref to, struct ref from)
{
	if (p->builder->failed || !builder_append(p, kind, -1, to))
		return;
	assert(plan_shape_of(p, to) == plan_shape_of(p, from) || to.buf != from.buf);
	builder_reads(p, p->count - 1, from);
	builder_writes(p, p->count - 1, to);
}

/* Called for the chunks that an algorithm reads. The first time it reads this rank's own data, a
 * scaled plan scales them: in place, or once into scratch. */
static struct ref plan_steps_source(struct plan *p, struct ref r)
{
	struct builder *b = p->builder;
	if (!p->options.scaled || b->failed || r.buf == BUF_TMP || builder_chunk(p, r)->writer)
		return r;
	if (r.buf == BUF_OUT) {
		local_step(p, STEP_SCALE, r, r);
		return r;
	}
	if (!b->scaled_of[r.chunk]) {
		struct ref copy = builder_scratch(p, plan_shape_of(p, r), scratch_pool(p));
		local_step(p, STEP_SCALE, copy, r);
		b->scaled_of[r.chunk] = copy.chunk + 1;
	}
	return (struct ref){BUF_TMP, b->scaled_of[r.chunk] - 1};
}

static struct ref chunk_of(struct span s, uint32_t i)
{
	return (struct ref){s.buf, span_chunk(s, i)};
}

/* Where the transport finds the bytes of r: copied there once, however many ranks they go to. */
static struct ref staged_source(struct plan *p, int peer, struct ref r)
{
	if (p->builder->failed || is_reachable(p, peer, r))
		return r;
	if (builder_chunk(p, r)->staged)
		return (struct ref){BUF_TMP, builder_chunk(p, r)->staged - 1};
	struct ref staged = builder_scratch(p, plan_shape_of(p, r), POOL_HOST);
	local_step(p, STEP_COPY, staged, r);
	builder_chunk(p, r)->staged = staged.chunk + 1;
	return staged;
}

/* Room for the chunks of a message on the stack; longer messages take it from the heap. */
#define REFS_AT_HAND 64

static struct ref *refs_of(struct plan *p, struct span s, struct ref *at_hand)
{
	struct ref *refs = s.count <= REFS_AT_HAND ? at_hand : malloc(s.count * sizeof *refs);
	if (!refs)
		p->builder->failed = true;
	return refs;
}

void plan_send(struct plan *p, int peer, struct span src)
{
	struct builder *b = p->builder;
	struct ref at_hand[REFS_AT_HAND], *refs = refs_of(p, src, at_hand);

	assert(peer >= 0 && peer < p->size && peer != p->rank);
	for (uint32_t i = 0; i < src.count && !b->failed; i++)
		refs[i] = staged_source(p, peer, plan_steps_source(p, chunk_of(src, i)));
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
static void plan_steps_receive(struct plan *p, int peer, const struct ref *landed, uint32_t n)
{
	if (p->builder->failed || n == 0 || !builder_append(p, STEP_RECV, peer, (struct ref){0}))
		return;
	for (uint32_t i = 0; i < n; i++) {
		builder_ref(p, p->count - 1, landed[i]);
		builder_writes(p, p->count - 1, landed[i]);
	}
}

/* An adapter writes a message into one place. */
static bool is_one_place(const struct plan *p, struct span dst)
{
	bool is_one = dst.count == 1 || (p->options.whole && dst.buf != BUF_TMP);

	for (uint32_t i = 1; i < dst.count && is_one; i++)
		is_one = span_chunk(dst, i) == span_chunk(dst, 0) + i;
	return is_one;
}

void plan_recv(struct plan *p, int peer, struct span dst)
{
	struct ref at_hand[REFS_AT_HAND], *landed = refs_of(p, dst, at_hand);

	assert(peer >= 0 && peer < p->size && peer != p->rank);
	bool is_staged = p->options.staged && !is_one_place(p, dst);
	for (uint32_t i = 0; i < dst.count && !p->builder->failed; i++) {
		landed[i] = chunk_of(dst, i);
		if (is_staged || !is_reachable(p, peer, landed[i]))
			landed[i] = builder_scratch(p, plan_shape_of(p, landed[i]), POOL_HOST);
	}
	if (!p->builder->failed)
		plan_steps_receive(p, peer, landed, dst.count);
	for (uint32_t i = 0; i < dst.count && !p->builder->failed; i++)
		if (landed[i].buf != dst.buf || landed[i].chunk != span_chunk(dst, i)) {
			local_step(p, STEP_COPY, chunk_of(dst, i), landed[i]);
			builder_chunk(p, chunk_of(dst, i))->staged = landed[i].chunk + 1;
		}
	if (landed != at_hand)
		free(landed);
}

static void reduce_two(struct plan *p, int peer, struct ref to, const struct ref *from, uint32_t n)
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
	struct ref to = chunk_of(dst, 0), from = plan_steps_source(p, chunk_of(src, 0));
	bool waits = builder_chunk(p, to)->writer || builder_chunk(p, to)->readers ||
		     builder_chunk(p, from)->writer;
	if (dst.count == 1 && !waits && !p->options.staged) {
		reduce_two(p, peer, to, &from, 1);
		return;
	}
	struct span landed = plan_scratch(p, dst);
	plan_recv(p, peer, landed);
	for (uint32_t i = 0; i < dst.count && !p->builder->failed; i++) {
		struct ref both[2] = {plan_steps_source(p, chunk_of(src, i)), chunk_of(landed, i)};
		reduce_two(p, -1, chunk_of(dst, i), both, 2);
	}
}

void plan_reduce(struct plan *p, struct span dst, const struct span *src, uint32_t n)
{
	for (uint32_t i = 0; i < dst.count && !p->builder->failed; i++) {
		for (uint32_t k = 0; k < n; k++)
			plan_steps_source(
				p, chunk_of(src[k], i)); /* scaling steps come before this one */
		if (!builder_append(p, STEP_REDUCE, -1, chunk_of(dst, i)))
			return;
		uint32_t step = p->count - 1;
		p->steps[step].ends_average = !p->builder->is_partial;
		for (uint32_t k = 0; k < n; k++)
			builder_reads(p, step, plan_steps_source(p, chunk_of(src[k], i)));
		builder_writes(p, step, chunk_of(dst, i));
	}
}

void plan_copy(struct plan *p, struct span dst, struct span src)
{
	for (uint32_t i = 0; i < dst.count && !p->builder->failed; i++) {
		struct ref to = chunk_of(dst, i), from = plan_steps_source(p, chunk_of(src, i));
		if (to.buf != from.buf || to.chunk != from.chunk)
			local_step(p, STEP_COPY, to, from);
	}
}

void plan_finish(struct plan *p, struct span dst)
{
	for (uint32_t i = 0; i < dst.count && !p->builder->is_partial; i++)
		local_step(p, STEP_FINISH, chunk_of(dst, i), chunk_of(dst, i));
}

void plan_partial(struct plan *p, bool partial)
{
	p->builder->is_partial = partial;
}

static struct span scratch_in(struct plan *p, struct span like, enum tmp_pool pool)
{
	uint32_t first = p->chunks[BUF_TMP];
	for (uint32_t i = 0; i < like.count && !p->builder->failed; i++)
		builder_scratch(p, plan_shape_of(p, chunk_of(like, i)), pool);
	return span(BUF_TMP, first, like.count);
}

struct span plan_scratch(struct plan *p, struct span like)
{
	return scratch_in(p, like, scratch_pool(p));
}

struct span plan_filled(struct plan *p, struct span like)
{
	assert(p->options.staged);
	return scratch_in(p, like, POOL_FILLED);
}
