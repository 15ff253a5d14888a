/* See lineage.h. */
#include "collectives/control/quorum.h"

#include <stdlib.h>
#include <string.h>

static tutti_status make(struct lineage *l, int founders, int size)
{
	*l = (struct lineage){.founders = founders, .size = size};
	l->founder = calloc((size_t)size, sizeof *l->founder);
	l->gone = calloc((size_t)founders, 1);
	if (l->founder && l->gone)
		return TUTTI_OK;
	lineage_finish(l);
	return fail(TUTTI_ERR_MEMORY, "no memory to count %d ranks", founders);
}

tutti_status lineage_begin(struct lineage *l, int size)
{
	TRY(make(l, size, size));
	for (int r = 0; r < size; r++)
		l->founder[r] = r;
	return TUTTI_OK;
}

tutti_status lineage_follow(struct lineage *l, const struct lineage *old, const int *ranks,
			    int size)
{
	TRY(make(l, old->founders, size));
	for (int r = 0; r < size; r++)
		l->founder[r] = old->founder[ranks[r]];
	memcpy(l->gone, old->gone, (size_t)old->founders);
	return TUTTI_OK;
}

tutti_status lineage_copy(struct lineage *l, const struct lineage *old)
{
	TRY(make(l, old->founders, old->size));
	memcpy(l->founder, old->founder, (size_t)old->size * sizeof *l->founder);
	memcpy(l->gone, old->gone, (size_t)old->founders);
	return TUTTI_OK;
}

void lineage_finish(struct lineage *l)
{
	free(l->founder);
	free(l->gone);
	*l = (struct lineage){0};
}

void lineage_bury(struct lineage *l, int rank)
{
	l->gone[l->founder[rank]] = 1;
}

void lineage_learn(struct lineage *l, const struct lineage *copy)
{
	for (int f = 0; f < l->founders; f++)
		l->gone[f] |= copy->gone[f];
}

int lineage_alive(const struct lineage *l)
{
	int alive = 0;

	for (int f = 0; f < l->founders; f++)
		alive += !l->gone[f];
	return alive;
}

bool lineage_has_quorum(const struct lineage *l, const uint8_t *here)
{
	int alive = lineage_alive(l), count = 0, lowest = 0;
	bool lowest_is_here = false;

	while (lowest < l->founders && l->gone[lowest])
		lowest++;
	for (int r = 0; r < l->size; r++) {
		count += here[r] != 0;
		lowest_is_here |= here[r] && l->founder[r] == lowest;
	}
	return 2 * count > alive || (2 * count == alive && lowest_is_here);
}
