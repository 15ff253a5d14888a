/* The whole units that a rank of a pipeline has at once. Its units follow each other as the
 * schedule wants, which the trainer does not know: so it may be any of them, and any that are
 * gathered ahead. */
#include "train/base/base.h"
#include "train/model/slot_tally.h"

#include <stdlib.h>

struct parts {
	int all, large; /* spans of a unit that are gathered; of at least some size */
};

static struct parts any_order_parts_of(const struct model_layout *layout, int unit, int home,
				       size_t width, size_t size)
{
	struct parts parts = {0};

	for (const int *b = layout->unit_spans[unit]; *b >= 0; b++) {
		const struct param_span *span = &layout->spans[*b];
		if (!span->is_sharded || span->home != home)
			continue;
		parts.all++;
		parts.large += slot_bytes(span->count * width) >= size;
	}
	return parts;
}

static int any_order_descending(const void *a, const void *b)
{
	return *(const int *)b - *(const int *)a;
}

/* Sets at_once to the sum of the largest of these counts, if that is more, but not above all. */
static void count_largest(int *at_once, int *counts, int units, int largest, int all)
{
	int sum = 0;

	qsort(counts, (size_t)units, sizeof *counts, any_order_descending);
	for (int i = 0; i < largest && i < units; i++)
		sum += counts[i];
	sum = sum < all ? sum : all;
	*at_once = sum > *at_once ? sum : *at_once;
}

tutti_status tally_any_order(struct tally *tally, const struct model_layout *layout,
			     const struct tutti_model *model, const tutti_train_config *config,
			     int home)
{
	int units = model->unit_count;
	int at_once = config->keep_after_forward ? units : 1 + units_ahead(config, model);
	size_t width = dtype_bytes(config->param_dtype);
	int *large = malloc(2 * ((size_t)units + 1) * sizeof *large), *small = large + units + 1;

	if (!large)
		return fail_no_memory("a trainer's tables");
	for (int i = 0; i < tally->size_count; i++) {
		int all = 0; /* values of at least this size */
		for (int v = 0; v < tally->all_count; v++)
			all += tally->all[v] >= tally->sizes[i];
		for (int u = 0; u < units; u++) {
			struct parts parts =
				any_order_parts_of(layout, u, home, width, tally->sizes[i]);
			large[u] = parts.large;
			small[u] = parts.all - parts.large;
		}
		count_largest(&tally->above[i], large, units, at_once, all);
		count_largest(&tally->below[i], small, units, at_once, tally->all_count - all);
	}
	free(large);
	return TUTTI_OK;
}
