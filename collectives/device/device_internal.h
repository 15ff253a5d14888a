/* The device, as its own files see it. */
#ifndef COLLECTIVES_DEVICE_DEVICE_INTERNAL_H
#define COLLECTIVES_DEVICE_DEVICE_INTERNAL_H

#include "collectives/device/device.h"

struct device {
	struct cuda_channels *channels;
	int rank, size;
};

/* A call as the arguments of a kernel. */
union device_args {
	struct packets_args packets;
	struct lines_args lines;
};
/* device_args.c: which kernel, with how many blocks, and all of its arguments but those that
 * cuda_channels_launch fills in. */
/* Where the buffers lie, for all ranks: as cuda_channels_place. */
tutti_status device_places(const struct device *device, const struct call_args *call,
			   uint64_t *send, uint64_t *recv);
tutti_status device_prepare(const struct device *device, const struct call_args *call,
			    union device_args *args, struct cuda_channels_launch *launch);

#endif
