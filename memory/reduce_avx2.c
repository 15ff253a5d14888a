/* The kernels of reduce.c for AVX2 and F16C; cmake/kernels.cmake gives this file those flags. */
#ifdef __x86_64__
#define REDUCE_KERNELS      reduce_kernels_avx2
#define REDUCE_KERNELS_NAME "avx2"
#include "memory/reduce_template.h"
#endif
