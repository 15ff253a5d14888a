/* Numbers that depend on their arguments alone. The public one is tutti_random. */
#ifndef TRAIN_RANDOM_H
#define TRAIN_RANDOM_H

#include <stddef.h>
#include <stdint.h>

/* A well mixed 64-bit word of x: a bijection. */
uint64_t random_mix(uint64_t x);
/* Element index of parameter param of a standard normal distribution. */
double random_normal(uint64_t seed, int param, size_t index);
/* Of bytes, for comparing them among ranks: not a defence against anybody. */
uint64_t random_hash(const void *data, size_t bytes);

#endif
