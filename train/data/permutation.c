/* An order of the numbers below count, by a Feistel network on a table of columns x rows cells.
 *
 * A round turns every row by a number drawn from the row, the next every column by one drawn from
 * the column: each can be undone, so all of them together are a permutation of the cells. The table
 * has less than a row more cells than numbers; from a cell without one the walk goes on to the
 * next with one, which keeps it a permutation of the numbers (Black and Rogaway, "Ciphers with
 * Arbitrary Finite Domains", 2002). Not a cipher: nobody hides anything here. */
#include "train/data/permutation.h"

#include "train/base/random.h"

#include <assert.h>
#include <math.h>

/* Set apart from tutti_random's first word, so that an author's draws with the same seed differ. */
#define FIRST_WORD 0xd1b54a32d192ed03u
#define GOLDEN     0x9e3779b97f4a7c15u

/* The least even number whose square is count or more. Turning a row of even length is an odd
 * permutation: were columns and rows both odd, half of all orders could never come out. */
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

/* line's place, turned by what key draws for the line across it; length is 2^32 or less. */
static uint64_t turn(uint64_t place, uint64_t across, uint64_t key, uint64_t length)
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
			column = turn(column, row, p->keys[r], p->columns);
			row = turn(row, column, p->keys[r + 1], p->rows);
		}
		index = row * p->columns + column;
	} while (index >= p->count);
	return index;
}
