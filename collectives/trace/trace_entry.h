/* Inside trace/: one entry of a page, read while it may be being written. */
#ifndef COLLECTIVES_TRACE_TRACE_ENTRY_H
#define COLLECTIVES_TRACE_TRACE_ENTRY_H

#include "collectives/trace/trace_log.h"

/* What the entries of a page are read with. */
struct page_reading {
	struct ticks_moment start, now;
	const struct trace_page *page;
};

static inline uint64_t trace_load(const _Atomic uint64_t *word)
{
	return atomic_load_explicit((_Atomic uint64_t *)(uintptr_t)word, memory_order_acquire);
}

/* Fills op, which has its index alone. newest: the sequence of a collective not far away. False:
 * the entry is not whole. */
bool trace_entry_read(struct trace_op *op, const struct trace_entry *entry, uint64_t newest,
                      const struct page_reading *reading);

#endif
