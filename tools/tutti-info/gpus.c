/* Asks the driver. A question that it does not know counts as a no. */
#include "gpus.h"

#include "core/status.h"
#include "cuda/driver.h"
#include "cuda/kernels/kernels_image.h"
#include "cuda/kind.h"
#include "tools/must.h"

#include <string.h>

/* Four bytes, three times two, six. */
static void gpus_write_uuid(char text[GPU_UUID_BYTES], const CUuuid *uuid)
{
	int used = snprintf(text, GPU_UUID_BYTES, "GPU");

	for (int i = 0; i < 16; i++) {
		bool is_first = i == 0 || i == 4 || i == 6 || i == 8 || i == 10;
		used += snprintf(text + used, GPU_UUID_BYTES - (size_t)used, "%s%02x",
				 is_first ? "-" : "", (unsigned char)uuid->bytes[i]);
	}
}

static int gpus_attribute(CUdevice device, CUdevice_attribute which, int otherwise)
{
	int value;

	return cuda_driver()->device_get_attribute(&value, which, device) == CUDA_SUCCESS
		       ? value
		       : otherwise;
}

static void gpus_look_at(struct gpu_row *row, CUdevice device)
{
	const struct cuda_driver *cuda = cuda_driver();
	CUuuid uuid = {0};

	cuda->device_get_name(row->name, (int)sizeof row->name, device);
	cuda->device_get_uuid(&uuid, device);
	gpus_write_uuid(row->uuid, &uuid);
	cuda->device_get_pci_bus_id(row->pci, (int)sizeof row->pci, device);
	cuda->device_total_mem(&row->bytes, device);
#define ASK(name, otherwise) gpus_attribute(device, CU_DEVICE_ATTRIBUTE_##name, otherwise)
	row->major = ASK(COMPUTE_CAPABILITY_MAJOR, 0);
	row->minor = ASK(COMPUTE_CAPABILITY_MINOR, 0);
	row->multiprocessors = ASK(MULTIPROCESSOR_COUNT, 0);
	row->numa_node = ASK(HOST_NUMA_ID, -1);
	row->has_descriptors = ASK(HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED, 0) > 0;
	row->has_fabric = ASK(HANDLE_TYPE_FABRIC_SUPPORTED, 0) > 0;
	row->has_multicast = ASK(MULTICAST_SUPPORTED, 0) > 0;
	row->uses_host_pages = ASK(PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES, 0) > 0;
#undef ASK
}

static int gpus_between(CUdevice from, CUdevice to, CUdevice_P2PAttribute which, int otherwise)
{
	int value;

	return cuda_driver()->device_get_p2p_attribute(&value, which, from, to) == CUDA_SUCCESS
		       ? value
		       : otherwise;
}

static void gpus_look_between(struct gpu_link *link, CUdevice from, CUdevice to)
{
	int can = 0;

	link->can_map =
		cuda_driver()->device_can_access_peer(&can, from, to) == CUDA_SUCCESS && can;
	link->performance_rank =
		gpus_between(from, to, CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK, -1);
	link->has_atomics =
		gpus_between(from, to, CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED, 0) > 0;
}

static void gpus_fill_in(struct gpus *g)
{
	size_t n = (size_t)g->count;
	CUdevice *devices = must_alloc(n, sizeof *devices);

	g->rows = must_alloc(n, sizeof *g->rows);
	g->links = must_alloc(n * n, sizeof *g->links);
	for (int i = 0; i < g->count; i++) {
		cuda_driver()->device_get(&devices[i], i);
		gpus_look_at(&g->rows[i], devices[i]);
		if (cuda_dma_buf_offered(i) != TUTTI_OK)
			snprintf(g->rows[i].no_dma_buf, sizeof g->rows[i].no_dma_buf, "%.239s",
				 last_error());
	}
	last_error_clear();
	for (int i = 0; i < g->count * g->count; i++)
		if (i / g->count != i % g->count)
			gpus_look_between(&g->links[i], devices[i / g->count],
					  devices[i % g->count]);
	free(devices);
}

void gpus_look(struct gpus *g, bool is_wanted)
{
	const struct cuda_driver *cuda = is_wanted ? cuda_driver() : NULL;
	const char *name = "an unknown error";
	CUresult error;

	*g = (struct gpus){.has_kernels = cuda_kernels_are_built};
	if (!cuda) {
		snprintf(g->missing, sizeof g->missing, "%s%.200s",
			 is_wanted ? "no CUDA driver: " : "TUTTI_CUDA is 0",
			 is_wanted ? cuda_driver_missing() : "");
		return;
	}
	cuda->driver_get_version(&g->driver_version);
	error = cuda->init(0);
	if (error == CUDA_SUCCESS)
		error = cuda->device_get_count(&g->count);
	if (error != CUDA_SUCCESS) {
		cuda->get_error_name(error, &name);
		snprintf(g->missing, sizeof g->missing, "the CUDA driver fails with %s", name);
		g->count = 0;
	} else if (g->count == 0) {
		snprintf(g->missing, sizeof g->missing, "the CUDA driver has no device");
	}
	gpus_fill_in(g);
}

void gpus_free(struct gpus *g)
{
	free(g->rows);
	free(g->links);
}

const struct gpu_link *gpus_link(const struct gpus *g, int from, int to)
{
	return &g->links[from * g->count + to];
}

enum gpu_relation gpus_relation(const struct gpus *g, int own, const char *uuid)
{
	if (own < 0 || !uuid[0])
		return GPUS_NONE;
	if (strcmp(g->rows[own].uuid, uuid) == 0)
		return GPUS_SAME;
	for (int i = 0; i < g->count; i++)
		if (strcmp(g->rows[i].uuid, uuid) == 0)
			return gpus_link(g, own, i)->can_map && gpus_link(g, i, own)->can_map
				       ? GPUS_PEERS
				       : GPUS_NO_PEERS;
	return GPUS_UNSEEN;
}

/* Of the pair alone: kernels meet only where those of all pairs of a communicator can, and all take
 * turns where one pair has to (docs/cuda.md). */
const char *gpus_path(enum gpu_relation relation)
{
	switch (relation) {
	case GPUS_NONE:
		return "none";
	case GPUS_PEERS:
		return "kernels";
	case GPUS_SAME:
		return "turns";
	default:
		return "engine";
	}
}

const char *gpus_relation_text(enum gpu_relation relation)
{
	static const char *const texts[GPU_RELATIONS] = {
		"a rank has no GPU",
		"both have the same GPU",
		"each can map the other's memory",
		"they cannot map each other's memory",
		"a process does not see the other's GPU",
		"they are on different machines: kernels in each, messages between",
	};

	return texts[relation];
}
