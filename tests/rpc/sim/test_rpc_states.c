/* What would break: a call that ends otherwise than docs/rpc.md (States of one call) has it, in
 * some order of messages, deadlines and cancels: OK without the whole answer of a reply that ended
 * before CANCEL came, a TIMEOUT though that was there, a reference, a future or a slot that is
 * left. */
#include "tests/rpc/sim/rpc_sim.h"

#include "core/log.h"
#include "rpc/rpc_internal.h"
#include "tests/random.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/limit.h"
#include "tests/unit.h"

enum { CALLERS = 2, CALLS = 6, ALL = WORLD_RANKS * CALLERS * CALLS, SLOTS = 4, LONG_MS = 1000 };

enum how { BLOCKS, WAITS, TESTS, HAS_DONE, RELEASES, ONE_WAY, HOWS };
enum place { IN_POOL, IN_SHORT, HELD_BY_POOL, HELD_BY_SHORT, PLACES };
enum answer { BY_COPY, BY_ROOM, BY_PIECES, AS_ERROR, ANSWERS };

/* A call: what is to happen, and what did. */
static struct call {
	int caller, to;
	enum how how;
	enum place place;
	enum answer answer;
	size_t payload_bytes, answer_bytes, room_bytes; /* room_bytes 0: the library's */
	bool wants, shares, stops; /* stops: with half an answer, when told that it is cancelled */
	int timeout_ms;
	uint64_t works_us, cancel_us; /* cancel_us 0: it is not cancelled */

	uint64_t begun_ns;
	tutti_status status;
	bool is_done, was_cancelled;
	tutti_status leaving;   /* it is to end so, when its transfers are over; OK: it has ended */
	int runs, objects;      /* objects: of its references that are not destroyed */
	bool was_told, is_half; /* when its function ended */
	/* On the network. */
	bool cancel_sent, cancel_dealt, is_decided, is_marked;
	tutti_status decided;
	uint64_t reply_ns; /* when REPLY was there */
} calls[ALL];

static struct rank {
	tutti_rpc *rpc;
	int number;
	pthread_t thread;
} ranks[WORLD_RANKS];

static struct {
	int ready, left, given, released;
} count;

static int seen[16], marked;                 /* how calls ended, of all rounds */
static _Thread_local struct call *beginning; /* whose REQUEST is sent */

static size_t random_bytes(void)
{
	static const size_t most[] = {1, RPC_INLINE_BYTES, RPC_ALONG_BYTES, 40000};

	return world_random(most[world_random(4)]);
}

static const char *words(const struct call *c)
{
	static char text[400];

	snprintf(
		text, sizeof text,
		"call %td (how %d, place %d, answer %d of %zu bytes, %s) from %d to %d: status %d, "
		"%s status %d, its function ran %d times%s",
		c - calls, c->how, c->place, c->answer, c->answer_bytes,
		c->wants ? "wanted" : "not wanted", c->caller, c->to, c->status,
		c->is_marked    ? "marked,"
		: c->is_decided ? "answered with"
				: "not answered,",
		c->decided, c->runs, c->was_told ? " and was told" : "");
	return text;
}

/* ---- the network, as the table has it ---- */

static struct track {
	uint64_t id;
	struct call *call;
} tracks[WORLD_RANKS][WORLD_RANKS][SLOTS];

static struct call *call_of(int caller, int callee, const struct rpc_message *m)
{
	const struct track *t = &tracks[caller][callee][m->slot];

	return t->id == m->id ? t->call : NULL;
}

static bool read_message(const struct world_message *from, struct rpc_message *m)
{
	if (from->bytes != sizeof *m || from->tag >= RPC_TAG_PAYLOAD)
		return false;
	memcpy(m, from->data, sizeof *m);
	return true;
}

static void decide(struct call *c, const struct rpc_message *m)
{
	if (c->is_decided)
		return;
	c->is_decided = true;
	c->is_marked = m->cancelled;
	c->decided = m->status;
	marked += c->is_marked;
	if (c->is_marked && !c->cancel_sent)
		world_fail("marked, and not cancelled: %s", words(c));
	if (!c->is_marked && c->cancel_dealt && c->how != ONE_WAY)
		world_fail("answered after CANCEL: %s", words(c));
}

void world_on_send(const struct world_message *message)
{
	struct rpc_message m;

	if (!read_message(message, &m))
		return;
	if (m.kind == RPC_REQUEST)
		tracks[message->from][message->to][m.slot] = (struct track){m.id, beginning};
	bool is_reply = m.kind == RPC_REPLY || m.kind == RPC_OFFER;
	struct call *c = is_reply ? call_of(message->to, message->from, &m)
				  : call_of(message->from, message->to, &m);
	if (c && m.kind == RPC_CANCEL)
		c->cancel_sent = true;
	if (c && is_reply)
		decide(c, &m);
}

void world_on_dealt(const struct world_message *message)
{
	struct rpc_message m;

	if (!read_message(message, &m))
		return;
	struct call *c = m.kind == RPC_REPLY ? call_of(message->to, message->from, &m)
					     : call_of(message->from, message->to, &m);
	if (c && m.kind == RPC_CANCEL)
		c->cancel_dealt = true;
	if (c && m.kind == RPC_REPLY)
		c->reply_ns = world_now_ns();
}

/* ---- functions ---- */

static uint8_t byte_at(const struct call *c, size_t at)
{
	return (uint8_t)(1 + (size_t)(c - calls) * 7 + at * 31);
}

static void fill(const struct call *c, uint8_t *to, size_t from, size_t bytes)
{
	for (size_t i = from; i < bytes; i++)
		to[i] = c->is_half ? 0 : byte_at(c, i);
}

static void destroy_object(void *object)
{
	((struct call *)object)->objects--;
}

/* The caller has the only count. */
static tutti_rpc_ref share(struct call *c)
{
	tutti_rpc *rpc = ranks[c->to].rpc;
	tutti_rpc_ref ref;

	if (tutti_rpc_ref_create(rpc, c, destroy_object, &ref) != TUTTI_OK ||
	    tutti_rpc_ref_share(rpc, &ref, c->caller) != TUTTI_OK ||
	    tutti_rpc_ref_release(rpc, &ref) != TUTTI_OK)
		world_fail("a reference: %s", tutti_comm_error(NULL));
	c->objects++;
	return ref;
}

static void work(struct call *c, tutti_rpc_reply *reply)
{
	uint64_t end = world_now_ns() + c->works_us * 1000;

	while (world_now_ns() < end && !(c->stops && tutti_rpc_reply_is_cancelled(reply)))
		world_sleep_us(world_random(2000));
	c->is_half = c->stops && tutti_rpc_reply_is_cancelled(reply);
}

static void release_block(void *block)
{
	count.released++;
	free(block);
}

static tutti_status give_pieces(const struct call *c, tutti_rpc_reply *reply, uint8_t *block)
{
	size_t third = c->answer_bytes / 3;
	tutti_rpc_piece pieces[] = {{block, third},
				    {block + third, third},
				    {block + 2 * third, c->answer_bytes - 2 * third}};

	count.given++;
	return tutti_rpc_reply_pieces(reply, pieces, 3, release_block, block);
}

static tutti_status give(const struct call *c, tutti_rpc_reply *reply, const tutti_rpc_ref *ref)
{
	uint8_t *block = malloc(c->answer_bytes + 1), *room;
	tutti_status status = TUTTI_OK;

	if (!block)
		world_fail("no memory");
	fill(c, block, 0, c->answer_bytes);
	if (c->shares)
		memcpy(block, ref, sizeof *ref);
	if (c->answer == BY_PIECES)
		return give_pieces(c, reply, block);
	if (c->answer == BY_COPY)
		status = tutti_rpc_reply_copy(reply, block, c->answer_bytes);
	else if ((room = tutti_rpc_reply_room(reply, c->answer_bytes)))
		memcpy(room, block, c->answer_bytes);
	free(block);
	return status;
}

static tutti_status fail_with_text(const struct call *c)
{
	char text[RPC_ERROR_BYTES];
	size_t bytes = c->answer_bytes % (sizeof text - 40);

	memset(text, 'x', bytes);
	text[bytes] = 0;
	return tutti_set_error(TUTTI_ERR_SYSTEM, bytes ? text : "x");
}

static tutti_status end(struct call *c, tutti_rpc_reply *reply, const tutti_rpc_ref *ref)
{
	tutti_status status = c->answer == AS_ERROR ? fail_with_text(c) : give(c, reply, ref);

	c->was_told = tutti_rpc_reply_is_cancelled(reply);
	return status;
}

struct held {
	struct call *call;
	tutti_rpc_reply *reply;
	tutti_rpc_ref ref;
};

static void *end_later(void *arg)
{
	struct held *held = arg;

	work(held->call, held->reply);
	tutti_rpc_reply_end(held->reply, end(held->call, held->reply, &held->ref));
	free(held);
	return NULL;
}

static tutti_status function(void *arg, const tutti_rpc_request *request, tutti_rpc_reply *reply)
{
	struct held *held = calloc(1, sizeof *held);
	struct call *c;
	pthread_t thread;

	memcpy(&c, request->data, sizeof(struct call *));
	for (size_t i = sizeof(struct call *); i < request->bytes; i++)
		if (((uint8_t *)request->data)[i] != byte_at(c, i))
			world_fail("byte %zu of a payload is wrong", i);
	if (arg != &ranks[c->to] || request->rank != c->caller || c->runs++ || !held)
		world_fail("served wrongly: %s", words(c));
	*held = (struct held){c, reply, c->shares ? share(c) : (tutti_rpc_ref){0}};
	if (c->place == HELD_BY_POOL || c->place == HELD_BY_SHORT) {
		if (pthread_create(&thread, NULL, end_later, held) != 0)
			world_fail("pthread_create");
		return TUTTI_IN_PROGRESS;
	}
	if (c->place == IN_POOL)
		work(c, reply);
	tutti_status status = end(c, reply, &held->ref);
	free(held);
	return status;
}

/* ---- calls ---- */

static void choose_call(struct call *c, int caller)
{
	*c = (struct call){.caller = caller,
			   .to = (int)world_random(WORLD_RANKS),
			   .how = (enum how)world_random(HOWS),
			   .place = (enum place)world_random(PLACES),
			   .answer = (enum answer)world_random(ANSWERS),
			   .payload_bytes = sizeof(struct call *) + random_bytes(),
			   .answer_bytes = random_bytes(),
			   .wants = world_random(5) != 0,
			   .shares = world_random(2),
			   .stops = world_random(2),
			   .works_us = world_random(world_random(2) ? 40000 : 500),
			   .timeout_ms = world_random(2) ? 1 + (int)world_random(25) : LONG_MS};
	if (c->answer == AS_ERROR)
		c->shares = world_random(4) == 0;
	if (c->shares)
		c->answer_bytes += sizeof(tutti_rpc_ref);
	if (c->how != RELEASES && world_random(3) == 0)
		c->room_bytes = 1 + c->answer_bytes - world_random(3) % (c->answer_bytes + 1);
	if (c->how != BLOCKS && c->how != ONE_WAY && world_random(2))
		c->cancel_us = 1 + world_random(30000);
}

static void on_done(void *arg, tutti_status status)
{
	struct call *c = arg;

	if (c->is_done)
		world_fail("done is called again");
	c->status = status;
	c->is_done = true;
}

/* Ends the call as c->how says. */
static void end_call(struct call *c, tutti_rpc_future *future)
{
	int is_done = 0;

	if (c->cancel_us) {
		world_sleep_us(c->cancel_us);
		c->was_cancelled = true;
		if (c->how != RELEASES)
			tutti_rpc_cancel(future);
		if (c->how != RELEASES && !future->is_over)
			c->leaving = future->leaving;
	}
	while (c->how == TESTS && !is_done) {
		c->status = tutti_rpc_test(future, &is_done);
		if (!is_done)
			world_sleep_us(world_random(1000));
	}
	if (c->how == WAITS || c->how == HAS_DONE)
		c->status = tutti_rpc_wait(&future, 0);
	if (c->how == RELEASES) {
		c->was_cancelled = true;
		c->status = TUTTI_ERR_ABORTED; /* the answer, if it has one, says otherwise */
	}
	tutti_rpc_release(&future);
}

static void begin_call(struct call *c, tutti_rpc_answer *answer)
{
	tutti_rpc *rpc = ranks[c->caller].rpc;
	const char *name = c->place == IN_SHORT || c->place == HELD_BY_SHORT ? "short" : "pool";
	tutti_rpc_options options = {.timeout_ms = c->timeout_ms,
				     .done = c->how == HAS_DONE ? on_done : NULL,
				     .done_arg = c};
	uint8_t *payload = malloc(c->payload_bytes);
	tutti_rpc_future *future = NULL;
	size_t half = c->payload_bytes / 2;

	if (!payload)
		world_fail("no memory");
	fill(c, payload, 0, c->payload_bytes);
	memcpy(payload, &c, sizeof c);
	tutti_rpc_piece pieces[] = {{payload, half}, {payload + half, c->payload_bytes - half}};
	c->begun_ns = world_now_ns();
	beginning = c;
	if (c->how == BLOCKS)
		c->status = tutti_rpc_call(rpc, c->to, name, pieces, 2, answer, &options);
	else if (c->how == ONE_WAY)
		c->status = tutti_rpc_send(rpc, c->to, name, pieces, 2, &options);
	else
		c->status = tutti_rpc_call_async(rpc, c->to, name, pieces, 2, answer, &options,
						 &future);
	beginning = NULL;
	if (future)
		end_call(c, future);
	free(payload);
}

/* What the caller has got must be the whole answer. */
static void check_answer(struct call *c, const tutti_rpc_answer *answer)
{
	size_t at = c->shares ? sizeof(tutti_rpc_ref) : 0;
	const uint8_t *data = answer->data;

	if (c->was_told || c->is_half || c->runs != 1)
		world_fail("OK, and its function was told, or did not run: %s", words(c));
	if (!c->wants)
		return;
	if (answer->bytes != c->answer_bytes)
		world_fail("an answer has %zu bytes, not %zu", answer->bytes, c->answer_bytes);
	for (; at < answer->bytes; at++)
		if (data[at] != byte_at(c, at))
			world_fail("byte %zu of %zu of an answer is wrong", at, answer->bytes);
	if (!c->shares)
		return;
	tutti_rpc_ref ref;
	memcpy(&ref, data, sizeof ref);
	if (tutti_rpc_ref_release(ranks[c->caller].rpc, &ref) != TUTTI_OK)
		world_fail("a reference of an answer: %s", tutti_comm_error(NULL));
}

/* Whether the REPLY was there in time, with an answer for which nothing was waited. */
static bool had_answer(const struct call *c)
{
	return c->is_decided && !c->is_marked && c->reply_ns &&
	       c->reply_ns < c->begun_ns + (uint64_t)(c->timeout_ms + RPC_STATE_MS) * 1000000u &&
	       c->payload_bytes <= RPC_ALONG_BYTES && c->answer_bytes <= RPC_INLINE_BYTES &&
	       c->how != HAS_DONE && c->how != ONE_WAY;
}

static void collectives_check_call(struct call *c, const tutti_rpc_answer *answer)
{
	bool is_answered = c->is_decided && !c->is_marked && c->decided == c->status;
	bool fits = !c->room_bytes || c->room_bytes >= c->answer_bytes;

	seen[c->status]++;
	if (c->leaving && c->status != c->leaving)
		world_fail("cancelled: %s", words(c));
	if (c->status == TUTTI_OK && c->how == ONE_WAY)
		return; /* at the end */
	if (c->status == TUTTI_OK && is_answered)
		check_answer(c, answer);
	else if (c->status == TUTTI_ERR_SYSTEM ? !is_answered || c->was_told
		 : c->status == TUTTI_ERR_TIMEOUT
			 ? c->timeout_ms == LONG_MS || (had_answer(c) && !c->was_cancelled)
		 : c->status == TUTTI_ERR_ABORTED ? !c->was_cancelled
		 : c->status == TUTTI_ERR_INVALID ? !c->wants || fits || c->is_marked
						  : true)
		world_fail("%s: %s", words(c), tutti_comm_error(NULL));
}

static void *make_calls(void *arg)
{
	struct call *first = arg;

	for (struct call *c = first; c < first + CALLS; c++) {
		uint8_t *room = c->room_bytes ? malloc(c->room_bytes) : NULL;
		tutti_rpc_answer answer = {.data = room, .bytes = c->room_bytes};
		begin_call(c, c->wants ? &answer : NULL);
		if (c->how == RELEASES && answer.data)
			c->status = TUTTI_OK; /* it was over before */
		collectives_check_call(c, &answer);
		if (answer.data != room)
			tutti_rpc_free(answer.data);
		free(room);
		if (world_random(4) == 0)
			world_sleep_us(world_random(5000));
	}
	return NULL;
}

/* ---- ranks ---- */

static void await_all(int *counter, int n)
{
	++*counter;
	while (*counter < n)
		world_sleep_us(100);
}

static void *be_rank(void *arg)
{
	struct rank *r = arg;
	const tutti_rpc_function functions[] = {
		{.name = "pool", .fn = function, .arg = r},
		{.name = "short", .fn = function, .arg = r, .flags = TUTTI_RPC_SHORT}};
	const tutti_rpc_config config = {.functions = functions,
					 .num_functions = 2,
					 .threads = 1 + (int)world_random(3),
					 .calls = 1 + (int)world_random(SLOTS),
					 .timeout_ms = 60000};
	pthread_t callers[CALLERS];

	if (tutti_rpc_create(&r->rpc, world_comm(r->number), &config) != TUTTI_OK)
		world_fail("tutti_rpc_create: %s", tutti_comm_error(NULL));
	await_all(&count.ready, WORLD_RANKS);
	for (int i = 0; i < CALLERS; i++)
		if (pthread_create(&callers[i], NULL, make_calls,
				   &calls[(r->number * CALLERS + i) * CALLS]) != 0)
			world_fail("pthread_create");
	for (int i = 0; i < CALLERS; i++)
		pthread_join(callers[i], NULL);
	if (tutti_rpc_shutdown(r->rpc, 0) != TUTTI_OK)
		world_fail("tutti_rpc_shutdown: %s", tutti_comm_error(NULL));
	await_all(&count.left, WORLD_RANKS + 1);
	tutti_rpc_destroy(r->rpc);
	return NULL;
}

static void check_end(void)
{
	for (struct call *c = calls; c < calls + ALL; c++) {
		if (c->how == ONE_WAY && c->status == TUTTI_OK && (c->runs != 1 || c->was_told))
			world_fail("accepted, and cancelled: %s", words(c));
		if (c->objects)
			world_fail("a reference is left: %s", words(c));
	}
}

static void round_of_calls(void *arg)
{
	(void)arg;
	memset(&count, 0, sizeof count);
	memset(tracks, 0, sizeof tracks);
	for (int i = 0; i < ALL; i++)
		choose_call(&calls[i], i / (CALLERS * CALLS));
	for (int r = 0; r < WORLD_RANKS; r++) {
		ranks[r].number = r;
		if (pthread_create(&ranks[r].thread, NULL, be_rank, &ranks[r]) != 0)
			world_fail("pthread_create");
	}
	while (count.left < WORLD_RANKS)
		world_sleep_us(1000);
	world_sleep_us(100000); /* the last messages */
	check_end();
	count.left++;
	for (int r = 0; r < WORLD_RANKS; r++)
		pthread_join(ranks[r].thread, NULL);
	if (count.given != count.released)
		world_fail("%d answers of pieces, and %d are released", count.given,
			   count.released);
	if (world_left())
		world_fail("%d messages, transfers or works are left", world_left());
}

static void calls_end_as_the_table_says(void **state)
{
	const char *given = getenv("SEED"), *rounds = getenv("ROUNDS");
	uint64_t seed = given ? strtoull(given, NULL, 10) : (uint64_t)getpid() * 1000000u;
	int n = rounds ? atoi(rounds) : given ? 1 : 100;

	printf("seed %llu, %d rounds (SEED=... ROUNDS=... repeats them)\n",
	       (unsigned long long)seed, n);
	fflush(stdout);
	for (int i = 0; i < n; i++)
		world_run(seed + (uint64_t)i, round_of_calls, NULL);
	printf("OK %d, TIMEOUT %d, ABORTED %d, SYSTEM %d, INVALID %d; marked %d\n", seen[TUTTI_OK],
	       seen[TUTTI_ERR_TIMEOUT], seen[TUTTI_ERR_ABORTED], seen[TUTTI_ERR_SYSTEM],
	       seen[TUTTI_ERR_INVALID], marked);
	if (n >= 100)
		assert_true(seen[TUTTI_OK] && seen[TUTTI_ERR_TIMEOUT] && seen[TUTTI_ERR_ABORTED] &&
			    seen[TUTTI_ERR_SYSTEM] && seen[TUTTI_ERR_INVALID] && marked);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(calls_end_as_the_table_says),
	};

	log_set_level(LOG_OFF); /* errors of one-way calls */
	test_limit(100);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
