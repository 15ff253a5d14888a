/* 2 MiB pages for the memory that ranks share, where the system gives none to shared memory by
 * itself: the pages are collapsed into large ones while the memory is new. Only whole large pages
 * of what was asked for, so that no memory is added. The others' mappings get the large pages as
 * they touch them. Where this fails, the memory silently stays in small pages. */
#include "collectives/window/window.h"

#include "core/memory_left.h"

#include <stdint.h>
#include <sys/mman.h>

#ifndef MADV_COLLAPSE /* Linux 6.1 */
#define MADV_COLLAPSE 25
#endif

#define HUGE_PAGE ((size_t)2 << 20)
/* The bytes of one madvise call. The kernel works long on every large page, so the first call that
 * fails is the last one. */
#define AT_ONCE ((size_t)16 << 20)

void window_mem_enlarge(void *ptr, size_t bytes, int ranks)
{
	uint8_t *at = ptr, *end = at + bytes / HUGE_PAGE * HUGE_PAGE;

	/* A caller that asks for more than it will use must not fill the machine with it. */
	if (at == end || bytes > memory_left("") / 2 / (uint64_t)ranks)
		return;
	for (size_t n; at < end; at += n) {
		n = (size_t)(end - at) < AT_ONCE ? (size_t)(end - at) : AT_ONCE;
		/* A small page in each: what is not mapped at all is not collapsed. */
		for (size_t i = 0; i < n; i += HUGE_PAGE)
			(void)*(volatile uint8_t *)(at + i);
		if (madvise(at, n, MADV_COLLAPSE) != 0)
			return;
	}
}
