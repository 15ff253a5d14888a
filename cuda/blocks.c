/* Lists, looked through for the smallest block that is large enough: there are few. */
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

/* Of queues that have ended, for those to come. */
static struct cuda_block *spare;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of spare */

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

/* Where the list has the smallest that will do; NULL: nowhere. */
static struct cuda_block **find(struct cuda_block **list, const struct cuda_device *device,
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

/* One of the spare blocks becomes one of these. */
static struct cuda_block *take_spare(struct cuda_blocks *blocks, const struct cuda_device *device,
				     bool is_host, size_t bytes)
{
	struct cuda_block *b = NULL;

	pthread_mutex_lock(&lock);
	struct cuda_block **at = find(&spare, device, is_host, bytes);
	if (at) {
		b = *at;
		*at = b->next;
		b->next = blocks->all;
		blocks->all = b;
	}
	pthread_mutex_unlock(&lock);
	return b;
}

tutti_status cuda_blocks_take(struct cuda_blocks *blocks, const struct cuda_device *device,
			      bool is_host, size_t bytes, void **ptr)
{
	struct cuda_block **own = find(&blocks->all, device, is_host, bytes);
	struct cuda_block *b = own ? *own : take_spare(blocks, device, is_host, bytes);

	if (!b)
		TRY(add(blocks, device, is_host, bytes, &b));
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

void cuda_blocks_free(struct cuda_blocks *blocks)
{
	pthread_mutex_lock(&lock);
	while (blocks->all) {
		struct cuda_block *b = blocks->all;
		blocks->all = b->next;
		b->is_used = false;
		b->next = spare;
		spare = b;
	}
	pthread_mutex_unlock(&lock);
}
