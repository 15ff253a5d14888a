/* What would break: a rank that leaves before the calls of the others, or those that functions have
 * begun, are over; a shutdown that waits for ever, or does not say for whom; a call that hangs when
 * its rank has given up; references that are destroyed twice, never, or too early. */
#include "tests/rpc/rpc_ranks.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit.h"

static struct rpc_rank all[RANKS_MAX];

static void begin(struct rank *rank, const tutti_rpc_config *config)
{
	rpc_open(&all[rank->rank], rank, config);
	expect(rank, "barrier", tutti_barrier(rank->comm, NULL));
}

/* ---- calls that are in flight ---- */

/* Passes a number on, one way, until it is 0. */
static tutti_status pass_on(void *arg, const tutti_rpc_request *request, tutti_rpc_reply *reply)
{
	struct rpc_rank *r = arg;
	uint64_t number;
	tutti_rpc_piece piece = {&number, sizeof number};

	(void)reply;
	memcpy(&number, request->data, sizeof number);
	atomic_fetch_add(&r->sum, 1);
	if (number-- == 0)
		return TUTTI_OK;
	return tutti_rpc_send(r->rpc, (r->rank->rank + 1) % r->rank->size, "pass", &piece, 1, NULL);
}

static void chain(struct rank *rank)
{
	enum { LENGTH = 300 };
	struct rpc_rank *r = &all[rank->rank];
	tutti_rpc_function f = {.name = "pass", .fn = pass_on, .arg = r};
	uint64_t number = LENGTH - 1;
	tutti_rpc_piece piece = {&number, sizeof number};
	unsigned long sum = 0;

	rpc_open(r, rank, NULL);
	RPC_OK(r, tutti_rpc_register(r->rpc, &f));
	expect(rank, "barrier", tutti_barrier(rank->comm, NULL));
	if (rank->rank == 0)
		RPC_OK(r, tutti_rpc_send(r->rpc, rank->size - 1, "pass", &piece, 1, NULL));
	rpc_close(r);
	expect(rank, "barrier", tutti_barrier(rank->comm, NULL));
	for (int i = 0; i < rank->size; i++)
		sum += atomic_load(&all[i].sum);
	RPC_TRUE(r, sum == LENGTH);
}

static void all_calls_are_over_before_a_rank_leaves(void **state)
{
	rpc_everywhere(chain);
}

static void missing(struct rank *rank)
{
	struct rpc_rank *r = &all[rank->rank];
	char text[80];
	int last = rank->size - 1;

	begin(rank, NULL);
	snprintf(text, sizeof text, "on rank %s%d", last == 3 ? "2, " : "", last);
	if (rank->rank < (last == 3 ? 2 : last)) {
		rpc_expect_error(r, tutti_rpc_shutdown(r->rpc, 50), TUTTI_ERR_TIMEOUT, text);
		rpc_check_echo(r, last, "echo", 1000, 1); /* it may go on */
	}
	expect(rank, "barrier", tutti_barrier(rank->comm, NULL));
	rpc_close(r);
}

static void shutdown_names_ranks_that_are_missing(void **state)
{
	with_ranks(2, NULL, 1, missing);
	with_ranks(4, "tcp", 1, missing);
}

static void own_call(struct rank *rank)
{
	struct rpc_rank *r = &all[rank->rank];
	tutti_rpc_future *future;

	begin(rank, NULL);
	RPC_OK(r, tutti_rpc_call_async(r->rpc, 0, "wait", NULL, 0, NULL, NULL, &future));
	rpc_expect_error(r, tutti_rpc_shutdown(r->rpc, 50), TUTTI_ERR_TIMEOUT,
			 "itself has 1 call in flight ('wait' of rank 0), and serves ");
	expect(rank, "barrier", tutti_barrier(rank->comm, NULL));
	atomic_store(&all[0].is_open, 1);
	RPC_OK(r, tutti_rpc_shutdown(r->rpc, 0));
	RPC_OK(r, tutti_rpc_wait(&future, 0)); /* it had its answer before */
	tutti_rpc_destroy(r->rpc);
}

static void shutdown_waits_for_calls(void **state)
{
	with_ranks(1, NULL, 1, own_call);
	with_ranks(3, NULL, 1, own_call);
}

/* ---- leaving without waiting ---- */

/* While the others recover from a rank that has left, and lives. */
static void call_shortly(struct rpc_rank *r, int to)
{
	const tutti_rpc_options options = {.timeout_ms = 1};
	tutti_status status = tutti_rpc_call(r->rpc, to, "echo", NULL, 0, NULL, &options);
	const char *died = status == TUTTI_OK ? NULL : strstr(tutti_comm_error(NULL), "died");

	if (died)
		rpc_expect_error(r, status, TUTTI_ERR_TIMEOUT, "died, or left");
}

static void aborted(struct rank *rank)
{
	struct rpc_rank *r = &all[rank->rank];
	int last = rank->size - 1;
	tutti_rpc_future *future = NULL;

	begin(rank, NULL);
	if (rank->rank == 0 && last > 0) {
		RPC_OK(r, tutti_rpc_call_async(r->rpc, last, "wait", NULL, 0, NULL, NULL, &future));
		rpc_until(r, &all[last].waiting, 1);
	}
	expect(rank, "barrier", tutti_barrier(rank->comm, NULL));
	if (rank->rank == last) {
		RPC_OK(r, tutti_rpc_call_async(r->rpc, 0, "wait", NULL, 0, NULL, NULL, &future));
		rpc_until(r, &all[0].waiting, 1);
		tutti_rpc_abort(r->rpc);
		rpc_expect_error(r, tutti_rpc_wait(&future, 0), TUTTI_ERR_ABORTED,
				 "tutti_rpc_abort");
		rpc_expect_error(r, tutti_rpc_call(r->rpc, 0, "echo", NULL, 0, NULL, NULL),
				 TUTTI_ERR_ABORTED, "tutti_rpc_abort");
		RPC_TRUE(r, tutti_rpc_status(r->rpc) == TUTTI_ERR_ABORTED);
		atomic_store(&all[0].is_open, 1); /* of one rank, its own function runs */
		tutti_rpc_destroy(r->rpc);
		return;
	}
	if (rank->rank == 0)
		rpc_expect_error(r, tutti_rpc_wait(&future, 0), TUTTI_ERR_PEER, "died, or left");
	while (tutti_rpc_is_alive(r->rpc, last))
		call_shortly(r, 0);
	for (int to = 0; to < last; to++)
		rpc_check_echo(r, to, "echo", 50000, 1);
	rpc_expect_error(r, tutti_rpc_call(r->rpc, last, "echo", NULL, 0, NULL, NULL),
			 TUTTI_ERR_PEER, "not called: the rank has died, or left");
	rpc_close(r);
}

static void a_rank_leaves_without_waiting(void **state)
{
	with_ranks(1, NULL, 1, aborted);
	with_ranks(2, NULL, 1, aborted);
	with_ranks(4, NULL, 1, aborted);
	with_ranks(3, "tcp", 1, aborted);
}

/* A server serves in shutdown, and may hold answers for the sake of a rank that has died. */

static atomic_int told_of;

static void note_death(void *arg, int rank)
{
	(void)arg;
	atomic_fetch_add(&told_of, rank);
}

/* Until rank 0 has reported, and rank 1 alone is missing beside this one. */
static void await_server(struct rpc_rank *r)
{
	tutti_status status;

	do
		status = tutti_rpc_shutdown(r->rpc, 20);
	while (status == TUTTI_ERR_TIMEOUT && !strstr(tutti_comm_error(NULL), "on rank 1"));
	RPC_TRUE(r, status == TUTTI_ERR_TIMEOUT);
}

static void served(struct rank *rank)
{
	struct rpc_rank *r = &all[rank->rank];
	const tutti_rpc_config config = {.died = note_death};

	begin(rank, rank->rank == 0 ? &config : NULL);
	if (rank->rank == 2) {
		await_server(r);
		tutti_rpc_abort(r->rpc);
		tutti_rpc_destroy(r->rpc);
		return;
	}
	if (rank->rank == 1)
		rpc_until(r, &told_of, 2);
	rpc_close(r);
}

static void a_rank_in_shutdown_hears_of_deaths(void **state)
{
	with_ranks(3, NULL, 1, served);
}

/* ---- references ---- */

static atomic_int destroyed;
static atomic_long object_of_all = 7;

static void note_destroyed(void *object)
{
	(void)object;
	atomic_fetch_add(&destroyed, 1);
}

static tutti_status make(void *arg, const tutti_rpc_request *request, tutti_rpc_reply *reply)
{
	struct rpc_rank *r = arg;
	tutti_rpc_ref ref;
	tutti_status status = tutti_rpc_ref_create(r->rpc, &object_of_all, note_destroyed, &ref);

	if (status == TUTTI_OK)
		status = tutti_rpc_ref_share(r->rpc, &ref, request->rank);
	if (status == TUTTI_OK)
		status = tutti_rpc_ref_release(r->rpc, &ref);
	return status == TUTTI_OK ? tutti_rpc_reply_copy(reply, &ref, sizeof ref) : status;
}

static tutti_status use(void *arg, const tutti_rpc_request *request, tutti_rpc_reply *reply)
{
	struct rpc_rank *r = arg;
	void *object;
	tutti_status status = tutti_rpc_ref_get(r->rpc, request->data, &object);

	if (status != TUTTI_OK)
		return status;
	long value = atomic_fetch_add((atomic_long *)object, 1);
	status = tutti_rpc_ref_release(r->rpc, request->data);
	return status == TUTTI_OK ? tutti_rpc_reply_copy(reply, &value, sizeof value) : status;
}

static void references(struct rank *rank)
{
	enum { REFS = 20 };
	struct rpc_rank *r = &all[rank->rank];
	tutti_rpc_function f[] = {{.name = "make", .fn = make, .arg = r, .flags = TUTTI_RPC_SHORT},
				  {.name = "use", .fn = use, .arg = r}};
	int to = (rank->rank + 1) % rank->size, third = (rank->rank + 2) % rank->size;
	tutti_rpc_ref refs[REFS];
	void *object;

	rpc_open(r, rank, NULL);
	RPC_OK(r, tutti_rpc_register(r->rpc, &f[0]));
	RPC_OK(r, tutti_rpc_register(r->rpc, &f[1]));
	if (rank->rank == 0)
		atomic_store(&destroyed, 0);
	expect(rank, "barrier", tutti_barrier(rank->comm, NULL));
	for (int i = 0; i < REFS; i++) {
		tutti_rpc_answer answer = {.data = &refs[i], .bytes = sizeof refs[i]};
		tutti_rpc_piece piece = {&refs[i], sizeof refs[i]};
		RPC_OK(r, tutti_rpc_call(r->rpc, to, "make", NULL, 0, &answer, NULL));
		RPC_TRUE(r, refs[i].owner == to);
		RPC_OK(r, tutti_rpc_call(r->rpc, to, "use", &piece, 1, NULL, NULL));
		RPC_OK(r, tutti_rpc_ref_share(r->rpc, &refs[i], third));
		RPC_OK(r, tutti_rpc_ref_release(r->rpc, &refs[i]));
		if (i % 2)
			RPC_OK(r, tutti_rpc_call(r->rpc, to, "use", &piece, 1, NULL, NULL));
	}
	if (to != rank->rank)
		rpc_expect_error(r, tutti_rpc_ref_get(r->rpc, &refs[0], &object), TUTTI_ERR_INVALID,
				 "the object is on rank");
	expect(rank, "barrier", tutti_barrier(rank->comm, NULL));
	RPC_TRUE(r, atomic_load(&destroyed) == 0); /* third has them */
	expect(rank, "barrier", tutti_barrier(rank->comm, NULL));
	tutti_rpc_ref ref = {.owner = rank->rank, .number = 12345};
	rpc_expect_error(r, tutti_rpc_ref_get(r->rpc, &ref, &object), TUTTI_ERR_INVALID,
			 "no object of number 12345");
	rpc_expect_error(r, tutti_rpc_ref_share(r->rpc, &ref, 0), TUTTI_ERR_INVALID, "no object");
	/* Those that nobody gives back go with the rpc. */
	RPC_OK(r, tutti_rpc_ref_create(r->rpc, &object_of_all, note_destroyed, &ref));
	RPC_OK(r, tutti_rpc_ref_create(r->rpc, &object_of_all, NULL, &ref));
	rpc_close(r);
	expect(rank, "barrier", tutti_barrier(rank->comm, NULL));
	RPC_TRUE(r, atomic_load(&destroyed) == (REFS + 1) * rank->size);
}

static void references_are_counted(void **state)
{
	rpc_everywhere(references);
}

static void nothing(void **state)
{
	tutti_rpc_destroy(NULL);
	tutti_rpc_abort(NULL);
	tutti_rpc_free(NULL);
	assert_int_equal(tutti_rpc_rank(NULL), -1);
	assert_int_equal(tutti_rpc_size(NULL), -1);
	assert_int_equal(tutti_rpc_status(NULL), TUTTI_ERR_INVALID);
	assert_int_equal(tutti_rpc_shutdown(NULL, 0), TUTTI_ERR_INVALID);
	assert_int_equal(tutti_rpc_call(NULL, 0, "a", NULL, 0, NULL, NULL), TUTTI_ERR_INVALID);
	assert_int_equal(tutti_rpc_create(NULL, NULL, NULL), TUTTI_ERR_INVALID);
}

static void bad_config(struct rank *rank)
{
	tutti_rpc *rpc = NULL;
	struct rpc_rank r = {.rank = rank};
	tutti_rpc_config config = {.calls = rank->rank == 0 ? 5000 : 0};

	rpc_expect_error(&r, tutti_rpc_create(&rpc, rank->comm, &config), TUTTI_ERR_INVALID,
			 "calls is 5000: there may be 1024");
	RPC_TRUE(&r, !rpc);
}

static void all_ranks_refuse_a_bad_config(void **state)
{
	with_ranks(3, NULL, 1, bad_config);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(all_calls_are_over_before_a_rank_leaves),
		cmocka_unit_test(shutdown_names_ranks_that_are_missing),
		cmocka_unit_test(shutdown_waits_for_calls),
		cmocka_unit_test(a_rank_leaves_without_waiting),
		cmocka_unit_test(a_rank_in_shutdown_hears_of_deaths),
		cmocka_unit_test(references_are_counted),
		cmocka_unit_test(nothing),
		cmocka_unit_test(all_ranks_refuse_a_bad_config),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
