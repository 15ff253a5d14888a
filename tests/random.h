/* Random numbers of the tests: splitmix64, from a seed that the test prints. */
#ifndef TESTS_RANDOM_H
#define TESTS_RANDOM_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

/* That of $TEST_SEED, which repeats a run, or another one each second. Printed for the log. */
static inline uint64_t random_seed(void)
{
	const char *text = getenv("TEST_SEED");
	uint64_t seed = text ? strtoull(text, NULL, 10) : (uint64_t)time(NULL);

	printf("TEST_SEED=%llu\n", (unsigned long long)seed);
	fflush(stdout);
	return seed;
}

static inline uint64_t random_next(uint64_t *state)
{
	uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);
	z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
	return z ^ (z >> 31);
}

static inline uint64_t random_below(uint64_t *state, uint64_t n)
{
	return random_next(state) % n;
}

#endif
