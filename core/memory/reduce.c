/* Reductions: cuts the call into blocks that stay in L1 and walks the tree over the sources. The
 * work on a block is in reduce_template.h; the average of integers, exact and slow, is here. */
#include "core/memory/reduce.h"

#include "core/callback.h"
#include "core/memory/dtype.h"
#include "core/memory/float_unit.h"
#include "core/memory/ops.h"
#include "core/memory/reduce_kernels.h"

#include <assert.h>
#include <stdint.h>
#include <string.h>

#define LEVELS 11 /* partial results at most: log2(REDUCE_SOURCES) + 1 */

typedef void merge_fn(void *out, const void *a, const void *b, size_t n);
typedef void widen_fn(void *acc, const void *src, size_t n);

/* One call, cut down to the elements of one block: [first, first + n). */
struct block {
	const void *const *src;
	int n_src;
	size_t first, n, bytes; /* bytes: of one element in memory */
	widen_fn *widen;
	merge_fn *merge;
	const struct op_user *user; /* merges instead of merge; or NULL */
	tutti_dtype dtype;
};

/* Complete subtrees over the sources, oldest and largest first. */
struct partials {
	_Alignas(64) char acc[LEVELS][REDUCE_BLOCK_BYTES];
	int leaves[LEVELS];
	int depth;
};

static const void *reduce_source(const struct block *b, int i)
{
	return (const char *)b->src[i] + b->first * b->bytes;
}

/* out = x (op) y, by the caller's function, which gets its operands aligned to their type. */
static void reduce_merge_by_user(const struct block *b, char *out, const void *x, const void *y)
{
	_Alignas(64) char aligned[REDUCE_BLOCK_BYTES];

	if (out != x)
		memcpy(out, x, b->n * b->bytes);
	if ((uintptr_t)y % b->bytes != 0)
		y = memcpy(aligned, y, b->n * b->bytes);
	callback_call("the reduction function", "tutti_op_create", -1,
		      b->user->fn(out, y, b->n, b->dtype, b->user->arg));
}

/* out may be x. */
static void reduce_merge(const struct block *b, char *out, const void *x, const void *y)
{
	if (b->user)
		reduce_merge_by_user(b, out, x, y);
	else
		b->merge(out, x, y, b->n);
}

/* Puts the subtree over source i, or over i and i + 1 where both exist, on top. */
static void reduce_push_leaves(const struct block *b, struct partials *p, int i)
{
	bool pair = i + 1 < b->n_src;
	char *top = p->acc[p->depth];

	if (b->widen) {
		b->widen(top, reduce_source(b, i), b->n);
		if (pair) {
			char *next = p->acc[p->depth + 1];
			b->widen(next, reduce_source(b, i + 1), b->n);
			reduce_merge(b, top, top, next);
		}
	} else if (pair) {
		reduce_merge(b, top, reduce_source(b, i), reduce_source(b, i + 1));
	} else {
		memcpy(top, reduce_source(b, i), b->n * b->bytes);
	}
	p->leaves[p->depth++] = 2;
}

static void reduce_merge_top(const struct block *b, struct partials *p)
{
	char *below = p->acc[p->depth - 2];

	reduce_merge(b, below, below, p->acc[p->depth - 1]);
	p->leaves[p->depth - 2] *= 2;
	p->depth--;
}

/* Leaves the result in acc[0]. Subtrees of the same size merge as soon as there are two, the rest
 * from the right at the end: the tree of distances 1, 2, 4, ... */
static void reduce_walk_tree(const struct block *b, struct partials *p)
{
	p->depth = 0;
	for (int i = 0; i < b->n_src; i += 2) {
		reduce_push_leaves(b, p, i);
		while (p->depth > 1 && p->leaves[p->depth - 1] == p->leaves[p->depth - 2])
			reduce_merge_top(b, p);
	}
	while (p->depth > 1)
		reduce_merge_top(b, p);
}

/* After the tree: divide, make NaNs canonical, round. The result lies where it returns. */
static const char *reduce_finish_block(const struct reduce_kernels *k, struct partials *p, size_t n,
				       tutti_dtype dtype, int divisor)
{
	if (dtype == TUTTI_F64)
		k->finish_f64(p->acc[0], n, divisor);
	else if (dtype_is_float(dtype))
		k->finish_f32(p->acc[0], n, divisor);
	if (!k->narrow[dtype])
		return p->acc[0];
	k->narrow[dtype](p->acc[1], p->acc[0], n);
	return p->acc[1];
}

static void reduce_store_block(void *const *dst, int n_dst, const struct block *b,
			       const char *result)
{
	for (int d = 0; d < n_dst; d++)
		memcpy((char *)dst[d] + b->first * b->bytes, result, b->n * b->bytes);
}

/* Exact: 1,024 integers of 64 bits fit into 75. Sums of integers need no fixed order. */
#define AVERAGE(wide, type, tag)                                                                   \
	static void average_##tag(const struct block *b, void *result, int divisor)                \
	{                                                                                          \
		for (size_t i = 0; i < b->n; i++) {                                                \
			wide sum = 0;                                                              \
			type x;                                                                    \
			for (int s = 0; s < b->n_src; s++) {                                       \
				memcpy(&x, (const char *)reduce_source(b, s) + i * sizeof x,       \
				       sizeof x);                                                  \
				sum += x;                                                          \
			}                                                                          \
			x = (type)(sum / divisor);                                                 \
			memcpy((char *)result + i * sizeof x, &x, sizeof x);                       \
		}                                                                                  \
	}
AVERAGE(int64_t, int8_t, i8)
AVERAGE(int64_t, uint8_t, u8)
AVERAGE(int64_t, int16_t, i16)
AVERAGE(int64_t, uint16_t, u16)
AVERAGE(int64_t, int32_t, i32)
AVERAGE(int64_t, uint32_t, u32)
AVERAGE(__int128, int64_t, i64)
AVERAGE(__int128, uint64_t, u64)

typedef void average_fn(const struct block *b, void *result, int divisor);
static average_fn *const averages[REDUCE_DTYPES] = {
	[TUTTI_I8] = average_i8,   [TUTTI_U8] = average_u8,   [TUTTI_I16] = average_i16,
	[TUTTI_U16] = average_u16, [TUTTI_I32] = average_i32, [TUTTI_U32] = average_u32,
	[TUTTI_I64] = average_i64, [TUTTI_U64] = average_u64,
};

static void reduce_blocks(const struct reduce_kernels *k, const struct reduction *r)
{
	bool widened = k->widen[r->dtype] != NULL;
	tutti_op op = r->op == TUTTI_AVG ? TUTTI_SUM : r->op;
	int divisor = r->op == TUTTI_AVG ? r->divisor : 0;
	average_fn *average = divisor ? averages[r->dtype] : NULL;
	struct block b = {.src = r->src,
			  .n_src = r->n_src,
			  .bytes = dtype_bytes(r->dtype),
			  .widen = k->widen[r->dtype],
			  .merge = k->merge[widened ? TUTTI_F32 : r->dtype][op]};
	size_t most = REDUCE_BLOCK_BYTES / (widened ? sizeof(float) : b.bytes);
	struct partials p;

	for (; b.first < r->count; b.first += b.n) {
		const char *result = p.acc[0];
		b.n = r->count - b.first < most ? r->count - b.first : most;
		if (average) {
			average(&b, p.acc[0], divisor);
		} else {
			reduce_walk_tree(&b, &p);
			result = reduce_finish_block(k, &p, b.n, r->dtype, divisor);
		}
		reduce_store_block(r->dst, r->n_dst, &b, result);
	}
}

reduce_sum_fn *reduce_sum_of(const struct reduce_kernels *k, const struct reduction *r)
{
	bool is_sum = r->op == TUTTI_SUM || r->op == TUTTI_AVG;

	return is_sum && r->n_src <= REDUCE_FUSED ? k->sum[r->dtype] : NULL;
}

const struct reduce_kernels *reduce_kernels_of(enum simd_level level)
{
	static const struct reduce_kernels *const of[SIMD_LEVELS] = {
		[SIMD_BASE] = &reduce_kernels_base,
#ifdef __x86_64__
		[SIMD_AVX2] = &reduce_kernels_avx2,
		[SIMD_AVX512] = &reduce_kernels_avx512,
#ifdef SIMD_HAS_FP16
		[SIMD_AVX512_BF16] = &reduce_kernels_avx512_bf16,
		[SIMD_AVX512_FP16] = &reduce_kernels_avx512_fp16,
#endif
#endif
	};

	return of[level];
}

void reduce_with(const struct reduce_kernels *k, const struct reduction *r)
{
	reduce_sum_fn *sum = reduce_sum_of(k, r);

	if (sum)
		sum(r, 0, 0);
	else
		reduce_blocks(k, r);
}

/* A caller's function has no accumulators and no division: blocks are merged and stored. */
static void reduce_by_user(const struct op_user *user, const struct reduction *r)
{
	struct block b = {.src = r->src,
			  .n_src = r->n_src,
			  .bytes = dtype_bytes(r->dtype),
			  .dtype = r->dtype,
			  .user = user};
	size_t most = REDUCE_BLOCK_BYTES / b.bytes;
	struct partials p;

	for (; b.first < r->count; b.first += b.n) {
		b.n = r->count - b.first < most ? r->count - b.first : most;
		reduce_walk_tree(&b, &p);
		reduce_store_block(r->dst, r->n_dst, &b, p.acc[0]);
	}
}

void reduce_prepare(struct prepared_reduction *p, const struct reduction *r)
{
	assert(r->n_dst >= 1 && r->n_src >= 1 && r->n_src <= REDUCE_SOURCES && r->divisor >= 0);
	p->r = *r;
	p->r.op = op_kernel(r->op);
	p->user = op_user(p->r.op);
	assert(p->user ? dtype_bytes(r->dtype) > 0 : op_fits(p->r.op, r->dtype));
	p->sum = p->user ? NULL : reduce_sum_of(reduce_kernels_of(simd_level()), &p->r);
}

void reduce_run(const struct prepared_reduction *p)
{
	if (p->user) {
		reduce_by_user(p->user, &p->r);
		return;
	}
	uint64_t unit = float_unit_begin();
	if (p->sum)
		p->sum(&p->r, 0, 0);
	else
		reduce_blocks(reduce_kernels_of(simd_level()), &p->r);
	float_unit_end(unit);
}

void reduce(void *const *dst, int n_dst, const void *const *src, int n_src, size_t count,
	    tutti_dtype dtype, tutti_op op, int divisor)
{
	struct reduction r = {dst, src, n_dst, n_src, count, dtype, op, divisor};
	struct prepared_reduction prepared;

	reduce_prepare(&prepared, &r);
	reduce_run(&prepared);
}

void reduce_finish(void *dst, size_t count, tutti_dtype dtype, tutti_op op, int divisor)
{
	const void *src = dst;

	if (op == TUTTI_AVG && divisor != 0)
		reduce(&dst, 1, &src, 1, count, dtype, op, divisor);
}
