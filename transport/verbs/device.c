/* RDMA devices: opened once in a process; memory for them; libibverbs. */
#include "transport/verbs/device.h"

#include "core/dynamic_library.h"
#include "core/forks.h"
#include "core/status.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#define NAME "libibverbs.so.1"

/* The header's macros would stand in the names below. */
#undef ibv_reg_mr
#undef ibv_query_port

/* Loaded once in a process. */
static struct verbs_library loaded;
static char reason[240]; /* why it is not, or "" */

static void verbs_load(void)
{
	static const struct dynamic_symbol functions[] = {
#define FUNCTION(result, name, parameters)                                                         \
	{"ibv_" #name, offsetof(struct verbs_library, name), false},
		VERBS_FUNCTIONS(FUNCTION)
#undef FUNCTION
			{"ibv_query_port", offsetof(struct verbs_library, port_query), false},
		{"_ibv_query_gid_ex", offsetof(struct verbs_library, gid_query), false},
	};
	void *library = dlopen(NAME, RTLD_NOW | RTLD_LOCAL);
	const char *missing;

	if (!library) {
		snprintf(reason, sizeof reason, "%s (Debian: libibverbs1, ibverbs-providers)",
			 dlerror());
		return;
	}
	missing = dynamic_library_fill(library, functions, sizeof functions / sizeof *functions,
				       &loaded);
	if (missing)
		snprintf(reason, sizeof reason,
			 NAME " has no %s: it is too old (rdma-core 34 or later is needed)",
			 missing);
	else /* Before anything is registered: a fork does not take registered pages away from here.
	      */
		loaded.fork_init();
}

tutti_status verbs_library(const struct verbs_library **library)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, verbs_load);
	if (reason[0])
		return fail(TUTTI_ERR_UNSUPPORTED, "verbs: %s", reason);
	*library = &loaded;
	return TUTTI_OK;
}

bool verbs_library_is_loaded(void)
{
	void *library = dlopen(NAME, RTLD_NOW | RTLD_NOLOAD);

	if (library)
		dlclose(library);
	return library != NULL;
}

/* As ibv_query_port of the header, which calls the function of that name. */
int verbs_port_query(const struct verbs_library *library, struct ibv_context *context, uint8_t port,
		     struct ibv_port_attr *attr)
{
	struct verbs_context *own = verbs_get_ctx_op(context, query_port);

	memset(attr, 0, sizeof *attr);
	return own ? own->query_port(context, port, attr, sizeof *attr)
		   : library->port_query(context, port, attr);
}

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
