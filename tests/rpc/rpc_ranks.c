/* Functions that tests call, and ranks that have them. */
#include "tests/rpc/rpc_ranks.h"

#include "core/clock.h"
#include "rpc/extension.h"
#include "tests/random.h"
#include "tests/whole.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LIFE_MS = 60000 };

static uint64_t word_of(uint64_t seed, size_t at)
{
	return seed + 0x9e3779b97f4a7c15u * (at / 8 + 1);
}

void rpc_pattern(uint8_t *data, size_t bytes, uint64_t seed)
{
	for (size_t at = 0; at < bytes; at += 8) {
		uint64_t word = word_of(seed, at);
		memcpy(data + at, &word, bytes - at < 8 ? bytes - at : 8);
	}
}

bool rpc_has_pattern(const void *data, size_t bytes, uint64_t seed)
{
	for (size_t at = 0; at < bytes; at += 8) {
		uint64_t word = word_of(seed, at);
		if (memcmp((const uint8_t *)data + at, &word, bytes - at < 8 ? bytes - at : 8) != 0)
			return false;
	}
	return true;
}

void rpc_expect_error(struct rpc_rank *r, tutti_status got, tutti_status status, const char *text)
{
	char what[200];

	if (got == status && strstr(tutti_comm_error(NULL), text))
		return;
	snprintf(what, sizeof what, "status %d with '%s' was expected, not %d", status, text, got);
	report_wrong(r->rank, what, got);
	fprintf(stderr, "%s: %s\n", what, tutti_comm_error(NULL));
}

void rpc_until(struct rpc_rank *r, const atomic_int *counter, int n)
{
	uint64_t deadline = deadline_after_ms(LIFE_MS);

	while (atomic_load((atomic_int *)(uintptr_t)counter) < n && clock_now_ns() < deadline)
		poll(NULL, 0, 1);
	RPC_TRUE(r, atomic_load((atomic_int *)(uintptr_t)counter) >= n);
}

static tutti_status echo(void *arg, const tutti_rpc_request *request, tutti_rpc_reply *reply)
{
	struct rpc_rank *r = arg;

	atomic_fetch_add(&r->echoed, 1);
	return tutti_rpc_reply_copy(reply, request->data, request->bytes);
}

static tutti_status room(void *arg, const tutti_rpc_request *request, tutti_rpc_reply *reply)
{
	void *to = tutti_rpc_reply_room(reply, request->bytes);

	(void)arg;
	if (!to)
		return TUTTI_ERR_MEMORY;
	memcpy(to, request->data, request->bytes);
	return TUTTI_OK;
}

static void released(void *arg)
{
	struct rpc_rank *r = arg;

	atomic_fetch_add(&r->released, 1);
}

static tutti_status pieces(void *arg, const tutti_rpc_request *request, tutti_rpc_reply *reply)
{
	const uint8_t *data = request->data;
	size_t a = request->bytes / 3, b = request->bytes / 2;
	tutti_rpc_piece three[] = {{data, a}, {data + a, b - a}, {data + b, request->bytes - b}};

	return tutti_rpc_reply_pieces(reply, three, 3, released, arg);
}

static tutti_status wait_open(void *arg, const tutti_rpc_request *request, tutti_rpc_reply *reply)
{
	struct rpc_rank *r = arg;

	(void)request;
	atomic_fetch_add(&r->waiting, 1);
	while (!atomic_load(&r->is_open) && !tutti_rpc_reply_is_cancelled(reply))
		poll(NULL, 0, 1);
	if (!tutti_rpc_reply_is_cancelled(reply))
		return tutti_rpc_reply_copy(reply, "open", 4);
	atomic_fetch_add(&r->cancelled, 1);
	return tutti_set_error(TUTTI_ERR_ABORTED, "cancelled");
}

static tutti_status error(void *arg, const tutti_rpc_request *request, tutti_rpc_reply *reply)
{
	char text[512];

	(void)arg;
	(void)reply;
	snprintf(text, sizeof text, "%.*s", (int)request->bytes, (const char *)request->data);
	return tutti_set_error(TUTTI_ERR_SYSTEM, text);
}

static tutti_status later(void *arg, const tutti_rpc_request *request, tutti_rpc_reply *reply)
{
	struct rpc_rank *r = arg;

	(void)request;
	r->kept = reply;
	atomic_fetch_add(&r->has_kept, 1);
	return TUTTI_IN_PROGRESS;
}

static tutti_status back(void *arg, const tutti_rpc_request *request, tutti_rpc_reply *reply)
{
	tutti_rpc_piece piece = {request->data, request->bytes};
	tutti_rpc_answer answer = {0};

	(void)arg;
	tutti_status status =
		tutti_rpc_call(request->rpc, request->rank, "echo", &piece, 1, &answer, NULL);

	if (status != TUTTI_OK)
		return status;
	piece = (tutti_rpc_piece){answer.data, answer.bytes};
	return tutti_rpc_reply_pieces(reply, &piece, 1, tutti_rpc_free, answer.data);
}

static tutti_status add(void *arg, const tutti_rpc_request *request, tutti_rpc_reply *reply)
{
	struct rpc_rank *r = arg;
	uint64_t number;

	(void)reply;
	memcpy(&number, request->data, sizeof number);
	atomic_fetch_add(&r->sum, number);
	return TUTTI_OK;
}

static tutti_status context(void *arg, const tutti_rpc_request *request, tutti_rpc_reply *reply)
{
	uint64_t number = rpc_context();

	(void)arg;
	(void)request;
	return tutti_rpc_reply_copy(reply, &number, sizeof number);
}

void rpc_open(struct rpc_rank *r, struct rank *rank, const tutti_rpc_config *config)
{
	tutti_rpc_function functions[] = {
		{.name = "echo", .fn = echo},
		{.name = "short", .fn = echo, .flags = TUTTI_RPC_SHORT},
		{.name = "room", .fn = room},
		{.name = "pieces", .fn = pieces},
		{.name = "wait", .fn = wait_open},
		{.name = "error", .fn = error},
		{.name = "later", .fn = later, .flags = TUTTI_RPC_SHORT},
		{.name = "back", .fn = back},
		{.name = "add", .fn = add, .flags = TUTTI_RPC_SHORT},
		{.name = "context", .fn = context},
	};
	tutti_rpc_config own = config ? *config : (tutti_rpc_config){0};

	memset(r, 0, sizeof *r);
	r->rank = rank;
	own.num_functions = sizeof functions / sizeof functions[0];
	for (int i = 0; i < own.num_functions; i++)
		functions[i].arg = r;
	own.functions = functions;
	tutti_status status = tutti_rpc_create(&r->rpc, rank->comm, &own);
	if (status == TUTTI_OK)
		return;
	fprintf(stderr, "rank %d: tutti_rpc_create: %s\n", rank->rank, tutti_comm_error(NULL));
	abort();
}

void rpc_close(struct rpc_rank *r)
{
	RPC_OK(r, tutti_rpc_shutdown(r->rpc, 0));
	tutti_rpc_destroy(r->rpc);
}

void rpc_check_echo(struct rpc_rank *r, int rank, const char *name, size_t bytes, uint64_t seed)
{
	uint64_t state = seed;
	uint8_t *data = malloc(bytes + 1) /* + 1: odd addresses */, *from = data + (seed & 1);
	size_t a = random_below(&state, bytes + 1), b = a + random_below(&state, bytes - a + 1);
	tutti_rpc_piece three[] = {{from, a}, {from + a, b - a}, {from + b, bytes - b}};
	tutti_rpc_answer answer = {0};

	if (!data)
		abort();
	rpc_pattern(from, bytes, seed);
	tutti_status status = tutti_rpc_call(r->rpc, rank, name, three, 3, &answer, NULL);
	expect(r->rank, name, status);
	if (status == TUTTI_OK) {
		RPC_TRUE(r, answer.bytes == bytes);
		RPC_TRUE(r, rpc_has_pattern(answer.data, answer.bytes, seed));
		tutti_rpc_free(answer.data);
	}
	free(data);
}

void rpc_everywhere(void (*body)(struct rank *))
{
	static const char *const transports[] = {"tcp", "shm", NULL};

	if (whole_or(1, 0, 0)) {
		everywhere(body);
		return;
	}
	for (int t = 0; t < 3; t++) {
		with_ranks(1 + t, transports[t], 20261127, body);
		with_ranks(3, transports[t], 20261127, body);
	}
}
