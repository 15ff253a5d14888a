/* Shared memory without a name: memfds that can neither shrink nor grow. Nothing outlives the
 * processes that map it. */
#ifndef COLLECTIVES_WINDOW_SHARED_MEMORY_H
#define COLLECTIVES_WINDOW_SHARED_MEMORY_H

#include <tutti/tutti.h>

#include <stddef.h>

tutti_status shared_create(const char *name, size_t bytes, int *fd); /* zero-filled */
/* Aligned to 2 MiB. UNSUPPORTED for a descriptor that is no such memory, or too short. */
tutti_status shared_map(int fd, size_t bytes, void **base);

#endif
