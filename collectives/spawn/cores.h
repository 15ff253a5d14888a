/* Cores for the ranks of a job, as tuttirun deals them. */
#ifndef COLLECTIVES_SPAWN_CORES_H
#define COLLECTIVES_SPAWN_CORES_H

struct cores;

/* Divides the cores that this process may use and no other job has bound ranks to. NULL: there are
 * fewer than ranks, or they are not known; no rank is bound then. */
struct cores *cores_deal(int ranks);
/* The calling thread, and those that it begins. */
void cores_bind(const struct cores *cores, int rank);
/* Other jobs may have them. In a rank it stays bound. */
void cores_free(struct cores *cores);

#endif
