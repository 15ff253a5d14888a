/* Events: a task of a stream, or nodes of a graph that is being captured. */
#ifndef TESTS_CUDA_EVENT_H
#define TESTS_CUDA_EVENT_H

#include "tests/cuda/driver/stream.h"

struct CUevent_st {
	CUcontext context;
	unsigned flags;
	struct task *task;   /* what it was recorded behind, held, or NULL */
	uint64_t capture_id; /* 0: it was not recorded in a capture the last time */
	size_t n_nodes;
	CUgraphNode *nodes;
};

#endif
