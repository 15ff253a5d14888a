/* The sum of f16 with AVX512-FP16; cmake/kernels.cmake gives this file that flag. All else is as in
 * reduce_avx512.c, which has the table. */
#ifdef __AVX512FP16__
#pragma GCC diagnostic ignored "-Wunused-function" /* most of the template */
#define REDUCE_SUMS_ONLY
#include "core/memory/reduce_template.h"

void reduce_sum_f16_avx512(const struct reduction *r, size_t first, size_t ahead)
{
	fused_sum_f16(r, first, ahead);
}
#endif
