/* The memory of a lane: see lane_memory.h. */
#include "transport/shm/lane_memory.h"

#include "core/grow_file.h"
#include "core/status.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* How the memory lies: the control lines of both rings in the first page, then the bytes. */
#define CONTROL_BYTES 4096
#define SEALS         (F_SEAL_SHRINK | F_SEAL_GROW)

_Static_assert(2 * sizeof(struct byte_ring_shared) <= CONTROL_BYTES, "control lines fit in a page");

struct lane_memory {
	struct lane_memory *next;
	int users;
	dev_t device; /* these two name the memory in this process */
	ino_t inode;
	size_t ring_bytes;
	uint8_t *base;
};

/* Every lane this process has mapped. Ranks as threads share one mapping: half the page tables,
 * and the thread sanitizer sees both ends of a ring. */
static struct lane_memory *lanes;
static pthread_mutex_t segments_lock = PTHREAD_MUTEX_INITIALIZER;

static size_t total_bytes(size_t ring_bytes)
{
	return CONTROL_BYTES + 2 * ring_bytes;
}

static struct lane_memory *find(const struct stat *st)
{
	struct lane_memory *lane = lanes;

	while (lane && (lane->device != st->st_dev || lane->inode != st->st_ino))
		lane = lane->next;
	return lane;
}

/* Under the lock. */
static tutti_status map(struct lane_memory **out, size_t ring_bytes, int fd, const struct stat *st)
{
	struct lane_memory *lane = calloc(1, sizeof(*lane));

	if (!lane)
		return fail(TUTTI_ERR_MEMORY, "No memory for a shared memory connection.");
	void *base = mmap(NULL, total_bytes(ring_bytes), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (base == MAP_FAILED) {
		free(lane);
		return fail_errno("Cannot map %zu bytes of shared memory", total_bytes(ring_bytes));
	}
	lane->users = 1;
	lane->device = st->st_dev;
	lane->inode = st->st_ino;
	lane->ring_bytes = ring_bytes;
	lane->base = base;
	lane->next = lanes;
	lanes = lane;
	*out = lane;
	return TUTTI_OK;
}

static tutti_status map_or_share(struct lane_memory **out, size_t ring_bytes, int fd)
{
	struct stat st;
	tutti_status status = TUTTI_OK;

	if (fstat(fd, &st) < 0)
		return fail_errno("Cannot look at shared memory");
	if (st.st_size != (off_t)total_bytes(ring_bytes))
		return fail(TUTTI_ERR_MISMATCH, "A peer's shared memory has %lld bytes, not %zu.",
			    (long long)st.st_size, total_bytes(ring_bytes));
	pthread_mutex_lock(&segments_lock);
	struct lane_memory *known = find(&st);
	if (known && known->users == 1) {
		known->users++;
		*out = known;
	} else if (known) {
		status = fail(TUTTI_ERR_MISMATCH, "A peer passed the same shared memory twice.");
	} else {
		status = map(out, ring_bytes, fd, &st);
	}
	pthread_mutex_unlock(&segments_lock);
	return status;
}

/* Memory for a lane: nobody has mapped it. */
static tutti_status make_memory(size_t ring_bytes, int *out_fd)
{
	int fd = memfd_create("tutti-shm", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	tutti_status status;

	if (fd < 0)
		return fail_errno("Cannot make shared memory (memfd_create)");
	if (grow_file(fd, total_bytes(ring_bytes)) < 0)
		status = fail_errno("Cannot make %zu bytes of shared memory",
				    total_bytes(ring_bytes));
	else if (fcntl(fd, F_ADD_SEALS, SEALS | F_SEAL_SEAL) < 0)
		status = fail_errno("Cannot seal shared memory");
	else {
		*out_fd = fd;
		return TUTTI_OK;
	}
	close(fd);
	return status;
}

tutti_status lane_memory_try(size_t ring_bytes)
{
	int fd = -1;

	TRY(make_memory(ring_bytes, &fd));
	close(fd);
	return TUTTI_OK;
}

tutti_status lane_memory_create(struct lane_memory **lane, size_t ring_bytes, int *out_fd)
{
	int fd = -1;
	tutti_status status;

	TRY(make_memory(ring_bytes, &fd));
	status = map_or_share(lane, ring_bytes, fd);
	if (status != TUTTI_OK) {
		close(fd);
		return status;
	}
	*out_fd = fd;
	return TUTTI_OK;
}

tutti_status lane_memory_open(struct lane_memory **lane, size_t ring_bytes, int fd)
{
	if (ring_bytes < LANE_RING_MIN || ring_bytes > LANE_RING_MAX ||
	    (ring_bytes & (ring_bytes - 1)))
		return fail(TUTTI_ERR_MISMATCH, "A peer's rings would have %zu bytes.", ring_bytes);
	/* Without the seals the peer could shrink the file and our next load would be SIGBUS. */
	int seals = fcntl(fd, F_GET_SEALS);
	if (seals < 0 || (seals & SEALS) != SEALS)
		return fail(TUTTI_ERR_MISMATCH, "A peer's shared memory is not sealed.");
	return map_or_share(lane, ring_bytes, fd);
}

void lane_memory_close(struct lane_memory *lane)
{
	if (!lane)
		return;
	pthread_mutex_lock(&segments_lock);
	bool is_last = --lane->users == 0;
	if (is_last) {
		struct lane_memory **at = &lanes;
		while (*at != lane)
			at = &(*at)->next;
		*at = lane->next;
	}
	pthread_mutex_unlock(&segments_lock);
	if (!is_last)
		return;
	munmap(lane->base, total_bytes(lane->ring_bytes));
	free(lane);
}

void lane_memory_rings(const struct lane_memory *lane, bool is_creator,
		       struct byte_ring_writer *out, struct byte_ring_reader *in)
{
	struct byte_ring_shared *shared = (struct byte_ring_shared *)lane->base;
	uint8_t *bytes = lane->base + CONTROL_BYTES;
	size_t outward = is_creator ? 0 : 1, inward = 1 - outward;

	*out = (struct byte_ring_writer){.shared = &shared[outward],
					 .bytes = bytes + outward * lane->ring_bytes,
					 .capacity = lane->ring_bytes};
	*in = (struct byte_ring_reader){.shared = &shared[inward],
					.bytes = bytes + inward * lane->ring_bytes,
					.capacity = lane->ring_bytes};
}
