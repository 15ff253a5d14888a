/* The kernels of reduce.c for AVX2 and F16C; cmake/kernels.cmake gives this file those flags. */
#ifdef __x86_64__
#define REDUCE_KERNELS       reduce_kernels_avx2
#define REDUCE_KERNELS_LEVEL SIMD_AVX2
#include "core/memory/reduce_template.h"

#define REST(tag)                                                                                  \
	size_t reduce_rest_##tag##_avx2(const struct reduction *r, size_t first, size_t ahead)     \
	{                                                                                          \
		return sum_##tag##_16(r, first, ahead);                                            \
	}
REST(f32)
REST(f64)
REST(f16)
REST(bf16)
#endif
