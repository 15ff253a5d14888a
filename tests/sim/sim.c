/* The simulated world: its ranks, its links, the clock, which message is next, and faults. How a
 * message moves is stream.c; what a rank sees is endpoint.c. */
#include "tests/sim/internal.h"

#include "core/status.h"

#include <assert.h>
#include <stdlib.h>

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
		sim->buckets = calloc(sim->bucket_count, sizeof(struct sim_link *));
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
			sim_link_free(sim, sim->buckets[i]);
	for (int rank = 0; sim->ranks && rank < sim->config.size; rank++) {
		struct sim_endpoint *endpoint = sim->ranks[rank].endpoints, *next;
		for (; endpoint; endpoint = next) {
			next = endpoint->next;
			assert(endpoint->is_gone); /* endpoints are destroyed before the world */
			free(endpoint);
		}
	}
	for (struct sim_message *m = sim->free_messages, *next; m; m = next) {
		next = m->next;
		free(m);
	}
	agenda_finish(&sim->agenda);
	free(sim->buckets);
	free(sim->ranks);
	free(sim);
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
static struct sim_stream *choose_random(struct sim *sim)
{
	struct agenda *agenda = &sim->agenda;

	while (agenda->due_count &&
	       (agenda->due[0]->due_ns <= sim->now_ns || !agenda->ready_count)) {
		struct sim_stream *held = (struct sim_stream *)agenda->due[0];
		if (held->entry.due_ns > sim->now_ns)
			sim->now_ns = held->entry.due_ns;
		sim_stream_refresh(sim, held);
	}
	while (agenda->ready_count) {
		struct sim_stream *stream =
			(struct sim_stream *)agenda->ready[sim_random(sim) % agenda->ready_count];
		if (sim_stream_can_deliver(sim, stream) || sim_stream_can_copy(sim, stream))
			return stream;
		sim_stream_refresh(sim, stream); /* the room for copies is used up by now */
	}
	return NULL;
}

static struct sim_stream *choose_by_time(struct sim *sim)
{
	if (!sim->agenda.due_count)
		return NULL;
	struct sim_stream *stream = (struct sim_stream *)sim->agenda.due[0];
	if (stream->entry.due_ns > sim->now_ns)
		sim->now_ns = stream->entry.due_ns;
	return stream;
}

static struct sim_stream *choose(struct sim *sim)
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
	struct sim_stream *stream;
	while ((stream = choose(sim)) && sim_stream_can_land(sim, stream))
		sim_stream_land(sim, stream);
	if (!stream)
		return 0;
	ranks[0] = stream->link->from;
	ranks[1] = stream->link->to;
	/* Both may be possible: then the seed decides whether the network buffers the send first.
	 */
	if (sim_stream_can_copy(sim, stream) &&
	    (!sim_stream_can_deliver(sim, stream) || sim_random(sim) % 2)) {
		ranks[1] = ranks[0];
		sim_stream_copy(sim, stream);
	} else {
		sim_stream_deliver(sim, stream);
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

static void kill_stream(struct sim *sim, struct sim_stream *stream, int rank)
{
	struct sim_conn *ends[2] = {stream->sender, stream->receiver};

	sim_stream_drop_messages(sim, stream);
	if (stream->link->from == rank) { /* the survivor's end first */
		ends[0] = stream->receiver;
		ends[1] = stream->sender;
	}
	for (int i = 0; i < 2; i++)
		if (ends[i] && ends[i]->base.status == TUTTI_OK)
			sim_conn_fail(ends[i], TUTTI_ERR_PEER, "rank %d (sim) has died (sim_kill)",
				      rank);
}

void sim_kill(struct sim *sim, int rank)
{
	assert(rank >= 0 && rank < sim->config.size);
	sim->ranks[rank].is_dead = true;
	for (size_t i = 0; i < sim->bucket_count; i++)
		for (struct sim_link *link = sim->buckets[i]; link; link = link->next) {
			if (link->from != rank && link->to != rank)
				continue;
			for (struct sim_stream *s = link->streams; s; s = s->next)
				kill_stream(sim, s, rank);
		}
}

void sim_delay(struct sim *sim, int from, int to, uint64_t delay_ns)
{
	struct sim_link *link = sim_link_open(sim, from, to);

	assert(link);
	link->delay_ns = delay_ns;
}
