/* What would break: a call that waits for ever, or reads its caller's memory after it has ended;
 * functions that are not told, or begin although nobody wants them; slots that are lost; queues
 * without a bound. */
#include "rpc/rpc_internal.h"
#include "tests/rpc/rpc_ranks.h"
#include "tests/whole.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit.h"

static const tutti_rpc_options soon = {.timeout_ms = 30};

/* Calls "wait" on to; returns when it runs there, for ranks of one process. */
static tutti_rpc_future *begin_wait(struct rpc_rank *r, struct rpc_rank *callee, int to)
{
	tutti_rpc_future *future = NULL;
	int before = atomic_load(&callee->waiting);

	RPC_OK(r, tutti_rpc_call_async(r->rpc, to, "wait", NULL, 0, NULL, NULL, &future));
	rpc_until(r, &callee->waiting, before + 1);
	return future;
}

/* The call must time out, with this text, which the callee has some ms to tell: if it is busy there
 * is another try. */
static void expect_timeout(struct rpc_rank *r, int to, const char *name, const char *text)
{
	for (int i = 0; i < 200; i++) {
		tutti_status status = tutti_rpc_call(r->rpc, to, name, NULL, 0, NULL, &soon);
		RPC_TRUE(r, status == TUTTI_ERR_TIMEOUT);
		if (strstr(tutti_comm_error(NULL), text))
			return;
	}
	RPC_TRUE(r, !"no such message in 200 tries");
}

/* Rank 0 calls, and the last rank is called: both know all. */
static struct rpc_rank all[RANKS_MAX];

static void begin(struct rank *rank, const tutti_rpc_config *config)
{
	rpc_open(&all[rank->rank], rank, config);
	expect(rank, "barrier", tutti_barrier(rank->comm, NULL));
}

static void end(struct rank *rank)
{
	expect(rank, "barrier", tutti_barrier(rank->comm, NULL));
	rpc_close(&all[rank->rank]);
}

static void running(struct rank *rank)
{
	struct rpc_rank *r = &all[0], *callee = &all[rank->size - 1];
	int to = rank->size - 1;

	begin(rank, &(tutti_rpc_config){.threads = 2});
	if (rank->rank == 0) {
		expect_timeout(r, to, "wait", "'wait': no answer within 30 ms: its function r");
		rpc_until(r, &callee->cancelled, 1);
		rpc_until(r, &callee->cancelled, atomic_load(&callee->waiting));
		int before = atomic_load(&callee->cancelled);
		rpc_check_echo(r, to, "echo", 5000, 1);
		tutti_rpc_future *future = begin_wait(r, callee, to);
		tutti_rpc_cancel(future);
		rpc_expect_error(r, tutti_rpc_wait(&future, 0), TUTTI_ERR_ABORTED, "cancelled");
		rpc_until(r, &callee->cancelled, before + 1);
		future = begin_wait(r, callee, to);
		RPC_TRUE(r, tutti_rpc_wait(&future, 5) == TUTTI_IN_PROGRESS && future);
		tutti_rpc_release(&future);
		RPC_TRUE(r, !future);
		rpc_until(r, &callee->cancelled, before + 2);
		future = begin_wait(r, callee, to);
		atomic_store(&callee->is_open, 1);
		RPC_OK(r, tutti_rpc_wait(&future, 0));
		tutti_rpc_cancel(NULL);
		tutti_rpc_release(&future);
	}
	end(rank);
}

static void timeout_and_cancel_while_it_runs(void **state)
{
	with_ranks(1, NULL, 1, running);
	with_ranks(2, NULL, 1, running);
	with_ranks(3, "tcp", 1, running);
}

static void queued(struct rank *rank)
{
	struct rpc_rank *r = &all[0], *callee = &all[rank->size - 1];
	int to = rank->size - 1, is_done;

	begin(rank, &(tutti_rpc_config){.threads = 1, .queue = 2});
	if (rank->rank == 0) {
		tutti_rpc_future *first = begin_wait(r, callee, to), *two[2];
		expect_timeout(r, to, "echo", "while it waited there for a thread");
		for (int i = 0; i < 2; i++)
			RPC_OK(r, tutti_rpc_call_async(r->rpc, to, "echo", NULL, 0, NULL, NULL,
						       &two[i]));
		rpc_expect_error(r, tutti_rpc_call(r->rpc, to, "echo", NULL, 0, NULL, NULL),
				 TUTTI_ERR_MEMORY, "2 requests wait there for one of 1 threads");
		tutti_rpc_cancel(two[0]);
		rpc_expect_error(r, tutti_rpc_test(two[0], &is_done), TUTTI_ERR_ABORTED, "cancel");
		RPC_TRUE(r, is_done);
		tutti_rpc_release(&two[0]);
		uint64_t number = 3; /* a short function needs no thread */
		tutti_rpc_piece piece = {&number, sizeof number};
		RPC_OK(r, tutti_rpc_call(r->rpc, to, "add", &piece, 1, NULL, NULL));
		RPC_TRUE(r, atomic_load(&callee->echoed) == 0);
		atomic_store(&callee->is_open, 1);
		RPC_OK(r, tutti_rpc_wait(&two[1], 0));
		RPC_OK(r, tutti_rpc_wait(&first, 0));
		RPC_TRUE(r, atomic_load(&callee->echoed) == 1 && atomic_load(&callee->sum) == 3);
	}
	end(rank);
}

static void a_full_queue(void **state)
{
	with_ranks(1, NULL, 1, queued);
	with_ranks(2, NULL, 1, queued);
	with_ranks(3, "tcp", 1, queued);
}

static void slots(struct rank *rank)
{
	enum { CALLS = 3 };
	struct rpc_rank *r = &all[0], *callee = &all[rank->size - 1];
	int to = rank->size - 1;
	tutti_rpc_future *futures[CALLS];

	begin(rank, &(tutti_rpc_config){.threads = CALLS, .calls = CALLS});
	if (rank->rank == 0) {
		for (int i = 0; i < CALLS; i++)
			futures[i] = begin_wait(r, callee, to);
		rpc_expect_error(r, tutti_rpc_call(r->rpc, to, "echo", NULL, 0, NULL, &soon),
				 TUTTI_ERR_TIMEOUT,
				 "all 3 calls that rank 0 may have in flight there are; 0 of them");
		tutti_rpc_release(&futures[0]); /* its function is told, and ends */
		rpc_check_echo(r, to, "short", 10, 1);
		atomic_store(&callee->is_open, 1);
		for (int i = 1; i < CALLS; i++)
			RPC_OK(r, tutti_rpc_wait(&futures[i], 0));
		for (int i = 0; i < 5 * CALLS; i++)
			rpc_check_echo(r, to, "echo", 1000, 1);
	}
	end(rank);
}

static void a_bound_of_calls_in_flight(void **state)
{
	with_ranks(1, NULL, 1, slots);
	with_ranks(2, NULL, 1, slots);
	with_ranks(2, "tcp", 1, slots);
}

static void memory(struct rank *rank)
{
	struct rpc_rank *r = &all[rank->rank];
	int to = rank->size - 1;
	uint8_t *data = calloc(1, 100000);
	tutti_rpc_piece piece = {data, 100000}, huge[TUTTI_RPC_PIECES];

	begin(rank, &(tutti_rpc_config){.max_bytes = 99999});
	rpc_expect_error(r, tutti_rpc_call(r->rpc, to, "echo", &piece, 1, NULL, NULL),
			 TUTTI_ERR_MEMORY, "100000 bytes, and the rank takes at most 99999");
	RPC_OK(r, tutti_rpc_send(r->rpc, to, "add", &piece, 1, NULL)); /* said on stderr there */
	piece.bytes--;
	RPC_OK(r, tutti_rpc_call(r->rpc, to, "echo", &piece, 1, NULL, NULL));
	end(rank);
	begin(rank, NULL);
	for (int i = 0; i < TUTTI_RPC_PIECES; i++) /* which is not read, since nobody pulls it */
		huge[i] = (tutti_rpc_piece){data, (size_t)1 << 42};
	rpc_expect_error(r, tutti_rpc_call(r->rpc, to, "echo", huge, TUTTI_RPC_PIECES, NULL, NULL),
			 TUTTI_ERR_MEMORY, "no memory for its payload of 70368744177664 bytes");
	end(rank);
	free(data);
}

static void payloads_that_are_too_long(void **state)
{
	setenv("TUTTI_LOG", "off", 1);
	with_ranks(1, NULL, 1, memory);
	with_ranks(2, NULL, 1, memory);
	unsetenv("TUTTI_LOG");
}

/* Deadlines that pass at any moment of calls with long payloads and answers: their memory is given
 * back and written at once, so that late reads and writes are seen. */
static void moments(struct rank *rank)
{
	enum { BYTES = 700000 };
	const int rounds = whole_or(150, 40, 20);
	struct rpc_rank *r = &all[rank->rank];
	int to = (rank->rank + 1) % rank->size, ok = 0;

	begin(rank, NULL);
	for (int i = 0; i < rounds; i++) {
		uint8_t *data = malloc(BYTES), *room = malloc(BYTES);
		tutti_rpc_piece two[] = {{data, 1000 + (size_t)i},
					 {data + 1000 + i, BYTES - 1000 - (size_t)i}};
		tutti_rpc_answer answer = {.data = room, .bytes = BYTES};
		tutti_rpc_future *future;
		rpc_pattern(data, BYTES, (uint64_t)i);
		RPC_OK(r, tutti_rpc_call_async(r->rpc, to, i % 2 ? "echo" : "pieces", two, 2,
					       &answer, NULL, &future));
		for (volatile int spin = 0; spin < i * 3000; spin++)
			;
		if (i % 3 == 0)
			tutti_rpc_cancel(future);
		tutti_status status = tutti_rpc_wait(&future, 0);
		RPC_TRUE(r, status == TUTTI_OK || (i % 3 == 0 && status == TUTTI_ERR_ABORTED));
		if (status == TUTTI_OK)
			RPC_TRUE(r, answer.bytes == BYTES &&
					    rpc_has_pattern(room, BYTES, (uint64_t)i));
		ok += status == TUTTI_OK;
		memset(room, 0xa5, BYTES);
		memset(data, 0x5a, BYTES);
		for (int k = 0; k < BYTES; k += 4096)
			RPC_TRUE(r, room[k] == 0xa5);
		free(data);
		free(room);
	}
	RPC_TRUE(r, ok >= rounds * 2 / 3);
	end(rank);
}

static void cancelled_at_any_moment(void **state)
{
	with_ranks(1, NULL, 1, moments);
	with_ranks(2, NULL, 1, moments);
	with_ranks(3, "tcp", 1, moments);
}

/* A caller whose short calls are answered by no note of the callee's: its payloads that have no
 * credit are sent later, and their copies are freed nevertheless. */
static int count_sends(tutti_rpc *rpc)
{
	int n = 0;

	rpc_lock(rpc);
	for (const struct rpc_send *send = rpc->sends; send; send = send->next)
		n++;
	rpc_unlock(rpc);
	return n;
}

static void copies(struct rank *rank)
{
	enum { IN_FLIGHT = 48, CALLS = 20 * IN_FLIGHT };
	static uint8_t data[RPC_ALONG_BYTES];
	struct rpc_rank *r = &all[rank->rank];
	tutti_rpc_future *futures[IN_FLIGHT] = {NULL};
	tutti_rpc_piece piece = {data, sizeof data};

	begin(rank, NULL);
	for (int i = 0; rank->rank == 0 && i < CALLS + IN_FLIGHT; i++) {
		RPC_OK(r, tutti_rpc_wait(&futures[i % IN_FLIGHT], 0));
		if (i < CALLS)
			RPC_OK(r, tutti_rpc_call_async(r->rpc, 1, "add", &piece, 1, NULL, NULL,
						       &futures[i % IN_FLIGHT]));
	}
	RPC_TRUE(r, count_sends(r->rpc) <= 2 * IN_FLIGHT);
	end(rank);
}

static void copies_of_payloads_are_freed(void **state)
{
	with_ranks(2, "tcp", 1, copies);
	with_ranks(2, "shm", 1, copies);
}

static void note_end(void *arg, tutti_status status)
{
	atomic_store((atomic_int *)arg, 1 + (int)status);
}

static void done_at_deadline(struct rank *rank)
{
	struct rpc_rank *r = &all[0], *callee = &all[rank->size - 1];
	atomic_int ended = 0;
	tutti_rpc_options options = {.timeout_ms = 50, .done = note_end, .done_arg = &ended};

	begin(rank, NULL);
	/* Beside busy processes its time may be over before its function begins. */
	while (rank->rank == 0 && atomic_load(&callee->waiting) == 0 && !rank->why[0]) {
		atomic_store(&ended, 0);
		RPC_OK(r, tutti_rpc_call_async(r->rpc, rank->size - 1, "wait", NULL, 0, NULL,
					       &options, NULL));
		rpc_until(r, &ended, 1);
		RPC_TRUE(r, atomic_load(&ended) == 1 + TUTTI_ERR_TIMEOUT);
	}
	if (rank->rank == 0)
		rpc_until(r, &callee->cancelled, atomic_load(&callee->waiting));
	end(rank);
}

static void done_is_called_at_the_deadline(void **state)
{
	with_ranks(1, NULL, 1, done_at_deadline);
	with_ranks(2, NULL, 1, done_at_deadline);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(timeout_and_cancel_while_it_runs),
		cmocka_unit_test(a_full_queue),
		cmocka_unit_test(a_bound_of_calls_in_flight),
		cmocka_unit_test(payloads_that_are_too_long),
		cmocka_unit_test(cancelled_at_any_moment),
		cmocka_unit_test(copies_of_payloads_are_freed),
		cmocka_unit_test(done_is_called_at_the_deadline),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
