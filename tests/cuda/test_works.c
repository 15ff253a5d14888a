/* As many calls in flight as a communicator of GPUs lets there be: one more that does not wait for
 * room fills the GPU's queue, where no failure reaches it; one that waits past its deadline hangs,
 * or says a limit that is not this communicator's. The stream is held at a gate, so no call ends.
 */
#include "gpu.h"

#include "collectives/comm/comm.h"
#include "collectives/engine/engine_internal.h"
#include "tests/collectives/thread_ranks.h"
#include "tests/limit.h"

#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "tests/unit.h"

#define N 100

struct held {
	struct rank *rank;
	CUstream stream;
	_Atomic uint32_t *gate;
	uint32_t *word, *value; /* host, device */
	int in_flight;          /* when a call waited for room; 0: none has */
};

static void open_held(struct held *h, struct rank *r)
{
	CUdeviceptr address;

	gpu_use(r->rank % gpu_count());
	*h = (struct held){.rank = r, .stream = gpu_stream()};
	h->gate = gpu_alloc_pinned(sizeof *h->gate);
	h->word = gpu_alloc_pinned(N * sizeof *h->word);
	h->value = gpu_alloc(N * sizeof *h->value);
	for (uint32_t i = 0; i < N; i++)
		h->word[i] = i + 1;
	gpu_write(h->value, h->word, N * sizeof *h->word);
	/* The first call loads kernels, for which the driver may wait for streams. */
	expect(r, "a call before", tutti_barrier(r->comm, NULL));
	atomic_store(h->gate, 0);
	GPU(mem_host_get_device_pointer, &address, (void *)(uintptr_t)h->gate, 0);
	GPU(stream_wait_value32, h->stream, address, 1, CU_STREAM_WAIT_VALUE_EQ);
}

static void close_held(struct held *h)
{
	atomic_store(h->gate, 1);
	gpu_sync(h->stream);
	gpu_stream_free(h->stream);
	gpu_free_pinned((void *)(uintptr_t)h->gate);
	gpu_free_pinned(h->word);
	gpu_free(h->value);
}

static tutti_status sum_up(const struct held *h, int timeout_ms)
{
	tutti_call call = {.stream = h->stream, .timeout_ms = timeout_ms};

	return tutti_all_reduce(h->value, h->value, N, TUTTI_U32, TUTTI_SUM, h->rank->comm, &call);
}

static void fill_up(const struct held *h)
{
	for (int i = 0; i < ENGINE_DEVICE_WORKS_MAX; i++)
		expect(h->rank, "a call that does not wait", sum_up(h, 0));
}

/* Opens the gate when a call waits for room, or none can any more. */
static void *let_go(void *arg)
{
	struct held *h = arg;
	struct engine *e = h->rank->comm->engine;
	bool is_over = false;

	while (!is_over) {
		engine_lock(e);
		if (e->works.outside)
			h->in_flight = e->works.count;
		is_over = e->works.outside || e->failure.stop ||
			  e->works.count > ENGINE_DEVICE_WORKS_MAX;
		engine_unlock(e);
		sched_yield();
	}
	atomic_store(h->gate, 1);
	return NULL;
}

/* The call behind the last waits until the stream goes on, and all give the right sums. */
static void waits(struct rank *r)
{
	struct held h;
	pthread_t thread;
	uint32_t want = 1;

	open_held(&h, r);
	fill_up(&h);
	pthread_create(&thread, NULL, let_go, &h);
	expect(r, "a call that waits for room", sum_up(&h, 0));
	pthread_join(thread, NULL);
	if (h.in_flight != ENGINE_DEVICE_WORKS_MAX)
		report_wrong(r, "the call did not wait for room", TUTTI_OK);
	gpu_copy_in(h.stream, h.word, h.value, N * sizeof *h.word);
	gpu_sync(h.stream);
	for (int i = 0; i <= ENGINE_DEVICE_WORKS_MAX; i++)
		want *= (uint32_t)r->size;
	for (uint32_t i = 0; i < N; i++)
		if (h.word[i] != want * (i + 1))
			report_wrong(r, "a sum is wrong", TUTTI_OK);
	close_held(&h);
}

/* Rank 0's deadline passes while all streams are held: it says what was in flight, and the others
 * hear of it. */
static void is_late(struct rank *r)
{
	struct held h;

	open_held(&h, r);
	fill_up(&h);
	expect(r, "barrier", tutti_barrier(r->other, NULL));
	if (r->rank == 0 && sum_up(&h, 200) != TUTTI_ERR_TIMEOUT)
		report_wrong(r, "no deadline", TUTTI_OK);
	while (tutti_comm_status(r->comm) == TUTTI_OK)
		sched_yield();
	if (tutti_comm_status(r->comm) != TUTTI_ERR_TIMEOUT ||
	    !strstr(tutti_comm_error(r->comm), "128 works are in flight on this communicator "
					       "(at most 128)") ||
	    !strstr(tutti_comm_error(r->comm), "rank 0: all_reduce #"))
		report_wrong(r, "the failure is not explained", tutti_comm_status(r->comm));
	close_held(&h);
}

static void test_waits(void **state)
{
	gpu_use(0);
	with_ranks(1, NULL, 1, waits);
	with_ranks(2, NULL, 1, waits);
	with_ranks(4, NULL, 1, waits);
}

static void test_is_late(void **state)
{
	gpu_use(0);
	with_ranks(2, NULL, 1, is_late);
	with_ranks(3, NULL, 1, is_late);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_waits),
		cmocka_unit_test(test_is_late),
	};

	test_limit(100);
	if (!gpu_open()) {
		puts("there is no CUDA driver, or no device");
		return 77;
	}
	return cmocka_run_group_tests(tests, NULL, NULL);
}
