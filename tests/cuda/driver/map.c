/* Memory in pieces of 2 MiB that a program maps where it likes, and other processes by a
 * descriptor. */
#include "tests/cuda/driver/capture.h"
#include "tests/cuda/driver/ipc.h"
#include "tests/cuda/driver/region.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define GRANULARITY ((size_t)2 << 20)
#define GARBAGE     0xa7
#define MAGIC       UINT64_C(0x74757474696d656d)

/* Behind the memory in its file, for the process that imports it. */
struct trailer {
	uint64_t magic, bytes;
	int32_t gpu;
};

/* A CUmemGenericAllocationHandle points to it. It lives until it is released and mapped nowhere. */
struct piece {
	int fd;
	int gpu;
	size_t bytes;
	bool can_export, is_imported;
	unsigned holders;
};

static bool is_whole(unsigned long long bytes)
{
	return bytes > 0 && bytes % GRANULARITY == 0;
}

/* With the lock. */
static void piece_drop(struct piece *piece)
{
	if (--piece->holders > 0)
		return;
	close(piece->fd);
	if (!piece->is_imported)
		memory_give(piece->gpu, piece->bytes);
	free(piece);
}

static CUresult check_prop(const CUmemAllocationProp *prop)
{
	if (prop == NULL || prop->type != CU_MEM_ALLOCATION_TYPE_PINNED ||
	    prop->location.type != CU_MEM_LOCATION_TYPE_DEVICE)
		return CUDA_ERROR_INVALID_VALUE;
	if (prop->location.id < 0 || prop->location.id >= settings.gpus)
		return CUDA_ERROR_INVALID_DEVICE;
	if (prop->requestedHandleTypes & ~(unsigned)CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
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

static int make_file(size_t bytes, int gpu)
{
	struct trailer trailer = {MAGIC, bytes, gpu};
	int fd = memfd_create("fake cuda piece", MFD_CLOEXEC);
	char *memory;

	if (fd < 0 || ftruncate(fd, (off_t)(bytes + sizeof trailer)) != 0 ||
	    pwrite(fd, &trailer, sizeof trailer, (off_t)bytes) != (ssize_t)sizeof trailer)
		abort();
	memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (memory == MAP_FAILED)
		abort();
	memset(memory, GARBAGE, bytes);
	munmap(memory, bytes);
	return fd;
}

CUresult cuMemCreate(CUmemGenericAllocationHandle *handle, size_t bytes,
		     const CUmemAllocationProp *prop, unsigned long long flags)
{
	TRY(driver_enter());
	TRY(check_prop(prop));
	if (handle == NULL || !is_whole(bytes) || flags != 0)
		return CUDA_ERROR_INVALID_VALUE;
	TRY(capture_forbids());
	TRY(fault_here(FAULT_MEMORY));
	pthread_mutex_lock(&driver_lock);
	bool is_there = memory_take(prop->location.id, bytes);
	pthread_mutex_unlock(&driver_lock);
	if (!is_there)
		return CUDA_ERROR_OUT_OF_MEMORY;
	struct piece *piece = must_alloc(sizeof *piece);
	*piece = (struct piece){.fd = make_file(bytes, prop->location.id),
				.gpu = prop->location.id,
				.bytes = bytes,
				.can_export = prop->requestedHandleTypes != 0,
				.holders = 1};
	*handle = (CUmemGenericAllocationHandle)(uintptr_t)piece;
	return CUDA_SUCCESS;
}

CUresult cuMemRelease(CUmemGenericAllocationHandle handle)
{
	TRY(driver_enter());
	if (handle == 0)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&driver_lock);
	piece_drop((struct piece *)(uintptr_t)handle);
	pthread_mutex_unlock(&driver_lock);
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
	if (piece == NULL || flags != 0 || offset != 0 || bytes != piece->bytes || at % GRANULARITY)
		return CUDA_ERROR_INVALID_VALUE; /* pieces are mapped whole here */
	pthread_mutex_lock(&driver_lock);
	struct region *next = region_next(at);
	bool is_free = region_is_reserved(pointer) && region_is_reserved(pointer + bytes - 1) &&
		       region_find(pointer) == NULL && !(next && next->user < at + bytes);
	pthread_mutex_unlock(&driver_lock);
	if (!is_free)
		return CUDA_ERROR_INVALID_VALUE;
	shadow = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, piece->fd, 0);
	if (shadow == MAP_FAILED ||
	    mmap((void *)at, bytes, PROT_NONE, MAP_SHARED | MAP_FIXED, piece->fd, 0) == MAP_FAILED)
		return CUDA_ERROR_MAP_FAILED;
	struct region like = {.user = at,
			      .bytes = bytes,
			      .shadow = shadow,
			      .kind = REGION_MAPPED,
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
		if (r == NULL || r->kind != REGION_MAPPED || r->user != at)
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
			region_retire(r->shadow, r->bytes);
			piece_drop(r->owner);
			region_remove(r);
		}
	}
	pthread_mutex_unlock(&driver_lock);
	return error;
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
		if (!gpu_can_reach(gpu, region_find(from)->gpu))
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

/* The descriptor is the caller's. */
CUresult cuMemExportToShareableHandle(void *out, CUmemGenericAllocationHandle handle,
				      CUmemAllocationHandleType type, unsigned long long flags)
{
	struct piece *piece = (struct piece *)(uintptr_t)handle;

	TRY(driver_enter());
	if (out == NULL || piece == NULL || flags != 0 || !piece->can_export ||
	    type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
		return CUDA_ERROR_INVALID_VALUE;
	int fd = fcntl(piece->fd, F_DUPFD_CLOEXEC, 0);
	if (fd < 0)
		return CUDA_ERROR_OUT_OF_MEMORY;
	memcpy(out, &fd, sizeof fd);
	return CUDA_SUCCESS;
}

/* in is the descriptor itself; it stays the caller's. */
CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *handle, void *in,
					CUmemAllocationHandleType type)
{
	struct trailer trailer;
	int from = (int)(intptr_t)in;
	struct stat file;

	TRY(driver_enter());
	if (handle == NULL || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
		return CUDA_ERROR_INVALID_VALUE;
	TRY(fault_here(FAULT_IPC));
	if (fstat(from, &file) != 0 || file.st_size < (off_t)sizeof trailer ||
	    pread(from, &trailer, sizeof trailer, file.st_size - (off_t)sizeof trailer) !=
		    (ssize_t)sizeof trailer ||
	    trailer.magic != MAGIC)
		return CUDA_ERROR_INVALID_VALUE;
	if (trailer.gpu >= settings.gpus)
		return CUDA_ERROR_INVALID_DEVICE;
	struct piece *piece = must_alloc(sizeof *piece);
	*piece = (struct piece){.fd = fcntl(from, F_DUPFD_CLOEXEC, 0),
				.gpu = trailer.gpu,
				.bytes = trailer.bytes,
				.can_export = true,
				.is_imported = true,
				.holders = 1};
	*handle = (CUmemGenericAllocationHandle)(uintptr_t)piece;
	return CUDA_SUCCESS;
}
