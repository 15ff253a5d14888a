/* This machine's GPUs, as the CUDA driver lists them, and which can map each other. */
#ifndef TOOLS_TUTTI_INFO_GPUS_H
#define TOOLS_TUTTI_INFO_GPUS_H

#include <stdbool.h>
#include <stddef.h>

#define GPU_UUID_BYTES 44

struct gpu_row {
	char name[100], uuid[GPU_UUID_BYTES], pci[16];
	size_t bytes;
	int major, minor, multiprocessors;
	int numa_node; /* of the host's memory; -1: not known */
	bool has_descriptors, has_fabric, has_multicast;
	char no_dma_buf[240]; /* why adapters cannot reach its memory; "": those that can do */
	bool uses_host_pages; /* as with NVLink-C2C to the CPU */
};

/* From one GPU to another. */
struct gpu_link {
	bool can_map; /* kernels there may use the other's memory */
	bool has_atomics;
	int performance_rank; /* the driver's: less is faster */
};

struct gpus {
	char missing[300]; /* why there are none, or "" */
	bool has_kernels;  /* this build */
	int driver_version;
	int count;
	struct gpu_row *rows;
	struct gpu_link *links; /* count * count; those of a GPU with itself are not filled in */
};

/* is_wanted false: TUTTI_CUDA=0, and no driver is loaded. */
void gpus_look(struct gpus *gpus, bool is_wanted);
void gpus_free(struct gpus *gpus);
const struct gpu_link *gpus_link(const struct gpus *gpus, int from, int to);

/* Of two ranks with a GPU each. */
enum gpu_relation {
	GPUS_NONE,     /* a rank has no GPU */
	GPUS_SAME,     /* both ranks have the same one */
	GPUS_PEERS,    /* each can map the other's memory */
	GPUS_NO_PEERS,
	GPUS_UNSEEN,   /* not among the GPUs that the other's process sees */
	GPUS_APART,    /* on different machines */
	GPU_RELATIONS,
};
/* On one machine: from GPU number own to the one with that uuid. own -1, or an empty uuid: a rank
 * has none. */
enum gpu_relation gpus_relation(const struct gpus *gpus, int own, const char *uuid);
/* How the device buffers of such a pair of processes move: "engine", "kernels" or "turns". */
const char *gpus_path(enum gpu_relation relation);
const char *gpus_relation_text(enum gpu_relation relation);

#endif
