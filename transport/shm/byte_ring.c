/* The ring: see byte_ring.h. All atomics of the rings are here.
 *
 * Every access is sequentially consistent, for the sake of one pair of them: a side that publishes
 * its index and then looks at the other's flag, and a side that raises its flag and then looks at
 * the other's index, must not both miss (StoreLoad). That costs one locked store a publish; the
 * loads are plain on x86. A fence would do as well, but the thread sanitizer knows no fences. */
#include "transport/shm/byte_ring.h"

#include <assert.h>
#include <string.h>

/* The other side's index may be anything: other processes write it. */
static bool is_possible(uint64_t written, uint64_t read, size_t capacity)
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
	if (!is_possible(ring->written, read, ring->capacity) || read < ring->read) {
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
static bool shm_wake(_Atomic uint32_t *sleeps)
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
	return shm_wake(&ring->shared->reader_sleeps);
}

size_t byte_ring_available(struct byte_ring_reader *ring, size_t want)
{
	size_t available = (size_t)(ring->written - ring->read);

	if (available >= want || ring->is_broken)
		return ring->is_broken ? 0 : available;
	/* Partner: the store in byte_ring_publish. */
	uint64_t written = atomic_load(&ring->shared->written);
	if (!is_possible(written, ring->read, ring->capacity) || written < ring->written) {
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
	return shm_wake(&ring->shared->writer_sleeps);
}

/* Partner, of both: the load in wake. */
void byte_ring_reader_sleeps(struct byte_ring_reader *ring, bool sleeps)
{
	atomic_store(&ring->shared->reader_sleeps, sleeps);
}

void byte_ring_writer_sleeps(struct byte_ring_writer *ring, bool sleeps)
{
	atomic_store(&ring->shared->writer_sleeps, sleeps);
}
