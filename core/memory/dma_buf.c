/* A kind's own way to a dma-buf. */
#include "core/memory/dma_buf.h"

#include "core/status.h"
#include "core/memory/memory.h"

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
