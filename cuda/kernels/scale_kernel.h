/* dst = scalar * src: a product of two sources, one of which lies in a register. */
#ifndef CUDA_KERNELS_SCALE_KERNEL_H
#define CUDA_KERNELS_SCALE_KERNEL_H

#include "cuda/kernels/reduce_core.h"

#define SCALE(name, tag, ...)                                                                      \
	DEVICE uint64_t scaled_##name(uint64_t bits, uint64_t by)                                  \
	{                                                                                          \
		return put_##tag(TUTTI_##name,                                                     \
				 merge_##tag(TUTTI_##name, TUTTI_PROD,                             \
					     get_##tag(TUTTI_##name, bits),                        \
					     get_##tag(TUTTI_##name, by)));                        \
	}                                                                                          \
	DEVICE_OUT void scale_##name(const struct reduce_job *job, uint64_t by)                    \
	{                                                                                          \
		const int dtype = TUTTI_##name, bytes = element_bytes(dtype);                      \
		struct job_units units = units_of(job, UNIT_BYTES(dtype), dtype);                  \
		uint64_t n = units.n + job->count - units.elements;                                \
		for (uint64_t i = job->thread; i < n; i += job->threads) {                         \
			struct vector in, out = vector_zero();                                     \
			int elements;                                                              \
			uint64_t at = units_part(units, i, &elements, dtype);                      \
			in = load_elements((const char *)job->src[0] + at, elements, dtype);       \
			UNROLL                                                                     \
			for (int e = 0; e < UNIT_ELEMENTS(dtype); e++)                             \
				if (e < elements)                                                  \
					vector_put(&out, e, bytes,                                 \
						   scaled_##name(vector_get(&in, e, bytes), by));  \
			store_elements((char *)job->dst[0] + at, out, elements, dtype);            \
		}                                                                                  \
	}
FLOAT_DTYPES(SCALE)
INTEGER_DTYPES(SCALE)

DEVICE void scale_body(const struct scale_args *args, struct kernel_block *block)
{
	for (int t = thread_first(); t < THREADS_OF_scale; t += thread_step()) {
		uint64_t thread = (uint64_t)block->index * THREADS_OF_scale + (unsigned)t;
		struct reduce_job job = {&args->dst, &args->src, 1, 1, args->count, args->dtype,
					 TUTTI_PROD, 0, thread,
					 (uint64_t)block->count * THREADS_OF_scale};
		switch (args->dtype) {
#define SCALE_CASE(name, ...)                                                                      \
	case TUTTI_##name:                                                                         \
		scale_##name(&job, args->scalar);                                                  \
		break;
			FLOAT_DTYPES(SCALE_CASE)
			INTEGER_DTYPES(SCALE_CASE)
#undef SCALE_CASE
		}
	}
}
KERNEL(scale)

#endif
