/* The library's own streams: one that is made anew for each communicator soon shares a queue to the
 * GPU with another; one that is used again while work waits in it keeps the next user off. */
#include "gpu.h"

#include "cuda/streams.h"
#include "tests/limit.h"

#include <stdatomic.h>
#include <tutti/tutti.h>

#include "tests/unit.h"

static struct cuda_device *device;
static struct cuda_visit visit;

static int enter(void **state)
{
	gpu_use(0);
	assert_int_equal(cuda_device_open(&device, 0), TUTTI_OK);
	assert_int_equal(cuda_enter(device, &visit), TUTTI_OK);
	return 0;
}

static int leave(void **state)
{
	cuda_leave(&visit);
	return 0;
}

static void test_idle(void **state)
{
	CUstream first, second, again;

	assert_int_equal(cuda_stream_take(device, &first), TUTTI_OK);
	assert_int_equal(cuda_stream_take(device, &second), TUTTI_OK);
	assert_ptr_not_equal(first, second);
	cuda_stream_give(device, first);
	assert_int_equal(cuda_stream_take(device, &again), TUTTI_OK);
	assert_ptr_equal(again, first);
	cuda_stream_give(device, first);
	cuda_stream_give(device, second);
	cuda_stream_give(device, NULL);
}

/* What another one takes then has nothing to wait for. */
static void test_busy(void **state)
{
	_Atomic uint32_t *gate = gpu_alloc_pinned(sizeof *gate);
	CUstream busy, other;
	CUdeviceptr word;

	atomic_store(gate, 0);
	GPU(mem_host_get_device_pointer, &word, (void *)(uintptr_t)gate, 0);
	assert_int_equal(cuda_stream_take(device, &busy), TUTTI_OK);
	GPU(stream_wait_value32, busy, word, 1, CU_STREAM_WAIT_VALUE_EQ);
	cuda_stream_give(device, busy);
	assert_int_equal(cuda_stream_take(device, &other), TUTTI_OK);
	assert_int_equal(gpu.stream_query(other), CUDA_SUCCESS);
	atomic_store(gate, 1);
	cuda_stream_give(device, other);
}

/* A communicator takes one that is there, and leaves it. */
static void test_communicators(void **state)
{
	CUstream before, after;

	assert_int_equal(cuda_stream_take(device, &before), TUTTI_OK);
	cuda_stream_give(device, before);
	for (int round = 0; round < 3; round++) {
		tutti_comm *comm;
		assert_int_equal(tutti_init_all(&comm, 1, NULL), TUTTI_OK);
		tutti_comm_destroy(comm);
		assert_int_equal(cuda_stream_take(device, &after), TUTTI_OK);
		assert_ptr_equal(after, before);
		cuda_stream_give(device, after);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_idle, enter, leave),
		cmocka_unit_test_setup_teardown(test_busy, enter, leave),
		cmocka_unit_test_setup_teardown(test_communicators, enter, leave),
	};

	test_limit(60);
	if (!gpu_open())
		return 77;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
