/* Sums over all ranks by the switch between their GPUs: a load of a multicast address is the sum,
 * in the switch's order, and a store goes to all ranks. So each rank moves its slice once in and
 * once out. What is not in whole vectors of 16 bytes goes by ordinary loads.
 *
 * PTX has multimem operations of sm_90 on, as strong as relaxed ones, which the flags of arrive and
 * leave order as other accesses; a proxy fence stands between accesses by the two addresses that a
 * byte has. */
#ifndef CUDA_KERNELS_MULTICAST_CORE_H
#define CUDA_KERNELS_MULTICAST_CORE_H

#include "cuda/kernels/reduce_core.h"

#define MULTICAST_FLIGHT 4 /* vectors of a thread that are on their way at once */

DEVICE struct vector multicast_load(const void *p, int dtype)
{
	return dtype == TUTTI_F32   ? multicast_load_f32(p)
	       : dtype == TUTTI_F16 ? multicast_load_f16(p)
				    : multicast_load_bf16(p);
}

DEVICE struct vector divide_vector(struct vector v, int divisor, int dtype)
{
	struct vector out = vector_zero();

	if (!divisor)
		return v;
	UNROLL
	for (int e = 0; e < 16 / element_bytes(dtype); e++) {
		float x = get_f32(dtype, vector_get(&v, e, element_bytes(dtype)));
		vector_put(&out, e, element_bytes(dtype), put_f32(dtype, divide_f32(x, divisor)));
	}
	return out;
}

/* count is a constant; all are loaded before any is stored. */
DEVICE void multicast_vectors(const char *from, char *to, uint64_t step, int divisor, int count,
			      int dtype)
{
	struct vector v[MULTICAST_FLIGHT];

	UNROLL
	for (int k = 0; k < count; k++)
		v[k] = multicast_load(from + (uint64_t)k * step, dtype);
	UNROLL
	for (int k = 0; k < count; k++)
		multicast_store(to + (uint64_t)k * step, divide_vector(v[k], divisor, dtype));
}

DEVICE void multicast_units(const struct reduce_job *job, struct job_units units, const char *from,
			    char *to, int dtype)
{
	uint64_t i = job->thread, threads = job->threads, step = threads * 16;

	from += units.first;
	to += units.first;
	for (; i + (MULTICAST_FLIGHT - 1) * threads < units.n; i += MULTICAST_FLIGHT * threads)
		multicast_vectors(from + i * 16, to + i * 16, step, job->divisor, MULTICAST_FLIGHT,
				  dtype);
	for (; i < units.n; i += threads)
		multicast_vectors(from + i * 16, to + i * 16, step, job->divisor, 1, dtype);
}

/* job: the same by ordinary addresses. */
#define MULTICAST_SUM(name)                                                                        \
	DEVICE_OUT void multicast_##name(const struct reduce_job *job, const char *from, char *to) \
	{                                                                                          \
		struct job_units units = units_of(job, 16, TUTTI_##name);                          \
		multicast_units(job, units, from, to, TUTTI_##name);                               \
		reduce_any_f32(job, units, units.n, TUTTI_##name);                                 \
	}
MULTICAST_SUM(F32)
MULTICAST_SUM(F16)
MULTICAST_SUM(BF16)

DEVICE void multicast_in_kernel(struct reduce_job *job, const char *from, char *to)
{
	if (job->op != TUTTI_AVG)
		job->divisor = 0;
	else
		job->op = TUTTI_SUM;
	multicast_fence();
	if (job->dtype == TUTTI_F32)
		multicast_F32(job, from, to);
	else if (job->dtype == TUTTI_F16)
		multicast_F16(job, from, to);
	else
		multicast_BF16(job, from, to);
	multicast_fence();
}

#endif
