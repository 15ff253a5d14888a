/* What would break: ends that are not as rpc.h has them: a cancelled call that is waited for
 * nevertheless, done functions that are not called, or from within another function, an rpc that is
 * destroyed while objects of its own still use it. */
#include "tests/rpc/rpc_ranks.h"

#include <poll.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "tests/limit.h"
#include "tests/unit.h"

static struct rpc_rank all[RANKS_MAX];

static void begin(struct rank *rank, const tutti_rpc_config *config)
{
	rpc_open(&all[rank->rank], rank, config);
	expect(rank, "barrier", tutti_barrier(rank->comm, NULL));
}

static void add(struct rpc_rank *r, const char *name, tutti_rpc_fn fn, int flags)
{
	const tutti_rpc_function f = {.name = name, .fn = fn, .arg = r, .flags = flags};

	RPC_OK(r, tutti_rpc_register(r->rpc, &f));
}

/* ---- cancelled while a thread waits ---- */

/* Does not look whether it is cancelled. */
static tutti_status is_deaf(void *arg, const tutti_rpc_request *request, tutti_rpc_reply *reply)
{
	struct rpc_rank *r = arg;

	(void)request;
	(void)reply;
	atomic_fetch_add(&r->waiting, 1);
	while (!atomic_load(&r->is_open))
		poll(NULL, 0, 1);
	return TUTTI_OK;
}

static void *cancel_it(void *arg)
{
	tutti_rpc_future *future = arg;

	while (!atomic_load(&all[1].waiting))
		poll(NULL, 0, 1);
	tutti_rpc_cancel(future);
	return NULL;
}

static void cancelled(struct rank *rank)
{
	struct rpc_rank *r = &all[rank->rank];
	const tutti_rpc_options options = {.timeout_ms = -1};
	tutti_rpc_future *future;
	pthread_t thread;

	begin(rank, NULL);
	add(r, "deaf", is_deaf, 0);
	expect(rank, "barrier", tutti_barrier(rank->comm, NULL));
	if (rank->rank == 0) {
		RPC_OK(r,
		       tutti_rpc_call_async(r->rpc, 1, "deaf", NULL, 0, NULL, &options, &future));
		if (pthread_create(&thread, NULL, cancel_it, future) != 0)
			abort();
		rpc_expect_error(r, tutti_rpc_wait(&future, 0), TUTTI_ERR_ABORTED, "cancelled");
		pthread_join(thread, NULL);
		atomic_store(&all[1].is_open, 1); /* not before */
	}
	rpc_close(r);
}

static void a_cancelled_call_is_not_waited_for(void **state)
{
	with_ranks(2, NULL, 1, cancelled);
}

/* ---- done functions ---- */

static atomic_int dones, nested;
static _Thread_local bool is_inside; /* another thread may call it at that time */

static void count_done(void *arg, tutti_status status)
{
	(void)arg;
	(void)status;
	atomic_fetch_add(&dones, 1);
	if (is_inside)
		atomic_store(&nested, 1);
}

static tutti_rpc_future *begun(struct rpc_rank *r, int to)
{
	const tutti_rpc_options options = {.done = count_done};
	tutti_rpc_future *future = NULL;

	RPC_OK(r, tutti_rpc_call_async(r->rpc, to, "wait", NULL, 0, NULL, &options, &future));
	return future;
}

static void aborted(struct rank *rank)
{
	struct rpc_rank *r = &all[rank->rank];

	begin(rank, NULL);
	if (rank->rank > 0) {
		while (tutti_rpc_is_alive(r->rpc, 0))
			poll(NULL, 0, 1);
		rpc_close(r);
		return;
	}
	for (int i = 0; i < 10; i++) {
		tutti_rpc_future *future = begun(r, 1);
		tutti_rpc_release(&future);
	}
	tutti_rpc_abort(r->rpc);
	tutti_rpc_destroy(r->rpc);
	RPC_TRUE(r, atomic_load(&dones) == 10);
}

static void done_is_called_before_destroy_returns(void **state)
{
	for (int i = 0; i < 5; i++) {
		atomic_store(&dones, 0);
		with_ranks(2, NULL, 1, aborted);
	}
}

static tutti_rpc_future *in_flight;

static tutti_status cancels(void *arg, const tutti_rpc_request *request, tutti_rpc_reply *reply)
{
	(void)arg;
	(void)request;
	(void)reply;
	is_inside = true;
	tutti_rpc_cancel(in_flight);
	is_inside = false;
	return TUTTI_OK;
}

static void within(struct rank *rank)
{
	struct rpc_rank *r = &all[rank->rank];

	begin(rank, NULL);
	add(r, "cancels", cancels, TUTTI_RPC_SHORT);
	expect(rank, "barrier", tutti_barrier(rank->comm, NULL));
	if (rank->rank == 0)
		in_flight = begun(r, 1);
	expect(rank, "barrier", tutti_barrier(rank->comm, NULL));
	if (rank->rank == 1)
		RPC_OK(r, tutti_rpc_call(r->rpc, 0, "cancels", NULL, 0, NULL, NULL));
	expect(rank, "barrier", tutti_barrier(rank->comm, NULL));
	if (rank->rank == 0) {
		rpc_until(r, &dones, 1);
		tutti_rpc_release(&in_flight);
	}
	RPC_TRUE(r, !atomic_load(&nested));
	rpc_close(r);
}

static void done_is_not_called_within_a_function(void **state)
{
	atomic_store(&dones, 0);
	with_ranks(2, NULL, 1, within);
}

/* ---- shutdown, again and by two ---- */

static void again(struct rank *rank)
{
	struct rpc_rank *r = &all[rank->rank];

	begin(rank, &(tutti_rpc_config){.timeout_ms = -1});
	if (rank->rank == 0) {
		for (int i = 0; i < 3; i++)
			rpc_expect_error(r, tutti_rpc_shutdown(r->rpc, 30), TUTTI_ERR_TIMEOUT,
					 "on rank 1");
		tutti_rpc_destroy(r->rpc); /* without one more, that would have no end */
		return;
	}
	while (tutti_rpc_is_alive(r->rpc, 0))
		poll(NULL, 0, 1);
	rpc_close(r);
}

static void *shut_down(void *arg)
{
	struct rpc_rank *r = arg;

	RPC_OK(r, tutti_rpc_shutdown(r->rpc, 0));
	return NULL;
}

static void by_two(struct rank *rank)
{
	struct rpc_rank *r = &all[rank->rank];
	pthread_t thread;

	begin(rank, NULL);
	if (pthread_create(&thread, NULL, shut_down, r) != 0)
		abort();
	shut_down(r);
	pthread_join(thread, NULL);
	rpc_close(r);
}

static void shutdown_may_be_called_again(void **state)
{
	with_ranks(2, NULL, 1, again);
	with_ranks(1, NULL, 1, by_two);
	with_ranks(3, NULL, 1, by_two);
}

static tutti_status ends_itself(void *arg, const tutti_rpc_request *request, tutti_rpc_reply *reply)
{
	struct rpc_rank *r = arg;

	(void)reply;
	rpc_expect_error(r, tutti_rpc_shutdown(request->rpc, -1), TUTTI_ERR_INVALID,
			 "tutti_rpc_shutdown");
	tutti_rpc_destroy(request->rpc);
	return TUTTI_OK;
}

static void destroy_when_done(void *arg, tutti_status status)
{
	struct rpc_rank *r = arg;

	RPC_TRUE(r, status == TUTTI_OK);
	tutti_rpc_destroy(r->rpc);
	atomic_fetch_add(&dones, 1);
}

static void from_within(struct rank *rank)
{
	struct rpc_rank *r = &all[rank->rank];
	const tutti_rpc_options options = {.done = destroy_when_done, .done_arg = r};

	begin(rank, NULL);
	add(r, "ends", ends_itself, 0);
	add(r, "ends short", ends_itself, TUTTI_RPC_SHORT);
	expect(rank, "barrier", tutti_barrier(rank->comm, NULL));
	RPC_OK(r, tutti_rpc_call(r->rpc, 0, "ends", NULL, 0, NULL, NULL));
	RPC_OK(r, tutti_rpc_call(r->rpc, 0, "ends short", NULL, 0, NULL, NULL));
	RPC_OK(r, tutti_rpc_call_async(r->rpc, 0, "echo", NULL, 0, NULL, &options, NULL));
	rpc_until(r, &dones, rank->size);
	rpc_check_echo(r, 0, "echo", 1000, 1);
	rpc_close(r);
}

static void a_function_does_not_end_its_rpc(void **state)
{
	setenv("TUTTI_LOG", "off", 1); /* it says so */
	atomic_store(&dones, 0);
	with_ranks(2, NULL, 1, from_within);
	unsetenv("TUTTI_LOG");
}

/* ---- released where nothing may wait ---- */

static struct {
	tutti_rpc_future *call;
	_Alignas(64) uint8_t data[8 << 20], answer[8 << 20];
} long_call;

static tutti_status releases(void *arg, const tutti_rpc_request *request, tutti_rpc_reply *reply)
{
	(void)arg;
	(void)request;
	(void)reply;
	tutti_rpc_release(&long_call.call);
	return TUTTI_OK;
}

static tutti_status pokes(void *arg, const tutti_rpc_request *request, tutti_rpc_reply *reply)
{
	(void)reply;
	return tutti_rpc_call(((struct rpc_rank *)arg)->rpc, request->rank, "releases", NULL, 0,
			      NULL, NULL);
}

static void released_early(struct rank *rank)
{
	struct rpc_rank *r = &all[rank->rank];
	tutti_rpc_piece piece = {long_call.data, sizeof long_call.data};
	tutti_rpc_answer answer = {.data = long_call.answer, .bytes = sizeof long_call.answer};

	begin(rank, NULL);
	add(r, "releases", releases, TUTTI_RPC_SHORT);
	add(r, "pokes", pokes, 0);
	expect(rank, "barrier", tutti_barrier(rank->comm, NULL));
	for (int i = 0; rank->rank == 0 && i < 8; i++) {
		RPC_OK(r, tutti_rpc_call_async(r->rpc, 1, "echo", &piece, 1, &answer, NULL,
					       &long_call.call));
		RPC_OK(r, tutti_rpc_call(r->rpc, 1, "pokes", NULL, 0, NULL, NULL));
		tutti_rpc_release(&long_call.call); /* unless that could */
		RPC_TRUE(r, !long_call.call);
	}
	rpc_close(r);
}

static void release_never_waits_in_a_function(void **state)
{
	setenv("TUTTI_LOG", "off", 1); /* it says so */
	with_ranks(2, "tcp", 1, released_early);
	unsetenv("TUTTI_LOG");
}

/* ---- references ---- */

static atomic_int destroyed;

static void count_destroyed(void *object)
{
	(void)object;
	atomic_fetch_add(&destroyed, 1);
}

/* Answers later. */
static tutti_status drops(void *arg, const tutti_rpc_request *request, tutti_rpc_reply *reply)
{
	struct rpc_rank *r = arg;
	tutti_rpc_ref ref;

	(void)request;
	r->kept = reply;
	RPC_OK(r, tutti_rpc_ref_create(r->rpc, r, count_destroyed, &ref));
	RPC_OK(r, tutti_rpc_ref_release(r->rpc, &ref));
	return TUTTI_IN_PROGRESS;
}

static void no_traffic(struct rank *rank)
{
	struct rpc_rank *r = &all[rank->rank];
	tutti_rpc_future *call;

	begin(rank, NULL);
	add(r, "drops", drops, 0);
	RPC_OK(r, tutti_rpc_call_async(r->rpc, 0, "drops", NULL, 0, NULL, NULL, &call));
	rpc_until(r, &destroyed, 1); /* though no message comes */
	tutti_rpc_reply_end(r->kept, TUTTI_OK);
	RPC_OK(r, tutti_rpc_wait(&call, 0));
	rpc_close(r);
}

static void an_object_goes_at_once(void **state)
{
	atomic_store(&destroyed, 0);
	with_ranks(1, NULL, 1, no_traffic);
}

static struct {
	tutti_rpc *rpc;
	tutti_rpc_ref ref;
	tutti_status status;
} held;

static void release_other(void *object)
{
	(void)object;
	held.status = tutti_rpc_ref_release(held.rpc, &held.ref);
}

static void share_in_done(void *arg, tutti_status status)
{
	struct rpc_rank *r = arg;

	(void)status;
	rpc_expect_error(r, tutti_rpc_ref_share(r->rpc, &held.ref, 0), TUTTI_ERR_INVALID,
			 "tutti_rpc_ref_share waits, which done of tutti_rpc_options may not");
}

static tutti_status gives(void *arg, const tutti_rpc_request *request, tutti_rpc_reply *reply)
{
	struct rpc_rank *r = arg;
	tutti_rpc_ref ref;
	tutti_status status = tutti_rpc_ref_create(r->rpc, r, NULL, &ref);

	if (status == TUTTI_OK)
		status = tutti_rpc_ref_share(r->rpc, &ref, request->rank);
	return status == TUTTI_OK ? tutti_rpc_reply_copy(reply, &ref, sizeof ref) : status;
}

static void holds(struct rank *rank)
{
	struct rpc_rank *r = &all[rank->rank];
	tutti_rpc_answer answer = {.data = &held.ref, .bytes = sizeof held.ref};
	tutti_rpc_ref own;

	begin(rank, NULL);
	add(r, "gives", gives, 0);
	expect(rank, "barrier", tutti_barrier(rank->comm, NULL));
	if (rank->rank == 0) {
		held.rpc = r->rpc;
		RPC_OK(r, tutti_rpc_call(r->rpc, 1, "gives", NULL, 0, &answer, NULL));
		RPC_OK(r, tutti_rpc_ref_create(r->rpc, r, release_other, &own));
		rpc_expect_error(r, tutti_rpc_ref_get(r->rpc, &own, NULL), TUTTI_ERR_INVALID,
				 "object is NULL");
		const tutti_rpc_options options = {.done = share_in_done, .done_arg = r};
		tutti_rpc_future *future;
		RPC_OK(r,
		       tutti_rpc_call_async(r->rpc, 1, "short", NULL, 0, NULL, &options, &future));
		RPC_OK(r, tutti_rpc_wait(&future, 0));
	}
	rpc_close(r);
	if (rank->rank == 0)
		RPC_TRUE(r, held.status == TUTTI_ERR_ABORTED);
}

static void an_object_may_release_another(void **state)
{
	with_ranks(2, NULL, 1, holds);
}

/* ---- sizes ---- */

static tutti_status says_nonsense(void *arg, const tutti_rpc_request *request,
				  tutti_rpc_reply *reply)
{
	struct rpc_rank *r = arg;
	const tutti_rpc_piece none = {NULL, 5};

	(void)request;
	rpc_expect_error(r, tutti_rpc_reply_copy(reply, NULL, 5), TUTTI_ERR_INVALID,
			 "data is NULL");
	rpc_expect_error(r, tutti_rpc_reply_pieces(reply, &none, 1, NULL, NULL), TUTTI_ERR_INVALID,
			 "data is NULL");
	return TUTTI_OK;
}

static void count_release(void *arg)
{
	atomic_fetch_add((atomic_int *)arg, 1);
}

/* The first answer stays, of whichever kind, and the others are released at once. */
static tutti_status says_twice(void *arg, const tutti_rpc_request *request, tutti_rpc_reply *reply)
{
	static const uint8_t more[TUTTI_RPC_PIECES * 1000];
	struct rpc_rank *r = arg;
	atomic_int released = 0;
	tutti_rpc_piece pieces[TUTTI_RPC_PIECES];

	for (int i = 0; i < TUTTI_RPC_PIECES; i++)
		pieces[i] = (tutti_rpc_piece){more, 1000};
	if (request->bytes < 500)
		RPC_OK(r, tutti_rpc_reply_copy(reply, request->data, request->bytes));
	else
		RPC_OK(r, tutti_rpc_reply_pieces(reply,
						 &(tutti_rpc_piece){request->data, request->bytes},
						 1, NULL, NULL));
	for (int i = 0; i < 2; i++)
		rpc_expect_error(r,
				 tutti_rpc_reply_pieces(reply, pieces, TUTTI_RPC_PIECES,
							count_release, &released),
				 TUTTI_ERR_INVALID, "bytes already");
	RPC_TRUE(r, atomic_load(&released) == 2);
	rpc_expect_error(r, tutti_rpc_reply_copy(reply, more, 1), TUTTI_ERR_INVALID, "already");
	RPC_TRUE(r, !tutti_rpc_reply_room(reply, 5000));
	return TUTTI_OK;
}

static void twice(struct rank *rank)
{
	struct rpc_rank *r = &all[rank->rank];

	begin(rank, NULL);
	add(r, "twice", says_twice, 0);
	expect(rank, "barrier", tutti_barrier(rank->comm, NULL));
	for (size_t bytes = 1; bytes < 100000; bytes *= 7)
		rpc_check_echo(r, 0, "twice", bytes, bytes);
	rpc_close(r);
}

static void an_answer_is_given_once(void **state)
{
	with_ranks(2, NULL, 1, twice);
}

static void sizes(struct rank *rank)
{
	struct rpc_rank *r = &all[rank->rank];
	const size_t half = SIZE_MAX / 2 + 1;
	const tutti_rpc_piece two[] = {{r, half}, {r, half}}, one = {r, SIZE_MAX};

	begin(rank, NULL);
	add(r, "nonsense", says_nonsense, 0);
	rpc_expect_error(r, tutti_rpc_call(r->rpc, 0, "echo", two, 2, NULL, NULL),
			 TUTTI_ERR_INVALID, "more bytes than a memory can");
	rpc_expect_error(r, tutti_rpc_send(r->rpc, 0, "echo", &one, 1, NULL), TUTTI_ERR_INVALID,
			 "more bytes than a memory can");
	RPC_OK(r, tutti_rpc_call(r->rpc, rank->rank, "nonsense", NULL, 0, NULL, NULL));
	rpc_close(r);
}

static void impossible_sizes_are_refused(void **state)
{
	with_ranks(2, NULL, 1, sizes);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_cancelled_call_is_not_waited_for),
		cmocka_unit_test(done_is_called_before_destroy_returns),
		cmocka_unit_test(done_is_not_called_within_a_function),
		cmocka_unit_test(shutdown_may_be_called_again),
		cmocka_unit_test(a_function_does_not_end_its_rpc),
		cmocka_unit_test(release_never_waits_in_a_function),
		cmocka_unit_test(an_object_goes_at_once),
		cmocka_unit_test(an_object_may_release_another),
		cmocka_unit_test(an_answer_is_given_once),
		cmocka_unit_test(impossible_sizes_are_refused),
	};

	test_limit(100);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
