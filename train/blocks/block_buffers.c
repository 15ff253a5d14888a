#include "train/blocks/block_buffers.h"

#include "train/base/base.h"

#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>

#define HUGE_PAGE ((size_t)2 << 20)

/* All buffers of a call. */
struct block_memory {
	uint8_t *base;
	size_t bytes;
};

static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_key_t kept; /* struct block_memory, of this thread */
static bool can_keep;

static void block_buffers_memory_free(void *of)
{
	struct block_memory *memory = of;

	munmap(memory->base, memory->bytes);
	free(memory);
}

static void block_buffers_make_key(void)
{
	can_keep = pthread_key_create(&kept, block_buffers_memory_free) == 0;
}

static struct block_memory *memory_new(size_t bytes)
{
	struct block_memory *memory = malloc(sizeof *memory);
	void *base = memory ? mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
				   -1, 0)
			    : MAP_FAILED;

	if (base == MAP_FAILED) {
		free(memory);
		return NULL;
	}
	if (bytes >= HUGE_PAGE)
		(void)madvise(base, bytes, MADV_HUGEPAGE); /* a hint; small pages do as well */
	*memory = (struct block_memory){base, bytes};
	return memory;
}

/* The thread keeps nothing afterwards. */
static struct block_memory *block_buffers_memory_take(size_t bytes)
{
	pthread_once(&once, block_buffers_make_key);
	struct block_memory *memory = can_keep ? pthread_getspecific(kept) : NULL;

	if (memory)
		pthread_setspecific(kept, NULL);
	if (memory && memory->bytes >= bytes)
		return memory;
	if (memory)
		block_buffers_memory_free(memory);
	return memory_new(bytes);
}

tutti_status block_buffers_take(struct block_buffers *buffers, size_t bytes)
{
	size_t stride = bytes ? bytes : 1;

	if (stride <= SIZE_MAX / 4)
		stride = (stride + BLOCK_ALIGN - 1) / BLOCK_ALIGN * BLOCK_ALIGN;
	buffers->memory = stride <= SIZE_MAX / 4
				  ? block_buffers_memory_take((BLOCK_BUFFERS + 1) * stride)
				  : NULL;
	if (!buffers->memory)
		return fail_no_memory("three blocks of %zu bytes", bytes);
	for (int i = 0; i < BLOCK_BUFFERS; i++)
		buffers->data[i] = buffers->memory->base + (size_t)i * stride;
	buffers->spare = buffers->memory->base + BLOCK_BUFFERS * stride;
	return TUTTI_OK;
}

void block_buffers_give_back(struct block_buffers *buffers)
{
	struct block_memory *memory = buffers->memory;

	if (memory->bytes > BLOCK_KEPT_BYTES || !can_keep || pthread_getspecific(kept) ||
	    pthread_setspecific(kept, memory) != 0)
		block_buffers_memory_free(memory);
}
