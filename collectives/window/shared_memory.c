#include "collectives/window/shared_memory.h"

#include "core/grow_file.h"
#include "core/status.h"

#include <fcntl.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define HUGE_PAGE (2u << 20)
#define SEALS     (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)

static size_t round_up(size_t bytes, size_t unit)
{
	return (bytes + unit - 1) / unit * unit;
}

tutti_status shared_create(const char *name, size_t bytes, int *fd)
{
	int made = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
	tutti_status status;

	if (made < 0)
		return fail_errno("Shared memory cannot be made (memfd_create)");
	if (grow_file(made, bytes) == 0 && fcntl(made, F_ADD_SEALS, SEALS) == 0) {
		*fd = made;
		return TUTTI_OK;
	}
	status = fail_errno("Shared memory of %zu bytes cannot be made", bytes);
	close(made);
	return status;
}

/* What another process passed on: it must be as long as said, and stay so, or a load could be a
 * SIGBUS. */
static tutti_status check_shared(int fd, size_t bytes)
{
	struct stat st;
	int seals = fcntl(fd, F_GET_SEALS);

	if (seals < 0 || (seals & SEALS) != SEALS || fstat(fd, &st) != 0 || st.st_size < 0 ||
	    (uint64_t)st.st_size < bytes)
		return fail(
			TUTTI_ERR_UNSUPPORTED,
			"The memory that the leader passed can change its size, or is too short.");
	return TUTTI_OK;
}

tutti_status shared_map(int fd, size_t bytes, void **base)
{
	size_t mapped = round_up(bytes, 4096), room = mapped + HUGE_PAGE;
	uint8_t *space, *at;
	size_t before;

	TRY(check_shared(fd, bytes));
	space = mmap(NULL, room, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (space == MAP_FAILED)
		return fail_errno("No address space for %zu bytes of shared memory", bytes);
	before = round_up((uintptr_t)space, HUGE_PAGE) - (uintptr_t)space;
	at = space + before;
	if (mmap(at, mapped, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) == MAP_FAILED) {
		tutti_status status = fail_errno("Mapping %zu bytes of shared memory", bytes);
		munmap(space, room);
		return status;
	}
	if (before)
		munmap(space, before);
	munmap(at + mapped, room - before - mapped);
	/* Refused where the system has none to give: then 4 KiB pages. */
	madvise(at, mapped, MADV_HUGEPAGE);
	*base = at;
	return TUTTI_OK;
}
