/* The sum of bf16 with AVX512-BF16; cmake/kernels.cmake gives this file that flag. All else is as
 * in reduce_avx512.c, which has the table. */
#ifdef __AVX512BF16__
#pragma GCC diagnostic ignored "-Wunused-function" /* most of the template */
#define REDUCE_SUMS_ONLY
#include "core/memory/reduce_template.h"

void reduce_sum_bf16_avx512(const struct reduction *r, size_t first, size_t ahead)
{
	fused_sum_bf16(r, first, ahead);
}
#endif
