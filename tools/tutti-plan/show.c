/* tutti-plan show: plans, to be read. */
#include "arguments.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LISTED_MAX 8

static const char *lane_in_words(const struct lane *l, char *text, size_t bytes)
{
	if (l->peer < 0)
		snprintf(text, bytes, "local");
	else
		snprintf(text, bytes, "%s %d", l->sends ? "to" : "from", l->peer);
	return text;
}

static void print_before(const struct before *b, uint32_t step)
{
	uint32_t n = b->first[step + 1] - b->first[step];

	for (uint32_t i = 0; i < n && i < LISTED_MAX; i++)
		printf("%s%u", i ? ", " : "", b->at[b->first[step] + i]);
	if (n > LISTED_MAX)
		printf(" and %u more", n - LISTED_MAX);
	puts(n ? "" : "-");
}

static void print_plan(const struct plan_set *set, const struct plan *p)
{
	struct before before = look_before(p);
	char operation[400], lane[32];
	int width = 4;

	for (uint32_t s = 0; s < p->count; s++) {
		int n = (int)strlen(look_operation_in_words(p, s, operation, sizeof operation));
		width = n > width ? n : width;
	}
	width = width > 60 ? 60 : width;
	printf("%s %s, rank %d of %d: %u step%s on %u lane%s; chunks: %u IN, %u OUT, %u scratch\n",
	       collective_name(set->algorithm->collective), set->algorithm->name, p->rank, p->size,
	       p->count, p->count == 1 ? "" : "s", p->lane_count, p->lane_count == 1 ? "" : "s",
	       p->chunks[BUF_IN], p->chunks[BUF_OUT], p->chunks[BUF_TMP]);
	if (p->count)
		printf("  step  %-*s  %-10s after\n", width, "does", "lane");
	for (uint32_t s = 0; s < p->count; s++) {
		printf("  %4u  %-*s  %-10s ", s, width,
		       look_operation_in_words(p, s, operation, sizeof operation),
		       lane_in_words(&p->lanes[p->steps[s].lane], lane, sizeof lane));
		print_before(&before, s);
	}
	look_before_free(&before);
}

int plan_show(const struct arguments *a)
{
	struct plan_set set = {.algorithm = a->algorithm,
			       .size = a->ranges[0].first,
			       .root = a->root < 0 ? 0 : a->root,
			       .nodes = a->nodes ? a->nodes : 1,
			       .in_place = a->in_place,
			       .options = a->options};
	const char *why = look_why_not(a->algorithm, set.size, set.nodes);
	int first = a->rank < 0 ? 0 : a->rank, last = a->rank < 0 ? set.size - 1 : a->rank;

	if (why) {
		fprintf(stderr, "tutti-plan: There is no plan of %s for %d ranks: %s.\n",
			a->algorithm->name, set.size, why);
		return 1;
	}
	for (int r = first; r <= last; r++) {
		struct plan *p = look_build(&set, r);
		if (r > first)
			puts("");
		print_plan(&set, p);
		plan_free(p);
	}
	return 0;
}
