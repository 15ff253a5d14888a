/* How it is timed: iterations come in bursts. Before a burst the buffers of all its calls are
 * written, each call has its own, and the ranks meet in a barrier; the clock runs from there to the
 * return of the last call; then everything that arrived is compared. A burst is one call, or as
 * many as keep the buffers small: so a call of a microsecond is not timed by a clock that takes a
 * tenth of one, and no call finds data that it has seen before. For percentiles the clock is looked
 * at before and after every call of a burst.
 *
 * On a GPU the buffers are written and compared in images of them in host memory, and the clock is
 * the GPU's: events in the stream that has the calls. */
#include "bench.h"

#include "library.h"

#include "core/clock.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BURST_BYTES 32768
#define GPU_BURST   (8 << 20) /* bytes: GPUs have larger caches, and starting them takes longer */
#define ALIGNMENT   64
#define POISON      0xa5

/* Without writing nor checking, all iterations are one burst over the same buffers. */
static bool bench_is_touched(const struct options *o)
{
	return o->check || o->dirty;
}

/* A barrier is verified by the clock, which several nodes do not share. */
bool bench_is_checked(const struct bench *b)
{
	return b->options->check &&
	       (collective_has_data(b->collective) || tutti_num_nodes(b->comm) == 1);
}

bool bench_is_stamped(const struct bench *b)
{
	return b->options->percentiles ||
	       (!collective_has_data(b->collective) && bench_is_checked(b));
}

/* From one call's buffer to the next one's. */
static size_t bench_stride_of(const struct options *o, const struct shape *shape, size_t element)
{
	size_t bytes = (shape->whole + (size_t)o->unalign) * element;

	return (bytes + ALIGNMENT) / ALIGNMENT * ALIGNMENT;
}

static size_t bench_burst_bytes(const struct options *o)
{
	return o->gpus ? GPU_BURST : BURST_BYTES;
}

/* How many iterations; never more than there is room for their stamps. */
static int bench_burst_of(const struct bench *b, size_t stride)
{
	const struct options *o = b->options;
	size_t n = bench_burst_bytes(o) / stride / (size_t)o->aggregated;

	if (!bench_is_touched(o))
		n = (size_t)o->iterations;
	if (bench_is_stamped(b) && n > STAMPS_MAX)
		n = STAMPS_MAX;
	n = n < 1 ? 1 : n;
	return n < (size_t)o->iterations ? (int)n : o->iterations;
}

/* The largest that any type's sweep needs: its last size, or a burst. */
static size_t bench_area_bytes_of(const struct bench *b)
{
	const struct options *o = b->options;
	size_t most = bench_burst_bytes(o);

	if (!collective_has_data(b->collective))
		return most;
	for (int dtype = 0; dtype < DTYPES; dtype++) {
		size_t element = element_bytes((tutti_dtype)dtype);
		struct shape shape = collective_shape(b->collective, o->max_bytes / element,
						      (struct place){b->rank, b->ranks, 0});
		size_t bytes = bench_stride_of(o, &shape, element) * (size_t)o->aggregated;

		if ((o->dtype == ALL || o->dtype == dtype) && bytes > most)
			most = bytes;
	}
	return most;
}

/* Of the widest type that is measured; the ranks of a process share them. */
static double bench_values_share(const struct options *o, const struct collective *c, int ranks)
{
	tutti_dtype widest = o->dtype == ALL ? TUTTI_F64 : (tutti_dtype)o->dtype;

	return collective_has_data(c) ? (double)values_bytes(ranks, widest) / o->threads : 0;
}

double bench_needs(const struct options *o, const struct collective *c, int ranks)
{
	struct bench b = {.options = o, .collective = c, .ranks = ranks};
	size_t works = (size_t)o->aggregated * sizeof *b.works;
	size_t times = o->percentiles ? latencies_bytes((size_t)o->iterations) : 0;

	return 2.0 * (double)bench_area_bytes_of(&b) + bench_values_share(o, c, ranks) +
	       (double)(works + times + sizeof b);
}

const char *bench_text(double bytes, char text[BENCH_TEXT])
{
	static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
	int i = 0;

	for (; i < 6 && bytes >= 1024; i++)
		bytes /= 1024;
	snprintf(text, BENCH_TEXT, i ? "%.1f %s" : "%.0f %s", bytes, units[i]);
	return text;
}

/* The others need not wait for this rank. */
static tutti_status bench_no_memory(const struct bench *b, double bytes, const char *what)
{
	char text[BENCH_TEXT];

	fprintf(stderr, "%s: rank %d: the system gives no %s for %s.\n",
		program_invocation_short_name, b->rank, bench_text(bytes, text), what);
	tutti_comm_abort(b->comm);
	return TUTTI_ERR_MEMORY;
}

/* ---- buffers on a GPU: written and compared on the host, and moved as a whole ---- */

/* So many bytes of both images to the GPU, or back from there; these are there on return. */
static tutti_status bench_gpu_copy(struct bench *b, bool is_back, size_t bytes)
{
	const struct area *areas[] = {&b->send, &b->recv};

	for (int i = 0; i < 2; i++)
		TRY(gpu_rank_copy(b->gpu, is_back ? areas[i]->host : areas[i]->gpu,
				  is_back ? areas[i]->gpu : areas[i]->host, bytes));
	return gpu_rank_wait(b->gpu);
}

/* The stamps of n calls from the events 0 to n around them. */
static tutti_status bench_gpu_stamps(struct bench *b, int n)
{
	b->stamps.enter[0] = 0;
	for (int i = 0; i < n; i++) {
		double seconds;

		TRY(gpu_rank_seconds(b->gpu, 0, i + 1, &seconds));
		b->stamps.leave[i] = (uint64_t)(seconds * 1e9);
		if (i + 1 < n)
			b->stamps.enter[i + 1] = b->stamps.leave[i];
	}
	return TUTTI_OK;
}

/* ---- one measurement ---- */

/* With a GPU what is measured is there, or in memory of tutti_mem_alloc, and the image here. */
static tutti_status bench_area_open(const struct bench *b, struct area *area)
{
	size_t bytes = b->area_bytes;
	void *image = NULL, *memory = NULL;

	if (b->gpu) {
		TRY(gpu_rank_alloc_host(b->gpu, &image, bytes));
		area->host = image;
	}
	if (b->options->zero_copy) {
		TRY(tutti_mem_alloc(&memory, bytes, b->comm));
	} else if (b->gpu) {
		TRY(gpu_rank_alloc(b->gpu, &memory, bytes));
	} else {
		if (posix_memalign(&memory, 4096, bytes) != 0)
			return bench_no_memory(b, (double)bytes, "a buffer");
		memset(memory, 0, bytes);
	}
	*(b->gpu ? &area->gpu : &area->host) = memory;
	return TUTTI_OK;
}

static void bench_area_close(const struct bench *b, struct area *area)
{
	void *memory = b->gpu ? area->gpu : area->host;

	if (memory && b->options->zero_copy)
		tutti_mem_free(memory);
	else if (b->gpu)
		gpu_rank_free(b->gpu, memory);
	else
		free(memory);
	if (b->gpu)
		gpu_rank_free_host(b->gpu, area->host);
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
	b->area_bytes = bench_area_bytes_of(b);
	b->works = calloc((size_t)o->aggregated, sizeof *b->works);
	if (!b->works)
		return bench_no_memory(b, (double)o->aggregated * sizeof *b->works,
				       "the calls in flight");
	if (o->percentiles && !latencies_init(&b->latencies, (size_t)o->iterations))
		return bench_no_memory(b, (double)latencies_bytes((size_t)o->iterations),
				       "the times of all calls (-n)");
	if (o->gpus)
		TRY(gpu_rank_open(&b->gpu, tutti_local_rank(comm), comm));
	TRY(bench_area_open(b, &b->send));
	return bench_area_open(b, &b->recv);
}

tutti_status bench_values(struct bench *b, const struct sample *s)
{
	values_finish(&b->values);
	if (!values_init(&b->values, b->ranks, s->dtype, s->op, b->collective->is_reduced))
		return bench_no_memory(b, (double)values_bytes(b->ranks, s->dtype),
				       "the ranks' values");
	return TUTTI_OK;
}

void bench_finish(struct bench *b)
{
	bench_area_close(b, &b->send);
	bench_area_close(b, &b->recv);
	gpu_rank_close(b->gpu);
	b->gpu = NULL;
	values_finish(&b->values);
	latencies_finish(&b->latencies);
	free(b->works);
}

/* Where call number slot of a burst has its buffers, or on the host the images of those on a GPU.
 * In place both lie in the receiving area. */
static struct operation bench_call(const struct bench *b, const struct sample *s, int slot,
				   bool is_on_gpu)
{
	size_t element = b->values.element_bytes;
	size_t at = (size_t)slot * bench_stride_of(b->options, &s->shape, element) +
		    (size_t)b->options->unalign * element;
	unsigned char *send = (is_on_gpu ? b->send.gpu : b->send.host) + at;
	unsigned char *recv = (is_on_gpu ? b->recv.gpu : b->recv.host) + at;

	if (s->in_place) {
		send = recv + s->shape.send_in_place * element;
		recv += s->shape.recv_in_place * element;
	}
	return (struct operation){
		.what = b->collective->call,
		.send = s->shape.send ? send : NULL,
		.recv = s->shape.recv ? recv : NULL,
		.count = s->shape.count,
		.dtype = s->dtype,
		.op = s->op,
		.root = s->root,
		.comm = b->comm,
	};
}

/* Bytes of each area that so many calls have. */
static size_t bench_area_used(const struct bench *b, const struct sample *s, int slots)
{
	return (size_t)slots * bench_stride_of(b->options, &s->shape, b->values.element_bytes);
}

static struct span bench_sent(const struct bench *b, const struct sample *s, int slot)
{
	return (struct span){.iteration = b->iteration + (uint64_t)slot, .count = s->shape.send};
}

static tutti_status bench_fill(struct bench *b, const struct sample *s, int slots)
{
	for (int slot = 0; slot < slots; slot++) {
		struct operation o = bench_call(b, s, slot, false);

		if (o.recv)
			memset(o.recv, POISON, s->shape.recv * b->values.element_bytes);
		values_fill(&b->values, b->rank, bench_sent(b, s, slot), (void *)o.send);
	}
	return b->gpu ? bench_gpu_copy(b, false, bench_area_used(b, s, slots)) : TUTTI_OK;
}

/* Checks the values that arrived, and those that were sent: these must be as they were, where
 * nothing had to arrive in its place. */
static uint64_t bench_count_wrong(const struct bench *b, const struct sample *s, int slots)
{
	uint64_t wrong = 0;

	for (int slot = 0; slot < slots; slot++) {
		struct operation o = bench_call(b, s, slot, false);
		struct arrival a = {
			.values = &b->values,
			.recv = o.recv,
			.count = s->shape.count,
			.at = {b->rank, b->ranks, s->root},
			.iteration = b->iteration + (uint64_t)slot,
		};

		wrong += collective_wrong(b->collective, &a);
		if (!s->in_place || !s->shape.recv)
			wrong += values_wrong(&b->values, b->rank, bench_sent(b, s, slot), o.send);
	}
	return wrong;
}

static tutti_status bench_iterate_async(struct bench *b, const struct sample *s, int first)
{
	int calls = b->options->aggregated;

	for (int i = 0; i < calls; i++) {
		tutti_call call = {.work = &b->works[i]};
		struct operation o = bench_call(b, s, first + i, false);

		o.call = &call;
		TRY(library_call(&o));
	}
	for (int i = 0; i < calls; i++)
		TRY(tutti_work_wait(&b->works[i], 0));
	return TUTTI_OK;
}

/* In the order of the stream; -z 1: and waited for. */
static tutti_status bench_iterate_on_gpu(struct bench *b, const struct sample *s, int first)
{
	tutti_call call = {.stream = b->gpu->stream};

	for (int i = 0; i < b->options->aggregated; i++) {
		struct operation o = bench_call(b, s, first + i, true);

		o.call = &call;
		TRY(library_call(&o));
	}
	return b->options->blocking ? gpu_rank_wait(b->gpu) : TUTTI_OK;
}

static tutti_status bench_iterate_once(struct bench *b, const struct sample *s, int first)
{
	struct operation o = bench_call(b, s, first, false);

	if (b->gpu)
		return bench_iterate_on_gpu(b, s, first);
	if (b->options->aggregated > 1 || b->options->blocking == 0)
		return bench_iterate_async(b, s, first);
	return library_call(&o);
}

/* Each call is timed by itself where the stamps are asked for. */
static tutti_status bench_iterate(struct bench *b, const struct sample *s, int n, bool is_stamped)
{
	int calls = bench_is_touched(b->options) ? b->options->aggregated : 0;

	for (int i = 0; i < n; i++) {
		if (is_stamped)
			b->stamps.enter[i] = clock_now_ns();
		TRY(bench_iterate_once(b, s, i * calls));
		if (is_stamped)
			b->stamps.leave[i] = clock_now_ns();
	}
	return TUTTI_OK;
}

/* By the clock of the host. */
static tutti_status bench_time_calls(struct bench *b, const struct sample *s, int n,
				     double *seconds)
{
	bool is_stamped = bench_is_stamped(b);
	uint64_t start = clock_now_ns();

	TRY(bench_iterate(b, s, n, is_stamped));
	*seconds = is_stamped ? stamps_seconds(&b->stamps, (size_t)n)
			      : (double)(clock_now_ns() - start) * 1e-9;
	return TUTTI_OK;
}

/* By events: before the first call, and after the last one or, for percentiles, after each. */
static tutti_status bench_time_on_gpu(struct bench *b, const struct sample *s, int n,
				      double *seconds)
{
	int calls = bench_is_touched(b->options) ? b->options->aggregated : 0, marks = 1;

	TRY(gpu_rank_mark(b->gpu, 0));
	if (b->is_captured)
		TRY(gpu_rank_launch(b->gpu));
	for (int i = 0; !b->is_captured && i < n; i++) {
		TRY(bench_iterate_once(b, s, i * calls));
		if (bench_is_stamped(b) && i + 1 < n)
			TRY(gpu_rank_mark(b->gpu, marks++));
	}
	TRY(gpu_rank_mark(b->gpu, marks));
	TRY(gpu_rank_wait(b->gpu));
	if (bench_is_stamped(b))
		TRY(bench_gpu_stamps(b, n));
	return gpu_rank_seconds(b->gpu, 0, marks, seconds);
}

static tutti_status bench_verify(struct bench *b, struct sample *s, int n)
{
	uint64_t early;

	if (!bench_is_checked(b))
		return TUTTI_OK;
	if (collective_has_data(b->collective)) {
		int slots = n * b->options->aggregated;

		if (b->gpu)
			TRY(bench_gpu_copy(b, true, bench_area_used(b, s, slots)));
		s->wrong += bench_count_wrong(b, s, slots);
		return TUTTI_OK;
	}
	TRY(stamps_early(&b->stamps, (size_t)n, b->comm, &early));
	s->wrong += early;
	return TUTTI_OK;
}

static tutti_status bench_burst(struct bench *b, struct sample *s, int n)
{
	int slots = n * b->options->aggregated;
	double seconds;

	if (bench_is_touched(b->options) && collective_has_data(b->collective))
		TRY(bench_fill(b, s, slots));
	TRY(library_call(&(struct operation){.what = CALL_BARRIER, .comm = b->comm}));
	TRY(b->gpu ? bench_time_on_gpu(b, s, n, &seconds) : bench_time_calls(b, s, n, &seconds));
	s->seconds += seconds;
	if (b->options->percentiles)
		latencies_add(&b->latencies, &b->stamps, (size_t)n);
	TRY(bench_verify(b, s, n));
	b->iteration += (uint64_t)slots;
	return TUTTI_OK;
}

/* The burst as a graph, which is launched -G times; the first launch is not timed, since with it
 * the graph comes to the GPU. */
static tutti_status bench_burst_of_graphs(struct bench *b, struct sample *s, int n)
{
	double before = s->seconds;
	tutti_status status;

	TRY(gpu_rank_capture_begin(b->gpu));
	status = bench_iterate(b, s, n, false);
	TRY(gpu_rank_capture_end(b->gpu, status));
	b->is_captured = true;
	for (int i = 0; i <= b->options->graphs && status == TUTTI_OK; i++) {
		status = bench_burst(b, s, n);
		if (i == 0)
			s->seconds = before;
	}
	b->is_captured = false;
	return status;
}

/* seconds and wrong of all ranks: the sum of wrong, and of seconds what -a asks for. */
static tutti_status bench_combine(struct bench *b, struct sample *s)
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
	int most = bench_burst_of(b, bench_stride_of(o, &s->shape, b->values.element_bytes)), n;

	s->wrong = 0;
	if (!bench_is_touched(o) && collective_has_data(b->collective))
		TRY(bench_fill(b, s, o->aggregated));
	for (int i = 0; i < o->warmups; i++)
		TRY(bench_burst(b, s, 1));
	s->seconds = 0;
	b->latencies.count = 0;
	for (int done = 0; done < o->iterations; done += n) {
		n = o->iterations - done < most ? o->iterations - done : most;
		TRY(o->graphs ? bench_burst_of_graphs(b, s, n) : bench_burst(b, s, n));
	}
	s->seconds /= (double)o->iterations * o->aggregated * (o->graphs ? o->graphs : 1);
	TRY(bench_combine(b, s));
	return o->percentiles ? latencies_combine(&b->latencies, b->comm, &s->percentiles)
			      : TUTTI_OK;
}
