/* Memory of devices, and pinned memory of the host. */
#include "tests/cuda/driver/ipc.h"
#include "tests/cuda/driver/capture.h"
#include "tests/cuda/driver/dma_buf.h"
#include "tests/cuda/driver/region.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define ALIGNMENT ((size_t)512)
#define GARBAGE   0xa7
#define SPOILT    ((size_t)1 << 18)

struct arena arenas[MAX_GPUS];

/* Of much memory the middle is left as it is: to get pages for all of it took half of the time of
 * tests whose ranks are processes. */
void memory_spoil(char *memory, size_t bytes)
{
	size_t end = bytes < SPOILT ? bytes : SPOILT / 2;

	memset(memory, GARBAGE, end);
	memset(memory + bytes - end, GARBAGE, end);
}

bool memory_take(int gpu, size_t bytes)
{
	if (bytes > settings.memory - arenas[gpu].used)
		return false;
	arenas[gpu].used += bytes;
	return true;
}

void memory_give(int gpu, size_t bytes)
{
	arenas[gpu].used -= bytes;
}

/* Maps the device's memory, once. */
static CUresult arena_open(int gpu)
{
	struct arena *a = &arenas[gpu];
	struct timespec now;
	size_t bytes = settings.memory + ARENA_HEADER;
	char *all;

	_Static_assert(sizeof(struct arena_header) <= ARENA_HEADER, "the header fits");
	if (a->user)
		return CUDA_SUCCESS;
	a->fd = memfd_create("fake cuda", MFD_CLOEXEC);
	if (a->fd < 0 || ftruncate(a->fd, (off_t)bytes) != 0)
		return CUDA_ERROR_OUT_OF_MEMORY;
	all = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, a->fd, 0);
	a->user = mmap(NULL, settings.memory, PROT_NONE, MAP_SHARED, a->fd, (off_t)ARENA_HEADER);
	if (all == MAP_FAILED || a->user == MAP_FAILED)
		return CUDA_ERROR_OUT_OF_MEMORY;
	a->header = (struct arena_header *)all;
	a->shadow = all + ARENA_HEADER;
	clock_gettime(CLOCK_REALTIME, &now);
	a->header->token = (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
	region_reserve((uintptr_t)a->user, settings.memory);
	return CUDA_SUCCESS;
}

/* The first gap that holds so many bytes and a guard before the next allocation. So addresses are
 * used again at once. NULL: there is none. */
static char *find_gap(const struct arena *a, size_t bytes)
{
	uintptr_t at = (uintptr_t)a->user, end = at + settings.memory;

	for (struct region *r; (r = region_next(at)) && r->user < end;) {
		if (bytes + ALIGNMENT <= r->user - at)
			return (char *)at;
		at = (r->user + r->bytes + 2 * ALIGNMENT - 1) & ~(ALIGNMENT - 1);
	}
	return at < end && bytes <= end - at ? (char *)at : NULL;
}

static size_t find_slot(const struct arena *a)
{
	size_t slot = 0;

	while (slot < ARENA_SLOTS && atomic_load(&a->header->slots[slot].id) != 0)
		slot++;
	return slot;
}

static CUresult allocate(CUcontext context, size_t bytes, CUdeviceptr *pointer)
{
	struct arena *a = &arenas[context->gpu];
	size_t slot, offset;
	char *user;

	TRY(arena_open(context->gpu));
	slot = find_slot(a);
	user = find_gap(a, bytes);
	if (slot == ARENA_SLOTS || user == NULL || !memory_take(context->gpu, bytes))
		return CUDA_ERROR_OUT_OF_MEMORY;
	offset = (size_t)(user - a->user);
	struct region like = {.user = (uintptr_t)user,
			      .bytes = bytes,
			      .shadow = a->shadow + offset,
			      .kind = REGION_ALLOCATED,
			      .gpu = context->gpu,
			      .context = context,
			      .access = 1U << context->gpu,
			      .owner = &a->header->slots[slot]};
	memory_spoil(like.shadow, bytes);
	a->header->slots[slot].offset = offset + ARENA_HEADER;
	a->header->slots[slot].bytes = bytes;
	atomic_store(&a->header->slots[slot].id, region_add(&like)->id);
	*pointer = (CUdeviceptr)(uintptr_t)user;
	return CUDA_SUCCESS;
}

CUresult cuMemAlloc_v2(CUdeviceptr *pointer, size_t bytes)
{
	CUcontext context;

	TRY(context_working(&context));
	if (pointer == NULL || bytes == 0)
		return CUDA_ERROR_INVALID_VALUE;
	TRY(capture_forbids());
	TRY(fault_here(FAULT_MEMORY));
	pthread_mutex_lock(&driver_lock);
	CUresult error = allocate(context, bytes, pointer);
	pthread_mutex_unlock(&driver_lock);
	return error;
}

bool memory_clear(const struct region *region, char *shadow, size_t bytes)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	char *from = (char *)(((uintptr_t)shadow + page - 1) & ~(page - 1));
	char *to = (char *)(((uintptr_t)shadow + bytes) & ~(page - 1));

	if (region->kind != REGION_ALLOCATED || region->is_exported || bytes < SPOILT ||
	    madvise(from, (size_t)(to - from), MADV_REMOVE) != 0)
		return false;
	memset(shadow, 0, (size_t)(from - shadow));
	memset(to, 0, (size_t)(shadow + bytes - to));
	return true;
}

/* Whole pages of the file go. Their neighbours keep the old bytes, which nobody may read. */
static void forget(struct region *region)
{
	struct arena *a = &arenas[region->gpu];
	size_t page = (size_t)sysconf(_SC_PAGESIZE), offset = (size_t)(region->shadow - a->shadow);
	size_t from = (offset + page - 1) & ~(page - 1),
	       to = (offset + region->bytes) & ~(page - 1);
	atomic_uint_fast64_t *slot_id = region->owner; /* the first member of the slot */

	atomic_store(slot_id, 0);
	if (region->is_exported)
		dma_buf_leave(region);
	else if (!a->pages && from < to &&
		 fallocate(a->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
			   (off_t)(from + ARENA_HEADER), (off_t)(to - from)) != 0)
		abort();
	memory_give(region->gpu, region->bytes);
	region_remove(region);
}

/* As the driver does, it waits for the context's work first. */
CUresult cuMemFree_v2(CUdeviceptr pointer)
{
	CUcontext context;
	CUresult error = CUDA_ERROR_INVALID_VALUE;
	struct region *region;

	TRY(context_working(&context));
	if (pointer == 0)
		return CUDA_SUCCESS;
	TRY(capture_forbids());
	pthread_mutex_lock(&driver_lock);
	region = region_find(pointer);
	if (region && region->user == pointer && region->kind == REGION_ALLOCATED) {
		context_wait(region->context);
		region = region_find(pointer);
		if (region) {
			error = region->context->error;
			forget(region);
		}
	}
	pthread_mutex_unlock(&driver_lock);
	return error;
}

void memory_free_all(CUcontext context)
{
	uintptr_t from = 0;

	for (struct region *r; (r = region_next(from));) {
		from = r->user + 1;
		if (r->context == context && r->kind == REGION_ALLOCATED)
			forget(r);
	}
}

CUresult cuMemGetInfo_v2(size_t *free_bytes, size_t *total)
{
	CUcontext context;

	TRY(context_working(&context));
	pthread_mutex_lock(&driver_lock);
	*free_bytes = settings.memory - arenas[context->gpu].used;
	*total = settings.memory;
	pthread_mutex_unlock(&driver_lock);
	return CUDA_SUCCESS;
}

CUresult cuMemHostAlloc(void **pointer, size_t bytes, unsigned flags)
{
	CUcontext context;
	void *memory;

	(void)flags; /* with one address space for all, each allocation is portable and mapped */
	TRY(context_working(&context));
	if (pointer == NULL || bytes == 0)
		return CUDA_ERROR_INVALID_VALUE;
	TRY(capture_forbids());
	TRY(fault_here(FAULT_MEMORY));
	if (posix_memalign(&memory, 4096, bytes) != 0)
		return CUDA_ERROR_OUT_OF_MEMORY;
	memory_spoil(memory, bytes);
	struct region like = {.user = (uintptr_t)memory,
			      .bytes = bytes,
			      .shadow = memory,
			      .kind = REGION_HOST,
			      .gpu = context->gpu,
			      .context = context,
			      .access = (1U << MAX_GPUS) - 1};
	pthread_mutex_lock(&driver_lock);
	region_add(&like);
	pthread_mutex_unlock(&driver_lock);
	*pointer = memory;
	return CUDA_SUCCESS;
}

/* Memory of the program's own, such as what it shares with other processes. */
CUresult cuMemHostRegister_v2(void *pointer, size_t bytes, unsigned flags)
{
	CUcontext context;
	CUresult error = CUDA_SUCCESS;

	TRY(context_working(&context));
	if (pointer == NULL || bytes == 0 ||
	    flags > (CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP))
		return CUDA_ERROR_INVALID_VALUE;
	TRY(capture_forbids());
	TRY(fault_here(FAULT_MEMORY));
	struct region like = {.user = (uintptr_t)pointer,
			      .bytes = bytes,
			      .shadow = pointer,
			      .kind = REGION_HOST,
			      .gpu = context->gpu,
			      .context = context,
			      .access = (1U << MAX_GPUS) - 1,
			      .owner = &driver_lock /* not cuMemFreeHost's */};
	pthread_mutex_lock(&driver_lock);
	struct region *next = region_next(like.user);
	if (region_find((CUdeviceptr)like.user) || (next && next->user - like.user < bytes))
		error = CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
	else
		region_add(&like);
	pthread_mutex_unlock(&driver_lock);
	return error;
}

CUresult cuMemFreeHost(void *pointer)
{
	CUcontext context;
	struct region *region;

	TRY(context_working(&context));
	TRY(capture_forbids());
	pthread_mutex_lock(&driver_lock);
	region = region_find((CUdeviceptr)(uintptr_t)pointer);
	if (region && region->user == (uintptr_t)pointer && region->kind == REGION_HOST &&
	    region->owner == NULL) {
		context_wait(region->context);
		region = region_find((CUdeviceptr)(uintptr_t)pointer);
	} else {
		region = NULL;
	}
	if (region)
		region_remove(region);
	pthread_mutex_unlock(&driver_lock);
	if (region == NULL)
		return CUDA_ERROR_INVALID_VALUE;
	free(pointer);
	return CUDA_SUCCESS;
}

CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr *pointer, void *host, unsigned flags)
{
	CUcontext context;
	struct region *region;

	TRY(context_working(&context));
	pthread_mutex_lock(&driver_lock);
	region = region_find((CUdeviceptr)(uintptr_t)host);
	pthread_mutex_unlock(&driver_lock);
	if (flags != 0 || region == NULL || region->kind != REGION_HOST)
		return CUDA_ERROR_INVALID_VALUE;
	*pointer = (CUdeviceptr)(uintptr_t)host;
	return CUDA_SUCCESS;
}
