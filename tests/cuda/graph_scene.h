/* Every collective in one graph: v-variants with ranks that have no block, and no buffer; a barrier,
 * calls without elements. */
#ifndef TESTS_CUDA_GRAPH_SCENE_H
#define TESTS_CUDA_GRAPH_SCENE_H

#include "tests/collectives/thread_ranks.h"

/* Captures them on the current GPU, with blocks of n words, and replays them so often with other
 * contents. What is wrong is in r->why. */
void graph_scene_replay(struct rank *r, size_t n, int rounds);

#endif
