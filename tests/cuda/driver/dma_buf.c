/* Dma-bufs of device memory: a descriptor of its own of the file that has the memory, whose
 * position is where it begins (tests/verbs/fake looks there). FAKE_CUDA_DMA_BUF: 0 none; 1 and what
 * an adapter writes is ordered for its device; 2 it has to be flushed.
 *
 * As on a GPU a dma-buf keeps the memory that it is of. An allocation that is freed leaves its
 * pages to it, and a later one at the same address has others. */
#include "tests/cuda/driver/dma_buf.h"

#include "tests/cuda/driver/capture.h"
#include "tests/cuda/driver/ipc.h"

#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#define PAGE ((size_t)4096)

static struct fake_cuda_counts counts; /* with the lock */

struct fake_cuda_counts fake_cuda_count(void)
{
	pthread_mutex_lock(&driver_lock);
	struct fake_cuda_counts now = counts;
	pthread_mutex_unlock(&driver_lock);
	return now;
}

static bool is_device(CUdeviceptr address)
{
	const struct region *region = region_find(address);

	return region && region->kind != REGION_HOST;
}

void dma_buf_count_copy(CUdeviceptr to, CUdeviceptr from, size_t bytes)
{
	if (is_device(to) != is_device(from))
		counts.host_copies += bytes;
}

static size_t page_of(const struct arena *a, size_t page)
{
	return a->pages ? a->pages[page] : page;
}

bool dma_buf_place(int gpu, size_t offset, size_t bytes, size_t *place)
{
	const struct arena *a = &arenas[gpu];
	size_t first = offset / PAGE, last = (offset + bytes - 1) / PAGE;

	for (size_t page = first + 1; page <= last; page++)
		if (page_of(a, page) != page_of(a, first) + (page - first))
			return false;
	*place = page_of(a, first) * PAGE + offset % PAGE + ARENA_HEADER;
	return true;
}

/* Under the lock, as the next. The driver has given out whole pages where this has several
 * allocations in one. */
static CUresult export(CUdeviceptr pointer, size_t bytes, int *handle)
{
	struct region *region = region_find(pointer);
	char path[64];
	size_t place;

	if (!region)
		region = region_next(pointer);
	if (!region || region->kind != REGION_ALLOCATED || region->user >= pointer + bytes)
		return CUDA_ERROR_INVALID_VALUE;
	if ((size_t)region->gpu == settings.refuses_dma_buf)
		return CUDA_ERROR_OUT_OF_MEMORY;
	const struct arena *a = &arenas[region->gpu];
	size_t offset = pointer - (uintptr_t)a->user;
	if (pointer < (uintptr_t)a->user || offset + bytes > settings.memory)
		return CUDA_ERROR_INVALID_VALUE;
	if (!dma_buf_place(region->gpu, offset, bytes, &place))
		return CUDA_ERROR_NOT_SUPPORTED;
	snprintf(path, sizeof path, "/proc/self/fd/%d", a->fd);
	*handle = open(path, O_RDWR | O_CLOEXEC);
	if (*handle < 0 || lseek(*handle, (off_t)place, SEEK_SET) < 0)
		return CUDA_ERROR_UNKNOWN;
	region->is_exported = true;
	counts.exports++;
	return CUDA_SUCCESS;
}

CUresult cuMemGetHandleForAddressRange(void *handle, CUdeviceptr pointer, size_t bytes,
				       CUmemRangeHandleType type, unsigned long long flags)
{
	CUcontext context;

	TRY(context_working(&context));
	if (!settings.dma_buf) /* as CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED says */
		return CUDA_ERROR_NOT_SUPPORTED;
	if (handle == NULL || bytes == 0 || pointer % PAGE || bytes % PAGE ||
	    type != CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD || flags != 0)
		return CUDA_ERROR_INVALID_VALUE;
	TRY(capture_forbids());
	TRY(fault_here(FAULT_DMA_BUF));
	pthread_mutex_lock(&driver_lock);
	CUresult error = export(pointer, bytes, handle);
	pthread_mutex_unlock(&driver_lock);
	return error;
}

static void must(bool is_so)
{
	if (!is_so)
		abort();
}

static void make_table(struct arena *a)
{
	size_t n = settings.memory / PAGE;

	a->pages = must_alloc(n * sizeof *a->pages);
	for (size_t i = 0; i < n; i++)
		a->pages[i] = (uint32_t)i;
	a->next_page = n;
}

void dma_buf_leave(struct region *region)
{
	struct arena *a = &arenas[region->gpu];
	size_t offset = (size_t)(region->shadow - a->shadow);
	size_t first = (offset + PAGE - 1) / PAGE, end = (offset + region->bytes) / PAGE;

	if (first >= end)
		return;
	if (!a->pages)
		make_table(a);
	size_t at = a->next_page * PAGE + ARENA_HEADER, bytes = (end - first) * PAGE;
	must(ftruncate(a->fd, (off_t)(at + bytes)) == 0);
	must(mmap(a->user + first * PAGE, bytes, PROT_NONE, MAP_SHARED | MAP_FIXED, a->fd,
		  (off_t)at) != MAP_FAILED);
	must(mmap(a->shadow + first * PAGE, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED,
		  a->fd, (off_t)at) != MAP_FAILED);
	for (size_t page = first; page < end; page++)
		a->pages[page] = (uint32_t)a->next_page++;
}

/* Nothing is late here. That it is called where it must be is for the tests to see. */
CUresult cuFlushGPUDirectRDMAWrites(CUflushGPUDirectRDMAWritesTarget target,
				    CUflushGPUDirectRDMAWritesScope scope)
{
	CUcontext context;

	TRY(context_working(&context));
	if (target != CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TARGET_CURRENT_CTX ||
	    scope != CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TO_OWNER)
		return CUDA_ERROR_INVALID_VALUE;
	if (settings.dma_buf < 2)
		return CUDA_ERROR_NOT_SUPPORTED;
	pthread_mutex_lock(&driver_lock);
	counts.flushes++;
	pthread_mutex_unlock(&driver_lock);
	return CUDA_SUCCESS;
}

CUresult cuPointerSetAttribute(const void *value, CUpointer_attribute attribute,
			       CUdeviceptr pointer)
{
	TRY(driver_enter());
	pthread_mutex_lock(&driver_lock);
	bool is_right =
		value && attribute == CU_POINTER_ATTRIBUTE_SYNC_MEMOPS && is_device(pointer);
	counts.ordered += is_right;
	pthread_mutex_unlock(&driver_lock);
	return is_right ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
