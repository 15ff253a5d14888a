/* Programs of ranks that wait in different orders, each of them legal: all ranks of a communicator
 * make its calls in one order, and there is an order of all calls against which no rank waits. */
#ifndef TESTS_CUDA_CROSSED_ORDERS_H
#define TESTS_CUDA_CROSSED_ORDERS_H

#include <tutti/tutti.h>

#include <stdatomic.h>
#include <stdint.h>

#define CROSSED_PROCESSES 3
#define CROSSED_RANKS     6

/* In memory that the processes share: how many communicators went which way. */
struct crossed_ways {
	atomic_uint kernels, turns;
};

struct crossed_machine {
	uint64_t seed;
	int processes, locals; /* ranks of each process */
	int devices, first_device[CROSSED_PROCESSES];
	int multiprocessors, has_mps;
	struct crossed_ways *ways;
};

struct crossed_rank {
	const struct crossed_machine *machine;
	tutti_comm *world;
	int rank, size, device;
	char why[300]; /* the first thing that was wrong */
};

typedef void crossed_body(struct crossed_rank *rank);
crossed_body crossed_pair, crossed_program;

/* Runs body on the ranks of one process, a thread each. Returns 0, or says what was wrong. */
int crossed_run(const struct crossed_machine *machine, int process, crossed_body *body);

#endif
