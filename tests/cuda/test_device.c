/* Calls whose kernels wait for each other: captured graphs that replay, ranks that differ, that do
 * not come, or that leave; none of it may end in a GPU that hangs. */
#include "gpu.h"

#include "tests/collectives/thread_ranks.h"
#include "tests/limit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit.h"

#define N      70000 /* too long for packets */
#define FEW    100
#define ROUNDS 5

struct buffers {
	float *in, *out; /* pinned */
	float *send, *recv, *all;
	CUstream stream;
};

static void open_buffers(struct buffers *b, const struct rank *r)
{
	gpu_use(r->rank % gpu_count());
	b->in = gpu_alloc_pinned(N * sizeof *b->in);
	b->out = gpu_alloc_pinned((size_t)r->size * N * sizeof *b->out);
	b->send = gpu_alloc(N * sizeof *b->send);
	b->recv = gpu_alloc(N * sizeof *b->recv);
	b->all = gpu_alloc((size_t)r->size * N * sizeof *b->all);
	b->stream = gpu_stream();
}

static void close_buffers(struct buffers *b)
{
	gpu_stream_free(b->stream);
	gpu_free_pinned(b->in);
	gpu_free_pinned(b->out);
	gpu_free(b->send);
	gpu_free(b->recv);
	gpu_free(b->all);
}

/* all[r] = twice the sum of what the ranks have in send, n elements, for each rank r. */
static void issue(struct rank *r, const struct buffers *b, size_t n)
{
	tutti_call call = {.stream = b->stream};

	expect(r, "all_reduce",
	       tutti_all_reduce(b->send, b->recv, n, TUTTI_F32, TUTTI_SUM, r->comm, &call));
	expect(r, "all_reduce of the sum",
	       tutti_all_reduce(b->recv, b->recv, n, TUTTI_F32, TUTTI_MAX, r->comm, &call));
	expect(r, "all_gather", tutti_all_gather(b->recv, b->all, n, TUTTI_F32, r->comm, &call));
}

static void check(struct rank *r, const struct buffers *b, size_t n, int round)
{
	float sum = (float)(r->size * (r->size - 1) / 2 + r->size * round);

	gpu_copy_in(b->stream, b->out, b->all, (size_t)r->size * n * sizeof *b->out);
	gpu_sync(b->stream);
	for (size_t i = 0; i < (size_t)r->size * n; i++)
		if (b->out[i] != sum + (float)(i % n % 7) * (float)r->size) {
			report_wrong(r, "a replay is wrong", TUTTI_OK);
			return;
		}
}

/* The same by calls with handles, and by a group. */
static void issue_handles(struct rank *r, const struct buffers *b, size_t n)
{
	tutti_work *works[2];
	tutti_call call = {.stream = b->stream, .work = &works[0]};

	expect(r, "all_reduce",
	       tutti_all_reduce(b->send, b->recv, n, TUTTI_F32, TUTTI_SUM, r->comm, &call));
	expect(r, "wait_stream", tutti_work_wait_stream(works[0], b->stream));
	call.work = &works[1];
	expect(r, "all_reduce of the sum",
	       tutti_all_reduce(b->recv, b->recv, n, TUTTI_F32, TUTTI_MAX, r->comm, &call));
	expect(r, "wait_stream", tutti_work_wait_stream(works[1], b->stream));
	expect(r, "work_wait", tutti_work_wait(&works[0], 0));
	tutti_work_release(&works[1]);
	call.work = NULL;
	expect(r, "group_begin", tutti_group_begin());
	tutti_all_gather(b->recv, b->all, n, TUTTI_F32, r->comm, NULL);
	tutti_all_gather(b->recv, b->all, n, TUTTI_F32, r->comm, NULL);
	expect(r, "group_end", tutti_group_end(&call));
}

static void fill(const struct rank *r, const struct buffers *b, size_t n, int round)
{
	for (size_t i = 0; i < n; i++)
		b->in[i] = (float)(r->rank + round) + (float)(i % 7);
	gpu_copy_in(b->stream, b->send, b->in, n * sizeof *b->in);
	gpu_sync(b->stream); /* b->in is used again */
}

typedef void (*issue_fn)(struct rank *, const struct buffers *, size_t n);

static void replay(struct rank *r, size_t n, issue_fn issue_captured)
{
	struct buffers b;
	CUgraph graph;
	CUgraphExec exec;

	open_buffers(&b, r);
	fill(r, &b, n, 0);
	issue(r, &b, n);
	check(r, &b, n, 0);
	GPU(stream_begin_capture, b.stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
	issue_captured(r, &b, n);
	GPU(stream_end_capture, b.stream, &graph);
	GPU(graph_instantiate, &exec, graph, 0);
	for (int round = 1; round < ROUNDS; round++) {
		fill(r, &b, n, round);
		if (round % 2)
			GPU(graph_launch, exec, b.stream);
		else
			issue(r, &b, n); /* between replays */
		check(r, &b, n, round);
	}
	expect(r, "barrier", tutti_barrier(r->comm, NULL));
	GPU(graph_exec_destroy, exec);
	GPU(graph_destroy, graph);
	close_buffers(&b);
}

static void replay_short(struct rank *r)
{
	replay(r, FEW, issue);
}

static void replay_long(struct rank *r)
{
	replay(r, N, issue);
}

static void replay_handles(struct rank *r)
{
	replay(r, N, issue_handles);
}

/* One rank has another count. */
static void differ(struct rank *r)
{
	struct buffers b;
	tutti_call call = {.timeout_ms = 0};
	size_t n = r->rank == 1 ? FEW + 1 : FEW;

	open_buffers(&b, r);
	call.stream = b.stream;
	tutti_status status =
		tutti_all_reduce(b.send, b.recv, n, TUTTI_F32, TUTTI_SUM, r->comm, &call);
	if (status != TUTTI_OK && status != TUTTI_ERR_MISMATCH)
		report_wrong(r, "the call", status);
	gpu_sync(b.stream);
	while (tutti_comm_status(r->comm) == TUTTI_OK)
		tutti_all_reduce(b.send, b.recv, n, TUTTI_F32, TUTTI_SUM, r->comm, NULL);
	if (tutti_comm_status(r->comm) != TUTTI_ERR_MISMATCH ||
	    !strstr(tutti_comm_error(r->comm), "rank 1"))
		report_wrong(r, "not a mismatch", tutti_comm_status(r->comm));
	close_buffers(&b);
}

/* One rank passes host memory. */
static void mixed(struct rank *r)
{
	struct buffers b;
	float host[FEW] = {0};

	open_buffers(&b, r);
	void *recv = r->rank == 1 ? host : b.recv;
	tutti_status status =
		tutti_all_reduce(recv, recv, FEW, TUTTI_F32, TUTTI_SUM, r->comm, NULL);
	if (status != TUTTI_ERR_MISMATCH)
		report_wrong(r, "device and host memory in one call", status);
	close_buffers(&b);
}

/* Rank 0 does not come. The others' kernels run, and end at their deadline. */
static void late(struct rank *r)
{
	struct buffers b;
	tutti_call call = {.timeout_ms = 300};

	open_buffers(&b, r);
	call.stream = b.stream;
	if (r->rank > 0) {
		expect(r, "a call",
		       tutti_all_reduce(b.send, b.recv, N, TUTTI_F32, TUTTI_SUM, r->comm, &call));
		gpu_sync(b.stream);
		if (tutti_comm_status(r->comm) == TUTTI_OK)
			report_wrong(r, "no deadline", TUTTI_OK);
	}
	tutti_barrier(r->other, NULL);
	close_buffers(&b);
}

/* Rank 1 has nothing to send or to get, and no buffer. */
static void empty_varying(struct rank *r, const struct buffers *b, const tutti_call *call)
{
	size_t counts[RANKS_MAX], own[RANKS_MAX];
	bool is_empty = r->rank == 1;
	float *mine = is_empty ? NULL : b->send, *here = is_empty ? NULL : b->all;

	for (int i = 0; i < r->size; i++) {
		counts[i] = i == 1 ? 0 : FEW;
		own[i] = is_empty ? 0 : counts[i];
	}
	expect(r, "gatherv", tutti_gatherv(mine, here, counts, NULL, TUTTI_F32, 0, r->comm, call));
	expect(r, "scatterv",
	       tutti_scatterv(here, mine, counts, NULL, TUTTI_F32, 0, r->comm, call));
	expect(r, "all_to_allv",
	       tutti_all_to_allv(mine, own, NULL, here, own, NULL, TUTTI_F32, r->comm, call));
	expect(r, "no elements",
	       tutti_all_reduce(mine, here, 0, TUTTI_F32, TUTTI_SUM, r->comm, call));
}

static void nothing(struct rank *r)
{
	struct buffers b;
	tutti_call call = {.stream = NULL};

	open_buffers(&b, r);
	call.stream = b.stream;
	fill(r, &b, N, 0);
	empty_varying(r, &b, &call);
	empty_varying(r, &b, NULL);
	issue(r, &b, N);
	check(r, &b, N, 0);
	close_buffers(&b);
}

/* A handle on a device's call, for which other streams and the host wait. */
static void handles(struct rank *r)
{
	struct buffers b;
	tutti_work *works[ROUNDS];
	tutti_call call = {.stream = NULL};

	open_buffers(&b, r);
	call.stream = b.stream;
	fill(r, &b, N, 0);
	for (int i = 0; i < ROUNDS; i++) {
		call.work = &works[i];
		expect(r, "a call",
		       tutti_all_reduce(i ? b.recv : b.send, b.recv, N, TUTTI_F32,
					i ? TUTTI_MAX : TUTTI_SUM, r->comm, &call));
		expect(r, "wait_stream", tutti_work_wait_stream(works[i], b.stream));
	}
	expect(r, "all_gather",
	       tutti_all_gather(b.recv, b.all, N, TUTTI_F32, r->comm,
				&(tutti_call){.stream = b.stream}));
	check(r, &b, N, 0);
	for (int i = ROUNDS - 1; i >= 0; i--)
		expect(r, "work_wait", tutti_work_wait(&works[i], 0));
	close_buffers(&b);
}

/* Calls in turns in two streams that the caller does not order. */
static void two_streams(struct rank *r)
{
	struct buffers b[2];

	for (int k = 0; k < 2; k++) {
		open_buffers(&b[k], r);
		fill(r, &b[k], N, k);
	}
	for (int i = 0; i < ROUNDS; i++)
		issue(r, &b[i % 2], i % 2 ? FEW : N);
	for (int k = 0; k < 2; k++)
		check(r, &b[k], k ? FEW : N, k);
	for (int k = 0; k < 2; k++)
		close_buffers(&b[k]);
}

static void refusals(struct rank *r)
{
	struct buffers b;
	tutti_call call = {.stream = NULL};

	open_buffers(&b, r);
	uint64_t before = tutti_comm_sequence(r->comm);
	if (r->size > 1 && tutti_all_reduce(b.send, b.recv, FEW, TUTTI_F32, TUTTI_SUM, r->comm,
					    &call) != TUTTI_ERR_INVALID)
		report_wrong(r, "the default stream, which threads share", TUTTI_OK);
	if (tutti_comm_sequence(r->comm) != before)
		report_wrong(r, "a refused call has a number", TUTTI_OK);
	close_buffers(&b);
}

static void on_sizes(void (*body)(struct rank *))
{
	gpu_use(0);
	for (int n = 2; n <= gpu_threads(8, 5); n += n < 4 ? 1 : 2)
		with_ranks(n, NULL, 1, body);
}

static void test_graphs(void **state)
{
	on_sizes(replay_short);
	on_sizes(replay_long);
	on_sizes(replay_handles);
}

static void test_handles(void **state)
{
	on_sizes(handles);
	on_sizes(two_streams);
}

static void test_nothing(void **state)
{
	on_sizes(nothing);
}

static void test_differ(void **state)
{
	gpu_use(0);
	with_ranks(2, NULL, 1, differ);
	with_ranks(4, NULL, 1, differ);
	with_ranks(3, NULL, 1, mixed);
}

static void test_late(void **state)
{
	gpu_use(0);
	with_ranks(2, NULL, 1, late);
	with_ranks(5, NULL, 1, late);
}

static void test_refusals(void **state)
{
	on_sizes(refusals);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_graphs),  cmocka_unit_test(test_handles),
		cmocka_unit_test(test_differ),  cmocka_unit_test(test_late),
		cmocka_unit_test(test_nothing), cmocka_unit_test(test_refusals),
	};

	test_limit(300);
	if (!gpu_open()) {
		puts("there is no CUDA driver, or no device");
		return 77;
	}
	return cmocka_run_group_tests(tests, NULL, NULL);
}
