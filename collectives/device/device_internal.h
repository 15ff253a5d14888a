/* The device, as its own files see it. */
#ifndef COLLECTIVES_DEVICE_DEVICE_INTERNAL_H
#define COLLECTIVES_DEVICE_DEVICE_INTERNAL_H

#include "collectives/device/device.h"
#include "collectives/engine/task.h"

struct device {
	struct cuda_channels *channels;
	int rank, size;     /* of this rank among those that have part, ...     */
	struct group ranks; /* ... and which ranks of the communicator they are */
	const struct nodes *nodes; /* there are others, on other nodes; or NULL */
	struct engine_stages stages;
	bool may_multicast; /* sums may be in a switch's order                          */
	struct tutti_work *across, **across_tail; /* calls across nodes, in order: engine's lock */
};

/* A call as the arguments of a kernel. */
union device_args {
	struct packets_args packets;
	struct lines_args lines;
	struct turn_args turn;
};
/* device.c: which kernel, with how many blocks, and all of its arguments but those that
 * cuda_channels_launch fills in. */
tutti_status device_prepare(const struct device *device, const struct call_args *call,
			    union device_args *args, struct cuda_channels_launch *launch);
/* For a kernel of lines or turns that moves so many bytes. */
unsigned device_line_blocks(const struct device *device, size_t bytes);

/* device_task.c: posts what owner hears of when stream has come here. */
void device_await(struct engine *e, struct tutti_work *work, void *stream,
		  const struct io_owner *owner);
void device_failed(struct engine *e, struct engine_io *io); /* for owner */
/* A kernel of work has ended. false: not well, and the communicator fails, as soon as it is known
 * which calls differ. */
bool device_is_well(struct engine *e, const struct tutti_work *work);

#endif
