/* The memory of a lane: see segment.h. */
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

_Static_assert(2 * sizeof(struct ring_shared) <= CONTROL_BYTES, "control lines fit in a page");

struct segment {
	struct segment *next;
	int users;
	dev_t device; /* these two name the memory in this process */
	ino_t inode;
	size_t ring_bytes;
	uint8_t *base;
};

/* Every segment this process has mapped. Ranks as threads share one mapping: half the page tables,
 * and the thread sanitizer sees both ends of a ring. */
static struct segment *segments;
static pthread_mutex_t segments_lock = PTHREAD_MUTEX_INITIALIZER;

static size_t total_bytes(size_t ring_bytes)
{
	return CONTROL_BYTES + 2 * ring_bytes;
}

static struct segment *find(const struct stat *st)
{
	struct segment *segment = segments;

	while (segment && (segment->device != st->st_dev || segment->inode != st->st_ino))
		segment = segment->next;
	return segment;
}

/* Under the lock. */
static tutti_status map(struct segment **out, size_t ring_bytes, int fd, const struct stat *st)
{
	struct segment *segment = calloc(1, sizeof(*segment));

	if (!segment)
		return fail(TUTTI_ERR_MEMORY, "No memory for a shared memory connection.");
	void *base = mmap(NULL, total_bytes(ring_bytes), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (base == MAP_FAILED) {
		free(segment);
		return fail_errno("Cannot map %zu bytes of shared memory", total_bytes(ring_bytes));
	}
	segment->users = 1;
	segment->device = st->st_dev;
	segment->inode = st->st_ino;
	segment->ring_bytes = ring_bytes;
	segment->base = base;
	segment->next = segments;
	segments = segment;
	*out = segment;
	return TUTTI_OK;
}

static tutti_status map_or_share(struct segment **out, size_t ring_bytes, int fd)
{
	struct stat st;
	tutti_status status = TUTTI_OK;

	if (fstat(fd, &st) < 0)
		return fail_errno("Cannot look at shared memory");
	if (st.st_size != (off_t)total_bytes(ring_bytes))
		return fail(TUTTI_ERR_MISMATCH, "A peer's shared memory has %lld bytes, not %zu.",
			    (long long)st.st_size, total_bytes(ring_bytes));
	pthread_mutex_lock(&segments_lock);
	struct segment *known = find(&st);
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

/* Memory for a segment: nobody has mapped it. */
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

tutti_status segment_try(size_t ring_bytes)
{
	int fd = -1;

	TRY(make_memory(ring_bytes, &fd));
	close(fd);
	return TUTTI_OK;
}

tutti_status segment_create(struct segment **segment, size_t ring_bytes, int *out_fd)
{
	int fd = -1;
	tutti_status status;

	TRY(make_memory(ring_bytes, &fd));
	status = map_or_share(segment, ring_bytes, fd);
	if (status != TUTTI_OK) {
		close(fd);
		return status;
	}
	*out_fd = fd;
	return TUTTI_OK;
}

tutti_status segment_open(struct segment **segment, size_t ring_bytes, int fd)
{
	if (ring_bytes < SEGMENT_RING_MIN || ring_bytes > SEGMENT_RING_MAX ||
	    (ring_bytes & (ring_bytes - 1)))
		return fail(TUTTI_ERR_MISMATCH, "A peer's rings would have %zu bytes.", ring_bytes);
	/* Without the seals the peer could shrink the file and our next load would be SIGBUS. */
	int seals = fcntl(fd, F_GET_SEALS);
	if (seals < 0 || (seals & SEALS) != SEALS)
		return fail(TUTTI_ERR_MISMATCH, "A peer's shared memory is not sealed.");
	return map_or_share(segment, ring_bytes, fd);
}

void segment_close(struct segment *segment)
{
	if (!segment)
		return;
	pthread_mutex_lock(&segments_lock);
	bool is_last = --segment->users == 0;
	if (is_last) {
		struct segment **at = &segments;
		while (*at != segment)
			at = &(*at)->next;
		*at = segment->next;
	}
	pthread_mutex_unlock(&segments_lock);
	if (!is_last)
		return;
	munmap(segment->base, total_bytes(segment->ring_bytes));
	free(segment);
}

void segment_rings(const struct segment *segment, bool is_creator, struct ring_writer *out,
		   struct ring_reader *in)
{
	struct ring_shared *shared = (struct ring_shared *)segment->base;
	uint8_t *bytes = segment->base + CONTROL_BYTES;
	size_t outward = is_creator ? 0 : 1, inward = 1 - outward;

	*out = (struct ring_writer){.shared = &shared[outward],
				    .bytes = bytes + outward * segment->ring_bytes,
				    .capacity = segment->ring_bytes};
	*in = (struct ring_reader){.shared = &shared[inward],
				   .bytes = bytes + inward * segment->ring_bytes,
				   .capacity = segment->ring_bytes};
}
