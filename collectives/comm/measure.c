/* Measures links by plans of their own. In one node all ranks exchange messages at once, as they do
 * in collectives, and share its cores and its memory; between nodes: there and back, a burst, and a
 * long message. Everything runs through the engine, as a collective would. */
#include "collectives/comm/join.h"
#include "collectives/engine/engine.h"

#include "core/clock.h"
#include "core/memory/memory.h"
#include "core/memory/reduce.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SMALL_BYTES  8
#define ROUNDS       4
#define MANY_ROUNDS  16 /* in one measurement, so that the skew of the ranks counts little */
#define BURST        16
#define PEERS        3 /* with which a rank exchanges messages at once */
#define LONG_BYTES   (128 << 10)
#define MANY_BYTES   (64 << 10) /* for messages of many rounds */
#define BUFFER_BYTES (2 * LONG_BYTES)
/* Other work on the machine only adds to a time, so the least of so many times counts. */
#define REPEATS 5

/* rounds times: messages one way, one message back. The lower rank begins. */
static struct plan *measure_there_and_back(const struct tutti_comm *comm, int partner, int rounds,
					   int messages)
{
	struct plan_shape shape = {.in_chunks = 0, .out_chunks = 1};
	struct plan *p = plan_new(comm->rank, comm->size, shape, (struct plan_options){0});
	struct span data = span(BUF_OUT, 0, 1);

	for (int i = 0; p && i < rounds; i++)
		for (int back = 0; back < 2; back++)
			for (int k = 0; k < (back ? 1 : messages); k++)
				if ((comm->rank < partner) != back)
					plan_send(p, partner, data);
				else
					plan_recv(p, partner, data);
	return p ? plan_end(p) : NULL;
}

/* rounds times: a message to each of so many next ranks and one from each of so many before, each
 * from memory of its own. Data received in a round are sent in the next one. */
static struct plan *measure_all_at_once(const struct tutti_comm *comm, int peers, int rounds)
{
	struct plan_shape shape = {.in_chunks = 0, .out_chunks = 2 * (uint32_t)peers};
	struct plan *p = plan_new(comm->rank, comm->size, shape, (struct plan_options){0});

	for (int i = 0; p && i < rounds; i++)
		for (int k = 1; k <= peers; k++) {
			int out = i % 2 * peers + k - 1, in = (i + 1) % 2 * peers + k - 1;
			plan_send(p, modulo(comm->rank + k, comm->size),
				  span(BUF_OUT, (uint32_t)out, 1));
			plan_recv(p, modulo(comm->rank - k, comm->size),
				  span(BUF_OUT, (uint32_t)in, 1));
		}
	return p ? plan_end(p) : NULL;
}

/* bytes: of a chunk. */
static tutti_status measure_run_once(struct tutti_comm *comm, const struct plan *plan, size_t bytes,
				     void *buffer)
{
	struct task_spec spec = {.kind = &plan_tasks,
				 .plan = plan,
				 .layout = {.split = 1, .block = bytes, .each = bytes},
				 .width = 1,
				 .memory = &memory_host,
				 .send_bytes = BUFFER_BYTES,
				 .recv_bytes = BUFFER_BYTES,
				 .args = {.collective = COLL_BARRIER,
					  .dtype = TUTTI_U8,
					  .recv = buffer,
					  .fingerprint = 0x11411},
				 .name = "measuring links",
				 .algorithm = "ping-pong",
				 .timeout_ms = comm->settings.timeout_ms};
	tutti_status status = engine_run(comm->engine, &spec);
	if (status != TUTTI_OK && engine_status(comm->engine) != TUTTI_OK)
		return fail(status, "%s", engine_error(comm->engine));
	return status;
}

/* Returns the seconds that a run of the plan takes, and frees the plan. */
static tutti_status measure_time_plan(struct tutti_comm *comm, struct plan *plan, size_t bytes,
				      void *buffer, double *seconds)
{
	tutti_status status = TUTTI_OK;
	uint64_t least = UINT64_MAX;

	if (!plan)
		return fail(TUTTI_ERR_MEMORY, "rank %d: no memory to measure links", comm->rank);
	for (int i = 0; i < REPEATS && status == TUTTI_OK; i++) {
		uint64_t start = clock_now_ns();
		status = measure_run_once(comm, plan, bytes, buffer);
		uint64_t took = clock_now_ns() - start;
		least = took < least ? took : least;
	}
	plan_free(plan);
	*seconds = (double)least * 1e-9;
	return status;
}

/* The node's ranks are all of the communicator. */
static tutti_status measure_node(struct tutti_comm *comm, void *buffer, struct link_speed *speed)
{
	int peers = comm->size - 1 < PEERS ? comm->size - 1 : PEERS;
	double one, several, bulk;

	TRY(measure_time_plan(comm, measure_all_at_once(comm, 1, MANY_ROUNDS), SMALL_BYTES, buffer,
			      &one));
	TRY(measure_time_plan(comm, measure_all_at_once(comm, peers, ROUNDS), SMALL_BYTES, buffer,
			      &several));
	one *= (double)ROUNDS / MANY_ROUNDS;
	TRY(measure_time_plan(comm, measure_all_at_once(comm, 1, MANY_ROUNDS), MANY_BYTES, buffer,
			      &bulk));
	bulk *= (double)ROUNDS / MANY_ROUNDS;
	speed->alpha = one / ROUNDS;
	if (several > one && peers > 1)
		speed->overhead = (several - one) / ROUNDS / (peers - 1);
	if (bulk > one)
		speed->beta = (bulk - one) / ROUNDS / MANY_BYTES;
	return TUTTI_OK;
}

static tutti_status measure_link(struct tutti_comm *comm, int partner, void *buffer,
				 struct link_speed *speed)
{
	double small, burst, bulk; /* the first connects, too */

	TRY(measure_time_plan(comm, measure_there_and_back(comm, partner, ROUNDS, 1), SMALL_BYTES,
			      buffer, &small));
	TRY(measure_time_plan(comm, measure_there_and_back(comm, partner, 1, 1 + BURST),
			      SMALL_BYTES, buffer, &burst));
	TRY(measure_time_plan(comm, measure_there_and_back(comm, partner, 1, 1), LONG_BYTES, buffer,
			      &bulk));
	small /= ROUNDS;
	speed->alpha = small / 2;
	/* A time lost in noise is left to other ranks, or to the defaults. */
	speed->overhead = burst > small ? (burst - small) / BURST : 0;
	speed->beta = bulk > small ? (bulk - small) / 2 / LONG_BYTES : 0;
	return TUTTI_OK;
}

static tutti_status measure_pairs(struct tutti_comm *comm, void *buffer, struct links *links)
{
	for (int l = 0; l < LINKS; l++)
		if (comm->place.partners[l] >= 0)
			TRY(measure_link(comm, comm->place.partners[l], buffer, &links->link[l]));
	return TUTTI_OK;
}

static double comm_measure_sum(float *buffer)
{
	enum { FLOATS = LONG_BYTES / 2 / sizeof(float) };
	const void *src[2] = {buffer, buffer + FLOATS};
	void *dst = buffer;
	uint64_t least = UINT64_MAX;

	for (int i = 0; i < 4; i++) {
		uint64_t start = clock_now_ns();
		reduce(&dst, 1, src, 2, FLOATS, TUTTI_F32, TUTTI_SUM, 0);
		uint64_t took = clock_now_ns() - start;
		least = took < least ? took : least;
	}
	return (double)least * 1e-9 / (LONG_BYTES / 2);
}

tutti_status measure_links(struct tutti_comm *comm, struct links *links)
{
	tutti_status status = TUTTI_OK;
	*links = (struct links){0};
	float *buffer = aligned_alloc(64, BUFFER_BYTES);
	if (!buffer)
		return fail(TUTTI_ERR_MEMORY, "rank %d: no memory to measure links", comm->rank);
	memset(buffer, 0, BUFFER_BYTES);
	if (comm->place.num_nodes == 1)
		status = measure_node(comm, buffer, &links->link[LINK_LOCAL]);
	else
		status = measure_pairs(comm, buffer, links);
	links->gamma = comm_measure_sum(buffer);
	links->cores = comm->place.cores;
	free(buffer);
	return status;
}

const char *measure_key(const struct tutti_comm *comm, char *key, size_t key_bytes)
{
	int n = snprintf(key, key_bytes, "%s:%dr%dc:", comm->place.host_id, comm->place.local_size,
			 comm->place.cores);
	transport_names(comm->reach.transports, comm->reach.transport_count, key + n,
			key_bytes - (size_t)n);
	for (char *c = key; *c; c++)
		if (isspace((unsigned char)*c))
			*c = '_';
	return key;
}
