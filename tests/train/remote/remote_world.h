/* A rank of an rpc with some parameters, for tests of train/remote, and functions that all ranks
 * have: "add" adds along a path of ranks, the others answer with what their rank has. */
#ifndef TESTS_REMOTE_WORLD_H
#define TESTS_REMOTE_WORLD_H

#include "train/remote/remote.h"

#include "tests/train/ranks.h"

enum { WORLD_PARAMS = 3, WORLD_COUNT = 5, PATH_MOST = 6 };

struct world {
	tutti_comm *comm;
	tutti_rpc *rpc;
	int rank, size;
	int params[WORLD_PARAMS];
	float values[WORLD_PARAMS][WORLD_COUNT];
	int released; /* parameters; atomic, __atomic_* */
};

/* Adds value * (i + 1) to element i of the parameter, here, and then goes to ranks[0] with the
 * rest.
 */
struct path {
	int32_t param, length;
	float value;
	int32_t ranks[PATH_MOST];
};

/* Values are 0. Collective. */
void world_open(struct world *world, tutti_comm *comm);
/* The same with a timeout of calls. */
void world_open_for(struct world *world, tutti_comm *comm, int timeout_ms);
void world_close(struct world *world); /* shutdown, destroy */

/* Walks the path, whose first step is ranks[0], with the thread's current context. */
tutti_status world_add(struct world *world, const struct path *path);
/* "grad" on rank. */
tutti_status world_grad(struct world *world, int rank, uint64_t context, int param,
			float grad[WORLD_COUNT]);
/* "value" on rank. */
void world_value(struct world *world, int rank, int param, float value[WORLD_COUNT]);
/* Waits until the rank knows no more contexts than most. */
void world_await_contexts(struct world *world, int rank, int most);

#endif
