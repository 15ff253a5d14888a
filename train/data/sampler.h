/* An order of the numbers below count. Each place is computed, at the same cost. */
#ifndef TRAIN_SAMPLER_H
#define TRAIN_SAMPLER_H

#include <stdint.h>

enum { PERMUTATION_ROUNDS = 16 };

struct permutation {
	uint64_t count, columns, rows;
	uint64_t keys[PERMUTATION_ROUNDS];
};

/* count is 1 to 2^63 - 1. seed and epoch decide the order. */
void permutation_init(struct permutation *permutation, uint64_t count, uint64_t seed,
		      uint64_t epoch);
/* The number at place index. Both are below count. */
uint64_t permutation_at(const struct permutation *permutation, uint64_t index);

#endif
