/* Random numbers for tests of kernels: splitmix64, from a seed that the test prints. */
#ifndef TESTS_TRAIN_RANDOM_BITS_H
#define TESTS_TRAIN_RANDOM_BITS_H

#include <stddef.h>
#include <stdint.h>

extern uint64_t random_state;

uint64_t random_u64(void);
size_t draw_below(size_t n);
/* A float from its bits, and back. */
float of_bits(uint32_t bits);
uint32_t bits_of(float x);

#endif
