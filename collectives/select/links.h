/* How fast the links of a communicator are, and what an algorithm's cost comes to on them. */
#ifndef COLLECTIVES_SELECT_LINKS_H
#define COLLECTIVES_SELECT_LINKS_H

#include "collectives/plan/plan.h"

#include <tutti/tutti.h>

/* Seconds: of a small message from memory to memory; of each further message that leaves at the
 * same time; per byte of a long one. gamma: per byte of a sum. */
struct link_speed {
	double alpha, overhead, beta;
};
struct links {
	struct link_speed link[LINKS];
	double gamma;
	double cores; /* of a node, for its ranks to share, or 0 for enough or unknown */
};

/* The speeds if nothing was measured: shared memory in a node, a 10 Gb/s network between nodes. */
struct links links_default(void);
/* Speeds to the nearest power of two, so that two measurements of one machine agree but rarely. */
void links_round(struct links *links);
/* The median of the n ranks' measurements, field by field; 0 is no measurement. Fields that no rank
 * measured stay as they are in links. values: room for n. */
void links_median(struct links *links, const struct links *of, int n, double *values);

/* Seconds for a call. slice: bytes of the pieces that chunks are cut into. If the ranks of a node
 * share cores, they wait for cores rather than for messages: the messages, bytes and sums of all
 * ranks count, or those of the busiest one if it keeps one core busy for longer than all ranks keep
 * all cores. */
double links_seconds(const struct links *links, struct topology place, const struct cost *cost,
		     double bytes, double slice);

/* A file of measured links, a line for each key (a word). check: whether it can be read or made,
 * and is a file of links; else INVALID or SYSTEM, with a message about TUTTI_LINKS. read: false if
 * there is no such file or line. read and append do not report errors: after the check these cost a
 * measurement and no more. */
tutti_status links_check(const char *path);
bool links_read(struct links *links, const char *path, const char *key);
void links_append(const struct links *links, const char *path, const char *key);

#endif
