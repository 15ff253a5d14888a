/* Values are kept for ever and never change; their ranks are ranges, ascending. */
#include "value.h"

#include "core/rank_list.h"
#include "tools/must.h"

#include <string.h>

void values_open(struct values *v)
{
	memset(v, 0, sizeof *v);
	v->value = must_grow(NULL, 0, &v->room, sizeof *v->value);
	v->value[v->count++] = (struct value){0};
}

void values_close(struct values *v)
{
	free(v->value);
	free(v->ranges);
	free(v->bin);
}

static uint32_t value_add(struct values *v, struct value value)
{
	v->value = must_grow(v->value, v->count, &v->room, sizeof *v->value);
	v->value[v->count] = value;
	return (uint32_t)v->count++;
}

static void add_range(struct values *v, struct range r)
{
	v->ranges = must_grow(v->ranges, v->used, &v->ranges_room, sizeof *v->ranges);
	v->ranges[v->used++] = r;
}

uint32_t value_of_rank(struct values *v, uint32_t block, int rank)
{
	struct value value = {.block = block, .range = (uint32_t)v->used, .count = 1};
	add_range(v, (struct range){rank, rank});
	return value_add(v, value);
}

static int by_first(const void *a, const void *b)
{
	const struct range *x = a, *y = b;
	return (x->first > y->first) - (x->first < y->first);
}

/* All ranges of all values, ascending. Returns how many. */
static size_t value_collect(struct values *v, const uint32_t *of, uint32_t n)
{
	size_t all = 0;
	for (uint32_t i = 0; i < n; i++)
		for (uint32_t k = 0; k < v->value[of[i]].count; k++) {
			v->bin = must_grow(v->bin, all, &v->bin_room, sizeof *v->bin);
			v->bin[all++] = v->ranges[v->value[of[i]].range + k];
		}
	qsort(v->bin, all, sizeof *v->bin, by_first);
	return all;
}

uint32_t value_union(struct values *v, const uint32_t *of, uint32_t n, int *twice)
{
	struct value sum = v->value[of[0]];
	size_t all = value_collect(v, of, n);

	*twice = -1;
	sum.range = (uint32_t)v->used;
	sum.count = 0;
	for (size_t i = 0; i < all; i++) {
		struct range *last = sum.count ? &v->ranges[v->used - 1] : NULL;
		struct range r = v->bin[i];
		if (last && r.first <= last->last && *twice < 0)
			*twice = r.first;
		if (last && r.first <= last->last + 1) {
			if (r.last > last->last)
				last->last = r.last;
			continue;
		}
		add_range(v, r);
		sum.count++;
	}
	return value_add(v, sum);
}

uint32_t value_marked(struct values *v, uint32_t of, bool is_finished, bool is_scaled)
{
	struct value value = v->value[of];
	value.is_finished = is_finished;
	value.is_scaled = is_scaled;
	return value_add(v, value);
}

int value_lacks(const struct values *v, uint32_t of, int ranks)
{
	const struct value *value = &v->value[of];
	const struct range *r = v->ranges + value->range;
	if (value->count == 0 || r[0].first > 0)
		return 0;
	return r[0].last + 1 < ranks ? r[0].last + 1 : -1;
}

bool value_is_of(const struct values *v, uint32_t of, uint32_t block, int rank)
{
	const struct value *value = &v->value[of];
	return value->count == 1 && value->block == block &&
	       v->ranges[value->range].first == rank && v->ranges[value->range].last == rank;
}

const char *value_in_words(const struct values *v, uint32_t of, char *text, size_t bytes)
{
	const struct value *value = &v->value[of];
	struct rank_list list;

	if (of == 0) {
		snprintf(text, bytes, "nothing");
		return text;
	}
	size_t at = (size_t)snprintf(text, bytes, "block %u of ", value->block);
	rank_list_begin(&list, text + at, bytes - at);
	for (uint32_t i = value->range; i < value->range + value->count; i++)
		rank_list_add_run(&list, v->ranges[i].first, v->ranges[i].last);
	rank_list_end(&list);
	return text;
}
