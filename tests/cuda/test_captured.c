/* slow: 12 s */
/* Sends and receives in graphs: rings, exchanges of all with all and with itself, several messages
 * to one peer, chains of calls with collectives between, replayed with other contents, and with
 * eager messages between two replays; by kernels, and by the engine. */
#include "gpu.h"

#include "tests/collectives/thread_ranks.h"
#include "tests/limit.h"
#include "tests/whole.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit.h"

#define FEW    100
#define N      40000  /* of each rank: several lanes    */
#define MANY   150000 /* more than a mailbox has room for */
#define ROUNDS 4

struct buffers {
	uint32_t *host; /* pinned: of `total` words */
	uint32_t *send, *recv, *all;
	size_t n, total;
	CUstream stream;
};

static void open_buffers(struct buffers *b, const struct rank *r, size_t n)
{
	gpu_use(r->rank % gpu_count());
	b->n = n;
	b->total = n * (size_t)r->size;
	b->host = gpu_alloc_pinned(b->total * sizeof *b->host);
	b->send = gpu_alloc(b->total * sizeof *b->send);
	b->recv = gpu_alloc(b->total * sizeof *b->recv);
	b->all = gpu_alloc(b->total * sizeof *b->all);
	b->stream = gpu_stream();
}

static void close_buffers(struct buffers *b)
{
	gpu_stream_free(b->stream);
	gpu_free_pinned(b->host);
	gpu_free(b->send);
	gpu_free(b->recv);
	gpu_free(b->all);
}

/* Word i of what `from` has for `to` in a round. */
static uint32_t word(int from, int to, int round, size_t i)
{
	return (uint32_t)(from * 1000003 + to * 10007 + round * 101 + 7) ^ (uint32_t)i;
}

/* send has a block for each rank, and recv what must not stay. */
static void fill(const struct rank *r, const struct buffers *b, int round)
{
	size_t bytes = b->total * sizeof *b->host;

	memset(b->host, 0x5a, bytes);
	gpu_copy_in(b->stream, b->recv, b->host, bytes);
	gpu_copy_in(b->stream, b->all, b->host, bytes);
	gpu_sync(b->stream);
	for (int to = 0; to < r->size; to++)
		for (size_t i = 0; i < b->n; i++)
			b->host[(size_t)to * b->n + i] = word(r->rank, to, round, i);
	gpu_copy_in(b->stream, b->send, b->host, bytes);
	gpu_sync(b->stream);
}

static void check_words(struct rank *r, const struct buffers *b, const uint32_t *at, int from,
			int to, int round, size_t n)
{
	gpu_copy_in(b->stream, b->host, at, n * sizeof *b->host);
	gpu_sync(b->stream);
	for (size_t i = 0; i < n; i++)
		if (b->host[i] != word(from, to, round, i)) {
			report_wrong(r, "a message is wrong", TUTTI_OK);
			return;
		}
}

/* What is captured, and what there must be afterwards. */
struct scene {
	void (*issue)(struct rank *r, const struct buffers *b, const tutti_call *call);
	void (*check)(struct rank *r, const struct buffers *b, int round);
};

static int next(const struct rank *r)
{
	return (r->rank + 1) % r->size;
}

static int previous(const struct rank *r)
{
	return (r->rank + r->size - 1) % r->size;
}

static uint32_t *block(uint32_t *buffer, const struct buffers *b, int rank)
{
	return buffer + (size_t)rank * b->n;
}

static void send_one(struct rank *r, const struct buffers *b, int to, const tutti_call *call)
{
	expect(r, "send", tutti_send(block(b->send, b, to), b->n, TUTTI_U32, to, r->comm, call));
}

static void recv_one(struct rank *r, const struct buffers *b, int from, const tutti_call *call)
{
	expect(r, "recv",
	       tutti_recv(block(b->recv, b, from), b->n, TUTTI_U32, from, r->comm, call));
}

/* Every rank sends to the next one and receives from the one before. */
static void ring(struct rank *r, const struct buffers *b, const tutti_call *call)
{
	expect(r, "group_begin", tutti_group_begin());
	send_one(r, b, next(r), NULL);
	recv_one(r, b, previous(r), NULL);
	expect(r, "group_end", tutti_group_end(call));
}

static void check_ring(struct rank *r, const struct buffers *b, int round)
{
	int from = previous(r);

	check_words(r, b, block(b->recv, b, from), from, r->rank, round, b->n);
}

/* Also with itself. */
static void exchange(struct rank *r, const struct buffers *b, const tutti_call *call)
{
	expect(r, "group_begin", tutti_group_begin());
	for (int i = 0; i < r->size; i++)
		send_one(r, b, (r->rank + i) % r->size, NULL);
	for (int i = 0; i < r->size; i++)
		recv_one(r, b, (r->rank + r->size - i) % r->size, NULL);
	expect(r, "group_end", tutti_group_end(call));
}

static void exchange_in_order(struct rank *r, const struct buffers *b, const tutti_call *call)
{
	expect(r, "group_begin", tutti_group_begin());
	for (int i = 0; i < r->size; i++) {
		recv_one(r, b, i, NULL);
		send_one(r, b, i, NULL);
	}
	expect(r, "group_end", tutti_group_end(call));
}

static void check_exchange(struct rank *r, const struct buffers *b, int round)
{
	for (int from = 0; from < r->size; from++)
		check_words(r, b, block(b->recv, b, from), from, r->rank, round, b->n);
}

/* A member's own callback is not used. */
static void must_not_be_called(void *arg, tutti_status status)
{
	report_wrong(arg, "a member's own callback was called", status);
}

/* Odd lengths at odd addresses, none at all, with tags: they come in order. */
static void several(struct rank *r, const struct buffers *b, const tutti_call *call)
{
	char *out = (char *)block(b->send, b, next(r)),
	     *in = (char *)block(b->recv, b, previous(r));
	size_t bytes = b->n * sizeof *b->send, cuts[] = {0, 1, 1, bytes / 3, bytes / 3 + 5, bytes};

	expect(r, "group_begin", tutti_group_begin());
	for (int i = 0; i < 5; i++) {
		tutti_call own = {.tag = i % 2, .done = must_not_be_called, .done_arg = r};
		size_t n = cuts[i + 1] - cuts[i];
		expect(r, "send",
		       tutti_send(n ? out + cuts[i] : NULL, n, TUTTI_U8, next(r), r->comm, &own));
		expect(r, "recv",
		       tutti_recv(n ? in + cuts[i] : NULL, n, TUTTI_U8, previous(r), r->comm,
				  &own));
	}
	expect(r, "group_end", tutti_group_end(call));
}

/* A ring, what came to all ranks, and one of them on, by calls of their own: to rank 0, and from
 * it. So the kernels of collectives and of messages follow each other. */
static void chain(struct rank *r, const struct buffers *b, const tutti_call *call)
{
	uint32_t *mine = block(b->recv, b, previous(r));

	ring(r, b, call);
	expect(r, "all_gather", tutti_all_gather(mine, b->all, b->n, TUTTI_U32, r->comm, call));
	if (r->rank == 0) {
		expect(r, "recv", tutti_recv(mine, b->n, TUTTI_U32, 1, r->comm, call));
		expect(r, "send", tutti_send(b->all, b->n, TUTTI_U32, 1, r->comm, call));
	} else if (r->rank == 1) {
		expect(r, "send", tutti_send(mine, b->n, TUTTI_U32, 0, r->comm, call));
		expect(r, "recv", tutti_recv(mine, b->n, TUTTI_U32, 0, r->comm, call));
	}
	expect(r, "all_reduce",
	       tutti_all_reduce(b->send, b->send, FEW, TUTTI_U32, TUTTI_MAX, r->comm, call));
}

static void check_chain(struct rank *r, const struct buffers *b, int round)
{
	const uint32_t *mine = block(b->recv, b, previous(r));
	int from = r->rank < 2 ? 1 - r->rank : r->rank;

	for (int k = 0; k < r->size; k++) {
		int before = (k + r->size - 1) % r->size;
		check_words(r, b, block(b->all, b, k), before, k, round, b->n);
	}
	if (r->rank == 1) /* what rank 0 had first, which is the all_gather's first block */
		check_words(r, b, mine, r->size - 1, 0, round, b->n);
	else if (r->rank == 0)
		check_words(r, b, mine, 0, from, round, b->n);
	else
		check_words(r, b, mine, r->rank - 1, r->rank, round, b->n);
}

/* Collectives and messages in one group, in another order on each rank; with a handle. */
static void mixed(struct rank *r, const struct buffers *b, const tutti_call *call)
{
	tutti_work *work = NULL;
	tutti_call own = {.stream = call->stream, .work = &work};

	expect(r, "group_begin", tutti_group_begin());
	for (int i = 0; i < 3; i++) {
		int what = (i + r->rank) % 3;
		if (what == 0)
			send_one(r, b, next(r), NULL);
		else if (what == 1)
			recv_one(r, b, previous(r), NULL);
		else
			expect(r, "all_gather",
			       tutti_all_gather(block(b->send, b, r->rank), b->all, b->n, TUTTI_U32,
						r->comm, NULL));
	}
	expect(r, "group_end", tutti_group_end(&own));
	expect(r, "wait", tutti_work_wait(&work, 0));
}

static void check_mixed(struct rank *r, const struct buffers *b, int round)
{
	check_ring(r, b, round);
	for (int k = 0; k < r->size; k++)
		check_words(r, b, block(b->all, b, k), k, k, round, b->n);
}

static const struct scene ring_scene = {ring, check_ring},
			  exchange_scene = {exchange, check_exchange},
			  ordered_scene = {exchange_in_order, check_exchange},
			  several_scene = {several, check_ring}, chain_scene = {chain, check_chain},
			  mixed_scene = {mixed, check_mixed};

/* Eager messages have tags and queues of their own. */
static void talk(struct rank *r, const struct buffers *b)
{
	tutti_call call = {.stream = b->stream, .tag = 3};

	expect(r, "group_begin", tutti_group_begin());
	expect(r, "send", tutti_send(b->send, FEW, TUTTI_U32, next(r), r->comm, &call));
	expect(r, "recv", tutti_recv(b->all, FEW, TUTTI_U32, TUTTI_ANY, r->comm, &call));
	expect(r, "group_end", tutti_group_end(&call));
	check_words(r, b, b->all, previous(r), 0, 0, FEW);
}

static void replay(struct rank *r, size_t n, const struct scene *scene)
{
	struct buffers b;
	tutti_call call = {.timeout_ms = 0};
	CUgraph graph;
	CUgraphExec exec;

	open_buffers(&b, r, n);
	call.stream = b.stream;
	fill(r, &b, 0);
	talk(r, &b);
	GPU(stream_begin_capture, b.stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
	scene->issue(r, &b, &call);
	GPU(stream_end_capture, b.stream, &graph);
	GPU(graph_instantiate, &exec, graph, 0);
	for (int round = 1; round < ROUNDS; round++) {
		fill(r, &b, round);
		GPU(graph_launch, exec, b.stream);
		scene->check(r, &b, round);
		fill(r, &b, 0);
		talk(r, &b);
	}
	GPU(graph_launch, exec, b.stream); /* twice, and nothing between */
	fill(r, &b, ROUNDS);
	GPU(graph_launch, exec, b.stream);
	scene->check(r, &b, ROUNDS);
	expect(r, "barrier", tutti_barrier(r->comm, NULL));
	GPU(graph_exec_destroy, exec);
	GPU(graph_destroy, graph);
	close_buffers(&b);
}

static void rings(struct rank *r)
{
	replay(r, FEW, &ring_scene);
	replay(r, MANY, &ring_scene);
}

static void exchanges(struct rank *r)
{
	replay(r, FEW, &exchange_scene);
	replay(r, N, &exchange_scene);
	replay(r, N, &ordered_scene);
}

static void in_order(struct rank *r)
{
	replay(r, FEW, &several_scene);
	replay(r, N, &several_scene);
}

static void chains(struct rank *r)
{
	replay(r, FEW, &chain_scene);
	replay(r, N, &chain_scene);
	replay(r, FEW, &mixed_scene);
	replay(r, N, &mixed_scene);
}

/* A message of its own, of one rank to the next, that needs nobody while it is in the mailbox. */
static void alone(struct rank *r)
{
	struct buffers b;
	tutti_work *work = NULL;
	CUgraph graph;
	CUgraphExec exec;

	open_buffers(&b, r, FEW);
	tutti_call call = {.stream = b.stream, .work = &work};
	fill(r, &b, 1);
	GPU(stream_begin_capture, b.stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
	send_one(r, &b, next(r), &call);
	expect(r, "wait", tutti_work_wait(&work, 0)); /* it is over, as a captured collective is */
	call.work = NULL;
	recv_one(r, &b, previous(r), &call);
	GPU(stream_end_capture, b.stream, &graph);
	GPU(graph_instantiate, &exec, graph, 0);
	GPU(graph_launch, exec, b.stream);
	check_ring(r, &b, 1);
	expect(r, "barrier", tutti_barrier(r->comm, NULL));
	GPU(graph_exec_destroy, exec);
	GPU(graph_destroy, graph);
	close_buffers(&b);
}

static void refused(struct rank *r, const char *what, tutti_status status, const char *why)
{
	if (status != TUTTI_ERR_INVALID || !strstr(tutti_comm_error(NULL), why))
		report_wrong(r, what, status);
}

/* Nothing of it is in the graph, and the communicator stays well. */
static void refusals(struct rank *r)
{
	struct buffers b;
	CUgraph graph;
	uint32_t word_of_host = 0;

	open_buffers(&b, r, FEW);
	tutti_call call = {.stream = b.stream};
	GPU(stream_begin_capture, b.stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
	refused(r, "recv from any", tutti_recv(b.recv, 1, TUTTI_U32, TUTTI_ANY, r->comm, &call),
		"TUTTI_ANY");
	refused(r, "host memory", tutti_send(&word_of_host, 1, TUTTI_U32, 0, r->comm, &call),
		"host memory");
	expect(r, "group_begin", tutti_group_begin());
	send_one(r, &b, next(r), NULL);
	expect(r, "recv", tutti_recv(b.recv, 1, TUTTI_U32, TUTTI_ANY, r->comm, NULL));
	refused(r, "a group with any", tutti_group_end(&call), "TUTTI_ANY");
	expect(r, "group_begin", tutti_group_begin());
	for (int i = 0; i < 129; i++)
		send_one(r, &b, next(r), NULL);
	refused(r, "too many", tutti_group_end(&call), "128 are the most");
	GPU(stream_end_capture, b.stream, &graph);
	GPU(graph_destroy, graph);
	expect(r, "comm", tutti_comm_status(r->comm));
	close_buffers(&b);
}

/* A stream whose capture another operation has made invalid is refused with that reason, for a
 * collective, a message and a wait, and the communicator stays well. */
static void invalidated(struct rank *r)
{
	struct buffers b;
	CUgraph graph;
	tutti_work *work;

	open_buffers(&b, r, FEW);
	tutti_call call = {.stream = b.stream};
	uint64_t before = tutti_comm_sequence(r->comm);
	recv_one(r, &b, previous(r), &(tutti_call){.stream = b.stream, .work = &work});
	GPU(stream_begin_capture, b.stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
	if (gpu.stream_synchronize(b.stream) == CUDA_SUCCESS)
		report_wrong(r, "the capture stays valid", TUTTI_OK);
	refused(r, "a collective",
		tutti_all_reduce(b.send, b.recv, 1, TUTTI_U32, TUTTI_SUM, r->comm, &call),
		"takes part in is invalid");
	refused(r, "a send", tutti_send(b.send, 1, TUTTI_U32, 0, r->comm, &call),
		"takes part in is invalid");
	refused(r, "a wait", tutti_work_wait_stream(work, b.stream), "takes part in is invalid");
	if (gpu.stream_end_capture(b.stream, &graph) == CUDA_SUCCESS)
		report_wrong(r, "the capture ends well", TUTTI_OK);
	if (tutti_comm_sequence(r->comm) != before)
		report_wrong(r, "a refused call has a number", TUTTI_OK);
	/* A recv that is over has nothing to wait for, and would not be refused. */
	expect(r, "barrier", tutti_barrier(r->comm, NULL));
	send_one(r, &b, next(r), NULL);
	expect(r, "wait", tutti_work_wait(&work, 0));
	expect(r, "comm", tutti_comm_status(r->comm));
	expect(r, "barrier", tutti_barrier(r->comm, NULL));
	close_buffers(&b);
}

/* Rank 1 expects one element more than rank 0 sends. An eager recv that it has posted before is not
 * in the way. */
static void differ(struct rank *r)
{
	struct buffers b;
	CUgraph graph;
	CUgraphExec exec;
	tutti_work *posted = NULL;
	uint32_t word_of_host;

	open_buffers(&b, r, FEW);
	tutti_call call = {.stream = b.stream};
	if (r->rank == 1)
		expect(r, "eager recv",
		       tutti_recv(&word_of_host, 1, TUTTI_U32, TUTTI_ANY, r->comm,
				  &(tutti_call){.work = &posted}));
	GPU(stream_begin_capture, b.stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
	if (r->rank == 0)
		expect(r, "send", tutti_send(b.send, FEW, TUTTI_U32, 1, r->comm, &call));
	if (r->rank == 1)
		expect(r, "recv", tutti_recv(b.recv, FEW + 1, TUTTI_U32, 0, r->comm, &call));
	GPU(stream_end_capture, b.stream, &graph);
	GPU(graph_instantiate, &exec, graph, 0);
	GPU(graph_launch, exec, b.stream);
	gpu_sync(b.stream);
	while (r->rank == 1 && tutti_comm_status(r->comm) == TUTTI_OK)
		sched_yield(); /* it hears of it in no call */
	while (tutti_comm_status(r->comm) == TUTTI_OK)
		tutti_all_reduce(b.send, b.all, FEW, TUTTI_U32, TUTTI_SUM, r->comm, NULL);
	if (tutti_comm_status(r->comm) != TUTTI_ERR_MISMATCH ||
	    !strstr(tutti_comm_error(r->comm),
		    "rank 0 sent a message of 400 bytes, and the recv is "
		    "for 404"))
		report_wrong(r, "not that mismatch", tutti_comm_status(r->comm));
	tutti_work_wait(&posted, 0);
	GPU(graph_exec_destroy, exec);
	GPU(graph_destroy, graph);
	close_buffers(&b);
}

static void on_sizes(void (*body)(struct rank *))
{
	static const int sizes[] = {2, 3, 4, 8, 6};

	gpu_use(0);
	for (int i = 0; i < whole_or(5, 5, 3); i++)
		with_ranks(gpu_threads(sizes[i], 5), NULL, 1, body);
}

#define ON_SIZES(body)                                                                             \
	static void test_##body(void **state)                                                      \
	{                                                                                          \
		(void)state;                                                                       \
		on_sizes(body);                                                                    \
	}
ON_SIZES(rings)
ON_SIZES(exchanges)
ON_SIZES(in_order)
ON_SIZES(chains)
ON_SIZES(alone)
ON_SIZES(refusals)

static void test_differ(void **state)
{
	gpu_use(0);
	with_ranks(2, NULL, 1, differ);
	with_ranks(4, NULL, 1, differ);
}

static void test_invalidated(void **state)
{
	gpu_use(0);
	with_ranks(2, NULL, 1, invalidated);
	GPU(ctx_set_current, NULL);
	with_ranks(2, NULL, 1, invalidated); /* by the engine */
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_rings),    cmocka_unit_test(test_exchanges),
		cmocka_unit_test(test_in_order), cmocka_unit_test(test_chains),
		cmocka_unit_test(test_alone),    cmocka_unit_test(test_refusals),
		cmocka_unit_test(test_differ),   cmocka_unit_test(test_invalidated),
	};

	const struct CMUnitTest by_engine[] = {
		cmocka_unit_test(test_rings),
		cmocka_unit_test(test_exchanges),
		cmocka_unit_test(test_chains),
		cmocka_unit_test(test_alone),
	};

	test_limit(300);
	setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0); /* docs/cuda.md: limits */
	if (!gpu_open()) {
		puts("there is no CUDA driver, or no device");
		return 77;
	}
	int failed = cmocka_run_group_tests(tests, NULL, NULL);
	setenv("TUTTI_CUDA", "1", 1);
	return failed + cmocka_run_group_tests(by_engine, NULL, NULL);
}
