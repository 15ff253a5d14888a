/* The parts of regions: how their memory is made, mapped and bound to a multicast object. Those of
 * this process are in one list: those in use, those that are kept until as much, or not much less,
 * is asked for, and those that are to be given back later. */
#include "cuda/region_parts.h"

#include "core/clock.h"
#include "core/net.h"
#include "core/status.h"
#include "cuda/channels_internal.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* Parts of cuMemAlloc, for devices without pieces, and for processes between which no descriptor
 * passes. The driver forbids to free what others may have opened. */

static tutti_status region_ipc_make(struct region_memory *m, size_t bytes)
{
	const struct cuda_driver *cuda = cuda_driver();
	CUresult error = cuda->mem_alloc(&m->address, bytes);

	if (error == CUDA_ERROR_OUT_OF_MEMORY)
		return fail(TUTTI_ERR_MEMORY, "CUDA device %d has no %zu bytes left",
			    m->device->ordinal, bytes);
	TRY(cuda_status(error, "mem_alloc"));
	m->bytes = bytes;
	return TUTTI_OK;
}

static void region_ipc_end(struct region_memory *m)
{
	cuda_driver()->mem_free(m->address);
}

/* A process alone needs no handle, nor a GPU that has none. */
static void region_ipc_describe(const struct region_memory *m, struct cuda_region *region, int *fd)
{
	CUipcMemHandle handle = {{0}};

	cuda_driver()->ipc_get_mem_handle(&handle, m->address);
	memcpy(region->handle, handle.reserved, sizeof region->handle);
	*fd = -1;
}

static tutti_status region_ipc_map(struct cuda_mapping *here, const struct cuda_device *device,
				   const struct cuda_region *region, struct region_source source)
{
	const struct cuda_driver *cuda = cuda_driver();
	CUipcMemHandle handle;

	(void)device;
	here->address = region->address;
	here->bytes = source.is_here ? 0 : region->bytes;
	if (source.is_here)
		return TUTTI_OK;
	memcpy(handle.reserved, region->handle, sizeof handle.reserved);
	CUDA_TRY(ipc_open_mem_handle, &here->address, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
	return TUTTI_OK;
}

static void region_ipc_unmap(struct cuda_mapping *here)
{
	if (here->bytes)
		cuda_driver()->ipc_close_mem_handle(here->address);
	*here = (struct cuda_mapping){0, 0};
}

const struct region_way region_by_ipc = {.number = 1,
					 .is_kept = true,
					 .make = region_ipc_make,
					 .end = region_ipc_end,
					 .describe = region_ipc_describe,
					 .map = region_ipc_map,
					 .unmap = region_ipc_unmap};

/* An address is reserved, the memory is mapped there, and the device gets access. */

static tutti_status region_parts_mapping_map(CUdeviceptr address, const struct cuda_device *device,
					     CUmemGenericAllocationHandle handle, size_t bytes)
{
	const struct cuda_driver *cuda = cuda_driver();
	CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, device->ordinal},
				  CU_MEM_ACCESS_FLAGS_PROT_READWRITE};

	CUDA_TRY(mem_map, address, bytes, 0, handle, 0);
	tutti_status status =
		cuda_status(cuda->mem_set_access(address, bytes, &access, 1), "mem_set_access");
	if (status != TUTTI_OK)
		cuda->mem_unmap(address, bytes);
	return status;
}

/* The device may read and write it. The handle stays the caller's; a mapping keeps the memory
 * without it. DEVICE, MEMORY. Between cuda_enter and cuda_leave, as the other one. */
static tutti_status cuda_mapping_make(struct cuda_mapping *mapping,
				      const struct cuda_device *device,
				      CUmemGenericAllocationHandle handle, size_t bytes,
				      size_t alignment)
{
	const struct cuda_driver *cuda = cuda_driver();
	CUdeviceptr address;

	CUDA_TRY(mem_address_reserve, &address, bytes, alignment, 0, 0);
	tutti_status status = region_parts_mapping_map(address, device, handle, bytes);
	if (status != TUTTI_OK) {
		cuda->mem_address_free(address, bytes);
		return status;
	}
	*mapping = (struct cuda_mapping){address, bytes};
	return TUTTI_OK;
}

/* An address from which nothing could be unmapped is not given out again. */
static void cuda_mapping_end(struct cuda_mapping *mapping)
{
	const struct cuda_driver *cuda = cuda_driver();

	if (mapping->address && cuda->mem_unmap(mapping->address, mapping->bytes) == CUDA_SUCCESS)
		cuda->mem_address_free(mapping->address, mapping->bytes);
	*mapping = (struct cuda_mapping){0, 0};
}

/* By those types: *fd, the caller's, or -1; *fabric, if *has_fabric. */
static void cuda_export(CUmemGenericAllocationHandle handle, CUmemAllocationHandleType types,
			int *fd, CUmemFabricHandle *fabric, uint32_t *has_fabric)
{
	const struct cuda_driver *cuda = cuda_driver();

	*fd = -1;
	if (types & CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR &&
	    cuda->mem_export_to_shareable_handle(
		    fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0) != CUDA_SUCCESS)
		*fd = -1;
	memset(fabric, 0, sizeof *fabric);
	*has_fabric = types & CU_MEM_HANDLE_TYPE_FABRIC &&
		      cuda->mem_export_to_shareable_handle(
			      fabric, handle, CU_MEM_HANDLE_TYPE_FABRIC, 0) == CUDA_SUCCESS;
}

/* The memory of a descriptor (-1: none), or of a fabric handle (NULL: none) where that fails; the
 * caller's. UNSUPPORTED: neither gives it. */
static tutti_status cuda_import(CUmemGenericAllocationHandle *handle, int fd, const uint8_t *fabric)
{
	const struct cuda_driver *cuda = cuda_driver();
	CUmemFabricHandle copy;
	CUresult error = CUDA_ERROR_NOT_SUPPORTED;

	if (fd >= 0)
		error = cuda->mem_import_from_shareable_handle(
			handle, (void *)(intptr_t)fd, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
	if (error != CUDA_SUCCESS && fabric) {
		memcpy(copy.data, fabric, sizeof copy.data);
		error = cuda->mem_import_from_shareable_handle(handle, &copy,
							       CU_MEM_HANDLE_TYPE_FABRIC);
	}
	if (error == CUDA_SUCCESS)
		return TUTTI_OK;
	if (fd < 0 && !fabric)
		return fail(TUTTI_ERR_UNSUPPORTED,
			    "no descriptor of it came, as between network namespaces, and it has "
			    "no fabric handle");
	cuda_status(error, "mem_import_from_shareable_handle");
	return TUTTI_ERR_UNSUPPORTED;
}

/* The type of handle was refused for want of rights or of support, not for want of memory. */
static bool cuda_is_refused(CUresult error)
{
	return error == CUDA_ERROR_NOT_PERMITTED || error == CUDA_ERROR_NOT_SUPPORTED ||
	       error == CUDA_ERROR_INVALID_DEVICE;
}

/* Parts of cuMemCreate. Each rank that maps one holds it by its own mapping, so the rank whose
 * memory it is gives it back when it likes. Other processes get a descriptor; where none comes
 * through, as between containers, they use a fabric handle, if the GPU has those. */

static CUmemAllocationProp region_parts_prop_of(const struct cuda_device *device,
						CUmemAllocationHandleType types)
{
	CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
				    .requestedHandleTypes = types,
				    .location = {CU_MEM_LOCATION_TYPE_DEVICE, device->ordinal}};

	prop.allocFlags.gpuDirectRDMACapable = device->pieces.reaches_adapters;
	return prop;
}

static tutti_status region_pieces_create(struct region_memory *m, size_t bytes,
					 CUmemAllocationHandleType types, CUresult *error)
{
	const struct cuda_driver *cuda = cuda_driver();
	CUmemAllocationProp prop = region_parts_prop_of(m->device, types);
	size_t unit;

	*error = cuda->mem_get_allocation_granularity(&unit, &prop,
						      CU_MEM_ALLOC_GRANULARITY_RECOMMENDED);
	if (*error == CUDA_SUCCESS) {
		unit = unit > m->device->pieces.unit ? unit : m->device->pieces.unit;
		m->bytes = (bytes + unit - 1) / unit * unit;
		m->types = types;
		*error = cuda->mem_create(&m->handle, m->bytes, &prop, 0);
	}
	if (*error == CUDA_ERROR_OUT_OF_MEMORY)
		return fail(TUTTI_ERR_MEMORY, "CUDA device %d has no %zu bytes left",
			    m->device->ordinal, bytes);
	if (cuda_is_refused(*error))
		return fail(TUTTI_ERR_UNSUPPORTED,
			    "CUDA device %d makes no memory that other processes map by handles "
			    "of type %u",
			    m->device->ordinal, types);
	return cuda_status(*error, "mem_create");
}

/* A device may offer fabric handles, and refuse them to this process: without an IMEX channel. */
static tutti_status region_parts_create_any(struct region_memory *m, size_t bytes)
{
	CUmemAllocationHandleType types = m->device->pieces.types,
				  plain = types & CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
	CUresult error;
	tutti_status status = region_pieces_create(m, bytes, types, &error);

	if (cuda_is_refused(error) && plain && plain != types)
		status = region_pieces_create(m, bytes, plain, &error);
	return status;
}

/* As peer access does for cuMemAlloc's memory: kernels of this process's other GPUs may use it. A
 * GPU for which that fails finds out when it does. */
static void region_parts_let_others_in(const struct region_memory *m)
{
	const struct cuda_driver *cuda = cuda_driver();
	CUdevice own, other;

	if (cuda->device_get(&own, m->device->ordinal) != CUDA_SUCCESS)
		return;
	for (int i = 0; i < cuda_device_count(); i++) {
		CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, i},
					  CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
		int can = 0;
		if (cuda->device_get(&other, i) == CUDA_SUCCESS &&
		    cuda->device_can_access_peer(&can, other, own) == CUDA_SUCCESS && can)
			cuda->mem_set_access(m->address, m->bytes, &access, 1);
	}
}

static tutti_status region_pieces_make(struct region_memory *m, size_t bytes)
{
	struct cuda_mapping here;

	TRY(region_parts_create_any(m, bytes));
	tutti_status status = cuda_mapping_make(&here, m->device, m->handle, m->bytes, 0);
	if (status != TUTTI_OK) {
		cuda_driver()->mem_release(m->handle);
		return status;
	}
	m->address = here.address;
	region_parts_let_others_in(m);
	return TUTTI_OK;
}

static void region_pieces_end(struct region_memory *m)
{
	struct cuda_mapping here = {m->address, m->bytes};

	cuda_mapping_end(&here);
	cuda_driver()->mem_release(m->handle);
}

static void region_pieces_describe(const struct region_memory *m, struct cuda_region *region,
				   int *fd)
{
	CUmemFabricHandle fabric;

	region->local = m->handle;
	cuda_export(m->handle, m->types, fd, &fabric, &region->has_fabric);
	memcpy(region->handle, fabric.data, sizeof region->handle);
}

static tutti_status region_pieces_map(struct cuda_mapping *here, const struct cuda_device *device,
				      const struct cuda_region *region, struct region_source source)
{
	CUmemGenericAllocationHandle handle = region->local;

	if (!source.is_here)
		TRY(cuda_import(&handle, source.fd, region->has_fabric ? region->handle : NULL));
	tutti_status status = cuda_mapping_make(here, device, handle, region->bytes, 0);
	if (!source.is_here)
		cuda_driver()->mem_release(handle);
	return status;
}

const struct region_way region_by_pieces = {.number = 2,
					    .make = region_pieces_make,
					    .end = region_pieces_end,
					    .describe = region_pieces_describe,
					    .map = region_pieces_map,
					    .unmap = cuda_mapping_end};

/* Creating, adding, binding and mapping a multicast object, by the driver's calls. */

tutti_status cuda_multicast_create(struct cuda_multicast *m, const struct region_memory *memory,
				   int devices)
{
	const struct cuda_driver *cuda = cuda_driver();
	CUmulticastObjectProp prop = {.numDevices = (unsigned)devices,
				      .size = memory->bytes,
				      .handleTypes = memory->types};

	CUDA_TRY(multicast_create, &m->handle, &prop);
	return TUTTI_OK;
}

void cuda_multicast_describe(const struct cuda_multicast *m, const struct region_memory *memory,
			     struct cuda_region *region, int *fd)
{
	CUmemFabricHandle fabric;

	cuda_export(m->handle, memory->types, fd, &fabric, &region->multicast_has_fabric);
	memcpy(region->multicast_handle, fabric.data, sizeof region->multicast_handle);
	region->has_multicast = 1;
}

tutti_status cuda_multicast_import(struct cuda_multicast *m, const struct cuda_region *region,
				   int fd)
{
	return cuda_import(&m->handle, fd,
			   region->multicast_has_fabric ? region->multicast_handle : NULL);
}

tutti_status cuda_multicast_add(const struct cuda_multicast *m, const struct region_memory *memory)
{
	const struct cuda_driver *cuda = cuda_driver();
	CUdevice device;

	CUDA_TRY(device_get, &device, memory->device->ordinal);
	CUDA_TRY(multicast_add_device, m->handle, device);
	return TUTTI_OK;
}

tutti_status cuda_multicast_bind(struct cuda_multicast *m, const struct region_memory *memory)
{
	const struct cuda_driver *cuda = cuda_driver();

	CUDA_TRY(multicast_bind_mem, m->handle, 0, memory->handle, 0, memory->bytes, 0);
	m->is_bound = true;
	return cuda_mapping_make(&m->here, memory->device, m->handle, memory->bytes,
				 memory->device->pieces.unit);
}

void cuda_multicast_end(struct cuda_multicast *m, const struct region_memory *memory)
{
	const struct cuda_driver *cuda = cuda_driver();
	CUdevice device;

	cuda_mapping_end(&m->here);
	if (m->is_bound && cuda->device_get(&device, memory->device->ordinal) == CUDA_SUCCESS)
		cuda->multicast_unbind(m->handle, device, 0, memory->bytes);
	if (m->handle)
		cuda->mem_release(m->handle);
	*m = (struct cuda_multicast){.handle = 0};
}

static struct region_part *parts;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of the list and what is in it */

static bool region_parts_is_taken(const struct cuda_channels *c, uint32_t number)
{
	for (const struct region_part *p = parts; p; p = p->next)
		if (p->is_used && p->channels == c && p->number == number)
			return true;
	return false;
}

/* The smallest number of a region that this rank has free, or 0. */
static uint32_t region_parts_free_number(const struct cuda_channels *c)
{
	uint32_t number = 1;

	while (number < CHANNEL_REGIONS && region_parts_is_taken(c, number))
		number++;
	return number < CHANNEL_REGIONS ? number : 0;
}

/* The smallest that fits, unless half of it would do. */
static struct region_part *region_parts_find_kept(const struct cuda_device *device, size_t bytes)
{
	struct region_part *best = NULL;

	for (struct region_part *p = parts; p; p = p->next)
		if (!p->is_used && !p->due_ns && p->memory.device == device &&
		    p->memory.bytes >= bytes && p->memory.bytes / 2 < bytes &&
		    (!best || p->memory.bytes < best->memory.bytes))
			best = p;
	return best;
}

static void region_parts_take(struct region_part *p, const struct cuda_channels *c, uint32_t number)
{
	p->channels = c;
	p->number = number;
	p->is_used = true;
	p->step = REGION_MAP;
}

/* Only this rank takes numbers of its channels. */
static void region_parts_add_part(struct region_part *p, const struct cuda_channels *c)
{
	pthread_mutex_lock(&lock);
	region_parts_take(p, c, region_parts_free_number(c));
	p->next = parts;
	parts = p;
	pthread_mutex_unlock(&lock);
}

/* A kept part, or room for a new one. */
static tutti_status region_parts_find_part(const struct cuda_channels *c, size_t bytes,
					   bool is_plain, struct region_part **out)
{
	struct region_part *p = NULL;

	pthread_mutex_lock(&lock);
	uint32_t number = region_parts_free_number(c);
	if (number && is_plain)
		p = region_parts_find_kept(c->device, bytes);
	if (p)
		region_parts_take(p, c, number);
	pthread_mutex_unlock(&lock);
	if (!number)
		return fail(TUTTI_ERR_MEMORY,
			    "rank %d has %d blocks of GPU memory that others map already", c->named,
			    CHANNEL_REGIONS - 1);
	*out = p;
	return TUTTI_OK;
}

/* ---- the end of a part ---- */

bool region_may_still_run(const struct cuda_channels *c)
{
	return c && c->has_failed && cuda_channels_is_running(c, NULL);
}

/* When the part may be given back: now (0), or later. A rank whose call was aborted may move bytes
 * at the multicast address a little longer: it does not wait while it moves. Without this rank's
 * memory there it would fault. At its own mappings it finds the memory of others. */
static uint64_t region_parts_due_of(const struct region_part *p)
{
	bool is_shared = p->multicast.handle && p->channels && p->channels->has_failed;

	return is_shared ? deadline_after_ms(CUDA_END_MS) : p->due_ns;
}

static void region_parts_leave_channels(struct region_part *p)
{
	p->is_lost |= region_may_still_run(p->channels);
	p->due_ns = region_parts_due_of(p);
	p->channels = NULL;
}

static void region_parts_take_out(struct region_part *p)
{
	struct region_part **at = &parts;

	while (*at != p)
		at = &(*at)->next;
	*at = p->next;
}

/* Takes the part out of the list, to be given back; NULL: it stays there. */
static struct region_part *region_parts_release(struct region_part *p)
{
	region_parts_leave_channels(p);
	if (p->is_lost)
		return NULL;
	p->is_used = false;
	if (p->memory.way->is_kept || p->due_ns > clock_now_ns())
		return NULL;
	region_parts_take_out(p);
	return p;
}

/* Without the lock: the driver may wait for what runs on the device. */
static void region_parts_give_back(struct region_part *p)
{
	struct cuda_visit visit;

	if (cuda_enter(p->memory.device, &visit) == TUTTI_OK) {
		cuda_multicast_end(&p->multicast, &p->memory);
		p->memory.way->end(&p->memory);
		cuda_leave(&visit);
	}
	free(p);
}

/* Those that are due. Returns when the next one is, or 0. */
static uint64_t region_parts_give_back_due(void)
{
	uint64_t next, now = clock_now_ns();
	struct region_part *p;

	do {
		next = 0;
		pthread_mutex_lock(&lock);
		for (p = parts; p; p = p->next) {
			bool waits = !p->is_used && p->due_ns;
			if (waits && p->due_ns <= now)
				break;
			if (waits && (!next || p->due_ns < next))
				next = p->due_ns;
		}
		if (p)
			region_parts_take_out(p);
		pthread_mutex_unlock(&lock);
		if (p)
			region_parts_give_back(p);
	} while (p);
	return next;
}

/* ---- a new one ---- */

/* Where memory is short, what is to be given back soon is awaited. */
static tutti_status region_parts_make_memory(struct region_memory *memory, size_t bytes)
{
	for (int tries = 0;; tries++) {
		uint64_t next = region_parts_give_back_due();
		tutti_status status = memory->way->make(memory, bytes);
		if (status != TUTTI_ERR_MEMORY || !next)
			return status;
		net_pause(tries, next);
	}
}

static tutti_status region_parts_new_part(const struct cuda_channels *c, size_t bytes,
					  bool is_plain, struct region_part **out)
{
	struct region_part *p = calloc(1, sizeof *p);

	if (!p)
		return fail(TUTTI_ERR_MEMORY, "no memory for a block's entry");
	p->memory.device = c->device;
	p->memory.way = is_plain ? &region_by_ipc : &region_by_pieces;
	tutti_status status = region_parts_make_memory(&p->memory, bytes);
	if (status != TUTTI_OK) {
		free(p);
		return status;
	}
	region_parts_add_part(p, c);
	*out = p;
	return TUTTI_OK;
}

struct region_part *region_part_incomplete(const struct cuda_channels *c)
{
	pthread_mutex_lock(&lock);
	struct region_part *p = parts;
	while (p && !(p->is_used && p->channels == c && p->step != REGION_DONE))
		p = p->next;
	pthread_mutex_unlock(&lock);
	return p;
}

tutti_status region_part_take(const struct cuda_channels *c, size_t bytes, bool is_plain,
			      struct region_part **p)
{
	TRY(region_parts_find_part(c, bytes, is_plain, p));
	return *p ? TUTTI_OK : region_parts_new_part(c, bytes, is_plain, p);
}

bool cuda_region_free(void *ptr)
{
	pthread_mutex_lock(&lock);
	struct region_part *p = parts, *gone = NULL;
	while (p && !(p->is_used && p->memory.address == (CUdeviceptr)(uintptr_t)ptr))
		p = p->next;
	if (p)
		gone = region_parts_release(p);
	pthread_mutex_unlock(&lock);
	if (gone)
		region_parts_give_back(gone);
	return p != NULL;
}

void cuda_regions_forget(const struct cuda_channels *c)
{
	pthread_mutex_lock(&lock);
	for (struct region_part *p = parts; p; p = p->next)
		if (p->channels == c)
			region_parts_leave_channels(p);
	pthread_mutex_unlock(&lock);
}

static bool region_parts_contains(const struct region_part *p, const void *ptr)
{
	CUdeviceptr pointer = (CUdeviceptr)(uintptr_t)ptr;

	return p->is_used && pointer >= p->memory.address &&
	       pointer - p->memory.address < p->memory.bytes;
}

bool cuda_region_find(const struct cuda_channels *c, const void *ptr, uint64_t *place)
{
	pthread_mutex_lock(&lock);
	const struct region_part *p = parts;
	while (p && !(p->channels == c && region_parts_contains(p, ptr)))
		p = p->next;
	if (p)
		*place = channel_place(p->number, (CUdeviceptr)(uintptr_t)ptr - p->memory.address);
	pthread_mutex_unlock(&lock);
	return p != NULL;
}

bool cuda_region_holds(const void *ptr)
{
	pthread_mutex_lock(&lock);
	const struct region_part *p = parts;
	while (p && !region_parts_contains(p, ptr))
		p = p->next;
	pthread_mutex_unlock(&lock);
	return p != NULL;
}
