/* The ring, and the memory of a pair: see byte_ring.h. All atomics of the rings are here.
 *
 * Every access is sequentially consistent, for the sake of one pair of them: a side that publishes
 * its index and then looks at the other's flag, and a side that raises its flag and then looks at
 * the other's index, must not both miss (StoreLoad). That costs one locked store a publish; the
 * loads are plain on x86. A fence would do as well, but the thread sanitizer knows no fences. */
#include "transport/shm/byte_ring.h"

#include "core/status.h"

#include <assert.h>
#include <string.h>
#include <unistd.h>

/* The other side's index may be anything: other processes write it. */
static bool byte_ring_is_possible(uint64_t written, uint64_t read, size_t capacity)
{
	return read <= written && written - read <= capacity;
}

size_t byte_ring_room(struct byte_ring_writer *ring, size_t want)
{
	size_t room = ring->capacity - (size_t)(ring->written - ring->read);

	if (room >= want || ring->is_broken)
		return ring->is_broken ? 0 : room;
	/* Acquire, partner: the release store in byte_ring_release. The reader's loads of the bytes
	 * we are going to overwrite happen before. */
	uint64_t read = atomic_load_explicit(&ring->shared->read, memory_order_acquire);
	if (!byte_ring_is_possible(ring->written, read, ring->capacity) || read < ring->read) {
		ring->is_broken = true;
		return 0;
	}
	ring->read = read;
	return ring->capacity - (size_t)(ring->written - read);
}

void ring_write(struct byte_ring_writer *ring, const void *bytes, size_t n)
{
	size_t at = (size_t)ring->written & (ring->capacity - 1);
	size_t first = n < ring->capacity - at ? n : ring->capacity - at;

	assert(n <= ring->capacity - (size_t)(ring->written - ring->read));
	if (bytes && n) {
		memcpy(ring->bytes + at, bytes, first);
		memcpy(ring->bytes, (const uint8_t *)bytes + first, n - first);
	}
	ring->written += n;
}

/* After our index was stored. Partner: the store in byte_ring_*_sleeps, which the sleeper's look at
 * our index follows. Either we see its flag, or it sees our index. */
static bool byte_ring_wake(_Atomic uint32_t *sleeps)
{
	/* One doorbell for each sleep: only one of several publishes gets the flag. */
	return atomic_load(sleeps) && atomic_exchange(sleeps, 0);
}

bool byte_ring_publish(struct byte_ring_writer *ring)
{
	if (ring->published == ring->written)
		return false;
	ring->published = ring->written;
	/* Partner: the load in byte_ring_available. The bytes come before the index. */
	atomic_store(&ring->shared->written, ring->written);
	return byte_ring_wake(&ring->shared->reader_sleeps);
}

bool byte_ring_claim_wake(struct byte_ring_writer *ring)
{
	return byte_ring_wake(&ring->shared->reader_sleeps);
}

size_t byte_ring_available(struct byte_ring_reader *ring, size_t want)
{
	size_t available = (size_t)(ring->written - ring->read);

	if (available >= want || ring->is_broken)
		return ring->is_broken ? 0 : available;
	/* Partner: the store in byte_ring_publish. */
	uint64_t written = atomic_load(&ring->shared->written);
	if (!byte_ring_is_possible(written, ring->read, ring->capacity) ||
	    written < ring->written) {
		ring->is_broken = true;
		return 0;
	}
	ring->written = written;
	return (size_t)(written - ring->read);
}

void byte_ring_read(struct byte_ring_reader *ring, void *bytes, size_t n)
{
	size_t at = (size_t)ring->read & (ring->capacity - 1);
	size_t first = n < ring->capacity - at ? n : ring->capacity - at;

	assert(n <= (size_t)(ring->written - ring->read));
	if (bytes && n) {
		memcpy(bytes, ring->bytes + at, first);
		memcpy((uint8_t *)bytes + first, ring->bytes, n - first);
	}
	ring->read += n;
}

bool byte_ring_release(struct byte_ring_reader *ring)
{
	if (ring->released == ring->read)
		return false;
	ring->released = ring->read;
	/* Partner: the load in byte_ring_room. Our loads of the bytes come before. */
	atomic_store(&ring->shared->read, ring->read);
	return byte_ring_wake(&ring->shared->writer_sleeps);
}

/* Partner, of both: the load in byte_ring_wake. */
void byte_ring_reader_sleeps(struct byte_ring_reader *ring, bool sleeps)
{
	atomic_store(&ring->shared->reader_sleeps, sleeps);
}

void byte_ring_writer_sleeps(struct byte_ring_writer *ring, bool sleeps)
{
	atomic_store(&ring->shared->writer_sleeps, sleeps);
}

/* How the memory of a pair lies: the control lines of both rings in the first page, the two
 * mailboxes, then the bytes of the rings. */

#define NAME          "tutti-shm"
#define CONTROL_BYTES 4096
#define HEAD_BYTES    (CONTROL_BYTES + 2 * sizeof(struct mailbox_shared))

_Static_assert(2 * sizeof(struct byte_ring_shared) <= CONTROL_BYTES, "control lines fit in a page");

/* Both ends may be in this process. */
static const struct shared_memory_use use = {.most_users = 2};

size_t ring_pair_bytes(size_t ring_bytes)
{
	return HEAD_BYTES + 2 * ring_bytes;
}

tutti_status ring_pair_try(size_t ring_bytes)
{
	int fd = -1;

	TRY(shared_memory_create(NAME, ring_pair_bytes(ring_bytes), &fd));
	close(fd);
	return TUTTI_OK;
}

tutti_status ring_pair_create(struct shared_memory **rings, size_t ring_bytes, int *fd)
{
	tutti_status status;
	int made = -1;

	TRY(shared_memory_create(NAME, ring_pair_bytes(ring_bytes), &made));
	status = shared_memory_open(rings, made, ring_pair_bytes(ring_bytes), use);
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
	return shared_memory_open(rings, fd, ring_pair_bytes(ring_bytes), use);
}

void ring_pair_ends(const struct shared_memory *rings, bool is_creator,
		    struct byte_ring_writer *out, struct byte_ring_reader *in)
{
	struct byte_ring_shared *shared = rings->base;
	uint8_t *bytes = (uint8_t *)rings->base + HEAD_BYTES;
	size_t ring_bytes = (rings->bytes - HEAD_BYTES) / 2;
	size_t outward = is_creator ? 0 : 1, inward = 1 - outward;

	*out = (struct byte_ring_writer){.shared = &shared[outward],
					 .bytes = bytes + outward * ring_bytes,
					 .capacity = ring_bytes};
	*in = (struct byte_ring_reader){.shared = &shared[inward],
					.bytes = bytes + inward * ring_bytes,
					.capacity = ring_bytes};
}

void ring_pair_mailboxes(const struct shared_memory *rings, bool is_creator,
			 struct mailbox_writer *out, struct mailbox_reader *in)
{
	struct mailbox_shared *shared = (void *)((uint8_t *)rings->base + CONTROL_BYTES);

	*out = (struct mailbox_writer){.shared = &shared[is_creator ? 0 : 1]};
	*in = (struct mailbox_reader){.shared = &shared[is_creator ? 1 : 0]};
}
