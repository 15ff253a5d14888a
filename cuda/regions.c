/* Parts of this process, in one list; free ones wait there until as much, or not much less, is
 * asked for. */
#include "cuda/regions.h"

#include "core/status.h"
#include "cuda/channels_internal.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

struct part {
	struct part *next;
	const struct cuda_device *device;
	const struct cuda_channels *channels; /* NULL: they are gone, or the part is free */
	CUdeviceptr memory;
	size_t bytes;
	uint32_t number; /* of the region */
	bool is_used;
	CUipcMemHandle handle;
};

static struct part *parts;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of the list and what is in it */

static bool is_taken(const struct cuda_channels *c, uint32_t number)
{
	for (const struct part *p = parts; p; p = p->next)
		if (p->is_used && p->channels == c && p->number == number)
			return true;
	return false;
}

/* The smallest number of a region that this rank has free, or 0. */
static uint32_t free_number(const struct cuda_channels *c)
{
	uint32_t number = 1;

	while (number < CHANNEL_REGIONS && is_taken(c, number))
		number++;
	return number < CHANNEL_REGIONS ? number : 0;
}

/* The smallest that fits, unless half of it would do. */
static struct part *find_free(const struct cuda_device *device, size_t bytes)
{
	struct part *best = NULL;

	for (struct part *p = parts; p; p = p->next)
		if (!p->is_used && p->device == device && p->bytes >= bytes &&
		    p->bytes / 2 < bytes && (!best || p->bytes < best->bytes))
			best = p;
	return best;
}

static tutti_status allocate(struct part *p)
{
	const struct cuda_driver *cuda = cuda_driver();

	CUresult error = cuda->mem_alloc(&p->memory, p->bytes);
	if (error == CUDA_ERROR_OUT_OF_MEMORY)
		return fail(TUTTI_ERR_MEMORY, "CUDA device %d has no %zu bytes left",
			    p->device->ordinal, p->bytes);
	TRY(cuda_status(error, "mem_alloc"));
	cuda->ipc_get_mem_handle(&p->handle, p->memory); /* a process alone needs none */
	return TUTTI_OK;
}

static tutti_status clear(const struct cuda_channels *c, const struct part *p)
{
	const struct cuda_driver *cuda = cuda_driver();

	CUDA_TRY(memset_d8_async, p->memory, 0, p->bytes, c->stream);
	CUDA_TRY(stream_synchronize, c->stream);
	return TUTTI_OK;
}

/* Under the lock, between enter and leave. */
static tutti_status take(const struct cuda_channels *c, size_t bytes, struct part **out)
{
	uint32_t number = free_number(c);
	struct part *p = find_free(c->device, bytes);

	if (!number)
		return fail(TUTTI_ERR_MEMORY,
			    "rank %d has %d blocks of GPU memory that others map already", c->named,
			    CHANNEL_REGIONS - 1);
	if (!p) {
		if (!(p = calloc(1, sizeof *p)))
			return fail(TUTTI_ERR_MEMORY, "no memory for a block's entry");
		*p = (struct part){.device = c->device, .bytes = bytes};
		tutti_status status = allocate(p);
		if (status != TUTTI_OK) {
			free(p);
			return status;
		}
		p->next = parts;
		parts = p;
	}
	p->channels = c;
	p->number = number;
	p->is_used = true;
	*out = p;
	return TUTTI_OK;
}

tutti_status cuda_region_alloc(struct cuda_channels *c, size_t bytes, void **ptr,
			       struct cuda_region *region)
{
	struct cuda_visit visit;
	struct part *p = NULL;

	region->number = 0;
	TRY(cuda_enter(c->device, &visit));
	pthread_mutex_lock(&lock);
	tutti_status status = take(c, bytes ? bytes : 1, &p);
	pthread_mutex_unlock(&lock);
	if (status == TUTTI_OK)
		status = clear(c, p);
	cuda_leave(&visit);
	if (status != TUTTI_OK)
		return status;
	memcpy(region->handle, p->handle.reserved, sizeof region->handle);
	region->address = p->memory;
	region->number = p->number;
	*ptr = (void *)(uintptr_t)p->memory;
	return TUTTI_OK;
}

/* The part of rank r, as this rank maps it. */
static tutti_status map_part(struct cuda_channels *c, const struct cuda_region *region, int r,
			     CUdeviceptr *here)
{
	const struct cuda_driver *cuda = cuda_driver();
	CUipcMemHandle handle;

	*here = region->address;
	if (!c->is_opened[r])
		return TUTTI_OK;
	memcpy(handle.reserved, region->handle, sizeof handle.reserved);
	CUDA_TRY(ipc_open_mem_handle, here, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
	return TUTTI_OK;
}

static tutti_status note(struct cuda_channels *c, const struct cuda_region *region, int r)
{
	const struct cuda_driver *cuda = cuda_driver();
	size_t at = (size_t)r * CHANNEL_REGIONS + region->number;
	CUdeviceptr here, entry = c->segment->regions + at * sizeof(uint64_t);

	TRY(map_part(c, region, r, &here));
	CUDA_TRY(memcpy_async, entry, (CUdeviceptr)(uintptr_t)&here, sizeof here, c->stream);
	CUDA_TRY(stream_synchronize, c->stream);
	if (c->mapped[at]) /* what had the number before is not used any more */
		cuda->ipc_close_mem_handle(c->mapped[at]);
	c->mapped[at] = c->is_opened[r] ? here : 0;
	return TUTTI_OK;
}

tutti_status cuda_region_map(struct cuda_channels *c, const struct cuda_region *regions)
{
	struct cuda_visit visit;
	tutti_status status = TUTTI_OK;

	TRY(cuda_enter(c->device, &visit));
	for (int r = 0; status == TUTTI_OK && r < c->size; r++)
		status = note(c, &regions[r], r);
	cuda_leave(&visit);
	return status;
}

bool cuda_region_free(void *ptr)
{
	pthread_mutex_lock(&lock);
	struct part *p = parts;
	while (p && !(p->is_used && p->memory == (CUdeviceptr)(uintptr_t)ptr))
		p = p->next;
	if (p) {
		p->is_used = false;
		p->channels = NULL;
	}
	pthread_mutex_unlock(&lock);
	return p != NULL;
}

void cuda_regions_forget(const struct cuda_channels *c)
{
	pthread_mutex_lock(&lock);
	for (struct part *p = parts; p; p = p->next)
		if (p->channels == c)
			p->channels = NULL;
	pthread_mutex_unlock(&lock);
}

bool cuda_region_find(const struct cuda_channels *c, const void *ptr, uint64_t *place)
{
	CUdeviceptr pointer = (CUdeviceptr)(uintptr_t)ptr;

	pthread_mutex_lock(&lock);
	const struct part *p = parts;
	while (p && !(p->is_used && p->channels == c && pointer >= p->memory &&
		      pointer - p->memory < p->bytes))
		p = p->next;
	if (p)
		*place = channel_place(p->number, pointer - p->memory);
	pthread_mutex_unlock(&lock);
	return p != NULL;
}
