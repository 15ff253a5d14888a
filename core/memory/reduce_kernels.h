/* The loops of reduce.c, compiled once for each instruction set from core/memory/reduce_template.h.
 *
 * Accumulators: f32 for floats of 16 and 8 bits, for others the type itself. No pointer is aligned.
 */
#ifndef CORE_MEMORY_REDUCE_KERNELS_H
#define CORE_MEMORY_REDUCE_KERNELS_H

#include "core/memory/ops.h"
#include "core/memory/reduce.h"
#include "core/simd.h"

#include <stdbool.h>

#define REDUCE_DTYPES      14
#define REDUCE_FUSED       8
#define REDUCE_BLOCK_BYTES 2048 /* of accumulators: a block and its partials stay in L1 */

/* scale()'s arguments. */
struct scaling {
	void *dst;
	const void *src, *scalar;
	size_t count;
	tutti_dtype dtype;
};

struct reduce_kernels {
	enum simd_level level;
	/* Sums and averages of at most REDUCE_FUSED sources, in one pass, from element first to
	 * r->count, or NULL; fast to one destination and to as many as sources. While it sums it
	 * fetches what lies so many bytes ahead in every source, also beyond its end, unless that
	 * is 0. */
	reduce_sum_fn *sum[REDUCE_DTYPES];
	/* acc = src, and dst = acc rounded; NULL: the accumulator is the type itself. narrow wants
	 * canonical NaNs. */
	void (*widen[REDUCE_DTYPES])(void *acc, const void *src, size_t n);
	void (*narrow[REDUCE_DTYPES])(void *dst, const void *acc, size_t n);
	/* out = a (op) b; out may be a or b. Not for dtypes that are widened, nor for AVG. */
	void (*merge[REDUCE_DTYPES][OPS_BUILT_IN])(void *out, const void *a, const void *b,
						   size_t n);
	/* dst = scalar * src; dst may be src. Not for widened dtypes. NaNs are canonical. */
	void (*scale[REDUCE_DTYPES])(void *dst, const void *src, const void *scalar, size_t n);
	void (*copy)(void *dst, const void *src, size_t bytes); /* a short one */
	/* Makes NaNs canonical after dividing by divisor where that is not 0. */
	void (*finish_f32)(void *acc, size_t n, int divisor);
	void (*finish_f64)(void *acc, size_t n, int divisor);
};

extern const struct reduce_kernels reduce_kernels_base;
#ifdef __x86_64__
extern const struct reduce_kernels reduce_kernels_avx2, reduce_kernels_avx512;
extern const struct reduce_kernels reduce_kernels_avx512_bf16, reduce_kernels_avx512_fp16;
/* Sums by vectors of 16 bytes, which kernels of wider vectors leave the last elements to; they
 * return the first element that makes no whole vector. */
typedef size_t reduce_rest_fn(const struct reduction *r, size_t first, size_t ahead);
reduce_rest_fn reduce_rest_f32_avx2, reduce_rest_f64_avx2;
reduce_rest_fn reduce_rest_f16_avx2, reduce_rest_bf16_avx2;
/* Of their own files. */
void reduce_sum_bf16_avx512(const struct reduction *r, size_t first, size_t ahead);
void reduce_sum_f16_avx512(const struct reduction *r, size_t first, size_t ahead);
#endif
/* Those of a level that this build has. All have widen, narrow, merge and scale of the same types,
 * but not sums: see reduce_sum_of(). */
const struct reduce_kernels *reduce_kernels_of(enum simd_level level);

/* The kernel that does r in one pass, so that it may be done part by part; or NULL. */
reduce_sum_fn *reduce_sum_of(const struct reduce_kernels *kernels, const struct reduction *r);

/* The inside of reduce() and scale(), with kernels that the caller chooses: for tests. r->op is no
 * created one. */
void reduce_with(const struct reduce_kernels *kernels, const struct reduction *r);
void scale_with(const struct reduce_kernels *kernels, const struct scaling *s);

#endif
