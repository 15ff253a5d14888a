/* The memory of one lane: two rings in a memfd, one in each direction. No name, no limit by /dev/shm,
 * gone with its last user. */
#ifndef TRANSPORT_SHM_LANE_MEMORY_H
#define TRANSPORT_SHM_LANE_MEMORY_H

#include "transport/shm/byte_ring.h"

#include <tutti/tutti.h>

#define LANE_RING_MIN ((size_t)16 << 10)
#define LANE_RING_MAX ((size_t)1 << 30)

struct lane_memory;

/* Whether there could be one: a system may refuse shared memory (a seccomp filter, ulimit -f). */
tutti_status lane_memory_try(size_t ring_bytes);
/* The caller closes *fd when the peer has it. */
tutti_status lane_memory_create(struct lane_memory **lane, size_t ring_bytes, int *fd);
/* fd comes from the peer and is trusted with nothing: it must be sealed and of the right size. The
 * caller keeps fd. Ends in one process share one mapping. */
tutti_status lane_memory_open(struct lane_memory **lane, size_t ring_bytes, int fd);
void lane_memory_close(struct lane_memory *lane);    /* NULL is fine */

/* The ends of this side: the creator writes ring 0 and reads ring 1. */
void lane_memory_rings(const struct lane_memory *lane, bool is_creator, struct byte_ring_writer *out,
                   struct byte_ring_reader *in);

#endif
