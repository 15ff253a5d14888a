/* The simulated world: its ranks, its links, the clock, which message is next, and faults. How a
 * message moves is stream.c; what a rank sees is endpoint.c. */
#include "transport/sim/internal.h"

#include "core/status.h"

#include <assert.h>
#include <stdlib.h>

static void free_link(struct sim *sim, struct link *link);

tutti_status sim_create(struct sim **out, const struct sim_config *config)
{
	assert(config->size > 0);
	struct sim *sim = calloc(1, sizeof(*sim));

	if (sim) {
		sim->config = *config;
		sim->config.nodes = NULL; /* the caller's */
		sim->random = config->seed;
		sim->news_tail = &sim->news;
		sim->ranks = calloc((size_t)config->size, sizeof(*sim->ranks));
		sim->bucket_count = 64;
		sim->buckets = calloc(sim->bucket_count, sizeof(struct link *));
	}
	if (!sim || !sim->ranks || !sim->buckets) {
		sim_destroy(sim);
		return fail(TUTTI_ERR_MEMORY, "No memory for a simulation of %d ranks.",
			    config->size);
	}
	for (int rank = 0; rank < config->size; rank++)
		sim->ranks[rank].node = config->nodes ? config->nodes[rank] : rank;
	*out = sim;
	return TUTTI_OK;
}

void sim_destroy(struct sim *sim)
{
	if (!sim)
		return;
	for (size_t i = 0; sim->buckets && i < sim->bucket_count; i++)
		while (sim->buckets[i])
			free_link(sim, sim->buckets[i]);
	for (int rank = 0; sim->ranks && rank < sim->config.size; rank++) {
		struct sim_endpoint *endpoint = sim->ranks[rank].endpoints, *next;
		for (; endpoint; endpoint = next) {
			next = endpoint->next;
			assert(endpoint->is_gone); /* endpoints are destroyed before the world */
			free(endpoint);
		}
	}
	for (struct message *m = sim->free_messages, *next; m; m = next) {
		next = m->next;
		free(m);
	}
	agenda_finish(&sim->agenda);
	free(sim->buckets);
	free(sim->ranks);
	free(sim);
}

/* splitmix64: the sequence is the seed's alone. */
uint64_t sim_random(struct sim *sim)
{
	uint64_t z = sim->random += 0x9e3779b97f4a7c15u;
	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
	return z ^ (z >> 31);
}

/* An endpoint with completions that were not announced yet (a close, a kill, a failed conn). */
static struct sim_endpoint *next_news(struct sim *sim)
{
	while (sim->news) {
		struct sim_endpoint *endpoint = sim->news;
		if (!(sim->news = endpoint->next_news))
			sim->news_tail = &sim->news;
		endpoint->has_news = false;
		if (endpoint->done.head && !endpoint->is_gone)
			return endpoint;
	}
	return NULL;
}

/* Any of the ready ones. Messages that sim_delay holds back become ready when the clock reaches
 * them, and the clock jumps to them when nothing else is left. */
static struct stream *choose_random(struct sim *sim)
{
	struct agenda *agenda = &sim->agenda;

	while (agenda->due_count &&
	       (agenda->due[0]->due_ns <= sim->now_ns || !agenda->ready_count)) {
		struct stream *held = (struct stream *)agenda->due[0];
		if (held->entry.due_ns > sim->now_ns)
			sim->now_ns = held->entry.due_ns;
		stream_refresh(sim, held);
	}
	while (agenda->ready_count) {
		struct stream *stream =
			(struct stream *)agenda->ready[sim_random(sim) % agenda->ready_count];
		if (stream_can_deliver(sim, stream) || stream_can_copy(sim, stream))
			return stream;
		stream_refresh(sim, stream); /* the room for copies is used up by now */
	}
	return NULL;
}

static struct stream *choose_by_time(struct sim *sim)
{
	if (!sim->agenda.due_count)
		return NULL;
	struct stream *stream = (struct stream *)sim->agenda.due[0];
	if (stream->entry.due_ns > sim->now_ns)
		sim->now_ns = stream->entry.due_ns;
	return stream;
}

static struct stream *choose(struct sim *sim)
{
	return sim->config.order == SIM_TIMED ? choose_by_time(sim) : choose_random(sim);
}

int sim_step(struct sim *sim, int ranks[2])
{
	struct sim_endpoint *told = next_news(sim);

	if (told) {
		ranks[0] = ranks[1] = told->rank;
		return 1;
	}
	struct stream *stream;
	while ((stream = choose(sim)) && stream_can_land(sim, stream))
		stream_land(sim, stream);
	if (!stream)
		return 0;
	ranks[0] = stream->link->from;
	ranks[1] = stream->link->to;
	/* Both may be possible: then the seed decides whether the network buffers the send first.
	 */
	if (stream_can_copy(sim, stream) &&
	    (!stream_can_deliver(sim, stream) || sim_random(sim) % 2)) {
		ranks[1] = ranks[0];
		stream_copy(sim, stream);
	} else {
		stream_deliver(sim, stream);
	}
	return 1;
}

uint64_t sim_now_ns(void *sim)
{
	return ((struct sim *)sim)->now_ns;
}

uint64_t sim_messages(const struct sim *sim)
{
	return sim->messages;
}

void sim_advance(struct sim *sim, uint64_t ns)
{
	sim->now_ns += ns;
}

/* ---- links and streams ----------------------------------------------------------------- */

static size_t bucket_of(const struct sim *sim, int from, int to)
{
	uint64_t key = (uint64_t)(uint32_t)from << 32 | (uint32_t)to;
	return (size_t)((key * 0x9e3779b97f4a7c15u) >> 20) & (sim->bucket_count - 1);
}

/* When it fails for lack of memory the old table goes on, only slower. */
static void grow_buckets(struct sim *sim)
{
	size_t old_count = sim->bucket_count;
	struct link **old = sim->buckets, **grown = calloc(2 * old_count, sizeof(struct link *));

	if (!grown)
		return;
	sim->buckets = grown;
	sim->bucket_count = 2 * old_count;
	for (size_t i = 0; i < old_count; i++)
		for (struct link *link = old[i], *next; link; link = next) {
			size_t bucket = bucket_of(sim, link->from, link->to);
			next = link->next;
			link->next = grown[bucket];
			grown[bucket] = link;
		}
	free(old);
}

static struct link *find_link(struct sim *sim, int from, int to)
{
	struct link *link = sim->buckets[bucket_of(sim, from, to)];

	while (link && (link->from != from || link->to != to))
		link = link->next;
	return link;
}

static struct link *make_link(struct sim *sim, int from, int to)
{
	struct link *link = find_link(sim, from, to);

	if (link || !(link = calloc(1, sizeof(*link))))
		return link;
	if (++sim->link_count > sim->bucket_count)
		grow_buckets(sim);
	size_t bucket = bucket_of(sim, from, to);
	link->from = from;
	link->to = to;
	cost_of_link(sim, link);
	link->next = sim->buckets[bucket];
	sim->buckets[bucket] = link;
	return link;
}

static void free_link(struct sim *sim, struct link *link)
{
	struct link **at = &sim->buckets[bucket_of(sim, link->from, link->to)];

	while (link->streams)
		sim_stream_free(sim, link->streams);
	while (*at != link)
		at = &(*at)->next;
	*at = link->next;
	sim->link_count--;
	free(link);
}

struct stream *sim_stream(struct sim *sim, int from, int to, const uint64_t comm_id[2], int channel)
{
	struct link *link = make_link(sim, from, to);
	struct stream *stream = link ? link->streams : NULL;

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

void sim_stream_free(struct sim *sim, struct stream *stream)
{
	struct link *link = stream->link;
	struct stream **at = &link->streams;

	stream_drop_messages(sim, stream);
	agenda_set_ready(&sim->agenda, &stream->entry, false);
	agenda_set_not_due(&sim->agenda, &stream->entry);
	while (*at != stream)
		at = &(*at)->next;
	*at = stream->next;
	free(stream);
	sim->stream_count--;
}

/* ---- faults ---------------------------------------------------------------------------- */

static void kill_stream(struct sim *sim, struct stream *stream, int rank)
{
	struct sim_conn *ends[2] = {stream->sender, stream->receiver};

	stream_drop_messages(sim, stream);
	if (stream->link->from == rank) { /* the survivor's end first */
		ends[0] = stream->receiver;
		ends[1] = stream->sender;
	}
	for (int i = 0; i < 2; i++)
		if (ends[i] && ends[i]->base.status == TUTTI_OK)
			conn_fail(ends[i], TUTTI_ERR_PEER, "Lost rank %d: it died (sim_kill).",
				  rank);
}

void sim_kill(struct sim *sim, int rank)
{
	assert(rank >= 0 && rank < sim->config.size);
	sim->ranks[rank].is_dead = true;
	for (size_t i = 0; i < sim->bucket_count; i++)
		for (struct link *link = sim->buckets[i]; link; link = link->next) {
			if (link->from != rank && link->to != rank)
				continue;
			for (struct stream *s = link->streams; s; s = s->next)
				kill_stream(sim, s, rank);
		}
}

void sim_delay(struct sim *sim, int from, int to, uint64_t delay_ns)
{
	struct link *link = make_link(sim, from, to);

	assert(link);
	link->delay_ns = delay_ns;
}
