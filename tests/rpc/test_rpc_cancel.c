/* What would break: a call that returns OK with what its function made after it was told that the
 * call is cancelled, or a reference in such an answer that keeps its object for ever. */
#include "tests/rpc/rpc_ranks.h"

#include <poll.h>
#include <stdlib.h>
#include <string.h>

#include "tests/limit.h"
#include "tests/unit.h"

static struct rpc_rank all[RANKS_MAX];

static void begin(struct rank *rank, const char *name, tutti_rpc_fn fn)
{
	struct rpc_rank *r = &all[rank->rank];

	rpc_open(r, rank, NULL);
	RPC_OK(r,
	       tutti_rpc_register(r->rpc, &(tutti_rpc_function){.name = name, .fn = fn, .arg = r}));
	expect(rank, "barrier", tutti_barrier(rank->comm, NULL));
}

/* Half an answer, of as many bytes as the payload says. */
static tutti_status answers_late(void *arg, const tutti_rpc_request *request,
				 tutti_rpc_reply *reply)
{
	static const uint8_t half[20000];
	size_t bytes;

	atomic_fetch_add(&((struct rpc_rank *)arg)->waiting, 1);
	memcpy(&bytes, request->data, sizeof bytes);
	while (!tutti_rpc_reply_is_cancelled(reply))
		poll(NULL, 0, 1);
	if (bytes == 1)
		return tutti_set_error(TUTTI_ERR_SYSTEM, "the function's own");
	return tutti_rpc_reply_copy(reply, half, bytes);
}

static const size_t sizes[] = {0, 1, 100, 300, 20000};
enum { SIZES = sizeof sizes / sizeof sizes[0], ROUNDS = 7 };

static void until_deadline(struct rpc_rank *r, int to, size_t bytes)
{
	const tutti_rpc_options options = {.timeout_ms = 5};
	tutti_rpc_piece piece = {&bytes, sizeof bytes};
	tutti_rpc_answer answer = {0};
	tutti_rpc_future *future;

	rpc_expect_error(r, tutti_rpc_call(r->rpc, to, "late", &piece, 1, &answer, &options),
			 TUTTI_ERR_TIMEOUT, "'late'");
	RPC_OK(r, tutti_rpc_call_async(r->rpc, to, "late", &piece, 1, &answer, &options, &future));
	rpc_expect_error(r, tutti_rpc_wait(&future, 0), TUTTI_ERR_TIMEOUT, "'late'");
	RPC_TRUE(r, !answer.data && !answer.bytes);
}

static void until_cancel(struct rpc_rank *r, struct rpc_rank *callee, size_t bytes)
{
	int before = atomic_load(&callee->waiting);
	tutti_rpc_piece piece = {&bytes, sizeof bytes};
	tutti_rpc_answer answer = {0};
	tutti_rpc_future *future;

	RPC_OK(r, tutti_rpc_call_async(r->rpc, callee->rank->rank, "late", &piece, 1, &answer, NULL,
				       &future));
	rpc_until(r, &callee->waiting, before + 1);
	tutti_rpc_cancel(future);
	rpc_expect_error(r, tutti_rpc_wait(&future, 0), TUTTI_ERR_ABORTED, "'late'");
	RPC_TRUE(r, !answer.data && !answer.bytes);
}

static void late(struct rank *rank)
{
	struct rpc_rank *r = &all[rank->rank];

	begin(rank, "late", answers_late);
	for (int i = 0; rank->rank == 0 && i < ROUNDS * SIZES; i++) {
		until_deadline(r, rank->size - 1, sizes[i % SIZES]);
		until_cancel(r, &all[rank->size - 1], sizes[i % SIZES]);
	}
	rpc_close(r);
}

static void half_an_answer_is_none(void **state)
{
	with_ranks(2, NULL, 1, late);
	with_ranks(2, "tcp", 1, late);
	with_ranks(1, NULL, 1, late);
}

/* ---- references ---- */

static atomic_int made, destroyed;

static void count_destroyed(void *object)
{
	(void)object;
	atomic_fetch_add(&destroyed, 1);
}

/* The caller has the only count afterwards; with a payload when the call is over. */
static tutti_status makes(void *arg, const tutti_rpc_request *request, tutti_rpc_reply *reply)
{
	struct rpc_rank *r = arg;
	tutti_rpc_ref ref;

	atomic_fetch_add(&made, 1);
	tutti_status status = tutti_rpc_ref_create(r->rpc, r, count_destroyed, &ref);

	if (status == TUTTI_OK)
		status = tutti_rpc_ref_share(r->rpc, &ref, request->rank);
	if (status == TUTTI_OK)
		status = tutti_rpc_ref_release(r->rpc, &ref);
	while (request->bytes && !tutti_rpc_reply_is_cancelled(reply))
		poll(NULL, 0, 1);
	if (request->bytes == 2)
		return tutti_set_error(TUTTI_ERR_SYSTEM, "after all");
	return status == TUTTI_OK ? tutti_rpc_reply_copy(reply, &ref, sizeof ref) : status;
}

/* Again, if its time was over before the function ran. */
static void make_until_deadline(struct rpc_rank *r, const char *bytes)
{
	const tutti_rpc_options options = {.timeout_ms = 5};
	const tutti_rpc_piece piece = {bytes, strlen(bytes)};
	int before = atomic_load(&made);
	tutti_rpc_ref ref;
	tutti_rpc_answer answer = {.data = &ref, .bytes = sizeof ref};

	while (atomic_load(&made) == before)
		rpc_expect_error(r,
				 tutti_rpc_call(r->rpc, 1, "makes", &piece, 1, &answer, &options),
				 TUTTI_ERR_TIMEOUT, "'makes'");
}

static void references(struct rank *rank)
{
	struct rpc_rank *r = &all[rank->rank];
	tutti_rpc_ref ref;
	tutti_rpc_answer answer = {.data = &ref, .bytes = sizeof ref},
			 small = {.data = &ref, .bytes = 1};

	begin(rank, "makes", makes);
	if (rank->rank == 0) {
		make_until_deadline(r, "x");
		make_until_deadline(r, "xx");
		rpc_until(r, &destroyed, atomic_load(&made)); /* though no call comes */
		int before = atomic_load(&made);
		rpc_expect_error(r, tutti_rpc_call(r->rpc, 1, "makes", NULL, 0, &small, NULL),
				 TUTTI_ERR_INVALID, "room for 1");
		RPC_OK(r, tutti_rpc_call(r->rpc, 1, "makes", NULL, 0, NULL, NULL));
		RPC_OK(r, tutti_rpc_send(r->rpc, 1, "makes", NULL, 0, NULL));
		rpc_until(r, &destroyed, before + 3);
		RPC_OK(r, tutti_rpc_call(r->rpc, 1, "makes", NULL, 0, &answer, NULL));
		rpc_check_echo(r, 1, "echo", 100, 1); /* in its slot */
		RPC_TRUE(r, atomic_load(&destroyed) == atomic_load(&made) - 1);
		RPC_OK(r, tutti_rpc_ref_release(r->rpc, &ref));
		rpc_until(r, &destroyed, atomic_load(&made));
	}
	rpc_close(r);
}

static void a_reference_goes_with_its_answer(void **state)
{
	with_ranks(2, NULL, 1, references);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(half_an_answer_is_none),
		cmocka_unit_test(a_reference_goes_with_its_answer),
	};

	test_limit(100);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
