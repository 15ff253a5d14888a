/* The way between two GPUs: NVLink, as libnvidia-ml.so.1 says where it is, or PCIe, as the folders
 * of sysfs show. */
#include "gpus.h"

#include <ctype.h>
#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* NVML's names and values. */
typedef void *nvmlDevice_t;
#define NVML_SUCCESS               0
#define NVML_P2P_STATUS_OK         0
#define NVML_P2P_CAPS_INDEX_NVLINK 2

struct nvml {
	int (*init)(void);
	int (*shutdown)(void);
	int (*by_pci)(const char *pci, nvmlDevice_t *device);
	int (*p2p_status)(nvmlDevice_t a, nvmlDevice_t b, int index, int *status);
	bool is_open;
};

static bool gpu_ways_find(void *library, const char *name, void *function)
{
	void *symbol = library ? dlsym(library, name) : NULL;

	memcpy(function, &symbol, sizeof symbol);
	return symbol != NULL;
}

/* It stays loaded, as drivers do. */
static void nvml_open(struct nvml *n)
{
	void *library = dlopen("libnvidia-ml.so.1", RTLD_LAZY | RTLD_LOCAL);

	n->is_open = gpu_ways_find(library, "nvmlInit_v2", &n->init) &&
		     gpu_ways_find(library, "nvmlShutdown", &n->shutdown) &&
		     gpu_ways_find(library, "nvmlDeviceGetHandleByPciBusId_v2", &n->by_pci) &&
		     gpu_ways_find(library, "nvmlDeviceGetP2PStatus", &n->p2p_status) &&
		     n->init() == NVML_SUCCESS;
}

static bool is_nvlink(const struct nvml *n, const struct gpu_row *a, const struct gpu_row *b)
{
	nvmlDevice_t from, to;
	int status = -1;

	return n->is_open && n->by_pci(a->pci, &from) == NVML_SUCCESS &&
	       n->by_pci(b->pci, &to) == NVML_SUCCESS &&
	       n->p2p_status(from, to, NVML_P2P_CAPS_INDEX_NVLINK, &status) == NVML_SUCCESS &&
	       status == NVML_P2P_STATUS_OK;
}

/* "/sys/devices/pci0000:00/0000:00:01.0/0000:01:00.0" without its last part; "": not known. */
static void folder_of(const struct gpu_row *row, char folder[PATH_MAX])
{
	char path[64], *end;

	snprintf(path, sizeof path, "/sys/bus/pci/devices/%s", row->pci);
	for (char *c = path; *c; c++)
		*c = (char)tolower((unsigned char)*c);
	folder[0] = '\0';
	if (!realpath(path, folder))
		folder[0] = '\0';
	else if ((end = strrchr(folder, '/')))
		*end = '\0';
}

/* "/sys/devices/pci0000:00": the root complex. */
static size_t root_length(const char *folder)
{
	const char *root = strstr(folder, "/pci");

	return root ? (size_t)(root + 1 - folder) + strcspn(root + 1, "/") : 0;
}

static const char *pcie_way(const struct gpu_row *a, const struct gpu_row *b)
{
	char here[PATH_MAX], there[PATH_MAX];
	size_t root;

	folder_of(a, here);
	folder_of(b, there);
	root = root_length(here);
	if (root == 0 || root_length(there) == 0)
		return "not known: neither NVML nor sysfs says it";
	if (strcmp(here, there) == 0)
		return "PCIe, one switch or port";
	if (root_length(there) == root && strncmp(here, there, root) == 0)
		return "PCIe, one root complex";
	return "PCIe, two root complexes";
}

void gpus_find_ways(struct gpus *g)
{
	struct nvml nvml;

	nvml_open(&nvml);
	for (int i = 0; i < g->count * g->count; i++) {
		const struct gpu_row *a = &g->rows[i / g->count], *b = &g->rows[i % g->count];

		if (a != b)
			snprintf(g->links[i].way, GPU_WAY_BYTES, "%s",
				 is_nvlink(&nvml, a, b) ? "NVLink" : pcie_way(a, b));
	}
	if (nvml.is_open)
		nvml.shutdown();
}
