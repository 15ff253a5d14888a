/* The kinds of memory of this process. */
#include "core/memory/memory.h"

#include "core/memory/dma_buf.h"
#include "core/status.h"

#include <stdatomic.h>

/* Written by memory_register alone; a kind never leaves. Its store is released and every lookup
 * acquires, so that a thread that finds a kind finds it whole. */
static _Atomic(const struct memory_kind *) kinds[TUTTI_MEMORY_KINDS] = {&memory_host};
atomic_int memory_others;

tutti_status memory_register(const struct memory_kind *kind)
{
	const struct memory_kind *none = NULL;

	if (kind->id < 0 || kind->id >= TUTTI_MEMORY_KINDS)
		return fail(TUTTI_ERR_INVALID, "Memory kind %s has number %d; there are %d.",
			    kind->name, kind->id, TUTTI_MEMORY_KINDS);
	if (!atomic_compare_exchange_strong(&kinds[kind->id], &none, kind)) {
		if (none == kind)
			return TUTTI_OK;
		return fail(TUTTI_ERR_INVALID, "Memory kind %s wants number %d, which is %s's.",
			    kind->name, kind->id, none->name);
	}
	atomic_fetch_add_explicit(&memory_others, 1, memory_order_release);
	return TUTTI_OK;
}

const struct memory_kind *memory_kind(int id)
{
	if (id < 0 || id >= TUTTI_MEMORY_KINDS)
		return NULL;
	return atomic_load_explicit(&kinds[id], memory_order_acquire);
}

const struct memory_kind *memory_of_others(const void *ptr)
{
	for (int id = 0; id < TUTTI_MEMORY_KINDS; id++) {
		const struct memory_kind *kind = memory_kind(id);
		if (kind && kind != &memory_host && kind->owns(ptr))
			return kind;
	}
	return &memory_host;
}

tutti_status memory_dma_buf(struct memory_dma_buf *out, int kind, void *ptr, size_t bytes)
{
	const struct memory_kind *own = memory_kind(kind);

	if (own && own->dma_buf)
		return own->dma_buf(out, ptr, bytes);
	return fail(TUTTI_ERR_UNSUPPORTED, "there is no dma-buf of %s memory",
		    own                         ? own->name
		    : kind == TUTTI_MEMORY_CUDA ? "a GPU's"
						: "such");
}
