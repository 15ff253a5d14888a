/* Without this a call could allocate on its way, every time, or the helper thread could wake up
 * while nothing is in flight. */
#include <tutti/tutti.h>

#include "tests/threads.h"

#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/resource.h>

#include "tests/unit.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define COUNTS_ALLOCATIONS 0 /* the sanitizers have an allocator of their own */
#else
#define COUNTS_ALLOCATIONS 1

/* Every allocation of this process passes here. */
extern void *__libc_malloc(size_t bytes);
extern void *__libc_calloc(size_t n, size_t bytes);
extern void *__libc_realloc(void *ptr, size_t bytes);
extern void *__libc_memalign(size_t alignment, size_t bytes);
#endif
static atomic_long allocations;
#if COUNTS_ALLOCATIONS
void *malloc(size_t bytes)
{
	atomic_fetch_add(&allocations, 1);
	return __libc_malloc(bytes);
}

void *calloc(size_t n, size_t bytes)
{
	atomic_fetch_add(&allocations, 1);
	return __libc_calloc(n, bytes);
}

void *realloc(void *ptr, size_t bytes)
{
	atomic_fetch_add(&allocations, 1);
	return __libc_realloc(ptr, bytes);
}

void *aligned_alloc(size_t alignment, size_t bytes)
{
	atomic_fetch_add(&allocations, 1);
	return __libc_memalign(alignment, bytes);
}
#endif

/* What this thread's own sleep costs; ThreadSanitizer has a thread that wakes now and then. */
#if defined(__SANITIZE_THREAD__)
#define OWN_SWITCHES 4
#else
#define OWN_SWITCHES 1
#endif

#define RANKS 3
#define COUNT 60000

static pthread_barrier_t together;
static const char *transports;
static tutti_comm *comms[RANKS];
static float *buffers[RANKS];
static atomic_int failures;

static void round_of_calls(int r)
{
	tutti_work *work[4] = {0};
	tutti_status status = TUTTI_OK;
	for (int k = 0; k < 4; k++) {
		tutti_call call = {.work = &work[k]};
		status |= tutti_all_reduce(buffers[r], buffers[r], COUNT >> (4 * k), TUTTI_F32,
					   TUTTI_MAX, comms[r], &call);
	}
	for (int k = 0; k < 4; k++)
		status |= tutti_work_wait(&work[k], 0);
	for (size_t count = 1; count <= COUNT; count *= 39)
		status |= tutti_all_reduce(buffers[r], buffers[r], count, TUTTI_F32, TUTTI_MAX,
					   comms[r], NULL);
	status |= tutti_broadcast(buffers[r], buffers[r], 5000, TUTTI_F32, 1, comms[r], NULL);
	status |= tutti_barrier(comms[r], NULL);
	if (status != TUTTI_OK)
		atomic_fetch_add(&failures, 1);
}

/* More small calls at once than blocks are kept: they must not stay in larger calls' way. */
static void many_small(int r)
{
	tutti_work *work[12] = {0};
	tutti_status status = TUTTI_OK;
	for (int k = 0; k < 12; k++) {
		tutti_call call = {.work = &work[k]};
		status |= tutti_all_reduce(buffers[r], buffers[r], 1, TUTTI_F32, TUTTI_MAX,
					   comms[r], &call);
	}
	for (int k = 0; k < 12; k++)
		status |= tutti_work_wait(&work[k], 0);
	if (status != TUTTI_OK)
		atomic_fetch_add(&failures, 1);
}

/* The first rounds build plans and fill the free lists; the later ones are counted. */
static void *rank(void *arg)
{
	int r = *(int *)arg;
	many_small(r);
	for (int round = 0; round < 20; round++)
		round_of_calls(r);
	pthread_barrier_wait(&together);
	if (r == 0)
		atomic_store(&allocations, 0);
	pthread_barrier_wait(&together);
	for (int round = 0; round < 20; round++)
		round_of_calls(r);
	pthread_barrier_wait(&together);
	return NULL;
}

static void run_ranks(void)
{
	pthread_t threads[RANKS];
	int numbers[RANKS];
	tutti_config config = {.transports = transports, .timeout_ms = 60000};

	pthread_barrier_init(&together, NULL, RANKS);
	assert_int_equal(tutti_init_all(comms, RANKS, &config), TUTTI_OK);
	for (int r = 0; r < RANKS; r++) {
		numbers[r] = r;
		buffers[r] = calloc(COUNT, sizeof(float));
		pthread_create(&threads[r], NULL, rank, &numbers[r]);
	}
	for (int r = 0; r < RANKS; r++)
		pthread_join(threads[r], NULL);
	pthread_barrier_destroy(&together);
	assert_int_equal(atomic_load(&failures), 0);
}

static void close_ranks(void)
{
	for (int r = 0; r < RANKS; r++)
		tutti_comm_destroy(comms[r]);
	for (int r = 0; r < RANKS; r++)
		free(buffers[r]);
}

static void test_no_allocation(void **state)
{
	static const char *const all[] = {"tcp", "shm", NULL};
	for (int t = 0; t < 3; t++) {
		transports = all[t];
		run_ranks();
		if (COUNTS_ALLOCATIONS)
			assert_int_equal(atomic_load(&allocations), 0);
		close_ranks();
	}
}

static long allocations_of_group(tutti_comm *comm, int calls)
{
	float x[16] = {0};
	atomic_store(&allocations, 0);
	assert_int_equal(tutti_group_begin(), TUTTI_OK);
	for (int i = 0; i < calls; i++)
		assert_int_equal(
			tutti_all_reduce(&x[i], &x[i], 1, TUTTI_F32, TUTTI_SUM, comm, NULL),
			TUTTI_OK);
	assert_int_equal(tutti_group_end(NULL), TUTTI_OK);
	return atomic_load(&allocations);
}

/* Up to 4 calls allocate nothing; more allocate a table and one work for the group. */
static void test_groups(void **state)
{
	tutti_comm *comm;
	assert_int_equal(tutti_init_all(&comm, 1, NULL), TUTTI_OK);
	allocations_of_group(comm, 16);
	long one = allocations_of_group(comm, 1), many = allocations_of_group(comm, 16);
	if (COUNTS_ALLOCATIONS) {
		assert_int_equal(one, 0);
		assert_int_equal(many, 2);
	}
	tutti_comm_destroy(comm);
}

/* All threads of this process that sleep without a bound switch nothing: not one wake-up may be
 * seen beyond this thread's own. */
static void test_idle(void **state)
{
	struct rusage before, after;
	transports = NULL;
	run_ranks();
	/* The helper goes to bed soon after the last work; give it as long as it takes. */
	for (int tries = 0;; tries++) {
		getrusage(RUSAGE_SELF, &before);
		poll(NULL, 0, 100);
		getrusage(RUSAGE_SELF, &after);
		if (after.ru_nvcsw - before.ru_nvcsw <= OWN_SWITCHES)
			break;
		assert_true(tries < 50);
	}
	close_ranks();
}

/* A communicator of one rank has no thread: nothing but this thread switches. */
static void test_alone(void **state)
{
	tutti_comm *comm;
	float x = 3, y = 0;
	unsetenv("WORLD_SIZE");
	unsetenv("RANK");
	assert_int_equal(tutti_init(&comm, NULL), TUTTI_OK);
	assert_int_equal(tutti_all_reduce(&x, &y, 1, TUTTI_F32, TUTTI_SUM, comm, NULL), TUTTI_OK);
	assert_true(y == 3);
#if !defined(__SANITIZE_THREAD__)
	assert_int_equal(threads_alive(), 1);
#endif
	tutti_comm_destroy(comm);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_alone),
		cmocka_unit_test(test_no_allocation),
		cmocka_unit_test(test_groups),
		cmocka_unit_test(test_idle),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
