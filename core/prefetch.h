/* Hints to the caches; never needed, only faster. */
#ifndef CORE_PREFETCH_H
#define CORE_PREFETCH_H

#include <stddef.h>

#define CACHE_LINE 64u

/* The cache line of at comes to this core for writing: other cores' copies are gone when the store
 * comes. The compiler's own builtin only reads, unless it may assume the instruction, which every
 * x86-64 processor that has not got it takes for a no-op. */
static inline void prefetch_to_write(const void *at)
{
#if defined(__x86_64__)
	__asm__ volatile("prefetchw %0" ::"m"(*(const char *)at));
#else
	__builtin_prefetch(at, 1);
#endif
}

static inline void prefetch_to_read(const void *at)
{
	__builtin_prefetch(at, 0);
}

/* Returns when what this core has stored so far is in its cache. */
static inline void wait_for_stores(void)
{
#if defined(__x86_64__)
	__asm__ volatile("lock orq $0, (%%rsp)" ::: "memory");
#endif
}

/* Moves a line that this core has written to the cache that the cores share, where another core
 * finds it sooner than in this core's cache. No-op where it is not known, as above. It may overtake
 * the store, and the line is fetched twice then: hence wait_for_stores. The next store pays for it,
 * so such lines want prefetch_to_write, too. */
static inline void push_out(const void *at)
{
#if defined(__x86_64__)
	__asm__ volatile("cldemote %0" ::"m"(*(const char *)at));
#else
	(void)at;
#endif
}

#endif
