/* Memory in pieces that a program maps where it likes; share.c has how other processes get it. */
#include "tests/cuda/driver/capture.h"
#include "tests/cuda/driver/piece.h"
#include "tests/cuda/driver/region.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static bool is_whole(unsigned long long bytes)
{
	return bytes > 0 && bytes % GRANULARITY == 0;
}

static CUresult check_prop(const CUmemAllocationProp *prop)
{
	if (prop == NULL || prop->type != CU_MEM_ALLOCATION_TYPE_PINNED ||
	    prop->location.type != CU_MEM_LOCATION_TYPE_DEVICE)
		return CUDA_ERROR_INVALID_VALUE;
	if (prop->location.id < 0 || prop->location.id >= settings.gpus)
		return CUDA_ERROR_INVALID_DEVICE;
	unsigned known = (settings.has_fds ? CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR : 0u) |
			 (settings.has_fabric ? CU_MEM_HANDLE_TYPE_FABRIC : 0u);
	if (!settings.has_pieces || prop->requestedHandleTypes & ~known ||
	    prop->allocFlags.gpuDirectRDMACapable)
		return CUDA_ERROR_NOT_SUPPORTED;
	return CUDA_SUCCESS;
}

CUresult cuMemGetAllocationGranularity(size_t *bytes, const CUmemAllocationProp *prop,
				       CUmemAllocationGranularity_flags option)
{
	(void)option;
	TRY(driver_enter());
	TRY(check_prop(prop));
	if (bytes == NULL)
		return CUDA_ERROR_INVALID_VALUE;
	*bytes = GRANULARITY;
	return CUDA_SUCCESS;
}

static void fill_with_garbage(const struct piece *piece)
{
	char *memory = mmap(NULL, piece->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, piece->fd, 0);

	if (memory == MAP_FAILED)
		abort();
	memory_spoil(memory, piece->bytes);
	munmap(memory, piece->bytes);
}

CUresult cuMemCreate(CUmemGenericAllocationHandle *handle, size_t bytes,
		     const CUmemAllocationProp *prop, unsigned long long flags)
{
	TRY(driver_enter());
	TRY(check_prop(prop));
	if (handle == NULL || !is_whole(bytes) || flags != 0)
		return CUDA_ERROR_INVALID_VALUE;
	if (prop->requestedHandleTypes & CU_MEM_HANDLE_TYPE_FABRIC && settings.is_fabric_refused)
		return CUDA_ERROR_NOT_PERMITTED; /* as without an IMEX channel */
	TRY(capture_forbids());
	TRY(fault_here(FAULT_MEMORY));
	pthread_mutex_lock(&driver_lock);
	bool is_there = memory_take(prop->location.id, bytes);
	piece_count += is_there;
	pthread_mutex_unlock(&driver_lock);
	if (!is_there)
		return CUDA_ERROR_OUT_OF_MEMORY;
	struct piece *piece = must_alloc(sizeof *piece);
	*piece = (struct piece){.gpu = prop->location.id,
				.bytes = bytes,
				.types = prop->requestedHandleTypes,
				.holders = 1};
	piece->fd = piece_file(piece);
	fill_with_garbage(piece);
	*handle = (CUmemGenericAllocationHandle)(uintptr_t)piece;
	return CUDA_SUCCESS;
}

CUresult cuMemAddressReserve(CUdeviceptr *pointer, size_t bytes, size_t alignment, CUdeviceptr near,
			     unsigned long long flags)
{
	size_t align = alignment > GRANULARITY ? alignment : GRANULARITY;

	(void)near; /* a hint */
	TRY(driver_enter());
	if (pointer == NULL || !is_whole(bytes) || flags != 0 || (align & (align - 1)) != 0)
		return CUDA_ERROR_INVALID_VALUE;
	char *all = mmap(NULL, bytes + align, PROT_NONE,
			 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (all == MAP_FAILED)
		return CUDA_ERROR_OUT_OF_MEMORY;
	size_t before = (align - (uintptr_t)all % align) % align;
	if (before)
		munmap(all, before);
	if (align - before)
		munmap(all + before + bytes, align - before);
	pthread_mutex_lock(&driver_lock);
	region_reserve((uintptr_t)all + before, bytes);
	pthread_mutex_unlock(&driver_lock);
	*pointer = (CUdeviceptr)((uintptr_t)all + before);
	return CUDA_SUCCESS;
}

/* The whole reservation, in which nothing is mapped. */
CUresult cuMemAddressFree(CUdeviceptr pointer, size_t bytes)
{
	CUresult error = CUDA_ERROR_INVALID_VALUE;
	uintptr_t at = (uintptr_t)pointer;

	TRY(driver_enter());
	pthread_mutex_lock(&driver_lock);
	struct region *next = region_next(at);
	if (bytes && region_reserved(at) == bytes && !(next && next->user < at + bytes)) {
		region_unreserve(at);
		munmap((void *)at, bytes);
		error = CUDA_SUCCESS;
	}
	pthread_mutex_unlock(&driver_lock);
	return error;
}

/* Nothing can reach the memory until cuMemSetAccess. */
CUresult cuMemMap(CUdeviceptr pointer, size_t bytes, size_t offset,
		  CUmemGenericAllocationHandle handle, unsigned long long flags)
{
	struct piece *piece = (struct piece *)(uintptr_t)handle;
	uintptr_t at = (uintptr_t)pointer;
	void *shadow;

	TRY(driver_enter());
	if (piece == NULL || flags != 0 || offset != 0 || bytes != piece_mapped_bytes(piece) ||
	    at % GRANULARITY)
		return CUDA_ERROR_INVALID_VALUE; /* pieces are mapped whole here */
	if (piece->team)
		team_must_be_complete(piece, "cuMemMap");
	pthread_mutex_lock(&driver_lock);
	struct region *next = region_next(at);
	bool is_free = region_is_reserved(pointer) && region_is_reserved(pointer + bytes - 1) &&
		       region_find(pointer) == NULL && !(next && next->user < at + bytes);
	pthread_mutex_unlock(&driver_lock);
	if (!is_free)
		return CUDA_ERROR_INVALID_VALUE;
	shadow = piece->team ? NULL
			     : mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, piece->fd, 0);
	if (shadow == MAP_FAILED ||
	    (shadow && mmap((void *)at, bytes, PROT_NONE, MAP_SHARED | MAP_FIXED, piece->fd, 0) ==
			       MAP_FAILED))
		return CUDA_ERROR_MAP_FAILED;
	struct region like = {.user = at,
			      .bytes = bytes,
			      .shadow = shadow,
			      .kind = piece->team ? REGION_MULTICAST : REGION_MAPPED,
			      .gpu = piece->gpu,
			      .owner = piece};
	pthread_mutex_lock(&driver_lock);
	piece->holders++;
	region_add(&like);
	pthread_mutex_unlock(&driver_lock);
	return CUDA_SUCCESS;
}

/* With the lock. Whether the range is made of whole mappings. */
static bool is_mapped(uintptr_t from, size_t bytes)
{
	uintptr_t at = from;

	while (at < from + bytes) {
		const struct region *r = region_find((CUdeviceptr)at);
		if (r == NULL || (r->kind != REGION_MAPPED && r->kind != REGION_MULTICAST) ||
		    r->user != at)
			return false;
		at += r->bytes;
	}
	return bytes > 0 && at == from + bytes;
}

/* Does not wait for work that uses the memory. */
CUresult cuMemUnmap(CUdeviceptr pointer, size_t bytes)
{
	CUresult error = CUDA_ERROR_INVALID_VALUE;
	uintptr_t at = (uintptr_t)pointer;

	TRY(driver_enter());
	pthread_mutex_lock(&driver_lock);
	if (is_mapped(at, bytes)) {
		error = CUDA_SUCCESS;
		for (struct region *r; (r = region_next(at)) && r->user < pointer + bytes;) {
			mmap((void *)r->user, r->bytes, PROT_NONE,
			     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
			if (r->shadow)
				region_retire(r->shadow, r->bytes);
			piece_drop(r->owner);
			region_remove(r);
		}
	}
	pthread_mutex_unlock(&driver_lock);
	return error;
}

static bool may_access(int gpu, const struct region *region)
{
	const struct piece *piece = region->owner;

	return piece->team ? atomic_load(&piece->team->added) >> gpu & 1U
			   : gpu_can_reach(gpu, region->gpu);
}

/* With the lock: nothing changes unless all of it can. */
static CUresult check_access(uintptr_t at, size_t bytes, const CUmemAccessDesc *access)
{
	int gpu = access->location.id;

	if (access->location.type != CU_MEM_LOCATION_TYPE_DEVICE || gpu < 0 ||
	    gpu >= settings.gpus ||
	    (access->flags && access->flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE))
		return CUDA_ERROR_INVALID_VALUE;
	for (uintptr_t from = at; from < at + bytes; from += region_find(from)->bytes)
		if (!may_access(gpu, region_find(from)))
			return CUDA_ERROR_INVALID_DEVICE;
	return CUDA_SUCCESS;
}

static CUresult set_access(uintptr_t at, size_t bytes, const CUmemAccessDesc *access, size_t count)
{
	if (access == NULL || !is_mapped(at, bytes))
		return CUDA_ERROR_INVALID_VALUE;
	for (size_t i = 0; i < count; i++)
		TRY(check_access(at, bytes, &access[i]));
	for (uintptr_t from = at; from < at + bytes; from += region_find(from)->bytes)
		for (size_t i = 0; i < count; i++) {
			unsigned bit = 1U << access[i].location.id;
			struct region *r = region_find(from);
			r->access = access[i].flags ? r->access | bit : r->access & ~bit;
		}
	region_forget();
	return CUDA_SUCCESS;
}

CUresult cuMemSetAccess(CUdeviceptr pointer, size_t bytes, const CUmemAccessDesc *access,
			size_t count)
{
	TRY(driver_enter());
	TRY(fault_here(FAULT_PEER));
	pthread_mutex_lock(&driver_lock);
	CUresult error = set_access((uintptr_t)pointer, bytes, access, count);
	pthread_mutex_unlock(&driver_lock);
	return error;
}
