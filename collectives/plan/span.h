/* Spans: the chunks of a buffer that an algorithm names at once, and how to cut and stride them. */
#ifndef COLLECTIVES_PLAN_SPAN_H
#define COLLECTIVES_PLAN_SPAN_H

#include <stdint.h>

/* Chunks of one buffer: count of them from the from-th on. Of those that start with first they are
 * every stride-th, or the first run of every stride, and with of not 0 the of-th is followed by the
 * 0-th again. */
struct span {
	uint32_t buf, first, count;
	uint32_t from, of, stride, run;
};

static inline struct span span(uint32_t buf, uint32_t first, uint32_t count)
{
	return (struct span){buf, first, count, 0, 0, 1, 1};
}

static inline uint32_t span_chunk(struct span s, uint32_t i)
{
	uint32_t at = s.of ? (s.from + i) % s.of : s.from + i;
	return s.first + at / s.run * s.stride + at % s.run;
}

static inline int modulo(int i, int n)
{
	return ((i % n) + n) % n;
}

/* Part i (modulo n) of n equal parts. */
static inline struct span part(struct span s, int i, int n)
{
	uint32_t each = s.count / (uint32_t)n;
	s.from += (uint32_t)modulo(i, n) * each;
	s.count = each;
	return s;
}

/* k of n equal parts, from part i on; after the last comes the first. s is not cyclic itself. */
static inline struct span parts(struct span s, int i, int k, int n)
{
	uint32_t each = s.count / (uint32_t)n;
	s.first += s.from * s.stride;
	s.of = s.count;
	s.from = (uint32_t)modulo(i, n) * each;
	s.count = (uint32_t)k * each;
	return s;
}

/* count chunks from the beginning of s on, in runs of run that begin stride apart. */
static inline struct span runs(struct span s, int count, int run, int stride)
{
	s.first += s.from * s.stride;
	s.from = 0;
	s.count = (uint32_t)count;
	s.run = (uint32_t)run;
	s.stride = (uint32_t)stride;
	return s;
}

#endif
