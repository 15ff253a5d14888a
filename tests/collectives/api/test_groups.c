/* Without this, calls of a group could start before its end, block each other, or end with no
 * handle or too many callbacks: over several communicators, with all ranks in one thread or a
 * thread each. */
#include <tutti/tutti.h>

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit.h"

#define RANKS_MAX 8
#define N         3
#define LONG      100000 /* elements: more than any eager limit */

static const char *const transports[] = {"tcp", "shm", NULL};

static void open_all(tutti_comm **comms, int n, const char *transport)
{
	tutti_config config = {.transports = transport, .timeout_ms = 60000};
	if (tutti_init_all(comms, n, &config) != TUTTI_OK)
		fail_msg("init: %s", tutti_comm_error(NULL));
}

static void close_all(tutti_comm **comms, int n)
{
	for (int r = 0; r < n; r++)
		tutti_comm_destroy(comms[r]);
}

static void ok(tutti_status status)
{
	if (status != TUTTI_OK)
		fail_msg("%s: %s", tutti_status_string(status), tutti_comm_error(NULL));
}

static int32_t value(int from, int to, size_t i)
{
	return (int32_t)((uint32_t)from * 1000003u + (uint32_t)to * 10007u + (uint32_t)i);
}

struct done {
	atomic_int calls, status;
};

static void note_done(void *arg, tutti_status status)
{
	struct done *d = arg;
	atomic_store(&d->status, (int)status);
	atomic_fetch_add(&d->calls, 1);
}

static void wait_done(struct done *d)
{
	while (atomic_load(&d->calls) == 0)
		sched_yield();
	assert_int_equal(atomic_load(&d->calls), 1);
	assert_int_equal(atomic_load(&d->status), TUTTI_OK);
}

enum how { BLOCKS, WAITS, TESTS, CALLED, WAYS };

/* Ends the group in one of the ways there are. */
static void end_group(enum how how)
{
	struct done done = {0};
	tutti_work *work = NULL;
	tutti_call call = {.work = how == CALLED ? NULL : &work};
	int is_done = 0;

	if (how == CALLED || how == TESTS) {
		call.done = note_done;
		call.done_arg = &done;
	}
	ok(tutti_group_end(how == BLOCKS ? NULL : &call));
	while (how == TESTS && !is_done)
		ok(tutti_work_test(work, &is_done));
	ok(tutti_work_wait(&work, 0));
	assert_null(work);
	if (how == CALLED || how == TESTS)
		wait_done(&done);
}

/* Every rank sends to every other, long and short, and all sum up: one thread, one group. */
static void one_thread(int n, const char *transport, enum how how)
{
	tutti_comm *comms[RANKS_MAX];
	int32_t *out[RANKS_MAX][RANKS_MAX], *in[RANKS_MAX][RANKS_MAX], sums[RANKS_MAX];
	int sources[RANKS_MAX][RANKS_MAX];

	open_all(comms, n, transport);
	for (int a = 0; a < n; a++)
		for (int b = 0; b < n; b++) {
			out[a][b] = malloc(LONG * 4);
			in[a][b] = malloc(LONG * 4);
			for (size_t i = 0; i < LONG; i++)
				out[a][b][i] = value(a, b, i);
		}
	ok(tutti_group_begin());
	for (int a = 0; a < n; a++) {
		ok(tutti_group_begin());
		for (int b = 0; b < n; b++) {
			tutti_call call = {.tag = a + b, .source = &sources[a][b]};
			size_t count = (a + b) % 3 ? LONG : 50;
			tutti_work *none = (tutti_work *)&call;
			call.work = &none; /* ignored */
			call.stream = &none;
			ok(tutti_send(out[a][b], count, TUTTI_I32, b, comms[a], &call));
			ok(tutti_recv(in[b][a], count, TUTTI_I32, a, comms[b], &call));
			assert_ptr_equal(none, &call);
		}
		sums[a] = a + 1;
		ok(tutti_all_reduce(&sums[a], &sums[a], 1, TUTTI_I32, TUTTI_SUM, comms[a], NULL));
		ok(tutti_group_end(NULL));
		assert_int_equal(tutti_comm_sequence(comms[a]), 0); /* nothing has started */
	}
	end_group(how);
	for (int a = 0; a < n; a++) {
		assert_int_equal(sums[a], n * (n + 1) / 2);
		for (int b = 0; b < n; b++) {
			size_t count = (a + b) % 3 ? LONG : 50;
			assert_memory_equal(out[a][b], in[b][a], count * 4);
			assert_int_equal(sources[a][b], a);
			free(out[a][b]);
			free(in[b][a]);
		}
	}
	close_all(comms, n);
}

static void test_one_thread(void **state)
{
	static const int sizes[] = {1, 2, 5};
	for (int t = 0; t < 3; t++)
		for (int s = 0; s < 3; s++)
			for (int how = BLOCKS; how < WAYS; how++)
				one_thread(sizes[s], transports[t], (enum how)how);
}

/* Several communicators of the same ranks, other orders of calls on each rank: one handle. */
static void test_many_communicators(void **state)
{
	enum { COMMS = 4 };
	tutti_comm *comms[COMMS][N];
	int32_t x[COMMS][N][100];

	for (int c = 0; c < COMMS; c++)
		open_all(comms[c], N, transports[c % 3]);
	for (int how = BLOCKS; how < WAYS; how++) {
		ok(tutti_group_begin());
		for (int r = 0; r < N; r++)
			for (int k = 0; k < COMMS; k++) {
				int c = r % 2 ? COMMS - 1 - k : k;
				for (int i = 0; i < 100; i++)
					x[c][r][i] = c * 1000 + r;
				ok(tutti_all_reduce(x[c][r], x[c][r], 100, TUTTI_I32, TUTTI_SUM,
						    comms[c][r], NULL));
			}
		end_group((enum how)how);
		for (int c = 0; c < COMMS; c++)
			for (int r = 0; r < N; r++)
				for (int i = 0; i < 100; i++)
					assert_int_equal(x[c][r][i], N * c * 1000 + 3);
	}
	for (int c = 0; c < COMMS; c++)
		close_all(comms[c], N);
}

static void add(void *inout, const void *in, size_t count, tutti_dtype dtype, void *arg)
{
	int32_t *x = inout;
	const int32_t *y = in;
	(void)dtype;
	(void)arg;
	for (size_t i = 0; i < count; i++)
		x[i] += y[i];
}

/* Rank r's blocks: p + 1 elements from rank p; (p + r) % N elements between ranks p and r. */
static void check_blocks(int r, const int32_t *all, const int32_t *from)
{
	int at = 0, got = 0;
	for (int p = 0; p < N; p++) {
		int first = 0;
		for (int i = 0; i <= p; i++)
			assert_int_equal(all[at++], 10 * p + i);
		for (int q = 0; q < r; q++)
			first += (p + q) % N;
		for (int i = 0; i < (p + r) % N; i++)
			assert_int_equal(from[got++], 10 * p + first + i);
	}
}

/* What a call's arguments point to is the caller's again before the group ends: tables, its
 * operation. */
static void copied_arguments(const char *transport)
{
	tutti_comm *comms[N];
	int32_t mine[N][6], all[N][6], from[N][6], one[N], sum[N];
	size_t counts[N], pairs[N];
	tutti_op op;

	open_all(comms, N, transport);
	ok(tutti_op_create(&op, "add", add, NULL));
	ok(tutti_group_begin());
	for (int r = 0; r < N; r++) {
		one[r] = r + 1;
		for (int i = 0; i < 6; i++)
			mine[r][i] = 10 * r + i;
		for (int p = 0; p < N; p++) {
			counts[p] = (size_t)p + 1;
			pairs[p] = (size_t)((r + p) % N);
		}
		ok(tutti_all_gatherv(mine[r], all[r], counts, NULL, TUTTI_I32, comms[r], NULL));
		ok(tutti_all_to_allv(mine[r], pairs, NULL, from[r], pairs, NULL, TUTTI_I32,
				     comms[r], NULL));
		ok(tutti_all_reduce(&one[r], &sum[r], 1, TUTTI_I32, op, comms[r], NULL));
		for (int p = 0; p < N; p++)
			counts[p] = pairs[p] = 1000000;
	}
	tutti_op_destroy(op);
	ok(tutti_group_end(NULL));
	for (int r = 0; r < N; r++) {
		assert_int_equal(sum[r], 6);
		check_blocks(r, all[r], from[r]);
	}
	close_all(comms, N);
}

static void test_arguments_are_copied(void **state)
{
	for (int t = 0; t < 3; t++)
		copied_arguments(transports[t]);
}

struct rank {
	tutti_comm *comm;
	pthread_t thread;
	tutti_work *work;
	tutti_status status;
	bool is_wrong;
};

/* Both send before they receive; both wait on another thread than the one that called. */
static void *crossed(void *arg)
{
	struct rank *r = arg;
	int me = tutti_rank(r->comm), n = tutti_size(r->comm);
	int32_t *out = malloc(LONG * 4), *in[RANKS_MAX];

	for (size_t i = 0; i < LONG; i++)
		out[i] = value(me, 0, i);
	tutti_group_begin();
	for (int p = 0; p < n; p++)
		r->status |= tutti_send(out, LONG, TUTTI_I32, p, r->comm, NULL);
	for (int p = 0; p < n; p++) {
		in[p] = malloc(LONG * 4);
		r->status |= tutti_recv(in[p], LONG, TUTTI_I32, p, r->comm, NULL);
	}
	r->status |= tutti_group_end(NULL);
	for (int p = 0; p < n; p++) {
		for (size_t i = 0; i < LONG; i++)
			r->is_wrong |= in[p][i] != value(p, 0, i);
		free(in[p]);
	}
	free(out);
	return NULL;
}

static void *wait_for(void *arg)
{
	struct rank *r = arg;
	r->status = tutti_work_wait(&r->work, 0);
	return NULL;
}

static void test_crossed(void **state)
{
	for (int t = 0; t < 3; t++)
		for (int n = 1; n <= 5; n += 2) {
			struct rank ranks[RANKS_MAX] = {{0}};
			tutti_comm *comms[RANKS_MAX];
			open_all(comms, n, transports[t]);
			for (int r = 0; r < n; r++) {
				ranks[r].comm = comms[r];
				pthread_create(&ranks[r].thread, NULL, crossed, &ranks[r]);
			}
			for (int r = 0; r < n; r++) {
				pthread_join(ranks[r].thread, NULL);
				assert_int_equal(ranks[r].status, TUTTI_OK);
				assert_false(ranks[r].is_wrong);
			}
			close_all(comms, n);
		}
}

/* The handles of two ranks' groups, waited for on other threads, after waits with a short timeout.
 */
static void test_waits_elsewhere(void **state)
{
	for (int t = 0; t < 3; t++) {
		struct rank ranks[2] = {{0}};
		tutti_comm *comms[2];
		float out[100] = {0}, in[2][100];
		open_all(comms, 2, transports[t]);
		for (int r = 0; r < 2; r++) {
			tutti_call call = {.work = &ranks[r].work};
			ok(tutti_group_begin());
			ok(tutti_barrier(comms[r], NULL));
			ok(tutti_send(out, 100, TUTTI_F32, !r, comms[r], NULL));
			ok(tutti_recv(in[r], 100, TUTTI_F32, !r, comms[r], NULL));
			ok(tutti_group_end(&call));
			if (r == 0) {
				assert_int_equal(tutti_work_wait(&ranks[0].work, 2),
						 TUTTI_IN_PROGRESS);
				pthread_create(&ranks[0].thread, NULL, wait_for, &ranks[0]);
			}
		}
		pthread_create(&ranks[1].thread, NULL, wait_for, &ranks[1]);
		for (int r = 0; r < 2; r++) {
			pthread_join(ranks[r].thread, NULL);
			assert_int_equal(ranks[r].status, TUTTI_OK);
			assert_null(ranks[r].work);
		}
		close_all(comms, 2);
	}
}

/* More calls than works may otherwise be in flight, in the worst order. */
static void test_many_calls(void **state)
{
	enum { CALLS = 3000 };
	static int32_t out[CALLS][5000], in[CALLS][5000];
	tutti_comm *comms[2];

	open_all(comms, 2, "shm");
	ok(tutti_group_begin());
	for (int i = 0; i < CALLS; i++) {
		tutti_call call = {.tag = i};
		out[i][0] = out[i][4999] = i;
		ok(tutti_send(out[i], 5000, TUTTI_I32, 1, comms[0], &call));
	}
	for (int i = CALLS - 1; i >= 0; i--) {
		tutti_call call = {.tag = i};
		ok(tutti_recv(in[i], 5000, TUTTI_I32, 0, comms[1], &call));
	}
	ok(tutti_group_end(NULL));
	for (int i = 0; i < CALLS; i++)
		assert_true(in[i][0] == i && in[i][4999] == i);
	close_all(comms, 2);
}

/* It ends as the group's call says, not as its own. */
static void test_one_call(void **state)
{
	for (size_t t = 0; t < sizeof transports / sizeof transports[0]; t++)
		for (enum how how = 0; how < WAYS; how++) {
			tutti_comm *comms[2];
			int32_t out = (int32_t)(t * 10) + (int32_t)how, in = -1;
			tutti_work *ignored = NULL;
			tutti_call own = {.tag = 1, .work = &ignored}, tag = {.tag = 1};

			open_all(comms, 2, transports[t]);
			ok(tutti_group_begin());
			ok(tutti_send(&out, 1, TUTTI_I32, 1, comms[0], &own));
			end_group(how);
			ok(tutti_group_begin());
			ok(tutti_recv(&in, 1, TUTTI_I32, 0, comms[1], &tag));
			end_group(how);
			assert_int_equal(in, out);
			assert_null(ignored);
			ok(tutti_group_begin());
			ok(tutti_recv(&in, 1, TUTTI_I32, 0, comms[1], &tag));
			assert_int_equal(tutti_group_end(&(tutti_call){.timeout_ms = 50}),
					 TUTTI_ERR_TIMEOUT);
			assert_non_null(strstr(tutti_comm_error(NULL), "recv(i32, 1, tag 1)"));
			close_all(comms, 2);
		}
}

static void test_invalid(void **state)
{
	tutti_comm *comm, *copy;
	int32_t x = 5, y = 0;
	struct done done = {0};
	tutti_call bad = {.timeout_ms = -1}, call = {.done = note_done, .done_arg = &done};

	open_all(&comm, 1, NULL);
	assert_int_equal(tutti_group_end(NULL), TUTTI_ERR_INVALID);
	/* The member says so, and group_end again; nothing is started. */
	for (int k = 0; k < 4; k++) {
		ok(tutti_group_begin());
		ok(tutti_all_reduce(&x, &y, 1, TUTTI_I32, TUTTI_SUM, comm, NULL));
		if (k == 0)
			assert_int_equal(tutti_send(&x, 1, TUTTI_I32, 7, comm, NULL),
					 TUTTI_ERR_INVALID);
		if (k == 1)
			assert_int_equal(
				tutti_all_reduce(&x, &y, 1, TUTTI_F32, TUTTI_BXOR, comm, NULL),
				TUTTI_ERR_INVALID);
		if (k == 2)
			assert_int_equal(tutti_comm_dup(comm, &copy), TUTTI_ERR_INVALID);
		if (k == 3)
			assert_int_equal(
				tutti_all_reduce(&x, &y, 1, TUTTI_I32, TUTTI_SUM, comm, &bad),
				TUTTI_ERR_INVALID);
		char why[512];
		snprintf(why, sizeof why, "%s", tutti_comm_error(NULL));
		ok(tutti_barrier(comm, NULL));
		assert_int_equal(tutti_work_wait(NULL, 0), TUTTI_ERR_INVALID); /* no member */
		assert_int_equal(tutti_group_end(&call), TUTTI_ERR_INVALID);
		assert_string_equal(tutti_comm_error(NULL), why);
		assert_int_equal(tutti_comm_sequence(comm), 0);
		assert_int_equal(y, 0);
	}
	/* What is wrong beside the members is none of the group's business. */
	ok(tutti_group_begin());
	ok(tutti_all_reduce(&x, &y, 1, TUTTI_I32, TUTTI_SUM, comm, NULL));
	assert_int_equal(tutti_work_wait(NULL, 0), TUTTI_ERR_INVALID);
	ok(tutti_group_end(NULL));
	assert_int_equal(y, 5);
	ok(tutti_group_begin());
	ok(tutti_barrier(comm, NULL));
	assert_int_equal(tutti_group_end(&bad), TUTTI_ERR_INVALID);
	ok(tutti_group_begin());
	ok(tutti_group_end(NULL)); /* empty */
	assert_int_equal(atomic_load(&done.calls), 0);
	ok(tutti_group_begin());
	ok(tutti_group_end(&call));
	assert_int_equal(atomic_load(&done.calls), 1);
	tutti_comm_destroy(comm);
}

/* The first failure is the group's, once; what can still end does. */
static void test_failures(void **state)
{
	for (int t = 0; t < 3; t++) {
		tutti_comm *a[2], *b[2];
		struct done done = {0};
		static int32_t big[LONG];
		int32_t x[2] = {1, 2}, y[2] = {0};
		tutti_call late = {.timeout_ms = 100},
			   call = {.done = note_done, .done_arg = &done};
		open_all(a, 2, transports[t]);
		open_all(b, 2, transports[t]);
		ok(tutti_group_begin());
		for (int r = 0; r < 2; r++)
			ok(tutti_all_reduce(&x[r], &y[r], 1, TUTTI_I32, TUTTI_SUM, a[r], NULL));
		ok(tutti_recv(big, LONG, TUTTI_I32, 1, b[0], &late));
		ok(tutti_group_end(&call));
		while (atomic_load(&done.calls) == 0)
			sched_yield();
		assert_int_equal(atomic_load(&done.status), TUTTI_ERR_TIMEOUT);
		assert_int_equal(y[0] * 10 + y[1], 33);
		assert_int_equal(tutti_comm_status(a[0]), TUTTI_OK);
		ok(tutti_group_begin());
		assert_int_equal(tutti_barrier(b[0], NULL), TUTTI_ERR_TIMEOUT); /* sticky */
		assert_int_equal(tutti_group_end(NULL), TUTTI_ERR_TIMEOUT);
		ok(tutti_group_begin());
		ok(tutti_recv(big, LONG, TUTTI_I32, 1, a[0], NULL));
		tutti_call short_time = {.timeout_ms = 100};
		assert_int_equal(tutti_group_end(&short_time), TUTTI_ERR_TIMEOUT);
		assert_non_null(strstr(tutti_comm_error(NULL), "from rank 1"));
		assert_int_equal(atomic_load(&done.calls), 1);
		close_all(a, 2);
		close_all(b, 2);
	}
}

/* A handle outlives the communicators, and may be let go while its works go on. */
static void test_handles(void **state)
{
	tutti_comm *comms[2];
	static int32_t out[LONG], in[LONG];
	tutti_work *work = NULL;
	tutti_call call = {.work = &work};

	for (int keeps = 0; keeps < 2; keeps++) {
		open_all(comms, 2, NULL);
		out[LONG - 1] = 77 + keeps;
		ok(tutti_group_begin());
		ok(tutti_send(out, LONG, TUTTI_I32, 1, comms[0], NULL));
		ok(tutti_recv(in, LONG, TUTTI_I32, 0, comms[1], NULL));
		ok(tutti_group_end(&call));
		if (!keeps)
			tutti_work_release(&work);
		close_all(comms, 2);
		assert_int_equal(in[LONG - 1], 77 + keeps);
		ok(tutti_work_wait(&work, 0));
	}
}

#define INNER 6 /* more calls than a thread's own batch holds */

struct inner {
	tutti_comm *comm;
	tutti_work *work;
	float x[INNER];
};

static void begin_inner(void *arg, tutti_status status)
{
	struct inner *inner = arg;

	ok(status);
	ok(tutti_group_begin());
	for (int i = 0; i < INNER; i++)
		ok(tutti_all_reduce(&inner->x[i], &inner->x[i], 1, TUTTI_F32, TUTTI_SUM,
				    inner->comm, NULL));
	ok(tutti_group_end(&(tutti_call){.work = &inner->work}));
}

/* The group that has no call is over in group_end, where its done function begins another one. */
static void test_group_in_a_group(void **state)
{
	struct inner inner = {0};
	tutti_call call = {.done = begin_inner, .done_arg = &inner};

	open_all(&inner.comm, 1, NULL);
	for (int round = 0; round < 3; round++) {
		for (int i = 0; i < INNER; i++)
			inner.x[i] = (float)i;
		ok(tutti_group_begin());
		ok(tutti_group_end(&call));
		ok(tutti_work_wait(&inner.work, 0));
		for (int i = 0; i < INNER; i++)
			assert_true(inner.x[i] == (float)i);
	}
	tutti_comm_destroy(inner.comm);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_group_in_a_group),
		cmocka_unit_test(test_one_thread),
		cmocka_unit_test(test_many_communicators),
		cmocka_unit_test(test_arguments_are_copied),
		cmocka_unit_test(test_crossed),
		cmocka_unit_test(test_waits_elsewhere),
		cmocka_unit_test(test_many_calls),
		cmocka_unit_test(test_one_call),
		cmocka_unit_test(test_invalid),
		cmocka_unit_test(test_failures),
		cmocka_unit_test(test_handles),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
