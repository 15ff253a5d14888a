/* RDMA devices: opened once in a process; memory for them. */
#include "transport/verbs/device.h"

#include "core/forks.h"
#include "core/status.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

/* Guards the list and the counts of users. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct verbs_device *devices;

static void device_free(struct verbs_device *device)
{
	if (device->pd)
		device->library->dealloc_pd(device->pd);
	if (device->context) {
		forks_disown(device->context->cmd_fd);
		forks_disown(device->context->async_fd);
		device->library->close_device(device->context);
	}
	free(device);
}

static struct verbs_device *device_new(const struct verbs_library *library,
				       struct ibv_device *found)
{
	struct verbs_device *device = calloc(1, sizeof *device);

	if (!device)
		return NULL;
	device->library = library;
	device->context = library->open_device(found);
	if (device->context) {
		forks_own(device->context->cmd_fd);
		forks_own(device->context->async_fd);
		device->pd = library->alloc_pd(device->context);
	}
	if (!device->pd || library->query_device(device->context, &device->limits) != 0) {
		device_free(device);
		return NULL;
	}
	device->has_immediate = found->transport_type == IBV_TRANSPORT_IB;
	verbs_registered_open(device);
	return device;
}

/* Under the lock. NULL: it cannot be opened; errno says why. */
static struct verbs_device *device_take(const struct verbs_library *library,
					struct ibv_device *found)
{
	const char *name = library->get_device_name(found);
	struct verbs_device *device = devices;

	while (device && strcmp(library->get_device_name(device->context->device), name) != 0)
		device = device->next;
	if (!device) {
		device = device_new(library, found);
		if (!device)
			return NULL;
		device->next = devices;
		devices = device;
	}
	device->users++;
	return device;
}

/* Under the lock. */
static void device_leave(struct verbs_device *device)
{
	struct verbs_device **at = &devices;

	if (--device->users > 0)
		return;
	while (*at != device)
		at = &(*at)->next;
	*at = device->next;
	verbs_registered_close(device);
	device_free(device);
}

struct verbs_device *verbs_device_open(const struct verbs_library *library,
				       struct ibv_device *found)
{
	pthread_mutex_lock(&lock);
	struct verbs_device *device = device_take(library, found);
	int why = errno;
	pthread_mutex_unlock(&lock);
	errno = why;
	return device;
}

void verbs_device_hold(struct verbs_device *device)
{
	pthread_mutex_lock(&lock);
	device->users++;
	pthread_mutex_unlock(&lock);
}

void verbs_device_close(struct verbs_device *device)
{
	pthread_mutex_lock(&lock);
	device_leave(device);
	pthread_mutex_unlock(&lock);
}

const char *verbs_memlock_text(int why, char text[VERBS_MEMLOCK_BYTES])
{
	struct rlimit limit;

	text[0] = '\0';
	if (why != ENOMEM || getrlimit(RLIMIT_MEMLOCK, &limit) != 0 ||
	    limit.rlim_cur == RLIM_INFINITY)
		return text;
	snprintf(text, VERBS_MEMLOCK_BYTES, "this process may lock %llu KiB: " VERBS_RAISE_MEMLOCK,
		 (unsigned long long)limit.rlim_cur >> 10);
	errno = 0; /* with ENOMEM fail() adds what to do where memory is not locked */
	return text;
}

tutti_status verbs_register(struct ibv_mr **mr, const struct verbs_device *device, void *at,
			    size_t bytes, int access)
{
	char limit[VERBS_MEMLOCK_BYTES];

	*mr = device->library->reg_mr(device->pd, at, bytes, access);
	if (*mr)
		return TUTTI_OK;
	int why = errno;
	if (verbs_memlock_text(why, limit)[0])
		return fail(TUTTI_ERR_MEMORY, "verbs: %zu KiB cannot be locked for RDMA, since %s",
			    bytes >> 10, limit);
	return fail(why == ENOMEM ? TUTTI_ERR_MEMORY : TUTTI_ERR_DEVICE,
		    "verbs: %zu KiB cannot be registered with %s: %s", bytes >> 10,
		    device->library->get_device_name(device->context->device), strerror(why));
}
