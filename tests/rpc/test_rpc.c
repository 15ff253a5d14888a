/* slow: 10 s */
/* What would break: a call that reaches another function or rank, bytes that get lost, torn or in
 * another order, errors without their message, answers that overrun their room, a function that is
 * called twice, and ranks that leave before all is answered. */
#include "tests/rpc/rpc_ranks.h"

#include "rpc/message.h"
#include "rpc/extension.h"
#include "tests/whole.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit.h"

static void sizes(struct rank *rank)
{
	static const char *const names[] = {"echo", "short", "room", "pieces"};
	const size_t edge = RPC_INLINE_BYTES - 5; /* beside "short" */
	const size_t bytes[] = {0,        1,    7,    64,    edge - 1, edge,  edge + 1,
				edge + 2, 191,  192,  193,   4095,     4096,  4097,
				8191,     8192, 8193, 16384, 16385,    70001, 1 << 20};
	struct rpc_rank r;

	rpc_open(&r, rank, NULL);
	size_t count = sizeof bytes / sizeof bytes[0] - (size_t)whole_or(0, 1, 2);
	for (int to = 0; to < rank->size; to++)
		for (size_t b = 0; b < count; b++)
			for (int n = 0; n < 4; n++)
				rpc_check_echo(&r, to, names[n], bytes[b],
					       rank->seed + 1000 * b + (uint64_t)n);
	rpc_close(&r);
	RPC_TRUE(&r, atomic_load(&r.released) == (int)count * rank->size);
}

static void calls_of_all_sizes(void **state)
{
	rpc_everywhere(sizes);
}

static void answers(struct rank *rank)
{
	struct rpc_rank r;
	int to = (rank->rank + 1) % rank->size;
	uint8_t data[300], room[300];
	tutti_rpc_piece piece = {data, sizeof data};
	tutti_rpc_answer answer = {.data = room, .bytes = sizeof room};

	rpc_open(&r, rank, NULL);
	rpc_pattern(data, sizeof data, 1);
	RPC_OK(&r, tutti_rpc_call(r.rpc, to, "echo", &piece, 1, &answer, NULL));
	RPC_TRUE(&r, answer.data == room && answer.bytes == 300 && rpc_has_pattern(room, 300, 1));
	for (size_t bytes = 10; bytes <= 300; bytes += 290) {
		memset(room, 7, sizeof room);
		piece.bytes = bytes;
		answer = (tutti_rpc_answer){.data = room, .bytes = bytes - 1};
		rpc_expect_error(&r, tutti_rpc_call(r.rpc, to, "echo", &piece, 1, &answer, NULL),
				 TUTTI_ERR_INVALID,
				 bytes == 10 ? "10 bytes, and there is room for 9"
					     : "300 bytes, and there is room for");
		RPC_TRUE(&r, room[bytes - 1] == 7 && answer.bytes == bytes - 1);
		RPC_OK(&r, tutti_rpc_call(r.rpc, to, "echo", &piece, 1, NULL, NULL));
	}
	answer = (tutti_rpc_answer){0};
	RPC_OK(&r, tutti_rpc_call(r.rpc, to, "echo", NULL, 0, &answer, NULL));
	RPC_TRUE(&r, answer.bytes == 0 && !answer.data);
	rpc_close(&r);
}

static void answers_fit_their_room(void **state)
{
	with_ranks(1, NULL, 1, answers);
	with_ranks(2, NULL, 1, answers);
	with_ranks(3, "tcp", 1, answers);
}

static void errors(struct rank *rank)
{
	struct rpc_rank r;
	int to = rank->size - 1;
	char text[500], expected[600];
	tutti_rpc_piece piece = {text, 0}, many[TUTTI_RPC_PIECES + 1] = {{0}};

	rpc_open(&r, rank, NULL);
	for (size_t bytes = 1; bytes < sizeof text; bytes += 83) {
		memset(text, 'a' + (int)(bytes % 26), sizeof text);
		piece.bytes = bytes;
		int at = snprintf(expected, sizeof expected, "rank %d, 'error': ", to);
		memcpy(expected + at, text, bytes);
		expected[(size_t)at + bytes < 511 ? (size_t)at + bytes : 511] = 0;
		rpc_expect_error(&r, tutti_rpc_call(r.rpc, to, "error", &piece, 1, NULL, NULL),
				 TUTTI_ERR_SYSTEM, expected);
	}
	rpc_expect_error(&r, tutti_rpc_call(r.rpc, to, "ecko", NULL, 0, NULL, NULL),
			 TUTTI_ERR_INVALID,
			 "no function of that name is registered there; the "
			 "nearest one is 'echo'");
	rpc_expect_error(&r, tutti_rpc_call(r.rpc, to, "zzzzzzzzzz", NULL, 0, NULL, NULL),
			 TUTTI_ERR_INVALID, "'zzzzzzzzzz': no function of that name");
	rpc_expect_error(&r, tutti_rpc_call(r.rpc, rank->size, "echo", NULL, 0, NULL, NULL),
			 TUTTI_ERR_INVALID, "is not in 0..");
	rpc_expect_error(&r, tutti_rpc_call(r.rpc, to, "", NULL, 0, NULL, NULL), TUTTI_ERR_INVALID,
			 "1 to 63 bytes, not 0");
	rpc_expect_error(&r,
			 tutti_rpc_call(r.rpc, to, "echo", many, TUTTI_RPC_PIECES + 1, NULL, NULL),
			 TUTTI_ERR_INVALID, "17 pieces: there may be 16");
	tutti_group_begin();
	rpc_expect_error(&r, tutti_rpc_call(r.rpc, to, "echo", NULL, 0, NULL, NULL),
			 TUTTI_ERR_INVALID, "tutti_rpc_call");
	tutti_group_end(NULL);
	rpc_check_echo(&r, to, "echo", 100, 5);
	rpc_close(&r);
}

static void errors_come_with_their_message(void **state)
{
	with_ranks(1, NULL, 1, errors);
	with_ranks(3, NULL, 1, errors);
	with_ranks(2, "tcp", 1, errors);
}

static void names(struct rank *rank)
{
	struct rpc_rank r;
	tutti_rpc_function f = {.name = "echo", .fn = (tutti_rpc_fn)abort};
	char name[70];

	rpc_open(&r, rank, NULL);
	rpc_expect_error(&r, tutti_rpc_register(r.rpc, &f), TUTTI_ERR_INVALID,
			 "registered already");
	f.name = "tutti.mine";
	rpc_expect_error(&r, tutti_rpc_register(r.rpc, &f), TUTTI_ERR_INVALID, "library's own");
	f.name = "a\nb";
	rpc_expect_error(&r, tutti_rpc_register(r.rpc, &f), TUTTI_ERR_INVALID, "not printable");
	memset(name, 'n', sizeof name);
	name[64] = 0;
	f.name = name;
	rpc_expect_error(&r, tutti_rpc_register(r.rpc, &f), TUTTI_ERR_INVALID, "not 64");
	name[63] = 0;
	f.flags = 2;
	rpc_expect_error(&r, tutti_rpc_register(r.rpc, &f), TUTTI_ERR_INVALID, "flags 2");
	RPC_OK(&r, tutti_barrier(rank->comm, NULL));
	rpc_close(&r);
}

static void names_are_checked(void **state)
{
	with_ranks(2, NULL, 1, names);
}

/* ---- asynchronous ---- */

struct ended {
	atomic_int count;
	tutti_status status;
	tutti_rpc *rpc;
	int to;
};

static void note_end(void *arg, tutti_status status)
{
	struct ended *e = arg;

	e->status = status;
	atomic_fetch_add(&e->count, 1);
}

/* Makes the next call, and may not wait. */
static void go_on(void *arg, tutti_status status)
{
	struct ended *e = arg;
	tutti_rpc_options options = {.done = go_on, .done_arg = arg};

	if (tutti_rpc_call(e->rpc, e->to, "echo", NULL, 0, NULL, NULL) != TUTTI_ERR_INVALID)
		e->status = TUTTI_ERR_INTERNAL;
	if (status != TUTTI_OK)
		e->status = status;
	if (atomic_fetch_add(&e->count, 1) + 1 < 50 &&
	    tutti_rpc_call_async(e->rpc, e->to, "short", NULL, 0, NULL, &options, NULL) != TUTTI_OK)
		e->status = TUTTI_ERR_INTERNAL;
}

static void asynchronous(struct rank *rank)
{
	enum { CALLS = 40 };
	struct rpc_rank r;
	int to = (rank->rank + 1) % rank->size, is_done;
	static _Thread_local uint8_t data[CALLS][3000], room[CALLS][3000];
	tutti_rpc_future *futures[CALLS];
	tutti_rpc_answer answer[CALLS];
	struct ended ended = {.count = 0};

	rpc_open(&r, rank, &(tutti_rpc_config){.calls = 32});
	for (int i = 0; i < CALLS; i++) {
		tutti_rpc_options options = {.done = i % 3 ? NULL : note_end, .done_arg = &ended};
		size_t bytes = i % 4 ? (size_t)i * 4 : 3000 - (size_t)i;
		tutti_rpc_piece piece = {data[i], bytes};
		rpc_pattern(data[i], bytes, (uint64_t)i);
		answer[i] = (tutti_rpc_answer){.data = room[i], .bytes = sizeof room[i]};
		RPC_OK(&r, tutti_rpc_call_async(r.rpc, to, i % 2 ? "echo" : "short", &piece, 1,
						&answer[i], &options, &futures[i]));
		if (i >= 20) { /* in flight are never more than there may be */
			RPC_OK(&r, tutti_rpc_wait(&futures[i - 20], 0));
			RPC_TRUE(&r, !futures[i - 20]);
		}
	}
	for (int i = CALLS - 20; i < CALLS; i++) {
		do
			RPC_OK(&r, tutti_rpc_test(futures[i], &is_done));
		while (!is_done);
		RPC_OK(&r, tutti_rpc_wait(&futures[i], 0));
	}
	for (int i = 0; i < CALLS; i++)
		RPC_TRUE(&r, answer[i].bytes == (i % 4 ? (size_t)i * 4 : 3000 - (size_t)i) &&
				     rpc_has_pattern(room[i], answer[i].bytes, (uint64_t)i));
	RPC_TRUE(&r, atomic_load(&ended.count) == (CALLS + 2) / 3 && ended.status == TUTTI_OK);
	ended = (struct ended){.rpc = r.rpc, .to = to};
	tutti_rpc_options options = {.done = go_on, .done_arg = &ended};
	RPC_OK(&r, tutti_rpc_call_async(r.rpc, to, "short", NULL, 0, NULL, &options, NULL));
	rpc_until(&r, &ended.count, 50);
	RPC_TRUE(&r, ended.status == TUTTI_OK);
	rpc_close(&r);
}

static void asynchronous_calls(void **state)
{
	rpc_everywhere(asynchronous);
}

/* ---- one way ---- */

static void one_way(struct rank *rank)
{
	const int flood = whole_or(2000, 500, 200);
	struct rpc_rank r;
	uint64_t number = 1;
	tutti_rpc_piece piece = {&number, sizeof number};
	uint8_t *big = calloc(1, 100000);
	tutti_rpc_piece two[] = {{&number, sizeof number}, {big, 100000}};

	rpc_open(&r, rank, NULL);
	for (int i = 0; i < flood; i++)
		for (int to = 0; to < rank->size; to++)
			RPC_OK(&r, tutti_rpc_send(r.rpc, to, "add", &piece, 1, NULL));
	for (int i = 0; i < 5; i++)
		for (int to = 0; to < rank->size; to++)
			RPC_OK(&r, tutti_rpc_send(r.rpc, to, "add", two, 2, NULL));
	RPC_OK(&r, tutti_rpc_shutdown(r.rpc, 0)); /* all have run */
	RPC_TRUE(&r, atomic_load(&r.sum) == (unsigned long)(flood + 5) * (unsigned)rank->size);
	rpc_expect_error(&r, tutti_rpc_send(r.rpc, 0, "add", &piece, 1, NULL), TUTTI_ERR_INVALID,
			 "shut down");
	tutti_rpc_destroy(r.rpc);
	free(big);
}

static void floods_of_one_way_calls(void **state)
{
	with_ranks(1, NULL, 1, one_way);
	with_ranks(2, "tcp", 1, one_way);
	with_ranks(4, NULL, 1, one_way);
}

/* ---- functions that call, and answers that come later ---- */

static void nested(struct rank *rank)
{
	struct rpc_rank r;

	rpc_open(&r, rank, &(tutti_rpc_config){.threads = 8});
	for (int i = 0; i < 20; i++)
		for (int to = 0; to < rank->size; to++)
			rpc_check_echo(&r, to, "back", (size_t)i * 997, (uint64_t)i);
	rpc_close(&r);
}

static void a_function_calls_its_caller(void **state)
{
	with_ranks(1, NULL, 1, nested);
	with_ranks(3, NULL, 1, nested);
	with_ranks(2, "tcp", 1, nested);
}

static void deferred(struct rank *rank)
{
	struct rpc_rank r;
	int to = (rank->rank + 1) % rank->size;
	tutti_rpc_future *future;
	tutti_rpc_answer answer = {0};

	rpc_open(&r, rank, NULL);
	for (int i = 1; i <= 5; i++) {
		RPC_OK(&r,
		       tutti_rpc_call_async(r.rpc, to, "later", NULL, 0, &answer, NULL, &future));
		rpc_until(&r, &r.has_kept, i);
		RPC_OK(&r, tutti_rpc_reply_copy(r.kept, "now", 3));
		tutti_rpc_reply_end(r.kept, TUTTI_OK);
		RPC_OK(&r, tutti_rpc_wait(&future, 0));
		RPC_TRUE(&r, answer.bytes == 3 && memcmp(answer.data, "now", 3) == 0);
		tutti_rpc_free(answer.data);
		answer = (tutti_rpc_answer){0};
	}
	RPC_OK(&r, tutti_rpc_call_async(r.rpc, to, "later", NULL, 0, &answer, NULL, &future));
	rpc_until(&r, &r.has_kept, 6);
	tutti_rpc_reply_end(r.kept, tutti_set_error(TUTTI_ERR_DEVICE, "no light"));
	rpc_expect_error(&r, tutti_rpc_wait(&future, 0), TUTTI_ERR_DEVICE, "'later': no light");
	rpc_close(&r);
}

static void an_answer_comes_later(void **state)
{
	with_ranks(1, NULL, 1, deferred);
	with_ranks(3, NULL, 1, deferred);
}

static void contexts(struct rank *rank)
{
	struct rpc_rank r;
	uint64_t got;
	tutti_rpc_answer answer = {.data = &got, .bytes = sizeof got};

	rpc_open(&r, rank, &(tutti_rpc_config){.threads = 1});
	for (uint64_t number = 0; number < 4; number++) {
		rpc_context_set(number << 60);
		RPC_OK(&r, tutti_rpc_call(r.rpc, 0, "context", NULL, 0, &answer, NULL));
		RPC_TRUE(&r, got == number << 60);
	}
	rpc_context_set(0);
	rpc_close(&r);
}

static void the_context_goes_along(void **state)
{
	with_ranks(2, NULL, 1, contexts);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(calls_of_all_sizes),
		cmocka_unit_test(answers_fit_their_room),
		cmocka_unit_test(errors_come_with_their_message),
		cmocka_unit_test(names_are_checked),
		cmocka_unit_test(asynchronous_calls),
		cmocka_unit_test(floods_of_one_way_calls),
		cmocka_unit_test(a_function_calls_its_caller),
		cmocka_unit_test(an_answer_comes_later),
		cmocka_unit_test(the_context_goes_along),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
