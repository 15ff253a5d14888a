/* The floating point unit as reductions need it: to the nearest, with subnormals, without traps. A
 * thread that has set its own otherwise (a program that flushes subnormals, one that looks for
 * NaNs) would get other bits than the other ranks, or a signal; so it is set for as long as a
 * reduction runs. Looking costs about five cycles. */
#ifndef CORE_MEMORY_FLOAT_UNIT_H
#define CORE_MEMORY_FLOAT_UNIT_H

#include <stdint.h>

#if defined(__x86_64__)
#include <xmmintrin.h>

#define FLOAT_UNIT_SETTINGS 0xffc0u     /* of MXCSR; the rest are flags of what has happened */
#define FLOAT_UNIT_DEFAULT  0x1f80u

/* Returns what float_unit_end gives back. */
static inline uint64_t float_unit_begin(void)
{
	uint64_t before = _mm_getcsr();
	if (__builtin_expect((before & FLOAT_UNIT_SETTINGS) != FLOAT_UNIT_DEFAULT, 0))
		_mm_setcsr(FLOAT_UNIT_DEFAULT);
	return before;
}

static inline void float_unit_end(uint64_t before)
{
	if (__builtin_expect((before & FLOAT_UNIT_SETTINGS) != FLOAT_UNIT_DEFAULT, 0))
		_mm_setcsr((unsigned)before);
}

#elif defined(__aarch64__)

static inline uint64_t float_unit_begin(void)
{
	uint64_t before;
	__asm__ volatile("mrs %0, fpcr" : "=r"(before));
	if (__builtin_expect(before != 0, 0))
		__asm__ volatile("msr fpcr, xzr" ::: "memory");
	return before;
}

static inline void float_unit_end(uint64_t before)
{
	if (__builtin_expect(before != 0, 0))
		__asm__ volatile("msr fpcr, %0" ::"r"(before) : "memory");
}

#else

static inline uint64_t float_unit_begin(void)
{
	return 0;
}

static inline void float_unit_end(uint64_t before)
{
	(void)before;
}

#endif
#endif
