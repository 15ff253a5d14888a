/* Plain messages and calls of the rpc, as rpc_perf measures them. */
#include "rpc_ours.h"

#include <string.h>

tutti_comm *rpc_perf_comm;
tutti_rpc *rpc_perf_rpc;

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

/* ---- messages ---- */

static int rpc_ours_messages_call(const void *data, size_t bytes, void *answer)
{
	MUST(tutti_send(data, bytes, TUTTI_U8, 1, rpc_perf_comm, NULL));
	MUST(tutti_recv(answer, rpc_perf_answer_bytes(bytes), TUTTI_U8, 1, rpc_perf_comm, NULL));
	return 0;
}

/* As a callee that does not know the length before: each long payload has new memory. */
static int rpc_ours_messages_serve(int calls, size_t bytes)
{
	uint8_t in[RPC_PERF_SHORT];
	bool is_short = bytes <= sizeof in;

	for (int i = 0; i < calls; i++) {
		uint8_t *data = is_short ? in : malloc(bytes);
		if (!data)
			return -1;
		MUST(tutti_recv(data, bytes, TUTTI_U8, 0, rpc_perf_comm, NULL));
		uint64_t digest = is_short ? 0 : rpc_perf_digest(data, bytes);
		if (!is_short)
			free(data);
		MUST(tutti_send(is_short ? (void *)in : &digest, rpc_perf_answer_bytes(bytes),
				TUTTI_U8, 0, rpc_perf_comm, NULL));
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

static int rpc_ours_call_function(const char *function, const void *data, size_t bytes,
				  void *answer)
{
	tutti_rpc_piece piece = {data, bytes};
	tutti_rpc_answer to = {.data = answer, .bytes = rpc_perf_answer_bytes(bytes)};

	MUST(tutti_rpc_call(rpc_perf_rpc, 1, function, &piece, 1, &to, NULL));
	return 0;
}

static int rpc_ours_call(const void *data, size_t bytes, void *answer)
{
	return rpc_ours_call_function(bytes > RPC_PERF_SHORT ? "digest" : "echo_short", data, bytes,
				      answer);
}

static int rpc_ours_call_pool(const void *data, size_t bytes, void *answer)
{
	return rpc_ours_call_function("echo", data, bytes, answer);
}

static uint8_t answers[RPC_PERF_IN_FLIGHT][RPC_PERF_SHORT];
static tutti_rpc_future *futures[RPC_PERF_IN_FLIGHT];

static int rpc_ours_begin_function(const char *function, int slot, const void *data, size_t bytes)
{
	static tutti_rpc_answer to[RPC_PERF_IN_FLIGHT];
	tutti_rpc_piece piece = {data, bytes};

	to[slot] = (tutti_rpc_answer){.data = answers[slot], .bytes = RPC_PERF_SHORT};
	MUST(tutti_rpc_call_async(rpc_perf_rpc, 1, function, &piece, 1, &to[slot], NULL,
				  &futures[slot]));
	return 0;
}

static int rpc_ours_begin(int slot, const void *data, size_t bytes)
{
	return rpc_ours_begin_function("echo_short", slot, data, bytes);
}

static int rpc_ours_begin_pool(int slot, const void *data, size_t bytes)
{
	return rpc_ours_begin_function("echo", slot, data, bytes);
}

static int rpc_ours_end(int slot, void *answer)
{
	MUST(tutti_rpc_wait(&futures[slot], 0));
	memcpy(answer, answers[slot], RPC_PERF_SHORT);
	return 0;
}

const struct rpc_contender rpc_perf_messages = {
	.name = "messages", .call = rpc_ours_messages_call, .serve = rpc_ours_messages_serve};
const struct rpc_contender rpc_perf_calls = {
	.name = "rpc", .call = rpc_ours_call, .begin = rpc_ours_begin, .end = rpc_ours_end};
const struct rpc_contender rpc_perf_pool = {.name = "rpc_pool",
					    .call = rpc_ours_call_pool,
					    .begin = rpc_ours_begin_pool,
					    .end = rpc_ours_end,
					    .is_short_only = true};

const tutti_rpc_function rpc_perf_functions[RPC_PERF_FUNCTIONS] = {
	{.name = "echo", .fn = rpc_ours_echo},
	{.name = "echo_short", .fn = rpc_ours_echo, .flags = TUTTI_RPC_SHORT},
	{.name = "digest", .fn = rpc_ours_digest, .flags = TUTTI_RPC_SHORT}};
