/* See quorum.h. */
#include "collectives/control/quorum.h"

#include <stdlib.h>
#include <string.h>

static tutti_status quorum_make(struct quorum *q, int voters, int size)
{
	*q = (struct quorum){.voters = voters, .size = size};
	q->voter = calloc((size_t)size, sizeof *q->voter);
	q->gone = calloc((size_t)voters, 1);
	if (q->voter && q->gone)
		return TUTTI_OK;
	quorum_finish(q);
	return fail(TUTTI_ERR_MEMORY, "no memory to count %d ranks", voters);
}

tutti_status quorum_begin(struct quorum *q, int size)
{
	TRY(quorum_make(q, size, size));
	for (int r = 0; r < size; r++)
		q->voter[r] = r;
	return TUTTI_OK;
}

tutti_status quorum_follow(struct quorum *q, const struct quorum *old, const int *ranks, int size)
{
	TRY(quorum_make(q, old->voters, size));
	for (int r = 0; r < size; r++)
		q->voter[r] = old->voter[ranks[r]];
	memcpy(q->gone, old->gone, (size_t)old->voters);
	return TUTTI_OK;
}

tutti_status quorum_copy(struct quorum *q, const struct quorum *old)
{
	TRY(quorum_make(q, old->voters, old->size));
	memcpy(q->voter, old->voter, (size_t)old->size * sizeof *q->voter);
	memcpy(q->gone, old->gone, (size_t)old->voters);
	return TUTTI_OK;
}

void quorum_finish(struct quorum *q)
{
	free(q->voter);
	free(q->gone);
	*q = (struct quorum){0};
}

void quorum_mark_dead(struct quorum *q, int rank)
{
	q->gone[q->voter[rank]] = 1;
}

void quorum_learn(struct quorum *q, const struct quorum *copy)
{
	for (int v = 0; v < q->voters; v++)
		q->gone[v] |= copy->gone[v];
}

int quorum_alive(const struct quorum *q)
{
	int alive = 0;

	for (int v = 0; v < q->voters; v++)
		alive += !q->gone[v];
	return alive;
}

bool quorum_is_reached(const struct quorum *q, const uint8_t *here)
{
	int alive = quorum_alive(q), count = 0, lowest = 0;
	bool lowest_is_here = false;

	while (lowest < q->voters && q->gone[lowest])
		lowest++;
	for (int r = 0; r < q->size; r++) {
		count += here[r] != 0;
		lowest_is_here |= here[r] && q->voter[r] == lowest;
	}
	return 2 * count > alive || (2 * count == alive && lowest_is_here);
}
