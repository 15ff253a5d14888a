/* Making, checking and mapping sealed memfds, and the list of what this process has mapped. */
#include "core/shared_memory.h"

#include "core/status.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010 /* Linux 5.1 */
#endif
#define SEALS     (F_SEAL_SHRINK | F_SEAL_GROW)
#define PAGE      ((size_t)4096)
#define HUGE_PAGE ((size_t)2 << 20)

static struct shared_memory *all;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static size_t shared_memory_round_up(size_t bytes, size_t unit)
{
	return (bytes + unit - 1) / unit * unit;
}

/* As ftruncate. Where the process may not write files that long (ulimit -f) the kernel would end it
 * by SIGXFSZ; here that is EFBIG. */
static int shared_memory_grow(int fd, size_t bytes)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && bytes > limit.rlim_cur) {
		errno = EFBIG;
		return -1;
	}
	return ftruncate(fd, (off_t)bytes);
}

static tutti_status shared_memory_make_file(const char *name, size_t bytes, int *fd)
{
	int made = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
	tutti_status status;

	if (made < 0)
		return fail_errno("Cannot make shared memory (memfd_create)");
	if (shared_memory_grow(made, bytes) != 0) {
		status = fail_errno("Cannot make %zu bytes of shared memory", bytes);
		close(made);
		return status;
	}
	*fd = made;
	return TUTTI_OK;
}

tutti_status shared_memory_create(const char *name, size_t bytes, int *fd)
{
	tutti_status status;
	int made = -1;

	TRY(shared_memory_make_file(name, bytes, &made));
	if (fcntl(made, F_ADD_SEALS, SEALS | F_SEAL_SEAL) < 0) {
		status = fail_errno("Cannot seal shared memory");
		close(made);
		return status;
	}
	*fd = made;
	return TUTTI_OK;
}

static tutti_status shared_memory_check(int fd, size_t bytes, struct stat *st)
{
	int seals = fcntl(fd, F_GET_SEALS);

	if (seals < 0 || (seals & SEALS) != SEALS)
		return fail(TUTTI_ERR_MISMATCH, "A peer's shared memory is not sealed.");
	if (fstat(fd, st) < 0)
		return fail_errno("Cannot look at shared memory");
	if (st->st_size < 0 || (uint64_t)st->st_size < bytes)
		return fail(TUTTI_ERR_MISMATCH, "A peer's shared memory has %lld bytes, not %zu.",
			    (long long)st->st_size, bytes);
	return TUTTI_OK;
}

/* At a multiple of 2 MiB, so that the system can use huge pages. */
static void *shared_memory_map_aligned(int fd, size_t bytes)
{
	size_t mapped = shared_memory_round_up(bytes, PAGE), room = mapped + HUGE_PAGE, before;
	uint8_t *space =
		mmap(NULL, room, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	uint8_t *at;

	if (space == MAP_FAILED)
		return MAP_FAILED;
	before = shared_memory_round_up((uintptr_t)space, HUGE_PAGE) - (uintptr_t)space;
	at = space + before;
	if (mmap(at, mapped, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) == MAP_FAILED) {
		int error = errno;
		munmap(space, room);
		errno = error;
		return MAP_FAILED;
	}
	if (before)
		munmap(space, before);
	munmap(at + mapped, room - before - mapped);
	/* Refused where the system has none to give. */
	madvise(at, mapped, MADV_HUGEPAGE);
	return at;
}

static void *shared_memory_map(int fd, size_t bytes)
{
	return mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
}

/* Under the lock. */
static tutti_status shared_memory_map_new(struct shared_memory **memory, int fd, size_t bytes,
					  const struct stat *st, bool wants_huge_pages)
{
	struct shared_memory *m = malloc(sizeof *m);
	void *base;

	if (!m)
		return fail(TUTTI_ERR_MEMORY, "No memory to map shared memory.");
	base = wants_huge_pages ? shared_memory_map_aligned(fd, bytes)
				: shared_memory_map(fd, bytes);
	if (base == MAP_FAILED) {
		free(m);
		return fail_errno("Cannot map %zu bytes of shared memory", bytes);
	}
	*m = (struct shared_memory){base, bytes, all, 1, st->st_dev, st->st_ino};
	*memory = all = m;
	return TUTTI_OK;
}

static tutti_status shared_memory_share_or_map(struct shared_memory **memory, int fd, size_t bytes,
					       const struct stat *st, struct shared_memory_use use)
{
	struct shared_memory *m = all;

	while (m && (m->device != st->st_dev || m->inode != st->st_ino))
		m = m->next;
	if (!m)
		return shared_memory_map_new(memory, fd, bytes, st, use.wants_huge_pages);
	if (m->bytes != bytes || m->users >= use.most_users)
		return fail(TUTTI_ERR_MISMATCH, "A peer passed the same shared memory twice.");
	m->users++;
	*memory = m;
	return TUTTI_OK;
}

tutti_status shared_memory_open(struct shared_memory **memory, int fd, size_t bytes,
				struct shared_memory_use use)
{
	tutti_status status;
	struct stat st;

	TRY(shared_memory_check(fd, bytes, &st));
	pthread_mutex_lock(&lock);
	status = shared_memory_share_or_map(memory, fd, bytes, &st, use);
	pthread_mutex_unlock(&lock);
	return status;
}

void shared_memory_close(struct shared_memory *memory)
{
	struct shared_memory **at = &all;
	bool is_last;

	if (!memory)
		return;
	pthread_mutex_lock(&lock);
	is_last = --memory->users == 0;
	if (is_last) {
		while (*at != memory)
			at = &(*at)->next;
		*at = memory->next;
	}
	pthread_mutex_unlock(&lock);
	if (!is_last)
		return;
	munmap(memory->base, shared_memory_round_up(memory->bytes, PAGE));
	free(memory);
}

tutti_status shared_memory_publish(const char *name, size_t bytes, int *fd, void **base)
{
	tutti_status status;
	int made = -1;
	void *at;

	TRY(shared_memory_make_file(name, bytes, &made));
	at = shared_memory_map(made, bytes);
	if (at == MAP_FAILED) {
		status = fail_errno("Cannot map %zu bytes of shared memory", bytes);
		close(made);
		return status;
	}
	if (fcntl(made, F_ADD_SEALS, SEALS | F_SEAL_FUTURE_WRITE | F_SEAL_SEAL) < 0 &&
	    fcntl(made, F_ADD_SEALS, SEALS | F_SEAL_SEAL) < 0) {
		status = fail_errno("Cannot seal shared memory");
		munmap(at, bytes);
		close(made);
		return status;
	}
	*fd = made;
	*base = at;
	return TUTTI_OK;
}
