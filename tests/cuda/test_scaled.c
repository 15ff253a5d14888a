/* slow: 4 s */
/* Scaled sums by kernels, in streams and in graphs: other bits than host memory has, of any float
 * type, in packets, in lines, and at odd addresses; or a graph that needs the op it was made of. */
#include "gpu.h"

#include "core/memory/dtype.h"
#include "tests/collectives/thread_ranks.h"
#include "tests/limit.h"
#include "tests/random.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit.h"

#define FEW    99
#define N      21001 /* too long for packets */
#define ROUNDS 3

static const tutti_dtype floats[] = {TUTTI_F32,  TUTTI_F64,     TUTTI_F16,
				     TUTTI_BF16, TUTTI_F8_E4M3, TUTTI_F8_E5M2};

struct buffers {
	tutti_dtype dtype;
	size_t n, bytes;       /* of a block */
	char *in, *want, *got; /* of the host: in has a block for each rank; so have send, recv */
	char *send, *recv;
	uint64_t scalar;
	CUstream stream;
};

/* From a byte on that is no multiple of 16. */
static void open_buffers(struct buffers *b, struct rank *r, tutti_dtype dtype, size_t n)
{
	gpu_use(r->rank % gpu_count());
	b->dtype = dtype;
	b->n = n;
	b->bytes = n * dtype_bytes(dtype);
	b->in = gpu_alloc_pinned(b->bytes * (size_t)r->size);
	b->want = gpu_alloc_pinned(b->bytes);
	b->got = gpu_alloc_pinned(b->bytes);
	b->send = gpu_alloc(b->bytes * (size_t)r->size + 64);
	b->recv = gpu_alloc(b->bytes + 64);
	b->scalar = random_next(&r->seed) + (unsigned)r->rank;
	b->stream = gpu_stream();
}

static void close_buffers(struct buffers *b)
{
	gpu_stream_free(b->stream);
	gpu_free_pinned(b->in);
	gpu_free_pinned(b->want);
	gpu_free_pinned(b->got);
	gpu_free(b->send);
	gpu_free(b->recv);
}

/* Any bits: numbers of all sizes, infinities and NaNs among them. */
static void fill(struct rank *r, const struct buffers *b)
{
	for (size_t i = 0; i < b->bytes * (size_t)r->size; i++)
		b->in[i] = (char)random_next(&r->seed);
	gpu_copy_in(b->stream, b->send + dtype_bytes(b->dtype), b->in, b->bytes * (size_t)r->size);
	gpu_sync(b->stream);
}

enum { ALL_REDUCE, REDUCE, REDUCE_SCATTER, WAYS };

static void issue(struct rank *r, const struct buffers *b, int way, tutti_op op, const void *send,
		  void *recv, const tutti_call *call)
{
	if (way == ALL_REDUCE)
		expect(r, "all_reduce",
		       tutti_all_reduce(send, recv, b->n, b->dtype, op, r->comm, call));
	else if (way == REDUCE)
		expect(r, "reduce", tutti_reduce(send, recv, b->n, b->dtype, op, 1, r->comm, call));
	else
		expect(r, "reduce_scatter",
		       tutti_reduce_scatter(send, recv, b->n, b->dtype, op, r->comm, call));
}

static void compare(struct rank *r, const struct buffers *b, int way)
{
	gpu_copy_in(b->stream, b->got, b->recv, b->bytes);
	gpu_sync(b->stream);
	if ((way != REDUCE || r->rank == 1) && memcmp(b->got, b->want, b->bytes) != 0)
		report_wrong(r, dtype_name(b->dtype), TUTTI_OK);
}

static void replay(struct rank *r, tutti_dtype dtype, size_t n, int way)
{
	struct buffers b;
	tutti_op op, again;
	CUgraph graph;
	CUgraphExec exec;

	open_buffers(&b, r, dtype, n);
	tutti_call call = {.stream = b.stream};
	const char *send = b.send + dtype_bytes(dtype);
	expect(r, "op", tutti_op_create_scaled(&op, &b.scalar, dtype));
	expect(r, "op", tutti_op_create_scaled(&again, &b.scalar, dtype));
	fill(r, &b);
	issue(r, &b, way, op, b.in, b.want, NULL);
	issue(r, &b, way, op, send, b.recv, &call);
	compare(r, &b, way);
	GPU(stream_begin_capture, b.stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
	issue(r, &b, way, op, send, b.recv, &call);
	GPU(stream_end_capture, b.stream, &graph);
	GPU(graph_instantiate, &exec, graph, 0);
	tutti_op_destroy(op); /* the graph has its scalar */
	for (int round = 0; round < ROUNDS; round++) {
		fill(r, &b);
		issue(r, &b, way, again, b.in, b.want, NULL);
		GPU(graph_launch, exec, b.stream);
		compare(r, &b, way);
	}
	expect(r, "barrier", tutti_barrier(r->comm, NULL));
	tutti_op_destroy(again);
	GPU(graph_exec_destroy, exec);
	GPU(graph_destroy, graph);
	close_buffers(&b);
}

static void replays(struct rank *r)
{
	for (size_t i = 0; i < sizeof floats / sizeof *floats; i++)
		for (int way = 0; way < WAYS; way++) {
			replay(r, floats[i], FEW, way);
			replay(r, floats[i], N, way);
		}
}

static void test_replays(void **state)
{
	gpu_use(0);
	with_ranks(2, NULL, 1, replays);
	with_ranks(3, NULL, 2, replays);
	with_ranks(gpu_threads(5, 5), NULL, 3, replays);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_replays)};

	test_limit(300);
	setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0); /* docs/cuda.md: limits */
	if (!gpu_open()) {
		puts("there is no CUDA driver, or no device");
		return 77;
	}
	return cmocka_run_group_tests(tests, NULL, NULL);
}
