/* A list, looked through for the smallest block that is large enough: there are few. */
#include "cuda/blocks.h"

#include "core/status.h"

#include <assert.h>
#include <pthread.h>
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
static size_t blocks_rounded(size_t bytes)
{
	size_t room = SMALLEST;

	while (room < bytes && room <= SIZE_MAX / 2)
		room *= 2;
	return room < bytes ? bytes : room;
}

static tutti_status blocks_allocate(struct cuda_block *b)
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

static struct cuda_block *left;                          /* by queues that have ended */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of that list */

static struct cuda_block **blocks_find(struct cuda_block **list, const struct cuda_device *device,
				       bool is_host, size_t bytes)
{
	struct cuda_block **best = NULL;

	for (struct cuda_block **at = list; *at; at = &(*at)->next) {
		const struct cuda_block *b = *at;
		if (!b->is_used && b->is_host == is_host && b->device == device &&
		    b->bytes >= bytes && (!best || b->bytes < (*best)->bytes))
			best = at;
	}
	return best;
}

/* Of a power of two of bytes that another queue has left, or NULL. */
static struct cuda_block *blocks_take_left(const struct cuda_device *device, bool is_host,
					   size_t bytes)
{
	struct cuda_block *b = NULL;

	pthread_mutex_lock(&lock);
	struct cuda_block **at = blocks_find(&left, device, is_host, bytes);
	if (at && (*at)->bytes <= 2 * bytes) {
		b = *at;
		*at = b->next;
	}
	pthread_mutex_unlock(&lock);
	return b;
}

static tutti_status blocks_make(const struct cuda_device *device, bool is_host, size_t bytes,
				struct cuda_block **out)
{
	struct cuda_block *b = malloc(sizeof *b);

	if (!b)
		return fail(TUTTI_ERR_MEMORY, "no memory for a block's entry");
	*b = (struct cuda_block){.device = device, .bytes = bytes, .is_host = is_host};
	tutti_status status = blocks_allocate(b);
	if (status != TUTTI_OK)
		free(b);
	else
		*out = b;
	return status;
}

tutti_status cuda_blocks_take(struct cuda_blocks *blocks, const struct cuda_device *device,
			      bool is_host, size_t bytes, void **ptr)
{
	struct cuda_block **found = blocks_find(&blocks->all, device, is_host, bytes);
	struct cuda_block *b =
		found ? *found : blocks_take_left(device, is_host, blocks_rounded(bytes));

	if (!b)
		TRY(blocks_make(device, is_host, blocks_rounded(bytes), &b));
	if (!found) {
		b->next = blocks->all;
		blocks->all = b;
	}
	b->is_used = true;
	*ptr = b->ptr;
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

void cuda_blocks_leave(struct cuda_blocks *blocks)
{
	pthread_mutex_lock(&lock);
	while (blocks->all) {
		struct cuda_block *b = blocks->all;
		blocks->all = b->next;
		b->is_used = false;
		b->next = left;
		left = b;
	}
	pthread_mutex_unlock(&lock);
}
