/* scalar * src: a product of two sources, one of which lies in a register. */
#ifndef CUDA_KERNELS_SCALE_CORE_H
#define CUDA_KERNELS_SCALE_CORE_H

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

/* As many elements as fit into 8 bytes. */
#define SCALE_WORD(name, ...)                                                                      \
	case TUTTI_##name:                                                                         \
		UNROLL                                                                             \
		for (int e = 0; e < 8 / element_bytes(TUTTI_##name); e++)                          \
			vector_put(&out, e, element_bytes(TUTTI_##name),                           \
				   scaled_##name(vector_get(&in, e, element_bytes(TUTTI_##name)),  \
						 by));                                             \
		break;
DEVICE_OUT uint64_t scale_word(uint64_t data, uint64_t by, int dtype)
{
	struct vector in = {{(uint32_t)data, (uint32_t)(data >> 32), 0, 0}}, out = vector_zero();

	switch (dtype) {
		FLOAT_DTYPES(SCALE_WORD)
		INTEGER_DTYPES(SCALE_WORD)
	}
	return vector_get(&out, 0, 8);
}
#undef SCALE_WORD

/* This thread's part: job->dst[0] = by * job->src[0]. */
DEVICE void scale_in_kernel(const struct reduce_job *job, uint64_t by)
{
	switch (job->dtype) {
#define SCALE_CASE(name, ...)                                                                      \
	case TUTTI_##name:                                                                         \
		scale_##name(job, by);                                                             \
		break;
		FLOAT_DTYPES(SCALE_CASE)
		INTEGER_DTYPES(SCALE_CASE)
#undef SCALE_CASE
	}
}

#endif
