/* How many slots there are, and how large.
 *
 * Slots have one or two sizes, for large and small values, and there are as many of each as values
 * at once. A value fits any slot of its kind, so it does not matter which slots are free. If that
 * takes fewer bytes, each value has a slot of its own size. */
#include "train/model/slot_tally.h"

#include "train/base/base.h"

#include <assert.h>
#include <stdlib.h>

tutti_status tally_make(struct tally *tally, int most)
{
	size_t room = (size_t)most + 1;

	*tally = (struct tally){.all = malloc(2 * room * sizeof *tally->all),
				.now = calloc(3 * room, sizeof *tally->now)};
	if (!tally->all || !tally->now) {
		tally_free(tally);
		return fail_no_memory("a trainer's tables");
	}
	tally->sizes = tally->all + room;
	tally->above = tally->now + room;
	tally->below = tally->above + room;
	return TUTTI_OK;
}

void tally_free(struct tally *tally)
{
	free(tally->all);
	free(tally->now);
	*tally = (struct tally){0};
}

void tally_expect(struct tally *tally, size_t bytes)
{
	tally->all[tally->all_count++] = slot_bytes(bytes);
}

static int by_size(const void *a, const void *b)
{
	size_t x = *(const size_t *)a, y = *(const size_t *)b;

	return (x > y) - (x < y);
}

void tally_begin(struct tally *tally)
{
	qsort(tally->all, (size_t)tally->all_count, sizeof *tally->all, by_size);
	for (int i = 0; i < tally->all_count; i++)
		if (i == 0 || tally->all[i] != tally->all[i - 1])
			tally->sizes[tally->size_count++] = tally->all[i];
}

static int *slot_sizes_count_of(const struct tally *tally, size_t bytes)
{
	size_t size = slot_bytes(bytes);
	const size_t *found =
		bsearch(&size, tally->sizes, (size_t)tally->size_count, sizeof size, by_size);

	assert(found);
	return &tally->now[found - tally->sizes];
}

void tally_take(struct tally *tally, size_t bytes)
{
	int before = 0, all = 0;

	++*slot_sizes_count_of(tally, bytes);
	for (int i = 0; i < tally->size_count; i++)
		all += tally->now[i];
	for (int i = 0; i < tally->size_count; i++) {
		if (before > tally->below[i])
			tally->below[i] = before;
		if (all - before > tally->above[i])
			tally->above[i] = all - before;
		before += tally->now[i];
	}
}

void tally_give(struct tally *tally, size_t bytes)
{
	--*slot_sizes_count_of(tally, bytes);
}

/* The bytes of slots for values from sizes[cut] on, and of slots for smaller ones. */
static size_t bytes_of_two(const struct tally *tally, int cut)
{
	size_t large = (size_t)tally->above[cut] * tally->sizes[tally->size_count - 1];

	return large + (cut > 0 ? (size_t)tally->below[cut] * tally->sizes[cut - 1] : 0);
}

static tutti_status slots_make(struct slot_sizes *slots, int most)
{
	*slots = (struct slot_sizes){.bytes = malloc(((size_t)most + 1) * sizeof *slots->bytes)};
	return slots->bytes ? TUTTI_OK : fail_no_memory("a trainer's tables");
}

static void add_slots(struct slot_sizes *slots, int count, size_t bytes)
{
	for (int i = 0; i < count; i++)
		slots->bytes[slots->count++] = bytes;
}

tutti_status tally_choose(const struct tally *tally, struct slot_sizes *slots)
{
	size_t least = 0;
	int best = -1; /* -1: a slot for each value */

	TRY(slots_make(slots, tally->all_count)); /* never more slots than values */
	for (int i = 0; i < tally->all_count; i++)
		least += tally->all[i];
	for (int cut = 0; cut < tally->size_count; cut++)
		if (bytes_of_two(tally, cut) < least) {
			least = bytes_of_two(tally, cut);
			best = cut;
		}
	for (int i = 0; best < 0 && i < tally->all_count; i++)
		add_slots(slots, 1, tally->all[i]);
	if (best >= 0)
		add_slots(slots, tally->above[best], tally->sizes[tally->size_count - 1]);
	if (best > 0)
		add_slots(slots, tally->below[best], tally->sizes[best - 1]);
	return TUTTI_OK;
}

tutti_status slots_for_whole(struct slot_sizes *slots, const struct model_layout *layout,
			     const tutti_train_config *config, int home, int copies)
{
	size_t grad = dtype_bytes(config->grad_dtype), wire = dtype_bytes(config->reduce_dtype);
	size_t most = 0; /* elements */

	TRY(slots_make(slots, layout->trained_count + copies));
	for (int b = 0; b < layout->trained_count; b++) {
		const struct param_span *span = &layout->spans[b];
		if (span->keeps_grad || span->home != home)
			continue;
		add_slots(slots, 1, slot_bytes(span->count * grad));
		most = span->count > most ? span->count : most;
	}
	copies = copies < slots->count ? copies : slots->count;
	if (config->grad_dtype != config->reduce_dtype)
		add_slots(slots, copies, slot_bytes(most * wire));
	qsort(slots->bytes, (size_t)slots->count, sizeof *slots->bytes, by_size);
	return TUTTI_OK;
}

size_t slots_sum(const struct slot_sizes *slots)
{
	size_t sum = 0;

	for (int i = 0; i < slots->count; i++)
		sum += slots->bytes[i];
	return sum;
}

void slots_finish(struct slot_sizes *slots)
{
	free(slots->bytes);
	*slots = (struct slot_sizes){0};
}
