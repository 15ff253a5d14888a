/* Measures the links of a communicator that has just started. */
#ifndef COLLECTIVES_COMM_MEASURE_H
#define COLLECTIVES_COMM_MEASURE_H

#include "collectives/comm/comm.h"

/* Collective. In one node all ranks measure together. Across nodes pairs measure, all at the same
 * time: each rank with its neighbour in the node, the first ranks of nodes with each other. links:
 * this rank's measurements, 0 without a partner. Takes 2 to 10 ms on an idle machine; fails as any
 * call does. */
tutti_status measure_links(struct tutti_comm *comm, struct links *links);
/* The key of this host's links, of so many ranks on so many cores, in the file TUTTI_LINKS. Returns
 * key. */
const char *measure_key(const struct tutti_comm *comm, char *key, size_t key_bytes);

#endif
