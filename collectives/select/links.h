/* How fast the links of a communicator are, and what an algorithm's cost comes to on them. */
#ifndef COLLECTIVES_SELECT_LINKS_H
#define COLLECTIVES_SELECT_LINKS_H

#include "collectives/plan/plan.h"

#include <tutti/tutti.h>

/* Seconds: of a small message from memory to memory; of each further message that leaves at the same time;
 * per byte of a long one. gamma: per byte of a sum. */
struct link_speed {
	double alpha, overhead, beta;
};
struct links {
	struct link_speed link[LINKS];
	double gamma;
	double cores; /* of a node, for its ranks to share; 0: enough, or unknown */
};

/* What is taken where nothing was measured: shared memory in a node, a 10 Gb/s network between. */
struct links links_default(void);
/* Speeds to the nearest power of two, so that two measurements of one machine agree but rarely. */
void links_round(struct links *links);
/* Of the n ranks' measurements, field by field; ranks that measured nothing have 0 there. What nobody measured
 * stays as it is in links. values: room for n. */
void links_median(struct links *links, const struct links *of, int n, double *values);

/* slice: bytes of the pieces that chunks are cut into. Where a node's ranks share cores nobody waits long for what is on
 * its way, but all for the cores: there the messages, bytes and sums of all ranks count, or those of the busiest one where
 * it keeps one core busy for longer than all keep all. */
double links_seconds(const struct links *links, struct topology place, const struct cost *cost, double bytes,
		     double slice);

/* A file of measured links, a line for each key (a word). check: whether it can be read or made, and is nobody else's;
 * INVALID or SYSTEM with a sentence about TUTTI_LINKS otherwise. read: false when it is not there. What goes wrong after the check costs
 * a measurement and no more: read and append are quiet about it. */
tutti_status links_check(const char *path);
bool links_read(struct links *links, const char *path, const char *key);
void links_append(const struct links *links, const char *path, const char *key);

#endif
