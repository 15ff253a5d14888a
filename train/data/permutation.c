/* An order of the numbers below count, by a Feistel network on a table of columns x rows cells.
 *
 * A round rotates every row by a number drawn from the row, the next round every column by a number
 * drawn from the column. Each round can be undone, so together they are a permutation of the cells.
 * The table has less than a row of cells more than there are numbers. From a cell without a number
 * the walk continues to the next cell with one, which keeps it a permutation (Black and Rogaway,
 * "Ciphers with Arbitrary Finite Domains", 2002). This is not a secure cipher. */
#include "train/data/permutation.h"

#include "train/base/base.h"

#include <assert.h>
#include <math.h>

/* Differs from tutti_random's first word, so that an author's draws with the same seed differ. */
#define FIRST_WORD 0xd1b54a32d192ed03u
#define GOLDEN     0x9e3779b97f4a7c15u

/* The least even number whose square is at least count. Rotating a row of even length is an odd
 * permutation; if columns and rows were both odd, half of all orders could never occur. */
static uint64_t columns_for(uint64_t count)
{
	uint64_t root = (uint64_t)sqrt((double)count);

	while (root * root < count)
		root++;
	while (root > 1 && (root - 1) * (root - 1) >= count)
		root--;
	return root + root % 2;
}

void permutation_init(struct permutation *permutation, uint64_t count, uint64_t seed,
		      uint64_t epoch)
{
	assert(count >= 1 && count <= INT64_MAX);
	uint64_t columns = columns_for(count);
	uint64_t key = random_mix(random_mix(seed + FIRST_WORD) + epoch + GOLDEN);

	permutation->count = count;
	permutation->columns = columns;
	permutation->rows = (count - 1) / columns + 1;
	for (int r = 0; r < PERMUTATION_ROUNDS; r++)
		permutation->keys[r] = key = random_mix(key + GOLDEN);
}

/* Rotates place by what key draws for the line across. length is at most 2^32. */
static uint64_t permutation_turn(uint64_t place, uint64_t across, uint64_t key, uint64_t length)
{
	uint64_t by = (random_mix(key ^ across) >> 32) * length >> 32;

	return place + by < length ? place + by : place + by - length;
}

uint64_t permutation_at(const struct permutation *permutation, uint64_t index)
{
	const struct permutation *p = permutation;

	assert(index < p->count);
	do {
		uint64_t column = index % p->columns, row = index / p->columns;
		for (int r = 0; r < PERMUTATION_ROUNDS; r += 2) {
			column = permutation_turn(column, row, p->keys[r], p->columns);
			row = permutation_turn(row, column, p->keys[r + 1], p->rows);
		}
		index = row * p->columns + column;
	} while (index >= p->count);
	return index;
}
