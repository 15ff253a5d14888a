/* 2 MiB pages for the memory that ranks share, on a system that gives none to shared memory by
 * itself: its pages are collapsed into large ones when the memory is new, before anybody uses it.
 *
 * Only whole large pages of what was asked for, so that nothing costs more memory than it has
 * bytes. The others' mappings get them as they fault them in. Where it cannot be, for whatever
 * reason, the memory stays in small pages, and nobody hears of it. */
#include "collectives/window/window.h"

#include "core/memory_left.h"

#include <stdint.h>
#include <sys/mman.h>

#ifndef MADV_COLLAPSE /* Linux 6.1 */
#define MADV_COLLAPSE 25
#endif

#define HUGE_PAGE ((size_t)2 << 20)
/* Of one call to the kernel, which tries hard for every large page: after the first one in vain it
 * is not asked for the rest. */
#define AT_ONCE ((size_t)16 << 20)

void window_mem_enlarge(void *ptr, size_t bytes, int ranks)
{
	uint8_t *at = ptr, *end = at + bytes / HUGE_PAGE * HUGE_PAGE;

	/* Whoever asks for more than he will use must not fill the machine with it. */
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
