/* Distributed evaluation: each rank judges its part of 1,003 samples, which need not be as long as
 * the others', and the means are those of one rank, to the last digit.
 *     ./evaluate --ranks 2 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <tutti/tutti.h>

#define MUST(call)                                                                                 \
	((call) == TUTTI_OK ? (void)0 : (fprintf(stderr, "%s\n", tutti_comm_error(NULL)), exit(1)))
enum { SAMPLES = 1003, FIRST = 5000, SUMS = 3 };

/* The same number for the same index, in [-1, 1). */
static double evaluate_uniform(uint32_t index)
{
	uint32_t hash = (index ^ (index >> 16)) * 2246822519u + 374761393u;

	hash = (hash ^ (hash >> 13)) * 3266489917u;
	return (hash ^ (hash >> 16)) / 2147483648.0 - 1;
}

/* Adds a sample's loss, whether it was right, and 1. Sums of integers do not depend on their order:
 * a loss counts in parts of 2^32. */
static void evaluate_judge(int64_t sums[SUMS], uint32_t i)
{
	double x = evaluate_uniform(2 * i), y = evaluate_uniform(2 * i + 1),
	       z = -3 * x + 6 * y - 1.5;
	int is_above = y > x / 2 + 0.25 + evaluate_uniform(i) / 9;

	sums[0] += llround(log1p(exp(is_above ? -z : z)) * 4294967296.0);
	sums[1] += (z > 0) == is_above;
	sums[2]++;
}

static int evaluate_work(int argc, char **argv)
{
	int64_t sums[SUMS] = {0};
	tutti_comm *comm;

	(void)argc, (void)argv;
	MUST(tutti_init(&comm, NULL));
	int rank = tutti_rank(comm), size = tutti_size(comm);
	for (int i = SAMPLES * rank / size; i < SAMPLES * (rank + 1) / size; i++)
		evaluate_judge(sums, (uint32_t)(FIRST + i));
	/* Sums are added, and divided at the end: a mean of the ranks' means would be another. */
	MUST(tutti_all_reduce(sums, sums, SUMS, TUTTI_I64, TUTTI_SUM, comm, NULL));
	if (rank == 0)
		printf("loss %.17g, %.17g of %d are right\n", sums[0] / 4294967296.0 / sums[2],
		       (double)sums[1] / sums[2], (int)sums[2]);
	tutti_comm_destroy(comm);
	return 0;
}

int main(int argc, char **argv)
{
	return tutti_main(argc, argv, evaluate_work); /* with --ranks N: N of them */
}
