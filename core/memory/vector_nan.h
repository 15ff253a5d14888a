/* Whether there is a NaN among two vectors, 16, 32 or 64 bytes each, of f32 or f64: one comparison
 * finds it in either, where making NaNs canonical takes three instructions a vector. Without such
 * instructions the answer is yes. */
#ifndef CORE_MEMORY_VECTOR_NAN_H
#define CORE_MEMORY_VECTOR_NAN_H

#include <stdbool.h>

#define NAN_INLINE static inline __attribute__((always_inline, unused))

#ifdef __x86_64__
#ifdef __AVX2__
#include <immintrin.h>
#else
#include <emmintrin.h> /* a tenth of it, and all that is here */
#endif

NAN_INLINE bool nan_in_f32_16(__m128 a, __m128 b)
{
	return _mm_movemask_ps(_mm_cmpunord_ps(a, b)) != 0;
}

NAN_INLINE bool nan_in_f64_16(__m128 a, __m128 b)
{
	return _mm_movemask_pd(_mm_cmpunord_pd((__m128d)a, (__m128d)b)) != 0;
}

#ifdef __AVX2__
NAN_INLINE bool nan_in_f32_32(__m256 a, __m256 b)
{
	return _mm256_movemask_ps(_mm256_cmp_ps(a, b, _CMP_UNORD_Q)) != 0;
}

NAN_INLINE bool nan_in_f64_32(__m256 a, __m256 b)
{
	return _mm256_movemask_pd(_mm256_cmp_pd((__m256d)a, (__m256d)b, _CMP_UNORD_Q)) != 0;
}
#endif

#ifdef __AVX512F__
NAN_INLINE bool nan_in_f32_64(__m512 a, __m512 b)
{
	return _mm512_cmp_ps_mask(a, b, _CMP_UNORD_Q) != 0;
}

NAN_INLINE bool nan_in_f64_64(__m512 a, __m512 b)
{
	return _mm512_cmp_pd_mask((__m512d)a, (__m512d)b, _CMP_UNORD_Q) != 0;
}

/* Rounded as f32's upper half holds it: add half, less one bit where the upper half is even. */
NAN_INLINE __m512i round_to_bf16_64(__m512i bits)
{
	__mmask16 is_odd = _mm512_test_epi32_mask(bits, _mm512_set1_epi32(0x10000));
	__m512i half =
		_mm512_mask_mov_epi32(_mm512_set1_epi32(0x7fff), is_odd, _mm512_set1_epi32(0x8000));
	return _mm512_add_epi32(bits, half);
}
#endif
#else
#define nan_in_f32_16(a, b) ((void)(a), (void)(b), true)
#define nan_in_f64_16(a, b) ((void)(a), (void)(b), true)
#endif
#endif
