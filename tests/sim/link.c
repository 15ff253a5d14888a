/* Links, found by their two ranks, and the streams on them. */
#include "tests/sim/internal.h"

#include <stdlib.h>

static size_t bucket_of(const struct sim *sim, int from, int to)
{
	uint64_t key = (uint64_t)(uint32_t)from << 32 | (uint32_t)to;
	return (size_t)((key * 0x9e3779b97f4a7c15u) >> 20) & (sim->bucket_count - 1);
}

/* When it fails for lack of memory the old table goes on, only slower. */
static void grow_buckets(struct sim *sim)
{
	size_t old_count = sim->bucket_count;
	struct sim_link **old = sim->buckets,
			**grown = calloc(2 * old_count, sizeof(struct sim_link *));

	if (!grown)
		return;
	sim->buckets = grown;
	sim->bucket_count = 2 * old_count;
	for (size_t i = 0; i < old_count; i++)
		for (struct sim_link *link = old[i], *next; link; link = next) {
			size_t bucket = bucket_of(sim, link->from, link->to);
			next = link->next;
			link->next = grown[bucket];
			grown[bucket] = link;
		}
	free(old);
}

static struct sim_link *find_link(struct sim *sim, int from, int to)
{
	struct sim_link *link = sim->buckets[bucket_of(sim, from, to)];

	while (link && (link->from != from || link->to != to))
		link = link->next;
	return link;
}

struct sim_link *sim_link_open(struct sim *sim, int from, int to)
{
	struct sim_link *link = find_link(sim, from, to);

	if (link || !(link = calloc(1, sizeof(*link))))
		return link;
	if (++sim->link_count > sim->bucket_count)
		grow_buckets(sim);
	size_t bucket = bucket_of(sim, from, to);
	link->from = from;
	link->to = to;
	sim_cost_of_link(sim, link);
	link->next = sim->buckets[bucket];
	sim->buckets[bucket] = link;
	return link;
}

struct sim_stream *sim_stream_open(struct sim *sim, int from, int to, const uint64_t comm_id[2],
				   int channel)
{
	struct sim_link *link = sim_link_open(sim, from, to);
	struct sim_stream *stream = link ? link->streams : NULL;

	while (stream && (stream->channel != channel || stream->comm_id[0] != comm_id[0] ||
			  stream->comm_id[1] != comm_id[1]))
		stream = stream->next;
	if (stream || !link)
		return stream;
	if (agenda_reserve(&sim->agenda, sim->stream_count + 1))
		stream = calloc(1, sizeof(*stream));
	if (!stream)
		return NULL;
	sim->stream_count++;
	stream->link = link;
	stream->comm_id[0] = comm_id[0];
	stream->comm_id[1] = comm_id[1];
	stream->channel = channel;
	stream->tail = &stream->head;
	tutti_done_init(&stream->recvs);
	stream->next = link->streams;
	link->streams = stream;
	return stream;
}

void sim_stream_free(struct sim *sim, struct sim_stream *stream)
{
	struct sim_link *link = stream->link;
	struct sim_stream **at = &link->streams;

	sim_stream_drop_messages(sim, stream);
	agenda_set_ready(&sim->agenda, &stream->entry, false);
	agenda_set_not_due(&sim->agenda, &stream->entry);
	while (*at != stream)
		at = &(*at)->next;
	*at = stream->next;
	free(stream);
	sim->stream_count--;
}

void sim_link_free(struct sim *sim, struct sim_link *link)
{
	struct sim_link **at = &sim->buckets[bucket_of(sim, link->from, link->to)];

	while (link->streams)
		sim_stream_free(sim, link->streams);
	while (*at != link)
		at = &(*at)->next;
	*at = link->next;
	sim->link_count--;
	free(link);
}
