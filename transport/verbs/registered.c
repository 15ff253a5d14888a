/* Long-lived memory as one device has it registered: when it comes, for as long as it stays. */
#include "transport/verbs/registered.h"

#include "core/log.h"
#include "core/status.h"
#include "transport/verbs/device.h"

#include <stddef.h>
#include <stdlib.h>

struct verbs_region {
	struct verbs_region *next;
	void *base;
	size_t bytes;
	struct ibv_mr *mr;
};

static struct verbs_device *device_of(struct long_lived_watcher *watcher)
{
	return (struct verbs_device *)((char *)watcher -
				       offsetof(struct verbs_device, registered.watcher));
}

/* Memory that cannot be registered is sent and received through the memory of each conn. */
static void verbs_added(struct long_lived_watcher *watcher, void *base, size_t bytes)
{
	struct verbs_device *device = device_of(watcher);
	struct verbs_registered *registered = &device->registered;
	struct verbs_region *region = calloc(1, sizeof *region);

	if (!region)
		return;
	region->base = base;
	region->bytes = bytes;
	if (verbs_register(&region->mr, device, base, bytes,
			   IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE) != TUTTI_OK) {
		log_seldom("%s; messages from and to it are copied", last_error());
		free(region);
		return;
	}
	pthread_mutex_lock(&registered->lock);
	region->next = registered->regions;
	registered->regions = region;
	pthread_mutex_unlock(&registered->lock);
}

static void verbs_removed(struct long_lived_watcher *watcher, void *base)
{
	struct verbs_device *device = device_of(watcher);
	struct verbs_region **at = &device->registered.regions, *region;

	pthread_mutex_lock(&device->registered.lock);
	while (*at && (*at)->base != base)
		at = &(*at)->next;
	region = *at;
	if (region)
		*at = region->next;
	pthread_mutex_unlock(&device->registered.lock);
	if (region)
		device->library->dereg_mr(region->mr);
	free(region);
}

void verbs_registered_open(struct verbs_device *device)
{
	pthread_mutex_init(&device->registered.lock, NULL);
	device->registered.watcher =
		(struct long_lived_watcher){.added = verbs_added, .removed = verbs_removed};
	long_lived_watch(&device->registered.watcher);
}

void verbs_registered_close(struct verbs_device *device)
{
	long_lived_unwatch(&device->registered.watcher);
	while (device->registered.regions)
		verbs_removed(&device->registered.watcher, device->registered.regions->base);
	pthread_mutex_destroy(&device->registered.lock);
}

bool verbs_registered_find(struct verbs_device *device, const void *ptr, size_t bytes,
			   struct verbs_keys *keys)
{
	struct verbs_registered *registered = &device->registered;
	bool is_found = false;

	pthread_mutex_lock(&registered->lock);
	for (struct verbs_region *r = registered->regions; r && !is_found; r = r->next) {
		uintptr_t from = (uintptr_t)r->base, at = (uintptr_t)ptr;
		is_found = at >= from && at - from < r->bytes && bytes <= r->bytes - (at - from);
		if (is_found)
			*keys = (struct verbs_keys){r->mr->lkey, r->mr->rkey};
	}
	pthread_mutex_unlock(&registered->lock);
	return is_found;
}
