/* Hints to the cache of this core; never needed, only faster. */
#ifndef CORE_PREFETCH_H
#define CORE_PREFETCH_H

/* The cache line of at comes to this core for writing: other cores' copies are gone when the store comes. The
 * compiler's own builtin only reads, unless it may assume the instruction, which every x86-64 processor
 * that has not got it takes for a no-op. */
static inline void prefetch_to_write(const void *at)
{
#if defined(__x86_64__)
	__asm__ volatile("prefetchw %0" ::"m"(*(const char *)at));
#else
	__builtin_prefetch(at, 1);
#endif
}

#endif
