/* A ring of bytes in shared memory: one writer, one reader, possibly in two processes.
 *
 * Indices count bytes since the beginning and never wrap; the place in the ring is the index modulo
 * the capacity, a power of two. Each side keeps its own index privately and only ever loads the
 * other's, which it checks: whatever the other side stores, nothing outside the ring is read or
 * written. */
#ifndef TRANSPORT_SHM_BYTE_RING_H
#define TRANSPORT_SHM_BYTE_RING_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "core/shared_memory.h"
#include "transport/shm/mailbox.h"

#define BYTE_RING_LINE 128           /* two cache lines: the prefetcher fetches pairs */

/* The part that both sides map. Each line has one writer in the normal case; the flags are on a
 * line of their own, so that a look at them costs no transfer while neither side sleeps. */
struct byte_ring_shared {
	_Alignas(BYTE_RING_LINE) _Atomic uint64_t written;
	_Alignas(BYTE_RING_LINE) _Atomic uint64_t read;
	_Alignas(BYTE_RING_LINE) _Atomic uint32_t reader_sleeps;
	_Atomic uint32_t writer_sleeps;
};

struct byte_ring_writer {
	struct byte_ring_shared *shared;
	uint8_t *bytes;
	size_t capacity;
	uint64_t written, published;    /* private; published <= written                   */
	uint64_t read;                  /* as last seen                                    */
	bool is_broken;                 /* the other side stored what cannot be            */
};

struct byte_ring_reader {
	struct byte_ring_shared *shared;
	const uint8_t *bytes;
	size_t capacity;
	uint64_t read, released;        /* private; released <= read                       */
	uint64_t written;               /* as last seen                                    */
	bool is_broken;
};

/* Bytes that may be written. Looks at the reader's index only when fewer than want seem free; 0
 * when the ring is broken. */
size_t byte_ring_room(struct byte_ring_writer *ring, size_t want);
/* n <= room. If bytes is NULL, n bytes that are never read. Not visible before publish. */
void ring_write(struct byte_ring_writer *ring, const void *bytes, size_t n);
/* True: the reader sleeps and must be woken (by exactly this caller). */
bool byte_ring_publish(struct byte_ring_writer *ring);
/* The same after something else was published than bytes of the ring. */
bool byte_ring_claim_wake(struct byte_ring_writer *ring);

size_t byte_ring_available(struct byte_ring_reader *ring, size_t want);
/* n <= available. bytes NULL: skips. The space is the writer's again after release. */
void byte_ring_read(struct byte_ring_reader *ring, void *bytes, size_t n);
bool byte_ring_release(struct byte_ring_reader *ring);

/* Before a side sleeps: says so, and then looks again (byte_ring_available, byte_ring_room with
 * more than it has seen). It sleeps only when there is still nothing. */
void byte_ring_reader_sleeps(struct byte_ring_reader *ring, bool sleeps);
void byte_ring_writer_sleeps(struct byte_ring_writer *ring, bool sleeps);

#define RING_BYTES_MIN ((size_t)16 << 10)
#define RING_BYTES_MAX ((size_t)1 << 30)

/* The memory of a pair: a ring and a mailbox in each direction. How long it is; and whether the
 * system grants it at all (a seccomp filter or ulimit -f may refuse it). */
size_t ring_pair_bytes(size_t ring_bytes);
tutti_status ring_pair_try(size_t ring_bytes);
/* The caller closes *fd when the peer has it. */
tutti_status ring_pair_create(struct shared_memory **rings, size_t ring_bytes, int *fd);
/* fd comes from the peer and is trusted with nothing. The caller keeps fd. */
tutti_status ring_pair_open(struct shared_memory **rings, size_t ring_bytes, int fd);

/* The ends of this side: the creator writes ring 0 and reads ring 1. */
void ring_pair_ends(const struct shared_memory *rings, bool is_creator,
		       struct byte_ring_writer *out, struct byte_ring_reader *in);
void ring_pair_mailboxes(const struct shared_memory *rings, bool is_creator,
			 struct mailbox_writer *out, struct mailbox_reader *in);

#endif
