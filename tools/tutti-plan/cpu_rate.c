/* Multiplies matrices as examples/gpt does (layers.c), and looks at the clock. */
#include "cpu_rate.h"

#include "tools/must.h"

#include <time.h>

enum { SIDE = 256, TRIES = 9 };

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_THREAD__)
#define MULTIVERSIONED __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define MULTIVERSIONED
#endif

MULTIVERSIONED
static void cpu_rate_multiply(float *restrict c, const float *a, const float *restrict b)
{
	for (int r = 0; r < SIDE; r++)
		for (int i = 0; i < SIDE; i += 4) {
			const float *x = a + r * SIDE + i, *row = b + i * SIDE;
			for (int j = 0; j < SIDE; j++)
				c[r * SIDE + j] += x[0] * row[j] + x[1] * row[SIDE + j] +
						   x[2] * row[2 * SIDE + j] +
						   x[3] * row[3 * SIDE + j];
		}
}

static double cpu_rate_seconds_now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

double cpu_rate_measure(void)
{
	size_t count = (size_t)SIDE * SIDE;
	float *all = must_alloc(3 * count, sizeof *all);
	double least = 0;

	for (size_t i = 0; i < 3 * count; i++)
		all[i] = (float)(i % 7) / 7;
	for (int i = 0; i < TRIES; i++) {
		double began = cpu_rate_seconds_now();
		cpu_rate_multiply(all, all + count, all + 2 * count);
		double took = cpu_rate_seconds_now() - began;
		if (least == 0 || took < least)
			least = took;
	}
	volatile float used = all[count / 2]; /* else nothing need be computed */
	(void)used;
	free(all);
	return 2.0 * SIDE * SIDE * SIDE / least;
}
