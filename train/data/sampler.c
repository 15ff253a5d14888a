/* The samples of each rank: arithmetic on one position. The order does not depend on the number of
 * ranks; only the places of a batch are divided among ranks. */
#include "train/data/sampler.h"

#include "train/base/base.h"

#include <assert.h>
#include <math.h>
#include <string.h>
#include <tutti/train.h>

/* ---- permutation ---- */

/* An order of the numbers below count, by a Feistel network on a table of columns x rows cells.
 *
 * A round rotates every row by a number drawn from the row, the next round every column by a number
 * drawn from the column. Each round can be undone, so together they are a permutation of the cells.
 * The table has less than a row of cells more than there are numbers. From a cell without a number
 * the walk continues to the next cell with one, which keeps it a permutation (Black and Rogaway,
 * "Ciphers with Arbitrary Finite Domains", 2002). This is not a secure cipher. */

/* Differs from tutti_random's first word, so that an author's draws with the same seed differ. */
#define FIRST_WORD 0xd1b54a32d192ed03u
#define GOLDEN     0x9e3779b97f4a7c15u

/* The least even number whose square is at least count. Rotating a row of even length is an odd
 * permutation; if columns and rows were both odd, half of all orders could never occur. */
static uint64_t sampler_columns_for(uint64_t count)
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
	uint64_t columns = sampler_columns_for(count);
	uint64_t key = random_mix(random_mix(seed + FIRST_WORD) + epoch + GOLDEN);

	permutation->count = count;
	permutation->columns = columns;
	permutation->rows = (count - 1) / columns + 1;
	for (int r = 0; r < PERMUTATION_ROUNDS; r++)
		permutation->keys[r] = key = random_mix(key + GOLDEN);
}

/* Rotates place by what key draws for the line across. length is at most 2^32. */
static uint64_t sampler_permutation_turn(uint64_t place, uint64_t across, uint64_t key,
					 uint64_t length)
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
			column = sampler_permutation_turn(column, row, p->keys[r], p->columns);
			row = sampler_permutation_turn(row, column, p->keys[r + 1], p->rows);
		}
		index = row * p->columns + column;
	} while (index >= p->count);
	return index;
}

static tutti_status sampler_check(const tutti_sampler *sampler)
{
	const tutti_sampler zero = {0}, *s = sampler;

	if (s->count < 1)
		return fail_invalid("tutti_sampler: count is %lld; at least 1 sample is needed.",
				    (long long)s->count);
	if (s->batch < 1)
		return fail_invalid("tutti_sampler: batch is %lld; at least 1 sample is needed.",
				    (long long)s->batch);
	if (s->rank < 0 || s->rank >= s->size)
		return fail_invalid("tutti_sampler: there is no rank %d of %d ranks: set rank and "
				    "size to tutti_rank and tutti_size of the communicator.",
				    s->rank, s->size);
	if (s->drop_last && s->batch > s->count)
		return fail_invalid(
			"tutti_sampler: with drop_last a batch of %lld does not fit in %lld "
			"samples: make the batch smaller, or set drop_last to 0.",
			(long long)s->batch, (long long)s->count);
	if (memcmp(s->reserved, zero.reserved, sizeof zero.reserved) != 0)
		return fail_invalid("tutti_sampler.reserved is not zero: zero-initialise it.");
	return TUTTI_OK;
}

/* ---- sampler ---- */

/* A step's places in the order of its epoch: items of them from offset on. */
struct step_range {
	int64_t epoch, offset, items;
	int64_t end; /* the position after the step */
	bool is_last;
};

static bool sampler_fills_no_batch(const tutti_sampler *sampler, int64_t left)
{
	return left == 0 || (sampler->drop_last && left < sampler->batch);
}

static tutti_status sampler_find_range(const tutti_sampler *sampler, struct step_range *range)
{
	int64_t count = sampler->count;
	int64_t epoch = sampler->position / count, offset = sampler->position % count;

	if (sampler_fills_no_batch(sampler, count - offset)) {
		epoch++; /* the batch has grown since the last step */
		offset = 0;
	}
	if (epoch > INT64_MAX / count - 1)
		return fail_invalid("tutti_sampler: position %lld is too high: the end of epoch "
				    "%lld does not fit 64 bits.",
				    (long long)sampler->position, (long long)epoch);
	int64_t left = count - offset;
	range->epoch = epoch;
	range->offset = offset;
	range->items = sampler->batch < left ? sampler->batch : left;
	range->is_last = sampler_fills_no_batch(sampler, left - range->items);
	range->end = epoch * count + (range->is_last ? count : offset + range->items);
	return TUTTI_OK;
}

/* rank * batch / size, rounded down, without the product, which may not fit. */
static int64_t sampler_first_place(const tutti_sampler *sampler, int rank)
{
	int64_t batch = sampler->batch, size = sampler->size;

	return batch / size * rank + batch % size * rank / size;
}

/* The most places of the batch that a rank has: batch / size, rounded up. */
static int64_t sampler_most_places(const tutti_sampler *sampler)
{
	return (sampler->batch - 1) / sampler->size + 1;
}

/* Writes the samples at the rank's own places. A place behind the step's items has a duplicate of
 * one of them. */
static void sampler_write_indices(const tutti_sampler *sampler, const struct step_range *range,
				  int64_t first, int64_t *indices, int64_t count)
{
	struct permutation order;

	permutation_init(&order, (uint64_t)sampler->count, sampler->seed, (uint64_t)range->epoch);
	for (int64_t i = 0; i < count; i++) {
		int64_t place = range->offset + (first + i) % range->items;
		indices[i] =
			sampler->shuffle ? (int64_t)permutation_at(&order, (uint64_t)place) : place;
	}
}

static tutti_status sampler_check_next(const tutti_sampler *sampler, const int64_t *indices,
				       int64_t capacity, const tutti_sampler_share *share)
{
	if (!sampler || !indices || !share)
		return fail_invalid("tutti_sampler_next needs a sampler, room for indices and a "
				    "share, not NULL.");
	TRY(sampler_check(sampler));
	if (sampler->position < 0)
		return fail_invalid("tutti_sampler: position is %lld; it cannot be negative.",
				    (long long)sampler->position);
	if (capacity < sampler_most_places(sampler))
		return fail_invalid("tutti_sampler_next: indices has room for %lld, but a rank "
				    "has up to %lld of a batch of %lld over %d ranks.",
				    (long long)capacity, (long long)sampler_most_places(sampler),
				    (long long)sampler->batch, sampler->size);
	return TUTTI_OK;
}

tutti_status tutti_sampler_next(tutti_sampler *sampler, int64_t *indices, int64_t capacity,
				tutti_sampler_share *share)
{
	struct step_range range = {0};

	TRY(sampler_check_next(sampler, indices, capacity, share));
	TRY(sampler_find_range(sampler, &range));
	int64_t first = sampler_first_place(sampler, sampler->rank);
	int64_t last = sampler_first_place(sampler, sampler->rank + 1);
	if (last > range.items)
		last = range.items;
	int64_t items = last > first ? last - first : 0;
	int64_t count = sampler->pad ? sampler_most_places(sampler) : items;
	sampler_write_indices(sampler, &range, first, indices, count);
	*share = (tutti_sampler_share){.position = sampler->position,
				       .epoch = range.epoch,
				       .count = count,
				       .items = items,
				       .is_last = range.is_last};
	sampler->position = range.end;
	return TUTTI_OK;
}

tutti_status tutti_sampler_seek(tutti_sampler *sampler, int64_t steps)
{
	if (!sampler)
		return fail_invalid("tutti_sampler_seek needs a sampler, not NULL.");
	TRY(sampler_check(sampler));
	if (steps < 0)
		return fail_invalid(
			"tutti_sampler_seek: step %lld is negative; the first step is 0.",
			(long long)steps);
	int64_t per_epoch = sampler->count / sampler->batch;
	if (!sampler->drop_last && sampler->count % sampler->batch != 0)
		per_epoch++;
	int64_t epoch = steps / per_epoch, offset = steps % per_epoch * sampler->batch;
	if (epoch > INT64_MAX / sampler->count || offset > INT64_MAX - epoch * sampler->count)
		return fail_invalid("tutti_sampler_seek: step %lld is too high: its position does "
				    "not fit 64 bits.",
				    (long long)steps);
	sampler->position = epoch * sampler->count + offset;
	return TUTTI_OK;
}
