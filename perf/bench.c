/* How it is timed: iterations come in bursts. Before a burst the buffers of all its calls are
 * written, each call has its own, and the ranks meet in a barrier; the clock runs from there to the
 * return of the last call; then everything that arrived is compared. A burst is one call, or as
 * many as keep the buffers small: so a call of a microsecond is not timed by a clock that takes a
 * tenth of one, and no call finds data that it has seen before. */
#include "bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define BURST_BYTES 32768
#define ALIGNMENT   64
#define POISON      0xa5

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Without writing nor checking, all iterations are one burst over the same buffers. */
static bool is_touched(const struct options *o)
{
	return o->check || o->dirty;
}

/* From one call's buffer to the next one's. */
static size_t stride_of(const struct options *o, const struct shape *shape, size_t element)
{
	size_t elements = shape->send > shape->recv ? shape->send : shape->recv;
	size_t bytes = (elements + (size_t)o->unalign) * element;

	return (bytes + ALIGNMENT) / ALIGNMENT * ALIGNMENT;
}

static int burst_of(const struct options *o, size_t stride)
{
	size_t n = BURST_BYTES / stride / (size_t)o->aggregated;

	n = n < 1 ? 1 : n;
	return n < (size_t)o->iterations ? (int)n : o->iterations;
}

/* The largest that any type's sweep needs: its last size, or a burst. */
static size_t area_bytes_of(const struct bench *b)
{
	const struct options *o = b->options;
	size_t most = BURST_BYTES;

	for (int dtype = 0; dtype < DTYPES; dtype++) {
		size_t element = element_bytes((tutti_dtype)dtype);
		struct shape shape =
			b->collective->shape(o->max_bytes / element, b->rank, b->ranks);
		size_t bytes = stride_of(o, &shape, element) * (size_t)o->aggregated;

		if ((o->dtype == ALL || o->dtype == dtype) && bytes > most)
			most = bytes;
	}
	return most;
}

static tutti_status area_open(const struct bench *b, unsigned char **area)
{
	void *memory = NULL;

	if (b->options->zero_copy) {
		TRY(tutti_mem_alloc(&memory, b->area_bytes, b->comm));
	} else {
		if (posix_memalign(&memory, 4096, b->area_bytes) != 0) {
			fprintf(stderr, "%s_perf: no memory for %zu bytes.\n", b->collective->name,
				b->area_bytes);
			return TUTTI_ERR_MEMORY;
		}
		memset(memory, 0, b->area_bytes);
	}
	*area = memory;
	return TUTTI_OK;
}

static void area_close(const struct bench *b, unsigned char *area)
{
	if (!b->options->zero_copy)
		free(area);
	else if (area)
		tutti_mem_free(area);
}

tutti_status bench_init(struct bench *b, const struct options *o, const struct collective *c,
			tutti_comm *comm)
{
	*b = (struct bench){
		.options = o,
		.collective = c,
		.comm = comm,
		.rank = tutti_rank(comm),
		.ranks = tutti_size(comm),
	};
	b->area_bytes = area_bytes_of(b);
	b->works = calloc((size_t)o->aggregated, sizeof *b->works);
	if (!b->works)
		return TUTTI_ERR_MEMORY;
	TRY(area_open(b, &b->send));
	return area_open(b, &b->recv);
}

void bench_finish(struct bench *b)
{
	area_close(b, b->send);
	area_close(b, b->recv);
	values_finish(&b->values);
	free(b->works);
}

/* Where call number slot of a burst has its buffers. In place both lie in the receiving area. */
static struct operation buffers(const struct bench *b, const struct sample *s, int slot)
{
	size_t element = b->values.element_bytes;
	size_t at = (size_t)slot * stride_of(b->options, &s->shape, element) +
		    (size_t)b->options->unalign * element;
	unsigned char *send = b->send + at, *recv = b->recv + at;

	if (s->in_place) {
		send = recv + s->shape.send_in_place * element;
		recv += s->shape.recv_in_place * element;
	}
	return (struct operation){
		.send = send,
		.recv = recv,
		.count = s->shape.count,
		.dtype = s->dtype,
		.op = s->op,
		.root = s->root,
		.comm = b->comm,
	};
}

static struct span sent(const struct bench *b, const struct sample *s, int slot)
{
	return (struct span){.iteration = b->iteration + (uint64_t)slot, .count = s->shape.send};
}

static void fill(struct bench *b, const struct sample *s, int slots)
{
	for (int slot = 0; slot < slots; slot++) {
		struct operation o = buffers(b, s, slot);

		memset(o.recv, POISON, s->shape.recv * b->values.element_bytes);
		values_fill(&b->values, b->rank, sent(b, s, slot), (void *)o.send);
	}
}

/* What arrived, and what was sent: that must be as it was. */
static uint64_t count_wrong(const struct bench *b, const struct sample *s, int slots)
{
	uint64_t wrong = 0;

	for (int slot = 0; slot < slots; slot++) {
		struct operation o = buffers(b, s, slot);
		struct arrival a = {
			.values = &b->values,
			.recv = o.recv,
			.count = s->shape.count,
			.rank = b->rank,
			.ranks = b->ranks,
			.root = s->root,
			.iteration = b->iteration + (uint64_t)slot,
		};

		wrong += b->collective->wrong(&a);
		if (!s->in_place)
			wrong += values_wrong(&b->values, b->rank, sent(b, s, slot), o.send);
	}
	return wrong;
}

static tutti_status iterate_async(struct bench *b, const struct sample *s, int first)
{
	int calls = b->options->aggregated;

	for (int i = 0; i < calls; i++) {
		tutti_call call = {.work = &b->works[i]};
		struct operation o = buffers(b, s, first + i);

		o.call = &call;
		TRY(b->collective->call(&o));
	}
	for (int i = 0; i < calls; i++)
		TRY(tutti_work_wait(&b->works[i], 0));
	return TUTTI_OK;
}

static tutti_status iterate(struct bench *b, const struct sample *s, int n)
{
	int calls = b->options->aggregated;
	bool is_async = calls > 1 || b->options->blocking == 0;

	for (int i = 0; i < n; i++) {
		int first = is_touched(b->options) ? i * calls : 0;

		if (is_async) {
			TRY(iterate_async(b, s, first));
		} else {
			struct operation o = buffers(b, s, first);

			TRY(b->collective->call(&o));
		}
	}
	return TUTTI_OK;
}

static tutti_status burst(struct bench *b, struct sample *s, int n)
{
	int slots = n * b->options->aggregated;
	double start;

	if (is_touched(b->options))
		fill(b, s, slots);
	TRY(tutti_barrier(b->comm, NULL));
	start = now();
	TRY(iterate(b, s, n));
	s->seconds += now() - start;
	if (b->options->check)
		s->wrong += count_wrong(b, s, slots);
	b->iteration += (uint64_t)slots;
	return TUTTI_OK;
}

/* seconds and wrong of all ranks: the sum of wrong, and of seconds what -a asks for. */
static tutti_status combine(struct bench *b, struct sample *s)
{
	int average = b->options->average;
	tutti_op op = average == 2 ? TUTTI_MIN : average == 3 ? TUTTI_MAX : TUTTI_SUM;

	if (average == 0 && b->rank != 0)
		s->seconds = 0;
	TRY(tutti_all_reduce(&s->seconds, &s->seconds, 1, TUTTI_F64, op, b->comm, NULL));
	if (average == 1)
		s->seconds /= b->ranks;
	return tutti_all_reduce(&s->wrong, &s->wrong, 1, TUTTI_U64, TUTTI_SUM, b->comm, NULL);
}

tutti_status bench_measure(struct bench *b, struct sample *s)
{
	const struct options *o = b->options;
	int most = burst_of(o, stride_of(o, &s->shape, b->values.element_bytes)), n;

	s->wrong = 0;
	if (!is_touched(o)) {
		most = o->iterations;
		fill(b, s, o->aggregated);
	}
	for (int i = 0; i < o->warmups; i++)
		TRY(burst(b, s, 1));
	s->seconds = 0;
	for (int done = 0; done < o->iterations; done += n) {
		n = o->iterations - done < most ? o->iterations - done : most;
		TRY(burst(b, s, n));
	}
	s->seconds /= (double)o->iterations * o->aggregated;
	return combine(b, s);
}
