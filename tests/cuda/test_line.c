/* Ends of work on callers' streams, as the engine hears of them: an end that comes too early, late,
 * twice or never; and a look that asks the driver for each of a hundred calls in flight. */
#include "gpu.h"

#include "cuda/line.h"
#include "tests/limit.h"

#include <stdatomic.h>
#include <string.h>
#include <tutti/tutti.h>

#include "tests/unit.h"

enum { CALLS = 100, LOOKS = 1000 };

static struct cuda_line *line;
static struct memory_io ios[2][CALLS];
static CUstream streams[2];
static _Atomic uint32_t *gate; /* on which the first stream waits */

static void post(int stream, int i, bool is_lazy)
{
	struct memory_io *io = &ios[stream][i];

	memset(io, 0xff, sizeof *io); /* as it is when it is used again */
	io->op = MEMORY_AFTER;
	io->is_lazy = is_lazy;
	io->dst = streams[stream];
	assert_int_equal(cuda_line_post(line, io), TUTTI_OK);
}

static int look(struct tutti_done *done)
{
	char error[100];

	return cuda_line_progress(line, done, error, sizeof error);
}

/* Those of the stream, in its order. */
static void ended(struct tutti_done *done, int stream, int count)
{
	for (int i = 0; i < count; i++) {
		assert_ptr_equal(tutti_done_pop(done), &ios[stream][i].io);
		assert_int_equal(ios[stream][i].io.status, TUTTI_OK);
	}
	assert_null(tutti_done_pop(done));
}

static unsigned queries(void)
{
	unsigned count;

	gpu_ask_emulated("fake_cuda_queries", &count);
	return count;
}

static int open_line(void **state)
{
	struct cuda_device *device;
	CUdeviceptr word;

	gpu_use(0);
	assert_int_equal(cuda_device_open(&device, 0), TUTTI_OK);
	assert_int_equal(cuda_line_create(&line, device), TUTTI_OK);
	gate = gpu_alloc_pinned(sizeof *gate);
	atomic_store(gate, 0);
	GPU(mem_host_get_device_pointer, &word, (void *)(uintptr_t)gate, 0);
	for (int i = 0; i < 2; i++)
		streams[i] = gpu_stream();
	GPU(stream_wait_value32, streams[0], word, 1, CU_STREAM_WAIT_VALUE_EQ);
	return 0;
}

static int close_line(void **state)
{
	atomic_store(gate, 1);
	cuda_line_destroy(line);
	for (int i = 0; i < 2; i++) {
		gpu_sync(streams[i]);
		gpu_stream_free(streams[i]);
	}
	gpu_free_pinned((void *)(uintptr_t)gate);
	return 0;
}

/* Of a stream that waits one is asked; the other one's all end; then the first one's, and later
 * ones. */
static void test_order(void **state)
{
	struct tutti_done done;

	tutti_done_init(&done);
	for (int i = 0; i < CALLS; i++) {
		post(0, i, false);
		post(1, i, false);
	}
	gpu_sync(streams[1]);
	unsigned before = queries();
	assert_int_equal(look(&done), CALLS);
	if (gpu_is_emulated())
		assert_int_equal(queries() - before, CALLS + 1);
	ended(&done, 1, CALLS);
	before = queries();
	assert_int_equal(look(&done), 0);
	if (gpu_is_emulated())
		assert_int_equal(queries() - before, 1);
	post(1, 0, false); /* behind those that are left */
	gpu_sync(streams[1]);
	assert_int_equal(look(&done), 1);
	ended(&done, 1, 1);
	atomic_store(gate, 1);
	gpu_sync(streams[0]);
	assert_int_equal(look(&done), CALLS);
	ended(&done, 0, CALLS);
	post(0, 0, false); /* the first of an empty list */
	gpu_sync(streams[0]);
	assert_int_equal(look(&done), 1);
	ended(&done, 0, 1);
}

/* Where nobody waits the driver is left in peace, but the ends come; beside one that somebody waits
 * for it is asked at once. */
static void test_lazy(void **state)
{
	struct tutti_done done;
	unsigned before = queries();

	tutti_done_init(&done);
	for (int i = 0; i < CALLS; i++)
		post(0, i, true);
	for (int looks = 0; looks < LOOKS; looks++)
		assert_int_equal(look(&done), 0);
	if (gpu_is_emulated())
		assert_in_range(queries() - before, 1, LOOKS - 1);
	post(1, 0, false);
	gpu_sync(streams[1]);
	assert_int_equal(look(&done), 1);
	ended(&done, 1, 1);
	atomic_store(gate, 1);
	gpu_sync(streams[0]);
	for (int count = 0; count < CALLS;)
		count += look(&done);
	ended(&done, 0, CALLS);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_order, open_line, close_line),
		cmocka_unit_test_setup_teardown(test_lazy, open_line, close_line),
	};

	test_limit(60);
	if (!gpu_open())
		return 77;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
