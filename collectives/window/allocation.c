/* One shared allocation: a memfd with a region for each rank, as this process has it mapped. */
#include "collectives/window/allocations.h"

#include "core/auth.h"
#include "core/machine.h"
#include "core/shared_memory.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

static uint64_t token;

/* A forked child is another process. */
uint64_t process_token(void)
{
	static pthread_mutex_t token_lock = PTHREAD_MUTEX_INITIALIZER;
	static pid_t owner;
	uint64_t result;

	pthread_mutex_lock(&token_lock);
	if (owner != getpid()) {
		owner = getpid();
		do
			auth_random(&token, sizeof token);
		while (!token);
	}
	result = token;
	pthread_mutex_unlock(&token_lock);
	return result;
}

uint64_t process_token_at(void)
{
	return (uintptr_t)&token;
}

bool allocation_is_gone(const struct allocation *a, int rank)
{
	const struct allocation_user *user = &a->users[rank];

	if (atomic_load(&user->is_freed))
		return true;
	return user->pid > 0 && user->pid_space && user->pid_space == machine_namespace("pid") &&
	       kill(user->pid, 0) != 0 && errno == ESRCH;
}

void allocation_own(struct allocation *a, int rank)
{
	a->is_own[rank] = true;
	a->owned++;
	a->users[rank].pid = (int32_t)getpid();
	a->users[rank].pid_space = machine_namespace("pid");
}

bool allocation_has_process(const struct allocation *a, uint64_t process)
{
	for (int rank = 0; rank < a->size; rank++) {
		if (a->processes[rank] == process)
			return true;
	}
	return false;
}

static size_t allocation_stride_of(size_t bytes)
{
	size_t unit = bytes >= 1u << 20 ? 2u << 20 : 4096;
	return bytes ? (bytes + unit - 1) / unit * unit : unit;
}

void allocation_free(struct allocation *a)
{
	if (!a)
		return;
	shared_memory_close(a->memory);
	free(a->is_own);
	free(a->processes);
	free(a);
}

size_t allocation_bytes(const struct window *w, size_t bytes)
{
	size_t page = 4096, users = (size_t)w->size * sizeof(struct allocation_user);

	return allocation_stride_of(bytes) * (size_t)w->size + (users + page - 1) / page * page;
}

struct allocation *allocation_new(const struct window *w, uint64_t id, size_t bytes)
{
	struct allocation *a = calloc(1, sizeof *a);
	size_t n = (size_t)w->size;

	if (!a)
		return NULL;
	a->id = id;
	a->size = w->size;
	a->stride = allocation_stride_of(bytes);
	a->bytes = allocation_bytes(w, bytes);
	a->is_own = calloc(n, sizeof *a->is_own);
	a->processes = calloc(n, sizeof *a->processes);
	if (!a->is_own || !a->processes) {
		allocation_free(a);
		return NULL;
	}
	for (int rank = 0; rank < w->size; rank++)
		a->processes[rank] = w->at.areas[rank].process;
	return a;
}

tutti_status allocation_make_private(uint8_t *region, size_t bytes)
{
	void *copy = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (copy == MAP_FAILED)
		return fail_errno("%zu bytes of shared memory cannot be made private", bytes);
	memcpy(copy, region, bytes);
	madvise(region, bytes, MADV_REMOVE); /* the shared pages are needed no more */
	if (mremap(copy, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, region) == MAP_FAILED)
		return fail_errno("%zu bytes of shared memory cannot be made private", bytes);
	return TUTTI_OK;
}

bool allocation_is_shared(const struct allocation *a, const struct window *w)
{
	for (int rank = 0; rank < w->size; rank++) {
		uint64_t process = w->at.areas[rank].process;
		if (process != process_token() && allocation_has_process(a, process))
			return true;
	}
	return false;
}
