/* Without this a collective could touch memory that the CPU may not touch (this program would
 * crash), or ranks whose buffers are of different kinds could take different paths. */
#include "core/memory/dtype.h"
#include "tests/core/memory/proof_kind.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit.h"

#define RANKS_MAX 8

/* Which ranks' buffers are of the kind. */
enum whose { ALL, ODD };

static struct {
	int size;
	enum whose whose;
	tutti_comm *comms[RANKS_MAX];
	char wrong[200];
	pthread_mutex_t lock;
} job = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void report_wrong(int rank, const char *what, const char *why)
{
	pthread_mutex_lock(&job.lock);
	if (!job.wrong[0])
		snprintf(job.wrong, sizeof job.wrong, "%d ranks, rank %d: %s: %.120s", job.size,
			 rank, what, why);
	pthread_mutex_unlock(&job.lock);
}

static bool is_proof(int rank)
{
	return job.whose == ALL || rank % 2;
}

static void *room(int rank, size_t bytes)
{
	return is_proof(rank) ? proof_alloc(bytes + 1) : calloc(1, bytes + 1);
}

static void give_back(int rank, void *ptr)
{
	if (is_proof(rank))
		proof_free(ptr);
	else
		free(ptr);
}

static int32_t value(int rank, size_t i)
{
	return (int32_t)((uint32_t)rank * 7907u + (uint32_t)i * 31u + 5u);
}

static void fill(int rank, void *ptr, size_t n)
{
	int32_t *data = malloc(n * 4 + 4);
	for (size_t i = 0; i < n; i++)
		data[i] = value(rank, i);
	if (is_proof(rank))
		proof_write(ptr, data, n * 4);
	else
		memcpy(ptr, data, n * 4);
	free(data);
}

static int32_t sum(size_t i)
{
	uint32_t s = 0;
	for (int r = 0; r < job.size; r++)
		s += (uint32_t)value(r, i);
	return (int32_t)s;
}

enum what { ALL_REDUCE, REDUCE_SCATTER, ALL_GATHER, BROADCAST };

static int32_t expected(enum what what, int rank, size_t n, size_t i)
{
	switch (what) {
	case ALL_REDUCE:
		return sum(i);
	case REDUCE_SCATTER:
		return sum((size_t)rank * n + i);
	case ALL_GATHER:
		return value((int)(i / n), i % n);
	default:
		return value(job.size - 1, i);
	}
}

static void check(enum what what, int rank, const void *ptr, size_t n, size_t all)
{
	int32_t *got = malloc(all * 4 + 4);
	if (is_proof(rank))
		proof_read(got, ptr, all * 4);
	else
		memcpy(got, ptr, all * 4);
	for (size_t i = 0; i < all; i++)
		if (got[i] != expected(what, rank, n, i)) {
			report_wrong(rank, "wrong bytes", "");
			break;
		}
	free(got);
}

static void one(enum what what, int rank, size_t n, bool is_async)
{
	static const char *const names[] = {"all_reduce", "reduce_scatter", "all_gather",
					    "broadcast"};
	size_t p = (size_t)job.size, in = what == REDUCE_SCATTER ? n * p : n,
	       out = what == ALL_GATHER ? n * p : n;
	void *send = room(rank, in * 4), *recv = room(rank, out * 4);
	tutti_work *work = NULL;
	tutti_call async = {.work = &work}, *call = is_async ? &async : NULL;
	tutti_comm *comm = job.comms[rank];
	tutti_status status;

	fill(rank, send, in);
	if (what == ALL_REDUCE)
		status = tutti_all_reduce(send, recv, n, TUTTI_I32, TUTTI_SUM, comm, call);
	else if (what == REDUCE_SCATTER)
		status = tutti_reduce_scatter(send, recv, n, TUTTI_I32, TUTTI_SUM, comm, call);
	else if (what == ALL_GATHER)
		status = tutti_all_gather(send, recv, n, TUTTI_I32, comm, call);
	else
		status = tutti_broadcast(send, recv, n, TUTTI_I32, job.size - 1, comm, call);
	if (status == TUTTI_OK)
		status = tutti_work_wait(&work, 0);
	if (status != TUTTI_OK)
		report_wrong(rank, names[what], tutti_comm_error(comm));
	else
		check(what, rank, recv, n, out);
	give_back(rank, send);
	give_back(rank, recv);
}

static void *rank_main(void *arg)
{
	static const size_t counts[] = {0, 1, 7, 1000, 50001};
	int rank = *(int *)arg;
	for (size_t c = 0; c < sizeof counts / sizeof counts[0]; c++)
		for (int what = ALL_REDUCE; what <= BROADCAST; what++)
			one((enum what)what, rank, counts[c], (c + (size_t)what) % 2);
	return NULL;
}

static void with(int size, const char *transports, enum whose whose)
{
	pthread_t threads[RANKS_MAX];
	int numbers[RANKS_MAX];
	tutti_config config = {.transports = transports, .timeout_ms = 60000};

	job.size = size;
	job.whose = whose;
	if (tutti_init_all(job.comms, size, &config) != TUTTI_OK)
		fail_msg("init: %s", tutti_comm_error(NULL));
	for (int r = 0; r < size; r++) {
		numbers[r] = r;
		pthread_create(&threads[r], NULL, rank_main, &numbers[r]);
	}
	for (int r = 0; r < size; r++)
		pthread_join(threads[r], NULL);
	for (int r = 0; r < size; r++)
		tutti_comm_destroy(job.comms[r]);
	if (job.wrong[0])
		fail_msg("%s: %s", transports ? transports : "all", job.wrong);
	assert_int_equal(proof_allocated(), 0);
}

static void test_kinds(void **state)
{
	static const char *const transports[] = {"tcp", "shm", NULL};
	static const int sizes[] = {1, 2, 3, 5};
	assert_int_equal(proof_kind_use(20261120), TUTTI_OK);
	for (int t = 0; t < 3; t++)
		for (int s = 0; s < 4; s++) {
			with(sizes[s], transports[t], ALL);
			with(sizes[s], transports[t], ODD);
		}
}

/* One call's buffers are of one kind. */
static void test_two_kinds(void **state)
{
	tutti_comm *comm;
	float host[4] = {1, 2, 3, 4};
	assert_int_equal(tutti_init_all(&comm, 1, NULL), TUTTI_OK);
	void *proof = proof_alloc(sizeof host);
	assert_int_equal(tutti_all_reduce(host, proof, 4, TUTTI_F32, TUTTI_SUM, comm, NULL),
			 TUTTI_ERR_INVALID);
	assert_int_equal(tutti_comm_sequence(comm), 0);
	proof_free(proof);
	tutti_comm_destroy(comm);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_kinds),
		cmocka_unit_test(test_two_kinds),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
