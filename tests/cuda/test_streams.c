/* Calls in the order of a stream: one that begins before the stream's earlier work has ended reads
 * garbage; one whose end the stream does not wait for is copied out too early; one that waits on
 * the CPU never returns here, because the stream is held until it has. */
#include "gpu.h"

#include "tests/collectives/thread_ranks.h"
#include "tests/limit.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit.h"

#define N       3001
#define GARBAGE 0x5a

enum what {
	ALL_REDUCE,
	ALL_GATHER,
	BROADCAST,
	REDUCE_SCATTER,
	ALL_TO_ALL,
	GATHERV,
	MESSAGES,
	WHATS
};

/* One rank's buffers, and what goes in and comes out behind its stream's gate. They are made before
 * the first call: freeing waits for all that runs on the GPU, and so perhaps for this rank. */
struct ride {
	int32_t *in, *out, *garbage, *host; /* pinned */
	int32_t *send, *recv;
	_Atomic uint32_t *gate;
	CUstream stream;
};

static size_t bytes_of(const struct rank *r)
{
	return (size_t)r->size * N * sizeof(int32_t);
}

static int32_t value(int rank, size_t i)
{
	return (int32_t)((uint32_t)rank * 7919u + (uint32_t)i * 31u + 7u);
}

static void open_ride(struct ride *d, const struct rank *r)
{
	size_t bytes = bytes_of(r);

	gpu_use(r->rank % gpu_count());
	d->in = gpu_alloc_pinned(bytes);
	d->out = gpu_alloc_pinned(bytes);
	d->garbage = gpu_alloc_pinned(bytes);
	d->host = gpu_alloc_pinned(bytes);
	d->send = gpu_alloc(bytes);
	d->recv = gpu_alloc(bytes);
	d->gate = gpu_alloc_pinned(sizeof *d->gate);
	d->stream = gpu_stream();
	memset(d->garbage, GARBAGE, bytes);
	for (size_t i = 0; i < bytes / sizeof *d->in; i++)
		d->in[i] = value(r->rank, i);
}

static void close_ride(struct ride *d)
{
	gpu_stream_free(d->stream);
	gpu_free_pinned(d->in);
	gpu_free_pinned(d->out);
	gpu_free_pinned(d->garbage);
	gpu_free_pinned(d->host);
	gpu_free_pinned((void *)(uintptr_t)d->gate);
	gpu_free(d->send);
	gpu_free(d->recv);
}

/* Behind a closed gate: garbage in both buffers, then what is to be sent. */
static void hold(struct ride *d, const struct rank *r, CUstream stream)
{
	size_t bytes = bytes_of(r);
	CUdeviceptr word;

	gpu_write(d->send, d->garbage, bytes);
	memset(d->out, GARBAGE, bytes);
	atomic_store(d->gate, 0);
	GPU(mem_host_get_device_pointer, &word, (void *)(uintptr_t)d->gate, 0);
	GPU(stream_wait_value32, stream, word, 1, CU_STREAM_WAIT_VALUE_EQ);
	gpu_copy_in(stream, d->recv, d->garbage, bytes);
	gpu_copy_in(stream, d->send, d->in, bytes);
}

static tutti_status messages(struct rank *r, const struct ride *d, const tutti_call *call)
{
	int next = (r->rank + 1) % r->size, before = (r->rank + r->size - 1) % r->size;
	tutti_status status;

	if ((status = tutti_group_begin()) != TUTTI_OK)
		return status;
	tutti_send(d->send, N, TUTTI_I32, next, r->comm, NULL);
	tutti_recv(d->recv, N, TUTTI_I32, before, r->comm, NULL);
	return tutti_group_end(call);
}

static tutti_status issue(struct rank *r, enum what what, const struct ride *d,
			  const tutti_call *call)
{
	tutti_comm *comm = r->comm;
	size_t counts[RANKS_MAX];

	for (int i = 0; i < r->size; i++)
		counts[i] = (size_t)(N - i);
	switch (what) {
	case ALL_REDUCE:
		return tutti_all_reduce(d->send, d->recv, N, TUTTI_I32, TUTTI_SUM, comm, call);
	case ALL_GATHER:
		return tutti_all_gather(d->send, d->recv, N, TUTTI_I32, comm, call);
	case BROADCAST:
		return tutti_broadcast(d->send, d->recv, N, TUTTI_I32, r->size - 1, comm, call);
	case REDUCE_SCATTER:
		return tutti_reduce_scatter(d->send, d->recv, N, TUTTI_I32, TUTTI_SUM, comm, call);
	case ALL_TO_ALL:
		return tutti_all_to_all(d->send, d->recv, N, TUTTI_I32, comm, call);
	case GATHERV:
		return tutti_gatherv(d->send, d->recv, counts, NULL, TUTTI_I32, 0, comm, call);
	default:
		return messages(r, d, call);
	}
}

static int32_t sum(const struct rank *r, size_t i)
{
	uint32_t s = 0;

	for (int k = 0; k < r->size; k++)
		s += (uint32_t)value(k, i);
	return (int32_t)s;
}

/* Element i of block b of what rank r receives. */
static int32_t expected(const struct rank *r, enum what what, int b, size_t i)
{
	switch (what) {
	case ALL_REDUCE:
		return sum(r, i);
	case REDUCE_SCATTER:
		return sum(r, (size_t)r->rank * N + i);
	case BROADCAST:
		return value(r->size - 1, i);
	case ALL_TO_ALL:
		return value(b, (size_t)r->rank * N + i);
	case MESSAGES:
		return value((r->rank + r->size - 1) % r->size, i);
	default:
		return value(b, i);
	}
}

static int blocks_of(const struct rank *r, enum what what)
{
	if (what == GATHERV)
		return r->rank == 0 ? r->size : 0;
	return what == ALL_GATHER || what == ALL_TO_ALL ? r->size : 1;
}

static void check(struct rank *r, enum what what, const int32_t *out, const char *how)
{
	char text[100];
	const int32_t *at = out;

	for (int b = 0; b < blocks_of(r, what); b++) {
		size_t n = what == GATHERV ? (size_t)(N - b) : N;
		for (size_t i = 0; i < n; i++)
			if (at[i] != expected(r, what, b, i)) {
				snprintf(text, sizeof text,
					 "%s, call %d: element %zu of block %d is %d", how,
					 (int)what, i, b, at[i]);
				report_wrong(r, text, TUTTI_OK);
				return;
			}
		at += n;
	}
}

/* A call without work and done only goes into the stream. */
static void in_stream(struct rank *r, enum what what, struct ride *d)
{
	tutti_call call = {.stream = d->stream};

	hold(d, r, d->stream);
	expect(r, "a call in a stream", issue(r, what, d, &call));
	gpu_copy_in(d->stream, d->out, d->recv, bytes_of(r));
	atomic_store(d->gate, 1);
	gpu_sync(d->stream);
	check(r, what, d->out, "in stream");
}

/* A handle, for which another stream waits. */
static void with_handle(struct rank *r, enum what what, struct ride *d)
{
	tutti_work *work = NULL;
	tutti_call call = {.stream = d->stream, .work = &work};
	CUstream other = gpu_stream();

	hold(d, r, d->stream);
	expect(r, "a call with a handle", issue(r, what, d, &call));
	expect(r, "work_wait_stream", tutti_work_wait_stream(work, other));
	gpu_copy_in(other, d->out, d->recv, bytes_of(r));
	atomic_store(d->gate, 1);
	gpu_sync(other);
	check(r, what, d->out, "another stream");
	expect(r, "work_wait", tutti_work_wait(&work, 0));
	gpu_stream_free(other);
}

/* Blocking, behind the work of the legacy default stream. */
static void blocking(struct rank *r, enum what what, struct ride *d)
{
	gpu_copy_in(NULL, d->send, d->garbage, bytes_of(r));
	gpu_copy_in(NULL, d->send, d->in, bytes_of(r));
	expect(r, "a blocking call", issue(r, what, d, NULL));
	gpu_read(d->out, d->recv, bytes_of(r));
	check(r, what, d->out, "blocking");
}

/* Host memory that the stream still has to fill. */
static void host_memory(struct rank *r, enum what what, struct ride *d)
{
	struct ride host = {.send = d->host, .recv = calloc(1, bytes_of(r))};
	tutti_work *work = NULL;
	tutti_call call = {.stream = d->stream, .work = &work};

	memset(d->host, GARBAGE, bytes_of(r));
	hold(d, r, d->stream);
	gpu_copy_in(d->stream, d->host, d->send, bytes_of(r));
	expect(r, "a call on host memory", issue(r, what, &host, &call));
	atomic_store(d->gate, 1);
	expect(r, "work_wait", tutti_work_wait(&work, 0));
	check(r, what, host.recv, "host memory");
	free(host.recv);
}

/* Streams that wait for short calls on host memory, each right behind its begin, when its work is
 * not filled in. Handles are kept, so that no work is one that was used before. */
static void short_calls(struct rank *r, struct ride *d)
{
	enum { CALLS = 64 };
	tutti_work *works[CALLS];
	uint32_t sums[CALLS], want = (uint32_t)(r->size * (r->size + 1) / 2);

	for (int i = 0; i < CALLS; i++) {
		tutti_call call = {.work = &works[i]};

		sums[i] = (uint32_t)r->rank + 1;
		expect(r, "a short call",
		       tutti_all_reduce(&sums[i], &sums[i], 1, TUTTI_U32, TUTTI_SUM, r->comm,
					&call));
		expect(r, "work_wait_stream", tutti_work_wait_stream(works[i], d->stream));
		gpu_sync(d->stream);
		if (sums[i] != want)
			report_wrong(r, "a short call", TUTTI_OK);
	}
	for (int i = 0; i < CALLS; i++)
		expect(r, "work_wait", tutti_work_wait(&works[i], 0));
}

static void every_call(struct rank *r)
{
	struct ride d;

	open_ride(&d, r);
	blocking(r, ALL_REDUCE, &d); /* loads kernels, for which the driver may wait for streams */
	for (int what = 0; what < WHATS; what++) {
		in_stream(r, (enum what)what, &d);
		with_handle(r, (enum what)what, &d);
		blocking(r, (enum what)what, &d);
		host_memory(r, (enum what)what, &d);
	}
	short_calls(r, &d);
	close_ride(&d);
}

/* Many calls in one stream, each on the result of the one before. */
static void chain(struct rank *r)
{
	struct ride d;
	tutti_call call = {.stream = NULL};
	uint32_t want = 0;

	open_ride(&d, r);
	call.stream = d.stream;
	for (int k = 0; k < r->size; k++)
		want += (uint32_t)value(k, 5);
	hold(&d, r, d.stream);
	for (int i = 0; i < 20; i++) {
		expect(r, "a call of a chain",
		       tutti_all_reduce(i ? d.recv : d.send, d.recv, N, TUTTI_U32, TUTTI_SUM,
					r->comm, &call));
		want *= i ? (uint32_t)r->size : 1;
	}
	gpu_copy_in(d.stream, d.out, d.recv, bytes_of(r));
	atomic_store(d.gate, 1);
	gpu_sync(d.stream);
	if ((uint32_t)d.out[5] != want)
		report_wrong(r, "a chain of calls", TUTTI_OK);
	close_ride(&d);
}

/* A stream never waits for a call that has failed. */
static void failure(struct rank *r)
{
	struct ride d;
	tutti_call call = {.stream = NULL};

	open_ride(&d, r);
	call.stream = d.stream;
	if (r->rank == 0) {
		expect(r, "barrier", tutti_barrier(r->other, NULL));
		tutti_comm_abort(r->comm);
	} else {
		expect(r, "a call before the abort", issue(r, ALL_REDUCE, &d, &call));
		expect(r, "barrier", tutti_barrier(r->other, NULL));
		gpu_sync(d.stream);
		if (tutti_comm_status(r->comm) == TUTTI_OK)
			report_wrong(r, "the failure was not seen", TUTTI_OK);
	}
	close_ride(&d);
}

/* More pinned memory than there is. */
static inline void no_copies(struct rank *r)
{
	struct ride d;
	int peer = 1 - r->rank;
	tutti_status status;

	open_ride(&d, r);
	status = r->rank == 0 ? tutti_send(d.send, (size_t)1 << 46, TUTTI_U8, peer, r->comm, NULL)
			      : tutti_recv(d.recv, 1, TUTTI_U8, peer, r->comm, NULL);
	if (status == TUTTI_OK || !strstr(tutti_comm_error(r->comm), "ank 0") ||
	    !strstr(tutti_comm_error(r->comm), "cuMemHostAlloc"))
		report_wrong(r, "the failure is not explained", status);
	close_ride(&d);
}

/* Those that are behind a stream's earlier work hear of a failure, too, before that has ended. */
static void failure_while_held(struct rank *r)
{
	struct ride d;
	tutti_work *work = NULL;
	tutti_call call = {.work = &work};

	open_ride(&d, r);
	blocking(r, ALL_REDUCE, &d); /* loads kernels */
	call.stream = d.stream;
	hold(&d, r, d.stream);
	expect(r, "a call before the abort", issue(r, ALL_REDUCE, &d, &call));
	expect(r, "barrier", tutti_barrier(r->other, NULL));
	if (r->rank == 0)
		tutti_comm_abort(r->comm);
	if (tutti_work_wait(&work, 0) != TUTTI_ERR_ABORTED)
		report_wrong(r, "the failure was not seen", TUTTI_OK);
	atomic_store(d.gate, 1);
	gpu_sync(d.stream);
	close_ride(&d);
}

/* A communicator goes while calls of another one are held, perhaps by a rank that waits for this.
 */
static void destroy_while_held(struct rank *r)
{
	struct ride d;
	tutti_call call = {.stream = NULL};

	open_ride(&d, r);
	blocking(r, ALL_REDUCE, &d); /* loads kernels */
	for (int what = 0; what < WHATS; what++)
		expect(r, "a call",
		       issue(&(struct rank){.comm = r->other, .rank = r->rank, .size = r->size},
			     (enum what)what, &d, NULL));
	call.stream = d.stream;
	hold(&d, r, d.stream);
	expect(r, "a call", issue(r, ALL_REDUCE, &d, &call));
	tutti_comm_destroy(r->other);
	r->other = NULL;
	atomic_store(d.gate, 1);
	gpu_sync(d.stream);
	close_ride(&d);
}

static void on_all(void (*body)(struct rank *))
{
	static const char *const ways[] = {NULL, "shm", "tcp"};
	static const int sizes[] = {1, 2, 3, 8};

	for (size_t w = 0; w < 3; w++)
		for (size_t i = 0; i < 4; i++)
			with_ranks(gpu_threads(sizes[i], 6), ways[w], 1, body);
}

static void test_every_call(void **state)
{
	on_all(every_call);
}

/* The thread that makes the communicators has a GPU: so have all ranks, and their kernels wait for
 * each other. */
static void test_on_device(void **state)
{
	gpu_use(0);
	on_all(every_call);
	on_all(chain);
	with_ranks(2, NULL, 1, failure);
	with_ranks(5, NULL, 1, failure);
	with_ranks(3, NULL, 1, failure_while_held);
	GPU(ctx_set_current, NULL);
}

static void test_chain(void **state)
{
	on_all(chain);
}

static void test_destroy(void **state)
{
	with_ranks(2, "tcp", 1, destroy_while_held);
	with_ranks(3, NULL, 1, destroy_while_held);
	gpu_use(0);
	with_ranks(3, NULL, 1, destroy_while_held);
	GPU(ctx_set_current, NULL);
}

static void test_failure(void **state)
{
	with_ranks(2, NULL, 1, failure);
	with_ranks(3, "tcp", 1, failure);
	with_ranks(3, NULL, 1, failure_while_held);
	with_ranks(2, "tcp", 1, failure_while_held);
#if !defined __SANITIZE_ADDRESS__ && !defined __SANITIZE_THREAD__ /* end the program for it */
	with_ranks(2, NULL, 1, no_copies);
#endif
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_every_call), cmocka_unit_test(test_chain),
		cmocka_unit_test(test_on_device),  cmocka_unit_test(test_failure),
		cmocka_unit_test(test_destroy),
	};

	test_limit(300);
	if (!gpu_open()) {
		puts("there is no CUDA driver, or no device");
		return 77;
	}
	return cmocka_run_group_tests(tests, NULL, NULL);
}
