/* The kernels of reduce.c for AVX-512 (F, BW, VL, DQ); CMakeLists.txt gives this file those flags.
 */
#ifdef __x86_64__
#define REDUCE_KERNELS      reduce_kernels_avx512
#define REDUCE_KERNELS_NAME "avx512"
#include "memory/reduce_template.h"
#endif
