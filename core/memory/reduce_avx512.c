/* The kernels of reduce.c for AVX-512 (F, BW, VL, DQ); cmake/kernels.cmake gives this file those
 * flags. Two more tables have one sum each from files with later instructions. */
#ifdef __x86_64__
#define REDUCE_KERNELS       reduce_kernels_avx512
#define REDUCE_KERNELS_LEVEL SIMD_AVX512
#include "core/memory/reduce_template.h"

#ifdef SIMD_HAS_FP16
const struct reduce_kernels reduce_kernels_avx512_bf16 =
	TABLE(SIMD_AVX512_BF16, fused_sum_f16, reduce_sum_bf16_avx512);
const struct reduce_kernels reduce_kernels_avx512_fp16 =
	TABLE(SIMD_AVX512_FP16, reduce_sum_f16_avx512, reduce_sum_bf16_avx512);
#endif
#endif
