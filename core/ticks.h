/* The cheapest clock there is, for what is noted at every call: the processor's counter where it
 * runs at one speed on all cores, else nanoseconds of the system. The reader finds out what a tick
 * is worth. */
#ifndef CORE_TICKS_H
#define CORE_TICKS_H

#include "core/clock.h"

enum ticks_kind {
	TICKS_NS,      /* CLOCK_MONOTONIC: where there is no counter to rely on      */
	TICKS_TSC,     /* x86's time stamp counter                                  */
	TICKS_CNTVCT,  /* ARM's virtual counter                                     */
	TICKS_KINDS,
};

/* The clock that the kernel says this machine has, looked up once. */
enum ticks_kind ticks_kind_here(void);

/* kind: ticks_kind_here(), or TICKS_NS. Does not wait for loads and stores before it. */
static inline uint64_t ticks_now(enum ticks_kind kind)
{
#if defined(__x86_64__)
	if (__builtin_expect(kind == TICKS_TSC, 1))
		return __builtin_ia32_rdtsc();
#elif defined(__aarch64__)
	if (__builtin_expect(kind == TICKS_CNTVCT, 1)) {
		uint64_t ticks;
		__asm__ volatile("mrs %0, cntvct_el0" : "=r"(ticks));
		return ticks;
	}
#endif
	(void)kind;
	return clock_now_ns();
}

/* One moment on all clocks. */
struct ticks_moment {
	uint64_t ticks, monotonic_ns, realtime_ns;
};
struct ticks_moment ticks_moment(enum ticks_kind kind);

/* The monotonic time at ticks, given two moments; for any numbers whatever. */
uint64_t ticks_to_ns(const struct ticks_moment *first, const struct ticks_moment *second,
		     uint64_t ticks);

#endif
