/* Graphs: operations, and which come after which. */
#ifndef TESTS_CUDA_GRAPH_H
#define TESTS_CUDA_GRAPH_H

#include "tests/cuda/driver/stream.h"

struct CUgraphNode_st {
	struct op op;
	CUcontext context;
	size_t index; /* in the graph; those that it comes after have lower ones */
	size_t n_after;
	CUgraphNode *after;
	bool is_last; /* none comes after it */
};

struct CUgraph_st {
	size_t n;
	CUgraphNode *nodes;
};

CUgraph graph_create(void);
/* Owns the operation. */
CUgraphNode graph_add(CUgraph graph, const struct op *op, CUcontext context, CUgraphNode *after,
                      size_t n_after);
void graph_free(CUgraph graph);

#endif
