/* Long-lived memory (core/long_lived.h) as one device has it registered. */
#ifndef TRANSPORT_VERBS_MEMORY_H
#define TRANSPORT_VERBS_MEMORY_H

#include "core/long_lived.h"

#include <infiniband/verbs.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

struct verbs_device;

struct verbs_keys {
	uint32_t local, remote;
};

struct verbs_registered {
	struct long_lived_watcher watcher;
	pthread_mutex_t lock;
	struct verbs_region *regions;
};

void verbs_registered_open(struct verbs_device *device);
void verbs_registered_close(struct verbs_device *device);

#endif
