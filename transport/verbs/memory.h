/* Known memory (core/known_memory.h) as one device has it registered. */
#ifndef TRANSPORT_VERBS_MEMORY_H
#define TRANSPORT_VERBS_MEMORY_H

#include "core/known_memory.h"

#include <infiniband/verbs.h>
#include <stdint.h>

struct verbs_device;

struct verbs_keys {
	uint32_t local, remote;
};

/* Registers known memory with the device from here on, ... */
void verbs_registered_open(struct verbs_device *device);
/* ... and no longer. */
void verbs_registered_close(struct verbs_device *device);

#endif
