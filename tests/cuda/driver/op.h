/* What a task of a stream or a node of a graph does. */
#ifndef TESTS_CUDA_OP_H
#define TESTS_CUDA_OP_H

#include "tests/cuda/driver/driver.h"

enum op_kind { OP_NOTHING, OP_COPY, OP_SET, OP_WAIT, OP_WAIT_64, OP_WRITE, OP_HOST, OP_KERNEL };

struct op {
	enum op_kind kind;
	CUdeviceptr to, from; /* of OP_SET, waits and OP_WRITE: to alone */
	size_t bytes;
	uint32_t value;
	uint64_t value64; /* of a wait for a word of 64 bits */
	unsigned flags;
	CUhostFn function;
	void *data;
	const struct kernel *kernel;
	unsigned blocks;
	void *arguments; /* the operation's own */
};

/* Another one that does the same, with arguments of its own. */
struct op op_copy(const struct op *op);
void op_finish(struct op *op);

/* Without the lock; returns when it has ended. An error is the context's from now on. */
CUresult op_run(const struct op *op, CUcontext context);

/* Runs the blocks on the device's processors; see launch.c. */
CUresult launch_run(const struct op *op, CUcontext context);

/* pthread_create with the signals blocked that come from outside: they are the program's. */
int driver_thread(pthread_t *thread, const pthread_attr_t *attributes, void *(*function)(void *),
                  void *argument);

#endif
