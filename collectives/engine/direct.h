/* Messages between devices' memory without copies in host memory, where a transport's adapters
 * reach it (map in transport.h). Under the engine's lock. */
#ifndef COLLECTIVES_ENGINE_DIRECT_H
#define COLLECTIVES_ENGINE_DIRECT_H

#include "collectives/engine/task.h"

#define DIRECT_MAPS_MAX 64 /* allocations of an engine that are mapped */

/* Which endpoint maps, if any. */
void direct_open(struct engine *e);
/* Unmaps all: the connections are closed, the endpoint is not destroyed yet. */
void direct_close(struct engine *e);
/* Whether messages with peer may go from and to memory of that kind: both ends say the same. */
bool direct_reaches(const struct engine *e, int peer, int kind);

/* The mapping of so many bytes at ptr, held until it is given back. NULL: they cannot be mapped;
 * why is logged once. */
struct direct_map *direct_take(struct engine *e, const struct memory_kind *kind, const void *ptr,
			       size_t bytes);
void direct_give(struct engine *e, struct direct_map *map);
void *direct_map_of(const struct direct_map *map); /* for ios; of NULL it is NULL */

#endif
