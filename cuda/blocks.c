/* A list, looked through for the smallest block that is large enough: there are few. */
#include "cuda/blocks.h"

#include "core/status.h"

#include <assert.h>
#include <stdint.h>
#include <stdlib.h>

struct cuda_block {
	struct cuda_block *next;
	const struct cuda_device *device;
	void *ptr;
	size_t bytes;
	bool is_host, is_used;
};

#define SMALLEST 4096u

/* A power of two, so that calls of many sizes share blocks. */
static size_t rounded(size_t bytes)
{
	size_t room = SMALLEST;

	while (room < bytes && room <= SIZE_MAX / 2)
		room *= 2;
	return room < bytes ? bytes : room;
}

static tutti_status allocate(struct cuda_block *b)
{
	const struct cuda_driver *cuda = cuda_driver();
	struct cuda_visit visit;
	CUdeviceptr pointer = 0;
	tutti_status status;

	TRY(cuda_enter(b->device, &visit));
	if (b->is_host)
		status = cuda_status(
			cuda->mem_host_alloc(&b->ptr, b->bytes, CU_MEMHOSTALLOC_PORTABLE),
			"mem_host_alloc");
	else
		status = cuda_status(cuda->mem_alloc(&pointer, b->bytes), "mem_alloc");
	cuda_leave(&visit);
	if (!b->is_host)
		b->ptr = (void *)(uintptr_t)pointer;
	return status;
}

static tutti_status add(struct cuda_blocks *blocks, const struct cuda_device *device, bool is_host,
			size_t bytes, struct cuda_block **out)
{
	struct cuda_block *b = malloc(sizeof *b);

	if (!b)
		return fail(TUTTI_ERR_MEMORY, "no memory for a block's entry");
	*b = (struct cuda_block){
		.device = device, .bytes = rounded(bytes), .is_host = is_host, .is_used = true};
	tutti_status status = allocate(b);
	if (status != TUTTI_OK) {
		free(b);
		return status;
	}
	b->next = blocks->all;
	blocks->all = b;
	*out = b;
	return TUTTI_OK;
}

tutti_status cuda_blocks_take(struct cuda_blocks *blocks, const struct cuda_device *device,
			      bool is_host, size_t bytes, void **ptr)
{
	struct cuda_block *best = NULL;

	for (struct cuda_block *b = blocks->all; b; b = b->next)
		if (!b->is_used && b->is_host == is_host && b->device == device &&
		    b->bytes >= bytes && (!best || b->bytes < best->bytes))
			best = b;
	if (!best)
		TRY(add(blocks, device, is_host, bytes, &best));
	best->is_used = true;
	*ptr = best->ptr;
	return TUTTI_OK;
}

void cuda_blocks_give(struct cuda_blocks *blocks, void *ptr)
{
	struct cuda_block *b = blocks->all;

	while (b && b->ptr != ptr)
		b = b->next;
	assert(b && b->is_used);
	b->is_used = false;
}

static void give_back(const struct cuda_block *b)
{
	const struct cuda_driver *cuda = cuda_driver();
	struct cuda_visit visit;

	if (cuda_enter(b->device, &visit) != TUTTI_OK)
		return; /* the context is gone, and the memory with it */
	if (b->is_host)
		cuda->mem_free_host(b->ptr);
	else
		cuda->mem_free((CUdeviceptr)(uintptr_t)b->ptr);
	cuda_leave(&visit);
}

void cuda_blocks_free(struct cuda_blocks *blocks)
{
	while (blocks->all) {
		struct cuda_block *b = blocks->all;
		blocks->all = b->next;
		give_back(b);
		free(b);
	}
}
