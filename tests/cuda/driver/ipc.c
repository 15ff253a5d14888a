/* Allocations that other processes map by a handle. */
#include "tests/cuda/driver/ipc.h"

#include "tests/cuda/driver/capture.h"
#include "tests/cuda/driver/dma_buf.h"
#include "tests/cuda/driver/region.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* What is in a CUipcMemHandle. */
struct handle {
	uint64_t token, id, offset, bytes;
	int32_t pid, fd, gpu;
	uint32_t slot;
};
_Static_assert(sizeof(struct handle) <= sizeof(CUipcMemHandle), "it fits in a handle");

/* An opened one: region.owner. */
struct opened {
	struct handle handle;
	unsigned times;
	char *user_map;
	size_t map_bytes;
};

CUresult cuIpcGetMemHandle(CUipcMemHandle *handle, CUdeviceptr pointer)
{
	CUcontext context;
	CUresult error = CUDA_ERROR_INVALID_VALUE;

	TRY(context_working(&context));
	pthread_mutex_lock(&driver_lock);
	const struct region *region = region_find(pointer);
	size_t place;
	if (region && region->kind == REGION_ALLOCATED &&
	    dma_buf_place(region->gpu, (size_t)(region->shadow - arenas[region->gpu].shadow),
			  region->bytes, &place)) {
		const struct arena *a = &arenas[region->gpu];
		struct handle h = {.token = a->header->token,
				   .id = region->id,
				   .offset = place,
				   .bytes = region->bytes,
				   .pid = getpid(),
				   .fd = a->fd,
				   .gpu = region->gpu};
		while (&a->header->slots[h.slot].id != region->owner)
			h.slot++;
		*handle = (CUipcMemHandle){{0}};
		memcpy(handle, &h, sizeof h);
		error = CUDA_SUCCESS;
	}
	pthread_mutex_unlock(&driver_lock);
	return error;
}

/* Whether the file is the one of the handle, and the allocation still there. */
static CUresult check_alive(int fd, const struct handle *h)
{
	CUresult error = CUDA_ERROR_INVALID_VALUE;
	const struct arena_header *header;

	header = mmap(NULL, ARENA_HEADER, PROT_READ, MAP_SHARED, fd, 0);
	if (header == MAP_FAILED)
		return CUDA_ERROR_MAP_FAILED;
	if (header->token == h->token && h->slot < ARENA_SLOTS &&
	    atomic_load(&header->slots[h->slot].id) == h->id)
		error = CUDA_SUCCESS;
	munmap((void *)(uintptr_t)header, ARENA_HEADER);
	return error;
}

/* With the lock. */
static CUresult map(int fd, const struct handle *h, CUcontext context, CUdeviceptr *pointer)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE), skip = h->offset & (page - 1);
	struct opened *o = must_alloc(sizeof *o);
	off_t offset = (off_t)(h->offset - skip);

	o->handle = *h;
	o->times = 1;
	o->map_bytes = (skip + h->bytes + page - 1) & ~(page - 1);
	o->user_map = mmap(NULL, o->map_bytes, PROT_NONE, MAP_SHARED, fd, offset);
	char *shadow = mmap(NULL, o->map_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, offset);
	if (o->user_map == MAP_FAILED || shadow == MAP_FAILED)
		return CUDA_ERROR_MAP_FAILED;
	struct region like = {.user = (uintptr_t)o->user_map + skip,
			      .bytes = h->bytes,
			      .shadow = shadow + skip,
			      .kind = REGION_IPC,
			      .gpu = h->gpu,
			      .context = context,
			      .access = 1U << context->gpu,
			      .owner = o};
	region_reserve((uintptr_t)o->user_map, o->map_bytes);
	region_add(&like);
	*pointer = (CUdeviceptr)like.user;
	return CUDA_SUCCESS;
}

static bool reopen(const struct handle *h, CUcontext context, CUdeviceptr *pointer)
{
	uintptr_t from = 0;

	for (struct region *r; (r = region_next(from)); from = r->user + 1) {
		struct opened *o = r->owner;
		if (r->kind != REGION_IPC || r->context != context || o->handle.token != h->token ||
		    o->handle.id != h->id)
			continue;
		o->times++;
		*pointer = (CUdeviceptr)r->user;
		return true;
	}
	return false;
}

static CUresult open_handle(const struct handle *h, CUcontext context, CUdeviceptr *pointer)
{
	char path[64];
	int fd;

	snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)h->pid, (int)h->fd);
	fd = open(path, O_RDWR | O_CLOEXEC);
	if (fd < 0)
		return CUDA_ERROR_MAP_FAILED;
	CUresult error = check_alive(fd, h);
	pthread_mutex_lock(&driver_lock);
	if (error == CUDA_SUCCESS && !reopen(h, context, pointer))
		error = map(fd, h, context, pointer);
	pthread_mutex_unlock(&driver_lock);
	close(fd);
	return error;
}

CUresult cuIpcOpenMemHandle_v2(CUdeviceptr *pointer, CUipcMemHandle handle, unsigned flags)
{
	CUcontext context;
	struct handle h;

	TRY(context_working(&context));
	memcpy(&h, &handle, sizeof h);
	if (pointer == NULL || flags != CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS || h.gpu < 0 ||
	    h.gpu >= settings.gpus)
		return CUDA_ERROR_INVALID_VALUE;
	TRY(capture_forbids());
	if (h.pid == getpid())
		return CUDA_ERROR_INVALID_CONTEXT;
	if (h.gpu != context->gpu && !gpu_can_reach(context->gpu, h.gpu))
		return CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
	TRY(fault_here(FAULT_IPC));
	return open_handle(&h, context, pointer);
}

/* The last close unmaps. The caller has seen to it that nothing uses the memory any more; what
 * still does gets an illegal address. */
CUresult cuIpcCloseMemHandle(CUdeviceptr pointer)
{
	CUcontext context;
	CUresult error = CUDA_ERROR_INVALID_VALUE;

	TRY(context_working(&context));
	TRY(capture_forbids());
	pthread_mutex_lock(&driver_lock);
	struct region *region = region_find(pointer);
	if (region && region->kind == REGION_IPC && region->user == pointer) {
		struct opened *o = region->owner;
		error = CUDA_SUCCESS;
		if (--o->times == 0) {
			size_t skip = region->user - (uintptr_t)o->user_map;
			region_unreserve((uintptr_t)o->user_map);
			munmap(o->user_map, o->map_bytes);
			region_retire(region->shadow - skip, o->map_bytes);
			region_remove(region);
			free(o);
		}
	}
	pthread_mutex_unlock(&driver_lock);
	return error;
}
