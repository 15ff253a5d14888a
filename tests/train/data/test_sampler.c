/* no_tsan: it has one thread */
/* What would break: samples trained twice or left out after a change of the number of ranks or a
 * resume, ranks that wait for one that ran out of data, and evaluations that count duplicates. */
#include "tests/train/ranks.h"
#include "tests/train/toy.h"

#include <string.h>

#include "tests/unit.h"

enum { MAX_COUNT = 200, MAX_BATCH = 64 };

#define assert_refused(call, text)                                                                 \
	do {                                                                                       \
		assert_int_equal(call, TUTTI_ERR_INVALID);                                         \
		if (!strstr(tutti_comm_error(NULL), text))                                         \
			fail_msg("'%s' says nothing of '%s'", tutti_comm_error(NULL), text);       \
	} while (0)

/* The samples of one step in their global order, from the shares of all ranks, which agree on
 * everything global. Returns their number and moves the sampler behind the step. */
static int64_t whole_step(tutti_sampler *sampler, int size, int64_t *samples,
			  tutti_sampler_share *share)
{
	tutti_sampler own = *sampler, first = {0};
	tutti_sampler_share other;
	int64_t indices[MAX_BATCH], total = 0;

	own.size = size;
	for (int r = 0; r < size; r++) {
		tutti_sampler mine = own;
		mine.rank = r;
		assert_int_equal(tutti_sampler_next(&mine, indices, MAX_BATCH, &other), TUTTI_OK);
		assert_true(other.items >= 0 && other.items <= other.count);
		memcpy(samples + total, indices, (size_t)other.items * sizeof *indices);
		total += other.items;
		if (r == 0) {
			*share = other;
			first = mine;
		}
		assert_int_equal(mine.position, first.position);
		assert_int_equal(other.position, own.position);
		assert_int_equal(other.epoch, share->epoch);
		assert_int_equal(other.is_last, share->is_last);
		for (int64_t i = 0; i < other.count; i++)
			assert_true(indices[i] >= 0 && indices[i] < own.count);
	}
	assert_true(total > 0);
	sampler->position = first.position;
	return total;
}

/* The global order from the sampler's position to the end of the epoch, with these sizes in turn.
 */
static int64_t whole_epoch(tutti_sampler *sampler, const int *sizes, int num_sizes, int64_t *order)
{
	tutti_sampler_share share;
	int64_t total = 0, epoch = sampler->position / sampler->count;

	for (int step = 0;; step++) {
		total += whole_step(sampler, sizes[step % num_sizes], order + total, &share);
		assert_int_equal(share.epoch, epoch);
		if (share.is_last)
			break;
	}
	assert_int_equal(sampler->position, (epoch + 1) * sampler->count);
	return total;
}

static void check_each_once(const int64_t *order, int64_t count)
{
	char seen[MAX_COUNT] = {0};

	for (int64_t i = 0; i < count; i++) {
		assert_false(seen[order[i]]);
		seen[order[i]] = 1;
	}
}

static const struct shape {
	int64_t count, batch;
} shapes[] = {{1, 1},  {1, 8},  {2, 1},   {7, 3},    {10, 4},   {24, 8}, {25, 8},
	      {23, 8}, {5, 64}, {100, 7}, {128, 16}, {199, 33}, {8, 2},  {3, 3}};
enum { SHAPES = sizeof shapes / sizeof *shapes };

/* With 1 to 8 ranks, and with another number at every step: the same samples in the same order,
 * each once an epoch, in three epochs. This includes more ranks than samples of a batch, and
 * divisions with a rest. */
static void test_same_order_at_every_size(void **state)
{
	static const int mixed[] = {3, 8, 1, 5, 2, 7};

	for (int s = 0; s < SHAPES; s++)
		for (int shuffle = 0; shuffle < 2; shuffle++) {
			tutti_sampler start = {.count = shapes[s].count,
					       .batch = shapes[s].batch,
					       .seed = 42,
					       .shuffle = shuffle};
			for (int epoch = 0; epoch < 3; epoch++) {
				int64_t one[MAX_COUNT], other[MAX_COUNT];
				tutti_sampler sampler = start;
				int size = 1;
				assert_int_equal(whole_epoch(&sampler, &size, 1, one), start.count);
				check_each_once(one, start.count);
				for (int i = 0; i < start.count && !shuffle; i++)
					assert_int_equal(one[i], i);
				for (size = 2; size <= 9; size++) {
					sampler = start;
					whole_epoch(&sampler, size < 9 ? &size : mixed,
						    size < 9 ? 1 : 6, other);
					assert_memory_equal(one, other,
							    (size_t)start.count * sizeof *one);
				}
				start.position = sampler.position;
			}
		}
}

/* Another epoch, and another seed, shuffle differently; seed and epoch are not interchangeable. */
static void test_orders_differ(void **state)
{
	enum { ORDERS = 6, COUNT = 50 };
	int64_t orders[ORDERS][COUNT];
	int size = 1;

	for (int i = 0; i < ORDERS; i++) {
		tutti_sampler sampler = {.count = COUNT,
					 .batch = 8,
					 .shuffle = 1,
					 .seed = (uint64_t)i / 3,
					 .position = i % 3 * COUNT};
		whole_epoch(&sampler, &size, 1, orders[i]);
		for (int j = 0; j < i; j++) {
			int same = 0;
			for (int k = 0; k < COUNT; k++)
				same += orders[i][k] == orders[j][k];
			assert_true(same < COUNT / 4);
		}
	}
}

/* Stopped anywhere, also in the middle of a step, and resumed from one integer by a new sampler of
 * another rank, size and batch: the same samples follow. */
static void test_resume(void **state)
{
	enum { COUNT = 37, EPOCHS = 3 };
	int64_t all[EPOCHS * COUNT], rest[EPOCHS * COUNT + MAX_BATCH];
	tutti_sampler whole = {.count = COUNT, .batch = 5, .seed = 9, .shuffle = 1};
	tutti_sampler_share share;
	int size = 1;

	for (int e = 0; e < EPOCHS; e++)
		assert_int_equal(whole_epoch(&whole, &size, 1, all + e * COUNT), COUNT);
	for (int64_t position = 0; position < EPOCHS * COUNT; position++) {
		tutti_sampler resumed = {.count = COUNT,
					 .batch = 1 + position % 11,
					 .seed = 9,
					 .shuffle = 1,
					 .position = position};
		int64_t total = 0;
		while (resumed.position < EPOCHS * COUNT)
			total +=
				whole_step(&resumed, 1 + (int)(position % 8), rest + total, &share);
		assert_int_equal(total, EPOCHS * COUNT - position);
		assert_memory_equal(rest, all + position, (size_t)total * sizeof *rest);
		resumed.position = share.position;
		int64_t again = whole_step(&resumed, 3, rest, &share);
		assert_memory_equal(rest, all + EPOCHS * COUNT - again,
				    (size_t)again * sizeof *rest);
	}
}

/* seek finds the positions that next reaches. */
static void test_seek(void **state)
{
	for (int s = 0; s < SHAPES; s++)
		for (int drop_last = 0; drop_last < 2; drop_last++) {
			tutti_sampler walked = {.count = shapes[s].count,
						.batch = shapes[s].batch,
						.drop_last = drop_last,
						.size = 1};
			if (drop_last && walked.batch > walked.count)
				continue;
			for (int step = 0; step < 40; step++) {
				tutti_sampler sought = walked;
				int64_t samples[MAX_BATCH];
				tutti_sampler_share share;
				sought.position = 12345;
				assert_int_equal(tutti_sampler_seek(&sought, step), TUTTI_OK);
				assert_int_equal(sought.position, walked.position);
				whole_step(&walked, 2, samples, &share);
			}
		}
}

/* Only whole batches, in the order without drop_last. */
static void test_drop_last(void **state)
{
	int64_t order[MAX_COUNT], plain[MAX_COUNT];
	int sizes[] = {3, 4}, size = 1;

	for (int s = 0; s < SHAPES; s++) {
		tutti_sampler sampler = {.count = shapes[s].count,
					 .batch = shapes[s].batch,
					 .shuffle = 1,
					 .drop_last = 1};
		if (sampler.batch > sampler.count)
			continue;
		for (int epoch = 0; epoch < 3; epoch++) {
			tutti_sampler kept = sampler;
			kept.drop_last = 0;
			int64_t total = whole_epoch(&sampler, sizes, 2, order);
			assert_int_equal(total, sampler.count / sampler.batch * sampler.batch);
			whole_epoch(&kept, &size, 1, plain);
			assert_memory_equal(order, plain, (size_t)total * sizeof *order);
		}
	}
	/* Resumed with a batch larger than the rest: the next epoch begins. */
	tutti_sampler late = {.count = 10, .batch = 4, .drop_last = 1, .position = 7};
	tutti_sampler_share share;
	assert_int_equal(whole_step(&late, 3, order, &share), 4);
	assert_true(share.epoch == 1 && share.position == 7 && late.position == 14);
	assert_true(order[0] == 0 && order[3] == 3);
}

/* Every rank gets as many indices at every step; the first items are those without padding. */
static void test_pad(void **state)
{
	for (int s = 0; s < SHAPES; s++)
		for (int size = 1; size <= 8; size++) {
			tutti_sampler padded = {.count = shapes[s].count,
						.batch = shapes[s].batch,
						.shuffle = 1,
						.size = size,
						.pad = 1};
			int64_t width = (padded.batch + size - 1) / size;
			tutti_sampler_share with = {0}, without;
			while (!with.is_last) {
				tutti_sampler next = padded;
				for (int r = 0; r < size; r++) {
					int64_t a[MAX_BATCH], b[MAX_BATCH];
					tutti_sampler mine = padded, plain = padded;
					plain.pad = 0;
					mine.rank = plain.rank = r;
					assert_int_equal(tutti_sampler_next(&mine, a, width, &with),
							 TUTTI_OK);
					assert_int_equal(
						tutti_sampler_next(&plain, b, width, &without),
						TUTTI_OK);
					assert_int_equal(with.count, width);
					assert_int_equal(without.count, without.items);
					assert_int_equal(with.items, without.items);
					assert_memory_equal(a, b, (size_t)with.items * sizeof *a);
					assert_int_equal(mine.position, plain.position);
					next.position = mine.position;
				}
				padded = next;
			}
		}
}

/* More samples than 32 bits count, and the largest numbers, whose products do not fit 64. */
static void test_large_numbers(void **state)
{
	const int64_t most = INT64_MAX;
	tutti_sampler sampler = {.count = most, .batch = 7, .shuffle = 1, .position = most - 3};
	int64_t samples[MAX_BATCH];
	tutti_sampler_share share;

	assert_int_equal(whole_step(&sampler, 8, samples, &share), 3);
	assert_true(share.is_last && sampler.position == most);
	sampler.size = 1;
	assert_refused(tutti_sampler_next(&sampler, samples, MAX_BATCH, &share), "64 bits");
	/* The last of 2^30 ranks, whose places begin at 2^62 - 2^32 + 4; the data end two behind.
	 */
	const int64_t first = ((int64_t)1 << 62) - ((int64_t)1 << 32) + 4;
	tutti_sampler wide = {.count = first + 2,
			      .batch = ((int64_t)1 << 62) + 5,
			      .rank = (1 << 30) - 1,
			      .size = 1 << 30};
	assert_int_equal(tutti_sampler_next(&wide, samples, most, &share), TUTTI_OK);
	assert_true(share.items == 2 && share.is_last && wide.position == first + 2);
	assert_true(samples[0] == first && samples[1] == first + 1);
	tutti_sampler five = {.count = 5, .batch = 5, .size = 1};
	assert_int_equal(tutti_sampler_seek(&five, most / 5), TUTTI_OK);
	assert_int_equal(five.position, most / 5 * 5);
	assert_refused(tutti_sampler_seek(&five, most / 5 + 1), "64 bits");
	tutti_sampler once = {.count = most - 10, .batch = most - 10, .size = 1};
	assert_int_equal(tutti_sampler_seek(&once, 1), TUTTI_OK);
	once.batch = (most - 10) / 3;
	assert_refused(tutti_sampler_seek(&once, 5), "64 bits");
	tutti_sampler many = {.count = ((int64_t)1 << 33) + 1, .batch = 4, .shuffle = 1, .size = 1};
	int64_t above = 0;
	for (int step = 0; step < 100; step++) {
		assert_int_equal(tutti_sampler_next(&many, samples, 4, &share), TUTTI_OK);
		for (int i = 0; i < 4; i++)
			above += samples[i] > (int64_t)1 << 32;
	}
	assert_true(above > 150 && above < 250);
}

static void test_refusals(void **state)
{
	const tutti_sampler good = {.count = 10, .batch = 4, .size = 3, .position = 2};
	const struct {
		tutti_sampler sampler;
		const char *why;
	} bad[] = {
		{{.count = 0, .batch = 4, .size = 3}, "count is 0"},
		{{.count = -5, .batch = 4, .size = 3}, "count is -5"},
		{{.count = 10, .batch = 0, .size = 3}, "batch is 0"},
		{{.count = 10, .batch = 4}, "rank 0 of 0"},
		{{.count = 10, .batch = 4, .size = 3, .rank = 3}, "rank 3 of 3"},
		{{.count = 10, .batch = 4, .size = 3, .rank = -1}, "rank -1 of 3"},
		{{.count = 10, .batch = 4, .size = 3, .position = -1}, "position is -1"},
		{{.count = 3, .batch = 4, .size = 3, .drop_last = 1}, "drop_last"},
		{{.count = 10, .batch = 4, .size = 3, .reserved = {[7] = 1}}, "reserved"},
	};
	int64_t indices[4];
	tutti_sampler_share share;

	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
		tutti_sampler sampler = bad[i].sampler;
		assert_refused(tutti_sampler_next(&sampler, indices, 4, &share), bad[i].why);
		assert_memory_equal(&sampler, &bad[i].sampler, sizeof sampler);
		if (bad[i].sampler.position < 0)
			continue; /* seek sets it right */
		assert_refused(tutti_sampler_seek(&sampler, 1), bad[i].why);
	}
	tutti_sampler sampler = good;
	assert_refused(tutti_sampler_next(&sampler, indices, 1, &share),
		       "up to 2 of a batch of 4 over 3 ranks");
	assert_refused(tutti_sampler_next(&sampler, NULL, 4, &share), "NULL");
	assert_refused(tutti_sampler_next(&sampler, indices, 4, NULL), "NULL");
	assert_refused(tutti_sampler_next(NULL, indices, 4, &share), "NULL");
	assert_refused(tutti_sampler_seek(NULL, 4), "NULL");
	assert_refused(tutti_sampler_seek(&sampler, -4), "step -4");
	assert_memory_equal(&sampler, &good, sizeof good);
	assert_int_equal(tutti_sampler_next(&sampler, indices, 2, &share), TUTTI_OK);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_same_order_at_every_size),
		cmocka_unit_test(test_orders_differ),
		cmocka_unit_test(test_resume),
		cmocka_unit_test(test_seek),
		cmocka_unit_test(test_drop_last),
		cmocka_unit_test(test_pad),
		cmocka_unit_test(test_large_numbers),
		cmocka_unit_test(test_refusals),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
