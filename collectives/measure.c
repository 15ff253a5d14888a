/* Measures links by plans of their own: there and back, a burst, and a long message. Everything
 * runs through the engine, as a collective would. */
#include "collectives/measure.h"

#include "core/clock.h"
#include "memory/memory.h"
#include "memory/reduce.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SMALL_BYTES  8
#define SMALL_ROUNDS 4
#define BURST        16
#define LONG_BYTES   (128 << 10)
/* Other work on the machine only ever adds to a time: the least of so many counts. */
#define REPEATS 5

/* rounds times: messages one way, one message back. The lower rank begins. */
static struct plan *there_and_back(const struct tutti_comm *comm, int partner, int rounds,
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

struct exchange {
	int partner, rounds, messages;
	size_t bytes;
};

static tutti_status run_once(struct tutti_comm *comm, const struct plan *plan, size_t bytes,
			     void *buffer)
{
	struct job_spec spec = {.plan = plan,
				.layout = {.split = 1, .block = bytes, .each = bytes},
				.width = 1,
				.memory = &memory_host,
				.send_bytes = bytes,
				.recv_bytes = bytes,
				.args = {.collective = COLL_BARRIER,
					 .dtype = TUTTI_U8,
					 .recv = buffer,
					 .fingerprint = 0x11411},
				.name = "measuring links",
				.algorithm = "ping-pong",
				.timeout_ms = comm->timeout_ms};
	return engine_run(comm->engine, &spec);
}

/* Seconds of one round. */
static tutti_status time_exchange(struct tutti_comm *comm, struct exchange x, void *buffer,
				  double *seconds)
{
	struct plan *plan = there_and_back(comm, x.partner, x.rounds, x.messages);
	tutti_status status = TUTTI_OK;
	uint64_t least = UINT64_MAX;

	if (!plan)
		return fail(TUTTI_ERR_MEMORY, "rank %d: no memory to measure links", comm->rank);
	for (int i = 0; i < REPEATS && status == TUTTI_OK; i++) {
		uint64_t start = clock_now_ns();
		status = run_once(comm, plan, x.bytes, buffer);
		uint64_t took = clock_now_ns() - start;
		least = took < least ? took : least;
	}
	plan_free(plan);
	*seconds = (double)least * 1e-9 / x.rounds;
	return status;
}

static tutti_status measure_link(struct tutti_comm *comm, int partner, void *buffer,
				 struct link_speed *speed)
{
	double small, burst, bulk;
	struct exchange x = {partner, SMALL_ROUNDS, 1, SMALL_BYTES};

	TRY(time_exchange(comm, x, buffer, &small)); /* the first connects, too */
	x = (struct exchange){partner, 1, 1 + BURST, SMALL_BYTES};
	TRY(time_exchange(comm, x, buffer, &burst));
	x = (struct exchange){partner, 1, 1, LONG_BYTES};
	TRY(time_exchange(comm, x, buffer, &bulk));
	speed->alpha = small / 2;
	/* What noise has swallowed is left to other ranks, or to the defaults. */
	speed->overhead = burst > small ? (burst - small) / BURST : 0;
	speed->beta = bulk > small ? (bulk - small) / 2 / LONG_BYTES : 0;
	return TUTTI_OK;
}

static double measure_sum(float *buffer)
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
	float *buffer = aligned_alloc(64, LONG_BYTES);
	if (!buffer)
		return fail(TUTTI_ERR_MEMORY, "rank %d: no memory to measure links", comm->rank);
	memset(buffer, 0, LONG_BYTES);
	for (int l = 0; l < LINKS && status == TUTTI_OK; l++)
		if (comm->partners[l] >= 0)
			status = measure_link(comm, comm->partners[l], buffer, &links->link[l]);
	links->gamma = measure_sum(buffer);
	free(buffer);
	return status;
}

const char *measure_key(const struct tutti_comm *comm, char *key, size_t key_bytes)
{
	int n = snprintf(key, key_bytes, "%s:", comm->host_id);
	for (int i = 0; i < comm->endpoint_count; i++)
		n += snprintf(key + n, key_bytes - (size_t)n, "%s%s", i ? "," : "",
			      comm->transports[i]->name);
	for (char *c = key; *c; c++)
		if (isspace((unsigned char)*c))
			*c = '_';
	return key;
}
