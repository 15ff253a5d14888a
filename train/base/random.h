/* Numbers that depend on their arguments alone. tutti_random is the public one. */
#ifndef TRAIN_RANDOM_H
#define TRAIN_RANDOM_H

#include <stddef.h>
#include <stdint.h>

/* A well mixed 64-bit word: a bijection. */
uint64_t random_mix(uint64_t x);
/* Element index of parameter param, from a standard normal distribution. */
double random_normal(uint64_t seed, int param, size_t index);
/* A hash for comparing bytes among ranks. It is not secure. */
uint64_t random_hash(const void *data, size_t bytes);

#endif
