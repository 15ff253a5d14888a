/* Plain messages and calls of the rpc, as rpc_perf measures them; payloads, and what their answers
 * must be. */
#include "rpc_ours.h"

#include <string.h>

/* ---- payloads ---- */

uint64_t rpc_perf_digest(const uint8_t *data, size_t bytes)
{
	uint64_t digest = bytes, word;
	size_t step = bytes / RPC_PERF_SAMPLES;

	for (size_t i = 0; i < RPC_PERF_SAMPLES && step >= sizeof word; i++) {
		memcpy(&word, data + i * step, sizeof word);
		digest = (digest ^ word) * 0x9e3779b97f4a7c15u;
	}
	return digest;
}

void rpc_perf_fill(uint8_t *data, uint64_t number)
{
	for (size_t i = 0; i < RPC_PERF_SHORT; i += sizeof number, number = number * 5 + 1)
		memcpy(data + i, &number, sizeof number);
}

int rpc_perf_differs(const char *who, const uint8_t *data, uint64_t number)
{
	uint8_t expected[RPC_PERF_SHORT];

	rpc_perf_fill(expected, number);
	if (memcmp(data, expected, sizeof expected) == 0)
		return 0;
	fprintf(stderr, "rpc_perf: %s: the answer of call %llu is wrong\n", who,
		(unsigned long long)number);
	exit(1);
}

void rpc_perf_check_digest(const char *who, uint64_t got, const uint8_t *data, size_t bytes)
{
	if (got == rpc_perf_digest(data, bytes))
		return;
	fprintf(stderr, "rpc_perf: %s: the answer of a call with %zu bytes is wrong\n", who, bytes);
	exit(1);
}

tutti_comm *rpc_perf_comm;
tutti_rpc *rpc_perf_rpc;

/* ---- messages ---- */

static int messages_short(int calls, int in_flight)
{
	uint8_t out[RPC_PERF_SHORT], in[RPC_PERF_SHORT];

	(void)in_flight;
	for (int i = 0; i < calls; i++) {
		rpc_perf_fill(out, (uint64_t)i);
		MUST(tutti_send(out, sizeof out, TUTTI_U8, 1, rpc_perf_comm, NULL));
		MUST(tutti_recv(in, sizeof in, TUTTI_U8, 1, rpc_perf_comm, NULL));
		rpc_perf_differs("messages", in, (uint64_t)i);
	}
	return 0;
}

static int messages_long(int calls, const uint8_t *data, size_t bytes)
{
	uint64_t digest;

	for (int i = 0; i < calls; i++) {
		MUST(tutti_send(data, bytes, TUTTI_U8, 1, rpc_perf_comm, NULL));
		MUST(tutti_recv(&digest, 1, TUTTI_U64, 1, rpc_perf_comm, NULL));
		rpc_perf_check_digest("messages", digest, data, bytes);
	}
	return 0;
}

/* As a callee that does not know the length before: each payload has new memory. */
static int messages_serve(int calls, size_t bytes)
{
	uint8_t in[RPC_PERF_SHORT];

	for (int i = 0; i < calls && bytes <= sizeof in; i++) {
		MUST(tutti_recv(in, sizeof in, TUTTI_U8, 0, rpc_perf_comm, NULL));
		MUST(tutti_send(in, sizeof in, TUTTI_U8, 0, rpc_perf_comm, NULL));
	}
	for (int i = 0; i < calls && bytes > sizeof in; i++) {
		uint8_t *data = malloc(bytes);
		if (!data)
			return -1;
		MUST(tutti_recv(data, bytes, TUTTI_U8, 0, rpc_perf_comm, NULL));
		uint64_t digest = rpc_perf_digest(data, bytes);
		free(data);
		MUST(tutti_send(&digest, 1, TUTTI_U64, 0, rpc_perf_comm, NULL));
	}
	return 0;
}

/* ---- the rpc ---- */

static tutti_status rpc_ours_echo(void *arg, const tutti_rpc_request *request,
				  tutti_rpc_reply *reply)
{
	(void)arg;
	return tutti_rpc_reply_copy(reply, request->data, request->bytes);
}

static tutti_status rpc_ours_digest(void *arg, const tutti_rpc_request *request,
				    tutti_rpc_reply *reply)
{
	uint64_t answer = rpc_perf_digest(request->data, request->bytes);

	(void)arg;
	return tutti_rpc_reply_copy(reply, &answer, sizeof answer);
}

static const char *function = "echo_short";

static int rpc_one_by_one(int calls)
{
	uint8_t out[RPC_PERF_SHORT], in[RPC_PERF_SHORT];
	tutti_rpc_piece piece = {out, sizeof out};

	for (int i = 0; i < calls; i++) {
		tutti_rpc_answer answer = {.data = in, .bytes = sizeof in};
		rpc_perf_fill(out, (uint64_t)i);
		MUST(tutti_rpc_call(rpc_perf_rpc, 1, function, &piece, 1, &answer, NULL));
		rpc_perf_differs("rpc", in, (uint64_t)i);
	}
	return 0;
}

static int rpc_short(int calls, int in_flight)
{
	static uint8_t in[RPC_PERF_IN_FLIGHT][RPC_PERF_SHORT];
	static tutti_rpc_answer answers[RPC_PERF_IN_FLIGHT];
	tutti_rpc_future *futures[RPC_PERF_IN_FLIGHT] = {NULL};
	uint8_t out[RPC_PERF_SHORT];
	tutti_rpc_piece piece = {out, sizeof out};

	if (in_flight == 1)
		return rpc_one_by_one(calls);
	for (int i = 0; i < calls + in_flight; i++) {
		int at = i % in_flight;
		if (i >= in_flight) {
			MUST(tutti_rpc_wait(&futures[at], 0));
			rpc_perf_differs("rpc", in[at], (uint64_t)(i - in_flight));
		}
		if (i >= calls)
			continue;
		rpc_perf_fill(out, (uint64_t)i);
		answers[at] = (tutti_rpc_answer){.data = in[at], .bytes = RPC_PERF_SHORT};
		MUST(tutti_rpc_call_async(rpc_perf_rpc, 1, function, &piece, 1, &answers[at], NULL,
					  &futures[at]));
	}
	return 0;
}

static int rpc_long(int calls, const uint8_t *data, size_t bytes)
{
	uint64_t got;
	tutti_rpc_piece piece = {data, bytes};

	for (int i = 0; i < calls; i++) {
		tutti_rpc_answer answer = {.data = &got, .bytes = sizeof got};
		MUST(tutti_rpc_call(rpc_perf_rpc, 1, "digest", &piece, 1, &answer, NULL));
		rpc_perf_check_digest("rpc", got, data, bytes);
	}
	return 0;
}

static int pool_short(int calls, int in_flight)
{
	function = "echo";
	int failed = rpc_short(calls, in_flight);
	function = "echo_short";
	return failed;
}

const struct rpc_contender rpc_perf_messages = {.name = "messages",
						.short_calls = messages_short,
						.long_calls = messages_long,
						.serve = messages_serve};
const struct rpc_contender rpc_perf_calls = {
	.name = "rpc", .short_calls = rpc_short, .long_calls = rpc_long};
const struct rpc_contender rpc_perf_pool = {.name = "rpc_pool", .short_calls = pool_short};

const tutti_rpc_function rpc_perf_functions[RPC_PERF_FUNCTIONS] = {
	{.name = "echo", .fn = rpc_ours_echo},
	{.name = "echo_short", .fn = rpc_ours_echo, .flags = TUTTI_RPC_SHORT},
	{.name = "digest", .fn = rpc_ours_digest, .flags = TUTTI_RPC_SHORT}};
