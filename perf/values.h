/* The values that every rank sends, and those that must arrive, exactly.
 *
 * The values differ by rank, by index and by iteration, and are such that a reduction gives the
 * same bits in whatever order and with whatever rounding of partial results it is computed: sums
 * stay within the integers that the type has, products within its powers of two. They repeat after
 * a prime number of elements, so that a misplaced chunk shows, and filling and checking run at
 * memory speed. */
#ifndef PERF_VALUES_H
#define PERF_VALUES_H

#include "elements.h"

#define VALUES_PERIOD 8191

#define VALUES_RESULT (-1) /* in place of a rank: what the reduction of all ranks' values gives */

struct values {
	int ranks;
	size_t element_bytes;
	const unsigned char *tables; /* one period of each rank, then one of the result */
};

/* Bytes of the tables, which all that are made alike in this process share. */
size_t values_bytes(int ranks, tutti_dtype dtype);
/* is_reduced false: any bits, as for a copy, and no result. Returns false without memory. Any
 * thread. */
bool values_init(struct values *values, int ranks, tutti_dtype dtype, tutti_op op, bool is_reduced);
void values_finish(struct values *values);

/* A run of elements within one iteration's data: count of them from index first on. */
struct span {
	uint64_t iteration;
	size_t first, count;
};

void values_fill(const struct values *values, int rank, struct span span, void *data);
/* How many of the elements at data are not what they should be. */
uint64_t values_wrong(const struct values *values, int rank, struct span span, const void *data);

#endif
