/* See quorum.h. */
#include "collectives/control/quorum.h"

#include <stdlib.h>
#include <string.h>

static tutti_status make(struct quorum *l, int voters, int size)
{
	*l = (struct quorum){.voters = voters, .size = size};
	l->voter = calloc((size_t)size, sizeof *l->voter);
	l->gone = calloc((size_t)voters, 1);
	if (l->voter && l->gone)
		return TUTTI_OK;
	quorum_finish(l);
	return fail(TUTTI_ERR_MEMORY, "no memory to count %d ranks", voters);
}

tutti_status quorum_begin(struct quorum *l, int size)
{
	TRY(make(l, size, size));
	for (int r = 0; r < size; r++)
		l->voter[r] = r;
	return TUTTI_OK;
}

tutti_status quorum_follow(struct quorum *l, const struct quorum *old, const int *ranks, int size)
{
	TRY(make(l, old->voters, size));
	for (int r = 0; r < size; r++)
		l->voter[r] = old->voter[ranks[r]];
	memcpy(l->gone, old->gone, (size_t)old->voters);
	return TUTTI_OK;
}

tutti_status quorum_copy(struct quorum *l, const struct quorum *old)
{
	TRY(make(l, old->voters, old->size));
	memcpy(l->voter, old->voter, (size_t)old->size * sizeof *l->voter);
	memcpy(l->gone, old->gone, (size_t)old->voters);
	return TUTTI_OK;
}

void quorum_finish(struct quorum *l)
{
	free(l->voter);
	free(l->gone);
	*l = (struct quorum){0};
}

void quorum_mark_dead(struct quorum *l, int rank)
{
	l->gone[l->voter[rank]] = 1;
}

void quorum_learn(struct quorum *l, const struct quorum *copy)
{
	for (int f = 0; f < l->voters; f++)
		l->gone[f] |= copy->gone[f];
}

int quorum_alive(const struct quorum *l)
{
	int alive = 0;

	for (int f = 0; f < l->voters; f++)
		alive += !l->gone[f];
	return alive;
}

bool quorum_is_reached(const struct quorum *l, const uint8_t *here)
{
	int alive = quorum_alive(l), count = 0, lowest = 0;
	bool lowest_is_here = false;

	while (lowest < l->voters && l->gone[lowest])
		lowest++;
	for (int r = 0; r < l->size; r++) {
		count += here[r] != 0;
		lowest_is_here |= here[r] && l->voter[r] == lowest;
	}
	return 2 * count > alive || (2 * count == alive && lowest_is_here);
}
