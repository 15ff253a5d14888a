/* How the memory of a pair of rings lies: the control lines of both rings in the first page, then
 * the bytes.
 */
#include "transport/shm/ring_pair.h"

#include "core/status.h"

#include <unistd.h>

#define NAME          "tutti-shm"
#define CONTROL_BYTES 4096

_Static_assert(2 * sizeof(struct byte_ring_shared) <= CONTROL_BYTES, "control lines fit in a page");

/* Both ends may be in this process. */
static const struct shared_memory_use use = {.most_users = 2};

static size_t total_bytes(size_t ring_bytes)
{
	return CONTROL_BYTES + 2 * ring_bytes;
}

tutti_status ring_pair_try(size_t ring_bytes)
{
	int fd = -1;

	TRY(shared_memory_create(NAME, total_bytes(ring_bytes), &fd));
	close(fd);
	return TUTTI_OK;
}

tutti_status ring_pair_create(struct shared_memory **rings, size_t ring_bytes, int *fd)
{
	tutti_status status;
	int made = -1;

	TRY(shared_memory_create(NAME, total_bytes(ring_bytes), &made));
	status = shared_memory_open(rings, made, total_bytes(ring_bytes), use);
	if (status != TUTTI_OK) {
		close(made);
		return status;
	}
	*fd = made;
	return TUTTI_OK;
}

tutti_status ring_pair_open(struct shared_memory **rings, size_t ring_bytes, int fd)
{
	if (ring_bytes < RING_BYTES_MIN || ring_bytes > RING_BYTES_MAX ||
	    (ring_bytes & (ring_bytes - 1)))
		return fail(TUTTI_ERR_MISMATCH,
			    "A peer's rings would have %zu bytes: do all ranks have the same "
			    "version of Tutti?",
			    ring_bytes);
	return shared_memory_open(rings, fd, total_bytes(ring_bytes), use);
}

void ring_pair_ends(const struct shared_memory *rings, bool is_creator,
		    struct byte_ring_writer *out, struct byte_ring_reader *in)
{
	struct byte_ring_shared *shared = rings->base;
	uint8_t *bytes = (uint8_t *)rings->base + CONTROL_BYTES;
	size_t ring_bytes = (rings->bytes - CONTROL_BYTES) / 2;
	size_t outward = is_creator ? 0 : 1, inward = 1 - outward;

	*out = (struct byte_ring_writer){.shared = &shared[outward],
					 .bytes = bytes + outward * ring_bytes,
					 .capacity = ring_bytes};
	*in = (struct byte_ring_reader){.shared = &shared[inward],
					.bytes = bytes + inward * ring_bytes,
					.capacity = ring_bytes};
}
