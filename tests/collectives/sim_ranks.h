/* n ranks in one thread over the simulated network: the real engine, the real plans. */
#ifndef TESTS_COLLECTIVES_SIM_RANKS_H
#define TESTS_COLLECTIVES_SIM_RANKS_H

#include "collectives/engine/engine.h"
#include "collectives/select/select.h"
#include "tests/sim/sim.h"

struct sim_ranks {
	int size;
	struct sim *sim;
	struct engine **engines;
};

struct sim_ranks_config {
	struct sim_config sim;
	size_t slice_bytes, scratch_bytes; /* 0: 128 KiB, 4 MiB */
};

void sim_ranks_open(struct sim_ranks *ranks, const struct sim_ranks_config *config);
void sim_ranks_close(struct sim_ranks *ranks);
/* Delivers until nothing is deliverable and no rank moves. */
void sim_ranks_run(struct sim_ranks *ranks);

/* One collective over all ranks: buffers, plans, the expectation. */
struct trial {
	const struct algorithm *algorithm;
	size_t count; /* as the API counts; uneven: blocks have up to twice that many */
	tutti_dtype dtype;
	tutti_op op;
	int root;
	bool in_place;
	bool staged;        /* on the proof kind's memory */
	bool whole_average; /* contributions are multiples of the size: floats average exactly */
	bool uneven;        /* the v-variant, with gaps between the blocks */
	const struct nodes *nodes; /* or NULL */
	uint64_t seed;             /* of the data */
	int timeout_ms;            /* 0: long */
	int absent;                /* rank + 1 of one that makes no call; 0: all do */
};

/* One side's buffer of one rank. */
struct trial_side {
	char *base; /* the kind's memory when staged; its blocks, and a guard after them */
	size_t bytes, blocks, *counts, *offsets;
	bool is_borrowed; /* lies in the other side's */
};

struct trial_run {
	struct trial trial;
	int size;
	size_t element;
	struct plan **plans;
	struct trial_side *sides[2]; /* per rank */
	struct tutti_work **works;
};

/* Submits on every rank. damage, when not NULL, may alter a plan before it is used. */
void trial_start(struct trial_run *run, struct sim_ranks *ranks, const struct trial *trial,
		 void (*damage)(struct plan *plan, void *arg), void *arg);
/* After sim_ranks_run: NULL when every rank has the right bytes, else what is wrong. Frees. */
const char *trial_end(struct trial_run *run);
/* All of it, on ranks of its own: NULL, or what is wrong; "a rank never ends" is not waited for. */
const char *trial_try(const struct trial *trial, const struct sim_ranks_config *config,
		      void (*damage)(struct plan *plan, void *arg), void *arg);

/* The seed of a test, printed; SEED=... in the environment repeats a run. */
uint64_t sim_first_seed(void);
uint64_t sim_mix(uint64_t *state); /* the next number */

#endif
