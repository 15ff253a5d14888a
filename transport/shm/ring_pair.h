/* The memory of a pair of rings, one in each direction. */
#ifndef TRANSPORT_SHM_RING_PAIR_H
#define TRANSPORT_SHM_RING_PAIR_H

#include "core/shared_memory.h"
#include "transport/shm/byte_ring.h"

#define RING_BYTES_MIN ((size_t)16 << 10)
#define RING_BYTES_MAX ((size_t)1 << 30)

/* Whether there could be one: a system may refuse shared memory (a seccomp filter, ulimit -f). */
tutti_status ring_pair_try(size_t ring_bytes);
/* The caller closes *fd when the peer has it. */
tutti_status ring_pair_create(struct shared_memory **rings, size_t ring_bytes, int *fd);
/* fd comes from the peer and is trusted with nothing. The caller keeps fd. */
tutti_status ring_pair_open(struct shared_memory **rings, size_t ring_bytes, int fd);

/* The ends of this side: the creator writes ring 0 and reads ring 1. */
void ring_pair_ends(const struct shared_memory *rings, bool is_creator,
		       struct byte_ring_writer *out, struct byte_ring_reader *in);

#endif
