/* f32 to bf16 by the instructions of AVX512-BF16. They round to the nearest, ties to even, whatever
 * the floating point unit is set to, but flush subnormal numbers to zero and keep the payloads of
 * NaNs: vectors that have either are for other code. */
#ifndef CORE_MEMORY_BF16_H
#define CORE_MEMORY_BF16_H

#if defined(__AVX512BF16__) && defined(__AVX512BW__) && defined(__AVX512DQ__)

#include <immintrin.h>
#include <stdbool.h>
#include <string.h>

#define BF16_BY_INSTRUCTION 1
#define BF16_INLINE static inline __attribute__((always_inline, unused))

/* Neither a NaN nor a subnormal number is in a or b. */
BF16_INLINE bool bf16_is_plain_64(__m512 a, __m512 b)
{
	enum { QUIET_NAN = 0x01, SUBNORMAL = 0x20, SIGNALLING_NAN = 0x80 };
	enum { ODD = QUIET_NAN | SUBNORMAL | SIGNALLING_NAN };

	return _kortestz_mask16_u8(_mm512_fpclass_ps_mask(a, ODD), _mm512_fpclass_ps_mask(b, ODD));
}

/* Of each pair of bf16, low's at the lower address. */
BF16_INLINE __m512i bf16_pack_64(__m512 low, __m512 high)
{
	const __m512i in_pairs = _mm512_set_epi32(
		0x1f000f, 0x1e000e, 0x1d000d, 0x1c000c, 0x1b000b, 0x1a000a, 0x190009, 0x180008,
		0x170007, 0x160006, 0x150005, 0x140004, 0x130003, 0x120002, 0x110001, 0x100000);
	__m512bh one_after_the_other = _mm512_cvtne2ps_pbh(high, low);
	__m512i words;

	memcpy(&words, &one_after_the_other, sizeof words);
	return _mm512_permutexvar_epi16(in_pairs, words);
}

#endif
#endif
