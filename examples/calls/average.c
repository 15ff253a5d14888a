/* Distributed parameter averaging: each rank trains a logistic regression on its own samples, and
 * after each pass all go on from the average of their parameters.
 *     ./average --ranks 2 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <tutti/tutti.h>

#define MUST(call)                                                                                 \
	((call) == TUTTI_OK ? (void)0 : (fprintf(stderr, "%s\n", tutti_comm_error(NULL)), exit(1)))
enum { SAMPLES = 1200, PASSES = 5, PARAMS = 3 };

/* The same number for the same index, in [-1, 1). */
static double average_uniform(uint32_t index)
{
	uint32_t hash = (index ^ (index >> 16)) * 2246822519u + 374761393u;

	hash = (hash ^ (hash >> 13)) * 3266489917u;
	return (hash ^ (hash >> 16)) / 2147483648.0 - 1;
}

/* A step of SGD for each of the samples: is (x, y) above the line y = x / 2 + 1 / 4? */
static void average_learn(double w[PARAMS], uint32_t first, uint32_t last)
{
	for (uint32_t i = first; i < last; i++) {
		double x = average_uniform(2 * i), y = average_uniform(2 * i + 1),
		       is_above = y > x / 2 + 0.25;
		double off = 1 / (1 + exp(-(w[0] * x + w[1] * y + w[2]))) - is_above;
		w[0] -= off * x;
		w[1] -= off * y;
		w[2] -= off;
	}
}

static int average_work(int argc, char **argv)
{
	double w[PARAMS] = {0};
	tutti_comm *comm;

	(void)argc, (void)argv;
	MUST(tutti_init(&comm, NULL));
	int rank = tutti_rank(comm), size = tutti_size(comm);
	for (int pass = 0; pass < PASSES; pass++) {
		average_learn(w, (uint32_t)(SAMPLES * rank / size),
			      (uint32_t)(SAMPLES * (rank + 1) / size));
		MUST(tutti_all_reduce(w, w, PARAMS, TUTTI_F64, TUTTI_AVG, comm, NULL));
	}
	if (rank == 0)
		printf("%.6f x + %.6f y + %.6f > 0\n", w[0], w[1], w[2]);
	tutti_comm_destroy(comm);
	return 0;
}

int main(int argc, char **argv)
{
	return tutti_main(argc, argv, average_work); /* with --ranks N: N of them */
}
