/* Multicast objects, as a switch has them: a load is the sum over all members, a store goes to all.
 * The members' memory may be that of other processes: a table in the object's file says where.
 *
 * The sum is in f32, rounded once, by distance 1, 2, 4, ... of the devices' numbers: the order of
 * the product's kernels where rank r has device r. */
#include "tests/cuda/driver/capture.h"
#include "tests/cuda/driver/piece.h"
#include "tests/cuda/driver/region.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

struct piece *piece_of(CUmemGenericAllocationHandle handle)
{
	return (struct piece *)(uintptr_t)handle;
}

size_t piece_mapped_bytes(const struct piece *piece)
{
	return piece->team ? piece->team->bytes : piece->bytes;
}

void team_attach(struct piece *piece)
{
	piece->team =
		mmap(NULL, sizeof *piece->team, PROT_READ | PROT_WRITE, MAP_SHARED, piece->fd, 0);
	if (piece->team == MAP_FAILED)
		abort();
	piece->views = must_alloc(MAX_GPUS * sizeof *piece->views);
}

static void forget_view(struct piece *piece, int gpu)
{
	struct team_view *view = &piece->views[gpu];

	if (view->shadow)
		region_retire(view->shadow, piece->team->bytes);
	view->shadow = NULL;
	view->id = 0;
}

void team_drop(struct piece *piece)
{
	for (int gpu = 0; gpu < MAX_GPUS; gpu++)
		forget_view(piece, gpu); /* what is bound still is a leak, as tests find */
	munmap(piece->team, sizeof *piece->team);
	free(piece->views);
}

void team_must_be_complete(const struct piece *piece, const char *call)
{
	unsigned added = (unsigned)__builtin_popcount(atomic_load(&piece->team->added));

	if (added == piece->team->devices)
		return;
	fprintf(stderr,
		"fake cuda: %s waits for ever: %u of %u devices were added to a multicast "
		"object\n",
		call, added, piece->team->devices);
	abort();
}

static bool is_whole(unsigned long long bytes)
{
	return bytes > 0 && bytes % GRANULARITY == 0;
}

static CUresult check_prop(const CUmulticastObjectProp *prop)
{
	unsigned known = (settings.has_fds ? CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR : 0u) |
			 (settings.has_fabric ? CU_MEM_HANDLE_TYPE_FABRIC : 0u);

	if (!settings.has_multicast)
		return CUDA_ERROR_NOT_SUPPORTED;
	if (prop == NULL || prop->flags != 0 || prop->numDevices == 0 ||
	    prop->numDevices > MAX_GPUS)
		return CUDA_ERROR_INVALID_VALUE;
	return prop->handleTypes & ~known ? CUDA_ERROR_NOT_SUPPORTED : CUDA_SUCCESS;
}

CUresult cuMulticastGetGranularity(size_t *bytes, const CUmulticastObjectProp *prop,
				   CUmulticastGranularity_flags option)
{
	TRY(driver_enter());
	TRY(check_prop(prop));
	if (bytes == NULL || option > CU_MULTICAST_GRANULARITY_RECOMMENDED)
		return CUDA_ERROR_INVALID_VALUE;
	*bytes = GRANULARITY;
	return CUDA_SUCCESS;
}

CUresult cuMulticastCreate(CUmemGenericAllocationHandle *handle, const CUmulticastObjectProp *prop)
{
	TRY(driver_enter());
	TRY(check_prop(prop));
	if (handle == NULL || !is_whole(prop->size))
		return CUDA_ERROR_INVALID_VALUE;
	if (prop->handleTypes & CU_MEM_HANDLE_TYPE_FABRIC && settings.is_fabric_refused)
		return CUDA_ERROR_NOT_PERMITTED;
	TRY(capture_forbids());
	TRY(fault_here(FAULT_MULTICAST));
	struct piece *piece = must_alloc(sizeof *piece);
	*piece = (struct piece){.gpu = -1,
				.bytes = sizeof *piece->team,
				.types = (unsigned)prop->handleTypes,
				.holders = 1};
	piece->fd = piece_file(piece);
	team_attach(piece);
	piece->team->devices = prop->numDevices;
	piece->team->bytes = prop->size;
	pthread_mutex_lock(&driver_lock);
	piece_count++;
	pthread_mutex_unlock(&driver_lock);
	*handle = (CUmemGenericAllocationHandle)(uintptr_t)piece;
	return CUDA_SUCCESS;
}

/* Of all processes' devices each once. */
CUresult cuMulticastAddDevice(CUmemGenericAllocationHandle handle, CUdevice device)
{
	struct piece *piece = piece_of(handle);

	TRY(driver_enter());
	if (device < 0 || device >= settings.gpus)
		return CUDA_ERROR_INVALID_DEVICE;
	if (piece == NULL || piece->team == NULL)
		return CUDA_ERROR_INVALID_VALUE;
	TRY(fault_here(FAULT_MULTICAST));
	unsigned was = atomic_load(&piece->team->added), bit = 1U << device;
	do {
		if (was & bit || (unsigned)__builtin_popcount(was) == piece->team->devices)
			return CUDA_ERROR_INVALID_VALUE;
	} while (!atomic_compare_exchange_weak(&piece->team->added, &was, was | bit));
	return CUDA_SUCCESS;
}

/* The whole of the object, of one piece a device: the product binds no other way. */
CUresult cuMulticastBindMem(CUmemGenericAllocationHandle handle, size_t at,
			    CUmemGenericAllocationHandle memory, size_t memory_at, size_t bytes,
			    unsigned long long flags)
{
	struct piece *piece = piece_of(handle), *bound = piece_of(memory);

	TRY(driver_enter());
	if (piece == NULL || piece->team == NULL || bound == NULL || bound->team ||
	    bound->types == 0 || flags != 0 || at != 0 || memory_at != 0 ||
	    bytes != piece->team->bytes || bytes > bound->bytes)
		return CUDA_ERROR_INVALID_VALUE;
	TRY(capture_forbids());
	team_must_be_complete(piece, "cuMulticastBindMem");
	TRY(fault_here(FAULT_MULTICAST));
	if (!(atomic_load(&piece->team->added) >> bound->gpu & 1U))
		return CUDA_ERROR_INVALID_DEVICE;
	struct member *member = &piece->team->members[bound->gpu];
	if (atomic_load(&member->id) != 0)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&driver_lock);
	bound->holders++;
	piece->views[bound->gpu].bound = bound;
	pthread_mutex_unlock(&driver_lock);
	member->pid = getpid();
	member->fd = bound->fd;
	atomic_store(&member->id, piece_id(bound));
	return CUDA_SUCCESS;
}

CUresult cuMulticastUnbind(CUmemGenericAllocationHandle handle, CUdevice device, size_t at,
			   size_t bytes)
{
	struct piece *piece = piece_of(handle);

	TRY(driver_enter());
	if (piece == NULL || piece->team == NULL || device < 0 || device >= settings.gpus ||
	    at != 0 || bytes != piece->team->bytes || piece->views[device].bound == NULL)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&driver_lock);
	atomic_store(&piece->team->members[device].id, 0);
	piece_drop(piece->views[device].bound);
	piece->views[device].bound = NULL;
	pthread_mutex_unlock(&driver_lock);
	return CUDA_SUCCESS;
}

static char *map_member(const struct piece *piece, const struct member *member)
{
	char path[64];

	snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)member->pid, (int)member->fd);
	int fd = open(path, O_RDWR | O_CLOEXEC);
	if (fd < 0)
		return NULL;
	char *shadow = mmap(NULL, piece->team->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	close(fd);
	return shadow == MAP_FAILED ? NULL : shadow;
}

char *team_reach(const struct piece *piece, int gpu, size_t offset)
{
	const struct member *member = &piece->team->members[gpu];
	struct team_view *view = &piece->views[gpu];
	uint64_t id = atomic_load(&member->id);

	if (id == 0)
		return NULL;
	if (view->id != id) {
		forget_view((struct piece *)(uintptr_t)piece, gpu);
		view->shadow = map_member(piece, member);
		view->id = view->shadow ? id : 0;
	}
	return view->shadow ? view->shadow + offset : NULL;
}
