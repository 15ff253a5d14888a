/* The kernels of reduce.c for the compiler's default target. */
#define REDUCE_KERNELS       reduce_kernels_base
#define REDUCE_KERNELS_LEVEL SIMD_BASE
#include "core/memory/reduce_template.h"
