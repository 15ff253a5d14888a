/* Measures the links of a communicator that has just started. */
#ifndef COLLECTIVES_COMM_MEASURE_H
#define COLLECTIVES_COMM_MEASURE_H

#include "collectives/comm/comm.h"

/* In one node all ranks measure together. Across nodes partners do, all pairs at the same time: each rank of a node
 * with its neighbour there, the first ranks of nodes with each other. links: what this rank found, 0 where it has no
 * partner. Takes 2 to 10 ms on an idle machine; fails as any call does. */
tutti_status measure_links(struct tutti_comm *comm, struct links *links);
/* Under which the file TUTTI_LINKS keeps this host's links, of so many ranks on so many cores. Returns key. */
const char *measure_key(const struct tutti_comm *comm, char *key, size_t key_bytes);

#endif
