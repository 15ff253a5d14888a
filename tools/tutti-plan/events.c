/* Ahuja, Mehlhorn, Orlin, Tarjan, "Faster algorithms for the shortest path problem", 1990. */
#include "events.h"

#include "tools/must.h"

#include <string.h>

#define TAKEN 64 /* the bucket that no time needs: what was handed out lies there */

void events_open(struct events *e)
{
	memset(e, 0, sizeof *e);
}

void events_close(struct events *e)
{
	for (int b = 0; b < 65; b++)
		free(e->bucket[b].event);
}

static int bucket_of(const struct events *e, uint64_t at)
{
	return at == e->now ? 0 : 64 - __builtin_clzll(at ^ e->now);
}

static void events_put(struct events *e, int b, struct event event)
{
	e->bucket[b].event =
		must_grow(e->bucket[b].event, e->bucket[b].count, &e->bucket[b].room, sizeof event);
	e->bucket[b].event[e->bucket[b].count++] = event;
}

void events_add(struct events *e, struct event event)
{
	events_put(e, bucket_of(e, event.at), event);
	e->pending++;
}

/* Moves time on to the earliest event, and what is in its bucket closer to bucket 0. */
static void events_advance(struct events *e)
{
	int b = 1;
	while (e->bucket[b].count == 0)
		b++;
	size_t n = e->bucket[b].count;
	const struct event *event = e->bucket[b].event;
	e->now = event[0].at;
	for (size_t i = 1; i < n; i++)
		if (event[i].at < e->now)
			e->now = event[i].at;
	e->bucket[b].count = 0;
	for (size_t i = 0; i < n; i++)
		events_put(e, bucket_of(e, event[i].at), event[i]);
}

size_t events_take(struct events *e, const struct event **due)
{
	struct event *event = e->bucket[TAKEN].event;
	size_t room = e->bucket[TAKEN].room;

	if (e->pending == 0)
		return 0;
	if (e->bucket[0].count == 0)
		events_advance(e);
	e->bucket[TAKEN] = e->bucket[0];
	size_t n = e->bucket[TAKEN].count;
	e->bucket[TAKEN].count = 0;
	e->bucket[0].event = event;
	e->bucket[0].room = room;
	e->bucket[0].count = 0;
	e->pending -= n;
	*due = e->bucket[TAKEN].event;
	return n;
}
