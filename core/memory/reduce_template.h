/* The text of reduce_kernels: included once by each file that is compiled for an instruction set,
 * with REDUCE_KERNELS naming what it defines, or REDUCE_SUMS_ONLY when it wants no more than some
 * sums. Plain loops that compilers make vector code of; all of it gives the same bits everywhere:
 * no contraction, no reassociation, no approximate instruction. */
#include "core/memory/bf16.h"
#include "core/memory/f16c.h"
#include "core/memory/reduce_kernels.h"
#include "core/memory/small_float.h"
#include "core/memory/vector_nan.h"

/* No iteration reads what another one writes: out is a or b, or apart from both. */
#ifdef __clang__
#define INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#else
#define INDEPENDENT _Pragma("GCC ivdep")
#endif

/*      type      tag */
#define UNSIGNED(X)                                                                                \
	X(uint8_t, u8)                                                                             \
	X(uint16_t, u16)                                                                           \
	X(uint32_t, u32)                                                                           \
	X(uint64_t, u64)
#define SIGNED(X)                                                                                  \
	X(int8_t, i8)                                                                              \
	X(int16_t, i16)                                                                            \
	X(int32_t, i32)                                                                            \
	X(int64_t, i64)
#define FLOATS(X)                                                                                  \
	X(float, f32)                                                                              \
	X(double, f64)

#define ACCESS(type, tag)                                                                          \
	static inline type get_##tag(const void *p, size_t i)                                      \
	{                                                                                          \
		type x;                                                                            \
		memcpy(&x, (const char *)p + i * sizeof x, sizeof x);                              \
		return x;                                                                          \
	}                                                                                          \
	static inline void put_##tag(void *p, size_t i, type x)                                    \
	{                                                                                          \
		memcpy((char *)p + i * sizeof x, &x, sizeof x);                                    \
	}
UNSIGNED(ACCESS)
SIGNED(ACCESS)
FLOATS(ACCESS)

#define MERGE(op, type, tag, expression)                                                           \
	static void op##_##tag(void *out, const void *a, const void *b, size_t n)                  \
	{                                                                                          \
		INDEPENDENT                                                                        \
		for (size_t i = 0; i < n; i++) {                                                   \
			type x = get_##tag(a, i), y = get_##tag(b, i);                             \
			put_##tag(out, i, (type)(expression));                                     \
		}                                                                                  \
	}

/* Unsigned arithmetic wraps, and gives signed sums and products the same bits. 1u keeps small types
 * from being multiplied as int, which may overflow. */
#define MERGE_BITS(type, tag)                                                                      \
	MERGE(sum, type, tag, x + y)                                                               \
	MERGE(prod, type, tag, 1u * x * y)                                                         \
	MERGE(band, type, tag, x & y)                                                              \
	MERGE(bor, type, tag, x | y)                                                               \
	MERGE(bxor, type, tag, x ^ y)
#define SCALE_BITS(type, tag)                                                                      \
	static void scale_##tag(void *dst, const void *src, const void *scalar, size_t n)          \
	{                                                                                          \
		type by = get_##tag(scalar, 0);                                                    \
		INDEPENDENT                                                                        \
		for (size_t i = 0; i < n; i++)                                                     \
			put_##tag(dst, i, (type)(1u * by * get_##tag(src, i)));                    \
	}
#define MERGE_ORDER(type, tag)                                                                     \
	MERGE(min, type, tag, x < y ? x : y)                                                       \
	MERGE(max, type, tag, x < y ? y : x)
UNSIGNED(MERGE_BITS)
UNSIGNED(SCALE_BITS)
UNSIGNED(MERGE_ORDER)
SIGNED(MERGE_ORDER)

/* Equal floats differ at most in the sign of zero: a set sign wins MIN, a clear one MAX. x + y is
 * the shortest way to a NaN. */
#define MERGE_FLOATS(type, tag, bits)                                                              \
	static inline type of_##bits(bits##_t u)                                                   \
	{                                                                                          \
		type x;                                                                            \
		memcpy(&x, &u, sizeof x);                                                          \
		return x;                                                                          \
	}                                                                                          \
	static inline bits##_t bits_##tag(type x)                                                  \
	{                                                                                          \
		bits##_t u;                                                                        \
		memcpy(&u, &x, sizeof u);                                                          \
		return u;                                                                          \
	}                                                                                          \
	static inline type least_##tag(type x, type y)                                             \
	{                                                                                          \
		type r = x < y ? x : y;                                                            \
		r = x == y ? of_##bits(bits_##tag(x) | bits_##tag(y)) : r;                         \
		return __builtin_isunordered(x, y) ? x + y : r;                                    \
	}                                                                                          \
	static inline type greatest_##tag(type x, type y)                                          \
	{                                                                                          \
		type r = x < y ? y : x;                                                            \
		r = x == y ? of_##bits(bits_##tag(x) & bits_##tag(y)) : r;                         \
		return __builtin_isunordered(x, y) ? x + y : r;                                    \
	}                                                                                          \
	MERGE(sum, type, tag, x + y)                                                               \
	MERGE(prod, type, tag, x * y)                                                              \
	MERGE(min, type, tag, least_##tag(x, y))                                                   \
	MERGE(max, type, tag, greatest_##tag(x, y))                                                \
	static void scale_##tag(void *dst, const void *src, const void *scalar, size_t n)          \
	{                                                                                          \
		type by = get_##tag(scalar, 0);                                                    \
		INDEPENDENT                                                                        \
		for (size_t i = 0; i < n; i++) {                                                   \
			type x = get_##tag(src, i) * by;                                           \
			put_##tag(dst, i, x != x ? (type)__builtin_nan("") : x);                   \
		}                                                                                  \
	}                                                                                          \
	static void finish_##tag(void *acc, size_t n, int divisor)                                 \
	{                                                                                          \
		const type nan = (type)__builtin_nan("");                                          \
		if (divisor) {                                                                     \
			INDEPENDENT                                                                \
			for (size_t i = 0; i < n; i++)                                             \
				put_##tag(acc, i, get_##tag(acc, i) / (type)divisor);              \
		}                                                                                  \
		INDEPENDENT                                                                        \
		for (size_t i = 0; i < n; i++) {                                                   \
			type x = get_##tag(acc, i);                                                \
			put_##tag(acc, i, x != x ? nan : x);                                       \
		}                                                                                  \
	}
MERGE_FLOATS(float, f32, uint32)
MERGE_FLOATS(double, f64, uint64)

#define CONVERT(tag, storage, widened, narrowed)                                                   \
	static inline float get_##tag(const void *p, size_t i)                                     \
	{                                                                                          \
		uint32_t x = get_##storage(p, i);                                                  \
		return widened;                                                                    \
	}                                                                                          \
	static inline void put_##tag(void *p, size_t i, float x)                                   \
	{                                                                                          \
		put_##storage(p, i, narrowed);                                                     \
	}                                                                                          \
	static void widen_##tag(void *acc, const void *src, size_t n)                              \
	{                                                                                          \
		INDEPENDENT                                                                        \
		for (size_t i = 0; i < n; i++)                                                     \
			put_f32(acc, i, get_##tag(src, i));                                        \
	}                                                                                          \
	static void narrow_##tag(void *dst, const void *acc, size_t n)                             \
	{                                                                                          \
		INDEPENDENT                                                                        \
		for (size_t i = 0; i < n; i++)                                                     \
			put_##tag(dst, i, get_f32(acc, i));                                        \
	}
CONVERT(f16, u16, small_widen(x, SMALL_F16), (uint16_t)small_narrow(x, SMALL_F16))
CONVERT(bf16, u16, bf16_widen((uint16_t)x), bf16_narrow(x))
CONVERT(e4m3, u8, small_widen(x, SMALL_E4M3), (uint8_t)small_narrow(x, SMALL_E4M3))
CONVERT(e5m2, u8, small_widen(x, SMALL_E5M2), (uint8_t)small_narrow(x, SMALL_E5M2))

/* f16 has instructions, which round alike. */
#ifdef __F16C__
static void widen_f16_fast(void *acc, const void *src, size_t n)
{
	size_t i = 0;
	for (; i + 8 <= n; i += 8)
		_mm256_storeu_ps((float *)acc + i, f16_widen_32((const uint16_t *)src + i));
	widen_f16((float *)acc + i, (const uint16_t *)src + i, n - i);
}

static void narrow_f16_fast(void *dst, const void *acc, size_t n)
{
	size_t i = 0;
	for (; i + 8 <= n; i += 8)
		f16_narrow_32((uint16_t *)dst + i, _mm256_loadu_ps((const float *)acc + i));
	narrow_f16((uint16_t *)dst + i, (const float *)acc + i, n - i);
}
#else
#define widen_f16_fast  widen_f16
#define narrow_f16_fast narrow_f16
#endif

/* ---- sums in one pass: as wide as this instruction set goes, then 16 bytes, then one by one ----
 */

#define INLINE static inline __attribute__((always_inline))
#define PASTE_(a, b, c) a##b##c
#define PASTE(a, b, c)  PASTE_(a, b, c)
#define F16_WIDEN(width)  PASTE(f16_widen_, width, )
#define F16_NARROW(width) PASTE(f16_narrow_, width, )
#define NAN_IN(tag, width) PASTE(nan_in_##tag##_, width, )
#define DIVIDES(by)        (bits_of_f32(by) != 0) /* as integers: the ports of vectors are busy */

#define VECTOR(name) PASTE(name, _, WIDTH)
#if defined(__AVX512F__)
#define WIDTH 64
#include "core/memory/reduce_sum_template.h"
/* The few elements that are left over: AVX-512 has nothing for them that AVX2 lacks. */
#define SUM_REST_OF_16(tag) reduce_rest_##tag##_avx2
#else
#define WIDTH 16
#include "core/memory/reduce_sum_template.h"
#if defined(__AVX2__)
#undef WIDTH
#define WIDTH 32
#include "core/memory/reduce_sum_template.h"
#endif
#define SUM_REST_OF_16(tag) sum_##tag##_16
#endif

#define SUM(tag, acc, load, store)                                                                 \
	static void sum_rest_##tag(const struct reduction *r, size_t i)                            \
	{                                                                                          \
		acc v[REDUCE_FUSED], by = r->op == TUTTI_AVG ? (acc)r->divisor : 0;                \
		for (; i < r->count; i++) {                                                        \
			for (int s = 0; s < r->n_src; s++)                                         \
				v[s] = load(r->src[s], i);                                         \
			for (int far = 1; far < r->n_src; far *= 2)                                \
				for (int s = 0; s + far < r->n_src; s += 2 * far)                  \
					v[s] += v[s + far];                                        \
			acc x = by != 0 ? v[0] / by : v[0];                                        \
			x = x != x ? (acc)__builtin_nan("") : x;                                   \
			for (int d = 0; d < r->n_dst; d++)                                         \
				store(r->dst[d], i, x);                                            \
		}                                                                                  \
	}                                                                                          \
	static void fused_sum_##tag(const struct reduction *r, size_t first, size_t ahead)         \
	{                                                                                          \
		size_t i = VECTOR(sum_##tag)(r, first, ahead);                                     \
		if (i == r->count)                                                                 \
			return;                                                                    \
		i = WIDTH > 16 ? SUM_REST_OF_16(tag)(r, i, 0) : i;                                 \
		sum_rest_##tag(r, i);                                                              \
	}
SUM(f32, float, get_f32, put_f32)
SUM(f64, double, get_f64, put_f64)
SUM(bf16, float, get_bf16, put_bf16)
#ifdef __F16C__
SUM(f16, float, get_f16, put_f16)
#else
#define fused_sum_f16 NULL
#endif

/* Short copies: of few whole vectors, without a look at what would be best. */
static void copy_short(void *dst, const void *src, size_t bytes)
{
	size_t at = 0;

	for (; at + 4 * WIDTH <= bytes; at += 4 * WIDTH) {
		VECTOR(words) v[4];
		for (int i = 0; i < 4; i++)
			memcpy(&v[i], (const char *)src + at + i * WIDTH, WIDTH);
		for (int i = 0; i < 4; i++)
			memcpy((char *)dst + at + i * WIDTH, &v[i], WIDTH);
	}
	if (at < bytes)
		memcpy((char *)dst + at, (const char *)src + at, bytes - at);
}

#define ROW_FLOAT(tag)                                                                             \
	{                                                                                          \
		[TUTTI_SUM] = sum_##tag, [TUTTI_PROD] = prod_##tag, [TUTTI_MIN] = min_##tag,       \
		[TUTTI_MAX] = max_##tag,                                                           \
	}
#define ROW_INTEGER(bits, tag)                                                                     \
	{                                                                                          \
		[TUTTI_SUM] = sum_##bits, [TUTTI_PROD] = prod_##bits, [TUTTI_MIN] = min_##tag,     \
		[TUTTI_MAX] = max_##tag, [TUTTI_BAND] = band_##bits, [TUTTI_BOR] = bor_##bits,     \
		[TUTTI_BXOR] = bxor_##bits,                                                        \
	}

/* The sums of 16-bit floats are what the latest instruction sets do otherwise. */
#define TABLE(which, f16_sum, bf16_sum)                                                            \
	{                                                                                          \
		.level = which,                                                                    \
		.widen = {[TUTTI_F16] = widen_f16_fast,                                            \
			  [TUTTI_BF16] = widen_bf16,                                               \
			  [TUTTI_F8_E4M3] = widen_e4m3,                                            \
			  [TUTTI_F8_E5M2] = widen_e5m2},                                           \
		.narrow = {[TUTTI_F16] = narrow_f16_fast,                                          \
			   [TUTTI_BF16] = narrow_bf16,                                             \
			   [TUTTI_F8_E4M3] = narrow_e4m3,                                          \
			   [TUTTI_F8_E5M2] = narrow_e5m2},                                         \
		.merge = {[TUTTI_F32] = ROW_FLOAT(f32),                                            \
			  [TUTTI_F64] = ROW_FLOAT(f64),                                            \
			  [TUTTI_I8] = ROW_INTEGER(u8, i8),                                        \
			  [TUTTI_U8] = ROW_INTEGER(u8, u8),                                        \
			  [TUTTI_I16] = ROW_INTEGER(u16, i16),                                     \
			  [TUTTI_U16] = ROW_INTEGER(u16, u16),                                     \
			  [TUTTI_I32] = ROW_INTEGER(u32, i32),                                     \
			  [TUTTI_U32] = ROW_INTEGER(u32, u32),                                     \
			  [TUTTI_I64] = ROW_INTEGER(u64, i64),                                     \
			  [TUTTI_U64] = ROW_INTEGER(u64, u64)},                                    \
		.scale = {[TUTTI_F32] = scale_f32,                                                 \
			  [TUTTI_F64] = scale_f64,                                                 \
			  [TUTTI_I8] = scale_u8,                                                   \
			  [TUTTI_U8] = scale_u8,                                                   \
			  [TUTTI_I16] = scale_u16,                                                 \
			  [TUTTI_U16] = scale_u16,                                                 \
			  [TUTTI_I32] = scale_u32,                                                 \
			  [TUTTI_U32] = scale_u32,                                                 \
			  [TUTTI_I64] = scale_u64,                                                 \
			  [TUTTI_U64] = scale_u64},                                                \
		.sum = {[TUTTI_F32] = fused_sum_f32,                                               \
			[TUTTI_F64] = fused_sum_f64,                                               \
			[TUTTI_F16] = f16_sum,                                                     \
			[TUTTI_BF16] = bf16_sum},                                                  \
		.copy = copy_short,                                                                \
		.finish_f32 = finish_f32,                                                          \
		.finish_f64 = finish_f64,                                                          \
	}

#if !defined(REDUCE_SUMS_ONLY)
const struct reduce_kernels REDUCE_KERNELS = TABLE(REDUCE_KERNELS_LEVEL, fused_sum_f16,
						   fused_sum_bf16);
#endif
