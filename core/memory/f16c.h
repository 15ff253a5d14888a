/* f16 to f32 and back by instructions of x86: 4, 8 or 16 numbers at a time (16, 32, 64 bytes of
 * f32). */
#ifndef CORE_MEMORY_F16C_H
#define CORE_MEMORY_F16C_H

#ifdef __F16C__

#include <immintrin.h>
#include <string.h>

#define F16C_INLINE static inline __attribute__((always_inline, unused))

F16C_INLINE __m128 f16_widen_16(const void *src)
{
	return _mm_cvtph_ps(_mm_loadl_epi64(src));
}

F16C_INLINE void f16_narrow_16(void *dst, __m128 x)
{
	_mm_storel_epi64(dst, _mm_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT));
}

F16C_INLINE __m256 f16_widen_32(const void *src)
{
	return _mm256_cvtph_ps(_mm_loadu_si128(src));
}

F16C_INLINE void f16_narrow_32(void *dst, __m256 x)
{
	_mm_storeu_si128(dst, _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT));
}

#ifdef __AVX512F__
F16C_INLINE __m512 f16_widen_64(const void *src)
{
	return _mm512_cvtph_ps(_mm256_loadu_si256(src));
}

F16C_INLINE void f16_narrow_64(void *dst, __m512 x)
{
	_mm256_storeu_si256(dst, _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT));
}
#endif

#endif
#endif
