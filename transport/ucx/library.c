/* libucp, loaded once in a process; what its statuses mean. */
#include "transport/ucx/library.h"

#include "core/dynamic_library.h"
#include "core/log.h"
#include "core/status.h"

#include <assert.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define NAME                 "libucp.so.0"
#define UCX_DESCRIPTORS_MOST 64

static struct ucx_library loaded;
static char reason[240];     /* why it is not, or "" */
static char **volatile kept; /* the environment while it was loaded; volatile: no leak, to tools */

/* UCX reads its global settings when it is loaded. By itself it handles SIGSEGV and its like,
 * patches mmap and its like in the running process, and writes what its statuses say to stderr. A
 * library must do none of that. A value that the user has set stays. */
static char *const settings[] = {"UCX_HANDLE_ERRORS=none", "UCX_MEM_EVENTS=n",
				 "UCX_LOG_LEVEL=fatal"};

#define SETTINGS (sizeof settings / sizeof *settings)

/* The environment of this process, and the settings. setenv() would move what other threads read
 * meanwhile. NULL: no memory. */
static char **ucx_library_environment_with_settings(void)
{
	size_t n = 0, at;
	char **all;

	while (environ && environ[n])
		n++;
	all = calloc(n + SETTINGS + 1, sizeof *all);
	if (!all)
		return NULL;
	for (at = 0; at < n; at++)
		all[at] = environ[at];
	for (size_t i = 0; i < SETTINGS; i++) {
		char name[32];
		snprintf(name, sizeof name, "%.*s", (int)strcspn(settings[i], "="), settings[i]);
		if (!getenv(name))
			all[at++] = settings[i];
	}
	return all;
}

static void *ucx_open_library(void)
{
	char **before = environ;
	void *library;

	kept = ucx_library_environment_with_settings();
	if (!kept) {
		snprintf(reason, sizeof reason, "no memory to load " NAME);
		return NULL;
	}
	environ = kept;
	library = dlopen(NAME, RTLD_NOW | RTLD_LOCAL);
	/* Not freed: another thread may be reading it. */
	environ = before;
	if (!library)
		snprintf(reason, sizeof reason, "%s (Debian: libucx0)", dlerror());
	return library;
}

static void ucx_load(void)
{
	static const struct dynamic_symbol functions[] = {
#define FUNCTION(result, name, parameters) {#name, offsetof(struct ucx_library, name), false},
		UCX_FUNCTIONS(FUNCTION)
#undef FUNCTION
	};
	void *library = ucx_open_library();
	const char *missing;

	if (!library)
		return;
	missing = dynamic_library_fill(library, functions, sizeof functions / sizeof *functions,
				       &loaded);
	if (missing)
		snprintf(reason, sizeof reason,
			 NAME " has no %s: it is too old (UCX 1.12 or later is needed)", missing);
}

tutti_status ucx_library(const struct ucx_library **library)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, ucx_load);
	if (reason[0])
		return fail(TUTTI_ERR_UNSUPPORTED, "ucx: %s", reason);
	*library = &loaded;
	return TUTTI_OK;
}

/* Each worker, that is each connection, receives from shared memory into a FIFO and a pool of 8 KiB
 * buffers, which UCX allocates in /dev/shm. By default the pool starts with 512 buffers, 4 MiB: 15
 * workers fill the /dev/shm of a container. Here at most UCX_WINDOW blocks are in flight, and as
 * many wait for a receive. So the FIFO gets that many places, and the pool starts (0.6 MiB) with
 * all the buffers that it ever needs: if it had to grow and could not, receiving would stop. */
static const char *const shm_settings[][2] = {{"FIFO_SIZE", "32"}, {"RX_BUFS_GROW", "72"}};

/* UCX_MM_* are for all kinds of shared memory; a variable of one kind overrides them. */
static bool ucx_library_is_in_environment(const char *setting)
{
	static const char *const kinds[] = {"MM", "POSIX", "SYSV", "XPMEM"};
	char name[48];

	for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
		snprintf(name, sizeof name, "UCX_%s_%s", kinds[i], setting);
		if (getenv(name))
			return true;
	}
	return false;
}

uint64_t ucx_shm_free_bytes(void)
{
	struct statvfs shm;

	return statvfs("/dev/shm", &shm) == 0 ? (uint64_t)shm.f_bavail * shm.f_frsize : 0;
}

/* Bytes of /dev/shm that a worker takes with UCX's own sizes, rounded up. */
#define UCX_SHM_OWN_BYTES ((uint64_t)5 << 20)
/* A job has several communicators, each with workers of its own. They connect at their first
 * message, so each finds free here what the others are going to take. */
#define SHM_COMMUNICATORS 8

/* A worker takes two of the 4096 segments that Linux allows by default (kernel.shmmni), and each
 * rank has a worker for each other one: 32 ranks on one machine take half of them. */
#define SYSV_RANKS_MOST 32

void ucx_configure_shm(const struct ucx_library *library, ucp_config_t *config, int ranks)
{
	uint64_t room = ucx_shm_free_bytes(), workers = (uint64_t)ranks * (uint64_t)ranks;
	char name[48];

	if (room / UCX_SHM_OWN_BYTES >= SHM_COMMUNICATORS * workers)
		return; /* UCX's own sizes, which are faster, fit */
	for (size_t i = 0; i < sizeof shm_settings / sizeof *shm_settings; i++) {
		snprintf(name, sizeof name, "MM_%s", shm_settings[i][0]);
		if (!ucx_library_is_in_environment(shm_settings[i][0]))
			library->ucp_config_modify(config, name, shm_settings[i][1]);
	}
	/* All ranks may be on this machine, each connected to each. Without POSIX shared memory UCX
	 * uses System V's, whose segments may be too few for more than SYSV_RANKS_MOST ranks. */
	if (room / UCX_SHM_WORKER_BYTES >= workers || ranks > SYSV_RANKS_MOST ||
	    getenv("UCX_TLS") || getenv("UCX_POSIX_DIR"))
		return;
	library->ucp_config_modify(config, "TLS", "^posix");
	log_info("ucx: /dev/shm has %llu MiB free, too little for %d ranks: UCX does not use it "
		 "(UCX_TLS=^posix)",
		 (unsigned long long)(room >> 20), ranks);
}

tutti_status ucx_needs_descriptors(int count)
{
	int fds[UCX_DESCRIPTORS_MOST], n = 0;
	tutti_status status = TUTTI_OK;

	assert(count <= UCX_DESCRIPTORS_MOST);
	while (n < count && (fds[n] = epoll_create1(EPOLL_CLOEXEC)) >= 0)
		n++;
	if (n < count)
		status = fail_errno("ucx: UCX needs up to %d descriptors, and can open %d", count,
				    n);
	while (n > 0)
		close(fds[--n]);
	return status;
}

tutti_status ucx_status(ucs_status_t status)
{
	switch (status) {
	case UCS_OK:
		return TUTTI_OK;
	case UCS_ERR_NO_MEMORY:
	case UCS_ERR_NO_RESOURCE:
	case UCS_ERR_EXCEEDS_LIMIT:
		return TUTTI_ERR_MEMORY;
	case UCS_ERR_UNREACHABLE:
	case UCS_ERR_SOME_CONNECTS_FAILED:
	case UCS_ERR_TIMED_OUT:
	case UCS_ERR_REJECTED:
	case UCS_ERR_NOT_CONNECTED:
	case UCS_ERR_CONNECTION_RESET:
	case UCS_ERR_ENDPOINT_TIMEOUT:
	case UCS_ERR_CANCELED:
	case UCS_ERR_SHMEM_SEGMENT: /* the peer's, which went with it */
		return TUTTI_ERR_PEER;
	case UCS_ERR_IO_ERROR:
	case UCS_ERR_NO_DEVICE:
		return TUTTI_ERR_DEVICE;
	case UCS_ERR_UNSUPPORTED:
	case UCS_ERR_NOT_IMPLEMENTED:
		return TUTTI_ERR_UNSUPPORTED;
	default:
		break;
	}
	if (UCS_IS_LINK_ERROR(status))
		return TUTTI_ERR_DEVICE;
	return UCS_IS_ENDPOINT_ERROR(status) ? TUTTI_ERR_PEER : TUTTI_ERR_INTERNAL;
}
