/* Capture into graphs and their replay: which nodes, in which order, how often; and each way in
 * which a capture fails. */
#include "tests/cuda/driver/check.h"
#include "tests/cuda/driver/own_kernels.h"
#include "tests/limit.h"

#include <pthread.h>
#include <stdatomic.h>

#define GLOBAL       CU_STREAM_CAPTURE_MODE_GLOBAL
#define THREAD_LOCAL CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
#define RELAXED      CU_STREAM_CAPTURE_MODE_RELAXED

static CUstream s, fork_stream;
static CUevent forked, joined;

static int begin(void **state)
{
	use_gpu(0);
	s = new_stream(CU_STREAM_NON_BLOCKING);
	fork_stream = new_stream(CU_STREAM_NON_BLOCKING);
	forked = new_event();
	joined = new_event();
	return 0;
}

static int finish(void **state)
{
	ok(cuStreamDestroy_v2(s));
	ok(cuStreamDestroy_v2(fork_stream));
	ok(cuEventDestroy_v2(forked));
	ok(cuEventDestroy_v2(joined));
	return 0;
}

static void fork_here(void)
{
	ok(cuEventRecord(forked, s));
	ok(cuStreamWaitEvent(fork_stream, forked, 0));
}

static void join_here(void)
{
	ok(cuEventRecord(joined, fork_stream));
	ok(cuStreamWaitEvent(s, joined, 0));
}

static CUgraphExec end_capture(void)
{
	CUgraphExec exec;
	CUgraph graph;

	ok(cuStreamEndCapture(s, &graph));
	ok(cuGraphInstantiateWithFlags(&exec, graph, 0));
	ok(cuGraphDestroy(graph));
	return exec;
}

static void count(void *calls)
{
	++*(int *)calls;
}

/* Every kind of node, in two streams. The words of p: 0 copied, 1 counted by a kernel, 2 written.
 */
static void every_node_is_replayed(void **state)
{
	CUdeviceptr p = device_memory(12);
	uint32_t *from = pinned_memory(4), *gate = pinned_memory(4), *out = pinned_memory(12);
	struct fake_fill_args fill = {(uint32_t *)(uintptr_t)p + 1, 1, 5};
	int calls = 0;

	ok(cuMemsetD8Async(p, 0, 12, s));
	ok(cuStreamBeginCapture_v2(s, GLOBAL));
	ok(cuStreamWaitValue32_v2(s, address(gate), 1, CU_STREAM_WAIT_VALUE_GEQ));
	fork_here();
	ok(cuMemcpyAsync(p, address(from), 4, s));
	launch("fake_fill", 1, &fill, fork_stream);
	fill.add = 77;
	ok(cuStreamWriteValue32_v2(fork_stream, p + 8, 3, 0));
	join_here();
	ok(cuMemcpyAsync(address(out), p, 12, s));
	ok(cuMemsetD8Async(p, 0, 4, s));
	ok(cuLaunchHostFunc(s, count, &calls));
	CUgraphExec exec = end_capture();
	assert_int_equal(calls, 0);
	for (uint32_t i = 1; i <= 3; i++) {
		*from = 100 + i;
		*gate = 0;
		ok(cuGraphLaunch(exec, s));
		fails(cuStreamQuery(s), CUDA_ERROR_NOT_READY);
		atomic_store((_Atomic uint32_t *)gate, 1);
		ok(cuStreamSynchronize(s));
		assert_int_equal(calls, i);
		assert_int_equal(out[0], 100 + i);
		assert_int_equal(out[1], 5 * i);
		assert_int_equal(out[2], 3);
		assert_int_equal(read_word(p, s), 0);
	}
	ok(cuGraphExecDestroy(exec));
	ok(cuMemFree_v2(p));
	ok(cuMemFreeHost(from));
	ok(cuMemFreeHost(gate));
	ok(cuMemFreeHost(out));
}

/* The word of a gate, which each replay shuts, and what came through it. */
struct gate {
	_Atomic uint32_t *word;
	atomic_int shut;
};

static void shut(void *arg)
{
	struct gate *gate = arg;

	atomic_store(gate->word, 0);
	atomic_fetch_add(&gate->shut, 1);
}

/* A host function ends before the batch behind it looks at the words, of which all must come. */
static void a_batch_waits_in_each_replay(void **state)
{
	uint32_t *words = pinned_memory(12);
	struct gate gate = {(_Atomic uint32_t *)words, 0};
	CUstreamBatchMemOpParams ops[2] = {
		{.waitValue = {.operation = CU_STREAM_MEM_OP_WAIT_VALUE_32,
			       .address = address(words),
			       .value = 1,
			       .flags = CU_STREAM_WAIT_VALUE_GEQ}}};

	ops[1] = ops[0];
	ops[1].waitValue.address = address(words + 1);
	words[0] = 1; /* before the first one, too */
	ok(cuStreamBeginCapture_v2(s, GLOBAL));
	ok(cuLaunchHostFunc(s, shut, &gate));
	ok(cuStreamBatchMemOp_v2(s, 2, ops, 0));
	ok(cuStreamWriteValue32_v2(s, address(words + 1), 0, 0));
	CUgraphExec exec = end_capture();
	for (int i = 1; i <= 3; i++)
		ok(cuGraphLaunch(exec, s));
	for (int i = 1; i <= 3; i++) {
		while (atomic_load(&gate.shut) < i)
			sched_yield();
		let_others_run();
		fails(cuStreamQuery(s), CUDA_ERROR_NOT_READY);
		assert_int_equal(atomic_load(&gate.shut), i);
		atomic_store(gate.word, 1);
		let_others_run();
		assert_int_equal(atomic_load(&gate.shut), i);
		atomic_store((_Atomic uint32_t *)words + 1, 1);
	}
	ok(cuStreamSynchronize(s));
	ok(cuGraphExecDestroy(exec));
	ok(cuMemFreeHost(words));
}

/* Two branches wait for each other; two launches of the graph come after one another. */
static void branches_run_at_once(void **state)
{
	uint32_t *came = pinned_memory(4);
	struct fake_meet_args meet = {came, 2};

	ok(cuStreamBeginCapture_v2(s, GLOBAL));
	ok(cuStreamWriteValue32_v2(s, address(came), 0, 0));
	fork_here();
	launch("fake_meet", 1, &meet, s);
	launch("fake_meet", 1, &meet, fork_stream);
	join_here();
	CUgraphExec exec = end_capture();
	for (int i = 0; i < 3; i++) {
		ok(cuGraphLaunch(exec, s));
		ok(cuGraphLaunch(exec, fork_stream));
	}
	ok(cuGraphExecDestroy(exec)); /* what was launched ends */
	ok(cuStreamSynchronize(s));
	ok(cuStreamSynchronize(fork_stream));
	assert_int_equal(*came, 2);
	ok(cuMemFreeHost(came));
}

static void count_one(void *calls)
{
	atomic_fetch_add((_Atomic int *)calls, 1);
}

/* While a branch of the first launch waits, no branch of the second one begins. */
static void launches_do_not_overlap(void **state)
{
	_Atomic uint32_t *gate = pinned_memory(4);
	_Atomic int calls = 0;

	ok(cuStreamBeginCapture_v2(s, GLOBAL));
	fork_here();
	ok(cuLaunchHostFunc(s, count_one, &calls));
	ok(cuStreamWaitValue32_v2(fork_stream, address((void *)(uintptr_t)gate), 1, 0));
	join_here();
	CUgraphExec exec = end_capture();
	ok(cuGraphLaunch(exec, s));
	ok(cuGraphLaunch(exec, fork_stream));
	while (atomic_load(&calls) == 0)
		sched_yield();
	let_others_run();
	assert_int_equal(atomic_load(&calls), 1);
	atomic_store(gate, 1);
	ok(cuStreamSynchronize(fork_stream));
	assert_int_equal(atomic_load(&calls), 2);
	ok(cuGraphExecDestroy(exec));
	ok(cuMemFreeHost((void *)(uintptr_t)gate));
}

/* Streams that are destroyed while they capture. */
static void destroyed_streams_end_captures(void **state)
{
	CUstream origin = new_stream(0), other = new_stream(0);
	CUgraph graph;

	ok(cuStreamBeginCapture_v2(origin, GLOBAL));
	ok(cuStreamDestroy_v2(origin));
	ok(cuMemFree_v2(device_memory(64))); /* nothing forbids it */
	ok(cuStreamBeginCapture_v2(s, GLOBAL));
	ok(cuEventRecord(forked, s));
	ok(cuStreamWaitEvent(other, forked, 0));
	ok(cuStreamDestroy_v2(other));
	fails(cuStreamEndCapture(s, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
}

static void a_capture_has_a_number(void **state)
{
	CUstreamCaptureStatus status;
	uint64_t id = 0, other = 0;

	ok(cuStreamGetCaptureInfo_v2(s, &status, NULL, NULL, NULL, NULL));
	assert_int_equal(status, CU_STREAM_CAPTURE_STATUS_NONE);
	for (int i = 0; i < 2; i++) {
		uint64_t before = id;
		ok(cuStreamBeginCapture_v2(s, GLOBAL));
		fork_here();
		ok(cuStreamGetCaptureInfo_v2(s, &status, &id, NULL, NULL, NULL));
		assert_int_equal(status, CU_STREAM_CAPTURE_STATUS_ACTIVE);
		ok(cuStreamGetCaptureInfo_v2(fork_stream, &status, &other, NULL, NULL, NULL));
		assert_true(id == other && id != before);
		join_here();
		ok(cuGraphExecDestroy(end_capture()));
		ok(cuStreamGetCaptureInfo_v2(fork_stream, &status, NULL, NULL, NULL, NULL));
		assert_int_equal(status, CU_STREAM_CAPTURE_STATUS_NONE);
	}
}

static void end_fails(CUresult with)
{
	CUgraph graph = (CUgraph)&graph;

	fails(cuStreamEndCapture(s, &graph), with);
	assert_null(graph);
	ok(cuStreamSynchronize(s));
	ok(cuStreamSynchronize(fork_stream));
}

/* Begins a capture with a node in each stream; the caller does what is wrong. */
static CUdeviceptr begin_wrong(CUstreamCaptureMode mode)
{
	static CUdeviceptr p;

	if (p == 0)
		p = device_memory(4);
	ok(cuStreamBeginCapture_v2(s, mode));
	fork_here();
	ok(cuMemsetD8Async(p, 0, 4, s));
	return p;
}

static void forks_must_join(void **state)
{
	CUdeviceptr p = begin_wrong(GLOBAL);
	ok(cuMemsetD8Async(p, 0, 4, fork_stream));
	end_fails(CUDA_ERROR_STREAM_CAPTURE_UNJOINED);
}

static void calls_that_fail_a_capture(void **state)
{
	CUstreamCaptureStatus status;
	CUevent before = new_event();
	CUdeviceptr p, q;

	ok(cuEventRecord(before, s));
	for (int wrong = 0; wrong < 6; wrong++) {
		p = begin_wrong(GLOBAL);
		switch (wrong) {
		case 0:
			fails(cuEventQuery(forked), CUDA_ERROR_CAPTURED_EVENT);
			break;
		case 1:
			fails(cuEventSynchronize(forked), CUDA_ERROR_CAPTURED_EVENT);
			break;
		case 2:
			fails(cuStreamQuery(fork_stream), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
			break;
		case 3:
			fails(cuStreamSynchronize(s), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
			break;
		case 4:
			fails(cuStreamWaitEvent(s, before, 0), CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
			break;
		default:
			fails(cuMemAlloc_v2(&q, 64), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
		}
		fails(cuMemsetD8Async(p, 0, 4, s), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
		ok(cuStreamGetCaptureInfo_v2(s, &status, NULL, NULL, NULL, NULL));
		assert_int_equal(status, CU_STREAM_CAPTURE_STATUS_INVALIDATED);
		end_fails(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
	}
	fails(cuStreamWaitEvent(s, forked, 0), CUDA_ERROR_CAPTURED_EVENT);
	ok(cuEventDestroy_v2(before));
}

static void the_legacy_stream_is_forbidden(void **state)
{
	CUstream blocking = new_stream(0);
	CUdeviceptr p = device_memory(4);
	CUstreamCaptureStatus status;
	CUgraph graph;

	fails(cuStreamBeginCapture_v2(NULL, GLOBAL), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
	ok(cuStreamBeginCapture_v2(s, GLOBAL)); /* which is not blocking */
	ok(cuMemsetD8Async(p, 0, 4, NULL));
	ok(cuStreamEndCapture(s, &graph));
	ok(cuGraphDestroy(graph));
	ok(cuStreamBeginCapture_v2(blocking, RELAXED));
	fails(cuStreamGetCaptureInfo_v2(NULL, &status, NULL, NULL, NULL, NULL),
	      CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
	ok(cuStreamGetCaptureInfo_v2(blocking, &status, NULL, NULL, NULL, NULL));
	assert_int_equal(status, CU_STREAM_CAPTURE_STATUS_ACTIVE);
	fails(cuMemsetD8Async(p, 0, 4, NULL), CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
	fails(cuStreamEndCapture(blocking, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
	ok(cuMemsetD8Async(p, 0, 4, NULL));
	ok(cuStreamSynchronize(NULL));
	ok(cuStreamDestroy_v2(blocking));
	ok(cuMemFree_v2(p));
}

static void captures_stay_apart(void **state)
{
	CUstream other = new_stream(0);
	CUgraph graph;

	fails(cuStreamEndCapture(s, &graph), CUDA_ERROR_ILLEGAL_STATE);
	begin_wrong(GLOBAL);
	fails(cuStreamBeginCapture_v2(s, GLOBAL), CUDA_ERROR_ILLEGAL_STATE);
	fails(cuStreamEndCapture(fork_stream, &graph), CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
	ok(cuStreamBeginCapture_v2(other, GLOBAL));
	fails(cuStreamWaitEvent(other, forked, 0), CUDA_ERROR_STREAM_CAPTURE_MERGE);
	fails(cuStreamEndCapture(other, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
	end_fails(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
	ok(cuStreamDestroy_v2(other));
}

/* What another thread may do: it allocates, in its own mode. */
struct other {
	CUstreamCaptureMode mode;
	CUresult allocates, ends;
};

static void *other_thread(void *argument)
{
	struct other *other = argument;
	CUgraph graph;
	CUdeviceptr p;

	use_gpu(0);
	ok(cuThreadExchangeStreamCaptureMode(&other->mode));
	assert_int_equal(other->mode, GLOBAL); /* a thread's first */
	other->allocates = cuMemAlloc_v2(&p, 64);
	if (other->allocates == CUDA_SUCCESS)
		ok(cuMemFree_v2(p));
	other->ends = cuStreamEndCapture(s, &graph);
	if (other->ends == CUDA_SUCCESS)
		ok(cuGraphDestroy(graph));
	return NULL;
}

static void threads_forbid_each_other(void **state)
{
	static const struct {
		CUstreamCaptureMode capture, thread;
		CUresult allocates, ends;
	} cases[] = {
		{GLOBAL, GLOBAL, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,
		 CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD},
		{GLOBAL, THREAD_LOCAL, CUDA_SUCCESS, CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD},
		{GLOBAL, RELAXED, CUDA_SUCCESS, CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD},
		{THREAD_LOCAL, GLOBAL, CUDA_SUCCESS, CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD},
		{RELAXED, GLOBAL, CUDA_SUCCESS, CUDA_SUCCESS},
	};

	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct other other = {.mode = cases[i].thread};
		pthread_t thread;
		CUgraph graph;
		ok(cuStreamBeginCapture_v2(s, cases[i].capture));
		pthread_create(&thread, NULL, other_thread, &other);
		pthread_join(thread, NULL);
		assert_int_equal(other.allocates, cases[i].allocates);
		assert_int_equal(other.ends, cases[i].ends);
		if (other.ends == CUDA_SUCCESS)
			continue;
		fails(cuStreamEndCapture(s, &graph),
		      other.allocates ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED : CUDA_SUCCESS);
		if (graph)
			ok(cuGraphDestroy(graph));
	}
}

static void a_thread_lets_itself(void **state)
{
	CUstreamCaptureMode mode = RELAXED;
	CUdeviceptr p, q;
	CUgraph graph;

	ok(cuStreamBeginCapture_v2(s, THREAD_LOCAL));
	ok(cuThreadExchangeStreamCaptureMode(&mode));
	p = device_memory(64);
	ok(cuMemsetD8Async(p, 0, 64, s));
	ok(cuThreadExchangeStreamCaptureMode(&mode));
	assert_int_equal(mode, RELAXED);
	fails(cuMemAlloc_v2(&q, 64), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
	fails(cuStreamEndCapture(s, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
	ok(cuMemFree_v2(p));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_node_is_replayed),
		cmocka_unit_test(a_batch_waits_in_each_replay),
		cmocka_unit_test(branches_run_at_once),
		cmocka_unit_test(launches_do_not_overlap),
		cmocka_unit_test(destroyed_streams_end_captures),
		cmocka_unit_test(a_capture_has_a_number),
		cmocka_unit_test(forks_must_join),
		cmocka_unit_test(calls_that_fail_a_capture),
		cmocka_unit_test(the_legacy_stream_is_forbidden),
		cmocka_unit_test(captures_stay_apart),
		cmocka_unit_test(threads_forbid_each_other),
		cmocka_unit_test(a_thread_lets_itself),
	};

	test_limit(60);
	setenv("FAKE_CUDA_DELAY", "5", 1);
	return cmocka_run_group_tests(tests, begin, finish);
}
