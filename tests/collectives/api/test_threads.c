/* slow: 6 s */
/* Without this, ranks as threads of one process could get wrong bytes, block each other or race:
 * blocking and asynchronous calls, several works and communicators at once, callbacks, waits from
 * other threads. */
#include "collectives/comm/comm.h"
#include "tests/collectives/thread_ranks.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "tests/unit.h"

static int32_t value(int rank, size_t i, int call)
{
	return (int32_t)((uint32_t)(rank + 1) * 1000003u + (uint32_t)i * 7919u +
			 (uint32_t)call * 31u);
}

static int32_t sum(int size, size_t i, int call)
{
	uint32_t s = 0;
	for (int r = 0; r < size; r++)
		s += (uint32_t)value(r, i, call);
	return (int32_t)s;
}

static void fill(int32_t *buf, size_t n, int rank, int call)
{
	for (size_t i = 0; i < n; i++)
		buf[i] = value(rank, i, call);
}

static void check_sum(struct rank *r, const int32_t *buf, size_t n, int call, const char *what)
{
	for (size_t i = 0; i < n; i++)
		if (buf[i] != sum(tutti_size(r->comm), i, call)) {
			report_wrong(r, what, TUTTI_OK);
			return;
		}
}

static void all_reduce_sizes(struct rank *r)
{
	static const size_t counts[] = {0, 1, 5, 12, 13, 100, 4097, 70001};
	for (size_t c = 0; c < sizeof counts / sizeof counts[0]; c++) {
		size_t n = counts[c];
		int32_t *buf = malloc(n * 4 + 4), *out = malloc(n * 4 + 4);
		fill(buf, n, tutti_rank(r->comm), (int)c);
		expect(r, "all_reduce",
		       tutti_all_reduce(buf, out, n, TUTTI_I32, TUTTI_SUM, r->comm, NULL));
		check_sum(r, out, n, (int)c, "all_reduce bytes");
		expect(r, "all_reduce in place",
		       tutti_all_reduce(buf, buf, n, TUTTI_I32, TUTTI_SUM, r->comm, NULL));
		check_sum(r, buf, n, (int)c, "all_reduce in place bytes");
		free(buf);
		free(out);
	}
}

static void other_collectives(struct rank *r)
{
	int me = tutti_rank(r->comm), size = tutti_size(r->comm);
	size_t n = 3001, all = n * (size_t)size;
	int32_t *mine = malloc(n * 4), *buf = malloc(all * 4);

	fill(mine, n, me, 1);
	expect(r, "all_gather", tutti_all_gather(mine, buf, n, TUTTI_I32, r->comm, NULL));
	for (size_t i = 0; i < all; i++)
		if (buf[i] != value((int)(i / n), i % n, 1))
			report_wrong(r, "all_gather bytes", TUTTI_OK);
	fill(buf, all, me, 2);
	expect(r, "reduce_scatter",
	       tutti_reduce_scatter(buf, mine, n, TUTTI_I32, TUTTI_SUM, r->comm, NULL));
	for (size_t i = 0; i < n; i++)
		if (mine[i] != sum(size, (size_t)me * n + i, 2))
			report_wrong(r, "reduce_scatter bytes", TUTTI_OK);
	for (int root = 0; root < size; root++) {
		fill(mine, n, me, 3);
		expect(r, "broadcast",
		       tutti_broadcast(mine, mine, n, TUTTI_I32, root, r->comm, NULL));
		for (size_t i = 0; i < n; i++)
			if (mine[i] != value(root, i, 3))
				report_wrong(r, "broadcast bytes", TUTTI_OK);
	}
	expect(r, "barrier", tutti_barrier(r->comm, NULL));
	free(mine);
	free(buf);
}

/* Any NaN becomes the canonical one, also where one rank is alone. */
static void canonical_nans(struct rank *r)
{
	static const size_t counts[] = {1, 37, 5000};
	uint32_t in[5000], out[5000];
	tutti_op ops[] = {TUTTI_SUM, TUTTI_MAX, TUTTI_AVG};
	for (int k = 0; k < 9; k++) {
		for (size_t i = 0; i < 5000; i++)
			in[i] = i % 2 ? 0xffc01234u : 0x7f800001u + (uint32_t)i;
		void *to = k % 2 ? in : out;
		const uint32_t *got = to;
		expect(r, "all_reduce",
		       tutti_all_reduce(in, to, counts[k / 3], TUTTI_F32, ops[k % 3], r->comm,
					NULL));
		for (size_t i = 0; i < counts[k / 3]; i++)
			if (got[i] != 0x7fc00000u)
				report_wrong(r, "a NaN of its own", TUTTI_OK);
	}
}

static void test_blocking(void **state)
{
	everywhere(all_reduce_sizes);
	everywhere(other_collectives);
	everywhere(canonical_nans);
}

#define WORKS 12

static void called(void *arg, tutti_status status)
{
	atomic_fetch_add((atomic_int *)arg, status == TUTTI_OK ? 1 : 1000);
}

/* Works on two communicators, waited for out of order, tested, released; callbacks. */
static void many_works(struct rank *r)
{
	static const size_t n = 5000;
	int me = tutti_rank(r->comm);
	int32_t *buf[WORKS];
	tutti_work *work[WORKS] = {0};
	atomic_int calls = 0;

	for (int k = 0; k < WORKS; k++) {
		tutti_call call = {.work = &work[k], .done = called, .done_arg = &calls};
		buf[k] = malloc(n * 4);
		fill(buf[k], n, me, k);
		expect(r, "submit",
		       tutti_all_reduce(buf[k], buf[k], n, TUTTI_I32, TUTTI_SUM,
					k % 3 ? r->comm : r->other, &call));
	}
	for (int k = WORKS - 1; k > 5; k--)
		expect(r, "wait", tutti_work_wait(&work[k], 0));
	for (int k = 0, is_done = 0; k <= 5; k++, is_done = 0) {
		while (!is_done)
			expect(r, "test", tutti_work_test(work[k], &is_done));
		tutti_work_release(&work[k]);
	}
	while (atomic_load(&calls) < WORKS)
		if (tutti_comm_status(r->comm) != TUTTI_OK) {
			report_wrong(r, "callbacks", TUTTI_OK);
			break;
		}
	if (atomic_load(&calls) != WORKS)
		report_wrong(r, "a callback came twice or with an error", TUTTI_OK);
	for (int k = 0; k < WORKS; k++) {
		check_sum(r, buf[k], n, k, "asynchronous bytes");
		free(buf[k]);
	}
}

/* No thread waits: the works end by themselves, and destroy ends what is released. */
static void by_themselves(struct rank *r)
{
	static const size_t n = 20000;
	int32_t *buf = malloc(n * 4);
	atomic_int calls = 0;
	tutti_call call = {.done = called, .done_arg = &calls};

	fill(buf, n, tutti_rank(r->comm), 9);
	expect(r, "submit", tutti_all_reduce(buf, buf, n, TUTTI_I32, TUTTI_SUM, r->comm, &call));
	while (atomic_load(&calls) == 0)
		if (tutti_comm_status(r->comm) != TUTTI_OK)
			break;
	check_sum(r, buf, n, 9, "bytes of a call that nobody waited for");
	free(buf);
}

/* What an event loop does: it reads how many have ended, and then tests them. */
static void told_by_eventfd(struct rank *r)
{
	tutti_work *work[WORKS] = {0};
	int fd = eventfd(0, EFD_CLOEXEC), is_done = 0;
	tutti_call call = {.done = tutti_done_eventfd, .done_arg = (void *)(intptr_t)fd};
	uint64_t ended = 0, more;

	for (int k = 0; k < WORKS; k++) {
		call.work = &work[k];
		expect(r, "submit", tutti_barrier(r->comm, &call));
	}
	while (ended < WORKS && read(fd, &more, sizeof more) == sizeof more)
		ended += more;
	for (int k = 0; k < WORKS; k++) {
		expect(r, "test", tutti_work_test(work[k], &is_done));
		if (ended != WORKS || !is_done)
			report_wrong(r, "what the eventfd told", TUTTI_OK);
		tutti_work_release(&work[k]);
	}
	close(fd);
}

/* Asynchronous on even ranks, blocking on odd ones. */
static void mixed(struct rank *r)
{
	static const size_t n = 3000;
	int32_t *buf = malloc(n * 4);
	for (int k = 0; k < 20; k++) {
		tutti_work *work = NULL;
		tutti_call call = {.work = &work};
		bool waits = (tutti_rank(r->comm) + k) % 2;
		fill(buf, n, tutti_rank(r->comm), k);
		expect(r, "call",
		       tutti_all_reduce(buf, buf, k % 4 ? n : 3, TUTTI_I32, TUTTI_SUM, r->comm,
					waits ? NULL : &call));
		expect(r, "wait", tutti_work_wait(&work, 0));
		check_sum(r, buf, k % 4 ? n : 3, k, "bytes of mixed calls");
	}
	free(buf);
}

/* A callback may issue the next call. */
struct chain {
	struct rank *rank;
	int32_t value;
	atomic_int links;
};

static void next_link(void *arg, tutti_status status)
{
	struct chain *c = arg;
	tutti_call call = {.done = next_link, .done_arg = c};
	int links = atomic_load(&c->links) + 1;
	if (status != TUTTI_OK)
		report_wrong(c->rank, "a link of the chain", status);
	if (links < 10 && status == TUTTI_OK)
		expect(c->rank, "a call from a callback",
		       tutti_all_reduce(&c->value, &c->value, 1, TUTTI_I32, TUTTI_MAX,
					c->rank->comm, &call));
	atomic_store(&c->links, status == TUTTI_OK ? links : 10);
}

static void chained(struct rank *r)
{
	struct chain c = {.rank = r, .value = tutti_rank(r->comm)};
	tutti_call call = {.done = next_link, .done_arg = &c};
	expect(r, "the first link",
	       tutti_all_reduce(&c.value, &c.value, 1, TUTTI_I32, TUTTI_MAX, r->comm, &call));
	while (atomic_load(&c.links) < 10)
		sched_yield();
	if (c.value != tutti_size(r->comm) - 1)
		report_wrong(r, "the chain's value", TUTTI_OK);
}

static void *wait_elsewhere(void *arg)
{
	tutti_work **work = arg;
	return (void *)(intptr_t)tutti_work_wait(work, 0);
}

/* A wait of its own timeout leaves the work in flight; another thread may wait for it. */
static void short_timeouts(struct rank *r)
{
	int32_t x = 1;
	void *status;
	pthread_t thread;
	tutti_work *work = NULL;
	tutti_call call = {.work = &work};
	bool is_last = tutti_rank(r->comm) == tutti_size(r->comm) - 1;

	if (tutti_size(r->comm) > 1 && !is_last) {
		expect(r, "submit",
		       tutti_all_reduce(&x, &x, 1, TUTTI_I32, TUTTI_SUM, r->comm, &call));
		if (tutti_work_wait(&work, 1) != TUTTI_IN_PROGRESS || !work)
			report_wrong(r, "a wait that gives up", TUTTI_OK);
	}
	/* The last rank comes only after the others have given up. */
	expect(r, "barrier", tutti_barrier(r->other, NULL));
	if (!work)
		expect(r, "submit",
		       tutti_all_reduce(&x, &x, 1, TUTTI_I32, TUTTI_SUM, r->comm, &call));
	pthread_create(&thread, NULL, wait_elsewhere, &work);
	pthread_join(thread, &status);
	if ((tutti_status)(intptr_t)status != TUTTI_OK || work || x != tutti_size(r->comm))
		report_wrong(r, "a wait on another thread", (tutti_status)(intptr_t)status);
}

static void test_asynchronous(void **state)
{
	everywhere(many_works);
	everywhere(by_themselves);
	everywhere(told_by_eventfd);
	everywhere(mixed);
	everywhere(chained);
	everywhere(short_timeouts);
}

static atomic_int named;

/* The last rank never calls: the others fail, and a rank that waits for it directly names it. */
static void one_is_missing(struct rank *r)
{
	int32_t x = 1;
	char name[20];
	int missing = tutti_size(r->comm) - 1;
	tutti_call call = {.timeout_ms = 200};
	if (tutti_rank(r->comm) == missing || tutti_size(r->comm) == 1)
		return;
	tutti_status status = tutti_all_reduce(&x, &x, 1, TUTTI_I32, TUTTI_SUM, r->comm, &call);
	/* The first to time out closes its connections: others may hear of that instead. */
	if (status != TUTTI_ERR_TIMEOUT && status != TUTTI_ERR_PEER)
		report_wrong(r, "a call without its last rank", status);
	snprintf(name, sizeof name, "%d", missing);
	const char *waited = strstr(tutti_comm_error(r->comm), "waited");
	if (waited && strstr(waited, name))
		atomic_fetch_add(&named, 1);
	if (tutti_barrier(r->comm, NULL) != status)
		report_wrong(r, "the failure is not sticky", status);
}

static void *abort_soon(void *arg)
{
	tutti_comm_abort(arg);
	return NULL;
}

static void aborted(struct rank *r)
{
	int32_t x = 1;
	pthread_t thread;
	if (tutti_rank(r->comm) != 0 || tutti_size(r->comm) == 1)
		return;
	pthread_create(&thread, NULL, abort_soon, r->comm);
	tutti_status status = tutti_all_reduce(&x, &x, 1, TUTTI_I32, TUTTI_SUM, r->comm, NULL);
	pthread_join(thread, NULL);
	if (status != TUTTI_ERR_ABORTED)
		report_wrong(r, "an aborted call", status);
}

static atomic_int mismatches;

/* Rank 0 makes another call than the others: no rank hangs, and none gets bytes of the wrong call.
 */
static void different_calls(struct rank *r)
{
	int32_t in[40] = {0}, out[40];
	tutti_status status;
	if (tutti_size(r->comm) == 1)
		return;
	if (tutti_rank(r->comm) == 0)
		status = tutti_all_reduce(in, out, 40, TUTTI_I32, TUTTI_SUM, r->comm, NULL);
	else
		status = tutti_all_reduce(in, out, 39, TUTTI_I32, TUTTI_SUM, r->comm, NULL);
	if (status != TUTTI_ERR_MISMATCH && status != TUTTI_ERR_PEER)
		report_wrong(r, "calls that differ", status);
	if (status == TUTTI_ERR_MISMATCH)
		atomic_fetch_add(&mismatches, 1);
}

/* Rank 0 is in a v-call without offsets, which the others have not made yet, when a second thread
 * wrongly makes one of other counts: that one is refused, and nothing of the first has changed. */
struct second_call {
	struct rank *rank;
	tutti_status (*call)(struct rank *r, bool is_wrong, int32_t *out);
};

#define BLOCK_MOST 40

/* Blocks of 1, 4, 7... elements; of the wrong call 40, 39, 38... */
static size_t block_count(int rank, bool is_wrong)
{
	return is_wrong ? BLOCK_MOST - (size_t)rank : 1 + 3 * (size_t)rank;
}

static tutti_status gather_blocks(struct rank *r, bool is_wrong, int32_t *out)
{
	int32_t mine[BLOCK_MOST];
	size_t counts[RANKS_MAX];
	for (int i = 0; i < tutti_size(r->comm); i++)
		counts[i] = block_count(i, is_wrong);
	fill(mine, BLOCK_MOST, tutti_rank(r->comm), 11);
	return tutti_all_gatherv(mine, out, counts, NULL, TUTTI_I32, r->comm, NULL);
}

static tutti_status exchange_blocks(struct rank *r, bool is_wrong, int32_t *out)
{
	int32_t in[RANKS_MAX * BLOCK_MOST];
	size_t send[RANKS_MAX], recv[RANKS_MAX], at = 0;
	for (int i = 0; i < tutti_size(r->comm); i++) {
		send[i] = block_count(tutti_rank(r->comm), is_wrong);
		recv[i] = block_count(i, is_wrong);
		fill(in + at, send[i], tutti_rank(r->comm), 11);
		at += send[i];
	}
	return tutti_all_to_allv(in, send, NULL, out, recv, NULL, TUTTI_I32, r->comm, NULL);
}

static void *make_second_call(void *arg)
{
	struct second_call *in = arg;
	struct rank *r = in->rank;
	int32_t out[RANKS_MAX * BLOCK_MOST];
	while (atomic_load(&r->comm->calls.is_issuing) != 2)
		sched_yield();
	tutti_status status = in->call(r, true, out);
	if (status != TUTTI_ERR_INVALID)
		report_wrong(r, "a second thread in the same communicator", status);
	expect(r, "barrier", tutti_barrier(r->other, NULL)); /* lets the other ranks come */
	return NULL;
}

static void check_first_call(struct rank *r,
			     tutti_status (*call)(struct rank *r, bool is_wrong, int32_t *out))
{
	struct second_call in = {r, call};
	int32_t out[RANKS_MAX * BLOCK_MOST] = {0};
	pthread_t thread;
	size_t at = 0;

	if (tutti_rank(r->comm) == 0)
		pthread_create(&thread, NULL, make_second_call, &in);
	else
		expect(r, "barrier", tutti_barrier(r->other, NULL));
	tutti_status status = call(r, false, out);
	if (tutti_rank(r->comm) == 0)
		pthread_join(thread, NULL);
	expect(r, "the call of the first thread", status);
	for (int from = 0; from < tutti_size(r->comm); from++)
		for (size_t i = 0; i < block_count(from, false); i++)
			if (out[at++] != value(from, i, 11))
				report_wrong(r, "bytes of the first thread's call", TUTTI_OK);
}

static void two_callers(struct rank *r)
{
	if (tutti_size(r->comm) == 1)
		return;
	check_first_call(r, gather_blocks);
	check_first_call(r, exchange_blocks);
}

static void test_two_callers(void **state)
{
	everywhere(two_callers);
}

static void test_mismatch(void **state)
{
	everywhere(different_calls);
	assert_true(atomic_load(&mismatches) >= 3 * 4);
}

static void test_deadlines(void **state)
{
	everywhere(one_is_missing);
	assert_true(atomic_load(&named) >= 3 * 4);
	everywhere(aborted);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_blocking),  cmocka_unit_test(test_asynchronous),
		cmocka_unit_test(test_deadlines), cmocka_unit_test(test_two_callers),
		cmocka_unit_test(test_mismatch),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
