/* Reductions over n sources at once, in one fixed association.
 *
 * The association is a binary tree over the sources by distance 1, 2, 4, ...: s0+s1, s2+s3, then
 * (s0+s1)+(s2+s3), and so on. 16- and 8-bit floats are widened to f32 and rounded once
 * (small_float.h: f8_e4m3 does not saturate); integers of an average are summed exactly in a wider
 * type. NaN results are the canonical quiet NaN; MIN and MAX propagate NaN and order -0 below +0.
 * The instructions are chosen at run time (AVX2, AVX-512) and give the same bits. Pointers need no
 * alignment; sources must not overlap destinations, but a destination may be one of the sources.
 *
 * A scaled sum (ops.h) is a sum of inputs that scale() has scaled before. A caller's function
 * reduces in the same association, in pieces of at most 2 KiB: fn(inout, in, count, ...) with count
 * > 0, inout = inout (op) in, the sources of inout before those of in; both pointers are aligned to
 * the element, whatever the buffers are. None of the rules of NaNs, widening and averages applies
 * to it. It is called by the thread that moves the call on, by several at once on different
 * communicators, under locks: it may call nothing of Tutti. */
#ifndef CORE_MEMORY_REDUCE_H
#define CORE_MEMORY_REDUCE_H

#include <tutti/tutti.h>

#define REDUCE_SOURCES 1024     /* the most sources of one call */

/* reduce()'s arguments. */
struct reduction {
	void *const *dst;
	const void *const *src;
	int n_dst, n_src;
	size_t count;
	tutti_dtype dtype;
	tutti_op op;
	int divisor;
};

/* Every one of the n_dst destinations gets the result. divisor: what an AVG is divided by at the
 * end; 0 leaves the sum (a partial result). Other ops ignore it. */
void reduce(void *const *dst, int n_dst, const void *const *src, int n_src, size_t count,
            tutti_dtype dtype, tutti_op op, int divisor);

/* The same in two halves: the part that does not look at the data, which a rank does while it waits
 * for them, and the rest. The arrays that r points to must still be there when it runs. */
typedef void reduce_sum_fn(const struct reduction *r, size_t first, size_t ahead);
struct prepared_reduction {
	struct reduction r;
	const struct op_user *user; /* a caller's function, or NULL */
	reduce_sum_fn *sum;         /* in one pass, or NULL         */
};
void reduce_prepare(struct prepared_reduction *prepared, const struct reduction *r);
void reduce_run(const struct prepared_reduction *prepared);

/* The end of a sum that was built from partial ones: divides an AVG in place; nothing for other
 * ops. Integers: not exact where a partial sum has overflowed; callers average integers by
 * reduce(). */
void reduce_finish(void *dst, size_t count, tutti_dtype dtype, tutti_op op, int divisor);
#endif
