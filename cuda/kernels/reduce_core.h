/* Reductions in kernels, with the bits of core/memory/reduce.c. The hot ones, sums of up to 8 sources of
 * f32, bf16 and f16, are unrolled, so that a thread has 8 vectors of 16 bytes in flight; others
 * share one loop for each dtype. */
#ifndef CUDA_KERNELS_REDUCE_CORE_H
#define CUDA_KERNELS_REDUCE_CORE_H

#include "cuda/kernels/reduce_job.h"

#define ACC float
#define TAG f32
#include "cuda/kernels/reduce_class.h"
#undef ACC
#undef TAG
#define ACC double
#define TAG f64
#include "cuda/kernels/reduce_class.h"
#undef ACC
#undef TAG
#define BITWISE
#define ACC uint32_t
#define TAG u32
#include "cuda/kernels/reduce_class.h"
#undef ACC
#undef TAG
#define ACC uint64_t
#define TAG u64
#include "cuda/kernels/reduce_class.h"
#undef ACC
#undef TAG
#undef BITWISE

/* X(dtype, its accumulator); of integers the type, and one that any sum of 1,024 fits in, too */
#define FLOAT_DTYPES(X)                                                                            \
	X(F32, f32)                                                                                \
	X(F64, f64)                                                                                \
	X(F16, f32)                                                                                \
	X(BF16, f32)                                                                               \
	X(F8_E4M3, f32)                                                                            \
	X(F8_E5M2, f32)
#define INTEGER_DTYPES(X)                                                                          \
	X(I8, u32, int8_t, int64_t)                                                                \
	X(U8, u32, uint8_t, int64_t)                                                               \
	X(I16, u32, int16_t, int64_t)                                                              \
	X(U16, u32, uint16_t, int64_t)                                                             \
	X(I32, u32, int32_t, int64_t)                                                              \
	X(U32, u32, uint32_t, int64_t)                                                             \
	X(I64, u64, int64_t, __int128)                                                             \
	X(U64, u64, uint64_t, __int128)

#define REDUCE_ANY(name, tag, ...)                                                                 \
	DEVICE_OUT void reduce_##name(const struct reduce_job *job)                                \
	{                                                                                          \
		struct job_units units = units_of(job, UNIT_BYTES(TUTTI_##name), TUTTI_##name);    \
		reduce_any_##tag(job, units, 0, TUTTI_##name);                                     \
	}
FLOAT_DTYPES(REDUCE_ANY)
INTEGER_DTYPES(REDUCE_ANY)

/* Exact; rounded toward zero. Sums of integers need no fixed order. */
#define REDUCE_AVERAGE(name, tag, type, wide)                                                      \
	DEVICE_OUT void average_##name(const struct reduce_job *job)                               \
	{                                                                                          \
		for (uint64_t i = job->thread; i < job->count; i += job->threads) {                \
			wide sum = 0;                                                              \
			for (int s = 0; s < job->n_src; s++) {                                     \
				const type *p = (const type *)job->src[s] + i;                     \
				sum += (type)load_element(p, sizeof(type));                        \
			}                                                                          \
			uint64_t bits = (uint64_t)(sum / job->divisor);                            \
			for (int d = 0; d < job->n_dst; d++)                                       \
				store_element((type *)job->dst[d] + i, bits, sizeof(type));        \
		}                                                                                  \
	}
INTEGER_DTYPES(REDUCE_AVERAGE)

/* The sum of elements that lie in vectors, one of each source, times factor. */
DEVICE struct vector sum_of_vectors(const struct vector *raw, int n, float factor, int dtype)
{
	struct vector out = vector_zero();

	UNROLL
	for (int e = 0; e < 16 / element_bytes(dtype); e++) {
		float v[GROUP];
		UNROLL
		for (int s = 0; s < GROUP; s++)
			v[s] = s < n ? get_f32(dtype, vector_get(&raw[s], e, element_bytes(dtype)))
				     : 0;
		float x = tree_f32(v, n, dtype, TUTTI_SUM) * factor;
		vector_put(&out, e, element_bytes(dtype), put_f32(dtype, x));
	}
	return out;
}

/* The same of 8 bytes of each source; n is no constant. */
DEVICE uint64_t sum_of_words(const uint64_t *words, int n, float factor, int dtype)
{
	const int bytes = element_bytes(dtype);
	uint64_t out = 0;

	UNROLL
	for (int e = 0; e < 8 / bytes; e++) {
		float v[GROUP];
		UNROLL
		for (int s = 0; s < GROUP; s++)
			v[s] = get_f32(dtype, words[s] >> (8 * bytes * e) &
						      (~(uint64_t)0 >> (64 - 8 * bytes)));
		float x = tree_f32(v, n, dtype, TUTTI_SUM) * factor;
		out |= (uint64_t)put_f32(dtype, x) << (8 * bytes * e);
	}
	return out;
}

/* count vectors of each of n sources, all loaded before any is used; both are constants. */
DEVICE void sum_vectors(const struct reduce_job *job, const char *const *src, uint64_t at,
			float factor, int count, int n, int dtype)
{
	struct vector raw[GROUP];
	uint64_t step = job->threads * sizeof(struct vector);

	UNROLL
	for (int k = 0; k < count * n; k++)
		raw[k] = load_vector(src[k % n] + at + (uint64_t)(k / n) * step);
	UNROLL
	for (int k = 0; k < count; k++) {
		struct vector out = sum_of_vectors(raw + k * n, n, factor, dtype);
		NO_UNROLL
		for (int d = 0; d < job->n_dst; d++)
			store_vector((char *)job->dst[d] + at + (uint64_t)k * step, out);
	}
}

DEVICE void sum_n(const struct reduce_job *job, struct job_units units, int n, int dtype)
{
	const int count = GROUP / n;
	const char *src[GROUP];
	uint64_t i = job->thread, threads = job->threads;
	/* To divide by a power of two is to multiply by its reciprocal, to the last bit. */
	float factor = job->divisor ? 1.0f / (float)job->divisor : 1.0f;

	UNROLL
	for (int s = 0; s < n; s++)
		src[s] = (const char *)job->src[s];
	for (; i + (uint64_t)(count - 1) * threads < units.n; i += (uint64_t)count * threads)
		sum_vectors(job, src, units.first + i * 16, factor, count, n, dtype);
	for (; count > 1 && i < units.n; i += threads)
		sum_vectors(job, src, units.first + i * 16, factor, 1, n, dtype);
}

DEVICE void sum_any(const struct reduce_job *job, struct job_units units, int dtype)
{
	switch (job->n_src) {
	case 1:
		sum_n(job, units, 1, dtype);
		break;
	case 2:
		sum_n(job, units, 2, dtype);
		break;
	case 3:
		sum_n(job, units, 3, dtype);
		break;
	case 4:
		sum_n(job, units, 4, dtype);
		break;
	case 5:
		sum_n(job, units, 5, dtype);
		break;
	case 6:
		sum_n(job, units, 6, dtype);
		break;
	case 7:
		sum_n(job, units, 7, dtype);
		break;
	default:
		sum_n(job, units, 8, dtype);
	}
}

#define SUM_FAST(name)                                                                             \
	DEVICE_OUT void sum_##name(const struct reduce_job *job)                                   \
	{                                                                                          \
		struct job_units units = units_of(job, 16, TUTTI_##name);                          \
		sum_any(job, units, TUTTI_##name);                                                 \
		reduce_any_f32(job, units, units.n, TUTTI_##name);                                 \
	}
SUM_FAST(F32)
SUM_FAST(BF16)
SUM_FAST(F16)

/* Returns 0 where there is no faster way than for any op. */
DEVICE int reduce_fast(const struct reduce_job *job)
{
	int divides_exactly = (job->divisor & (job->divisor - 1)) == 0;

	if (job->op != TUTTI_SUM || job->n_src > GROUP || !divides_exactly)
		return 0;
	switch (job->dtype) {
	case TUTTI_F32:
		sum_F32(job);
		return 1;
	case TUTTI_BF16:
		sum_BF16(job);
		return 1;
	case TUTTI_F16:
		sum_F16(job);
		return 1;
	default:
		return 0;
	}
}

/* Any number of sources. job->op is no AVG. */
DEVICE void reduce_slow(const struct reduce_job *job)
{
	switch (job->dtype) {
#define REDUCE_FLOAT(name, ...)                                                                    \
	case TUTTI_##name:                                                                         \
		reduce_##name(job);                                                                \
		break;
#define REDUCE_INTEGER(name, ...)                                                                  \
	case TUTTI_##name:                                                                         \
		if (job->divisor)                                                                  \
			average_##name(job);                                                       \
		else                                                                               \
			reduce_##name(job);                                                        \
		break;
		FLOAT_DTYPES(REDUCE_FLOAT)
		INTEGER_DTYPES(REDUCE_INTEGER)
#undef REDUCE_FLOAT
#undef REDUCE_INTEGER
	}
}

DEVICE void reduce_in_kernel(struct reduce_job *job, int may_be_fast)
{
	if (job->op != TUTTI_AVG)
		job->divisor = 0;
	else
		job->op = TUTTI_SUM;
	if (!may_be_fast || !reduce_fast(job))
		reduce_slow(job);
}

#endif
