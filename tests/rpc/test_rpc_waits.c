/* What would break: a wait that has no end, since the done function of its call has none; a message
 * of a wait that says something else of the call than what is so. */
#include "tests/rpc/rpc_ranks.h"

#include <poll.h>
#include <stdlib.h>
#include <string.h>

#include "tests/limit.h"
#include "tests/unit.h"

static struct rpc_rank all[RANKS_MAX];

/* ---- a done function that blocks ---- */

static atomic_int blocked, may_return, dones;

static void count_done(void *arg, tutti_status status)
{
	(void)arg;
	(void)status;
	atomic_fetch_add(&dones, 1);
}

/* Until the test lets it go, or has waited long enough. */
static void block(void *arg, tutti_status status)
{
	(void)arg;
	(void)status;
	atomic_fetch_add(&blocked, 1);
	for (int ms = 0; ms < 10000 && !atomic_load(&may_return); ms++)
		poll(NULL, 0, 1);
}

static void blocking(struct rank *rank)
{
	struct rpc_rank *r = &all[rank->rank];
	const tutti_rpc_options options = {.timeout_ms = 50, .done = block};
	const tutti_rpc_options quick = {.timeout_ms = 50, .done = count_done};
	tutti_rpc_future *future;

	rpc_open(r, rank, NULL);
	expect(rank, "barrier", tutti_barrier(rank->comm, NULL));
	if (rank->rank == 0) {
		future = NULL;
		RPC_OK(r, tutti_rpc_call_async(r->rpc, 1, "wait", NULL, 0, NULL, &quick, &future));
		rpc_expect_error(r, tutti_rpc_wait(&future, 0), TUTTI_ERR_TIMEOUT, "no answer");
		RPC_TRUE(r, atomic_load(&dones) == 1);
		atomic_store(&all[1].is_open, 1);
		RPC_OK(r,
		       tutti_rpc_call_async(r->rpc, 1, "short", NULL, 0, NULL, &options, &future));
		rpc_until(r, &blocked, 1);
		RPC_TRUE(r, tutti_rpc_wait(&future, 1) == TUTTI_IN_PROGRESS && future);
		rpc_expect_error(r, tutti_rpc_wait(&future, 0), TUTTI_ERR_TIMEOUT,
				 "its done function (tutti_rpc_options.done) has not returned");
		RPC_TRUE(r, !future);
		atomic_store(&may_return, 1);
	}
	rpc_close(r);
}

static void a_done_function_that_blocks_ends_the_wait(void **state)
{
	atomic_store(&dones, 0);
	with_ranks(2, NULL, 1, blocking);
}

/* ---- replies that are held ---- */

static tutti_status keeps(void *arg, const tutti_rpc_request *request, tutti_rpc_reply *reply)
{
	struct rpc_rank *r = arg;

	(void)request;
	r->kept = reply;
	atomic_fetch_add(&r->has_kept, 1);
	return TUTTI_IN_PROGRESS;
}

/* Again, if the helper thread has not said in time where the call is. */
static void keeping(struct rank *rank)
{
	struct rpc_rank *r = &all[rank->rank];
	const tutti_rpc_function function = {
		.name = "keeps", .fn = keeps, .arg = r, .flags = TUTTI_RPC_SHORT};
	const tutti_rpc_options options = {.timeout_ms = 20};
	bool is_unknown = true;

	rpc_open(r, rank, NULL);
	RPC_OK(r, tutti_rpc_register(r->rpc, &function));
	for (int i = 1; is_unknown; i++) {
		tutti_status status = tutti_rpc_call(r->rpc, 0, "keeps", NULL, 0, NULL, &options);
		is_unknown = strstr(tutti_comm_error(NULL), "not known whether its function runs");
		if (!is_unknown)
			rpc_expect_error(r, status, TUTTI_ERR_TIMEOUT,
					 "its function has returned there, but its reply is held");
		rpc_until(r, &r->has_kept, i);
		tutti_rpc_reply_end(r->kept, TUTTI_OK);
	}
	rpc_close(r);
}

static void a_timeout_says_that_the_reply_is_held(void **state)
{
	with_ranks(1, NULL, 1, keeping);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_done_function_that_blocks_ends_the_wait),
		cmocka_unit_test(a_timeout_says_that_the_reply_is_held),
	};

	test_limit(100);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
