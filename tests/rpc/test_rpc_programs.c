/* slow: 10 s */
/* What would break: calls of many threads of many ranks at once, of every kind and size, that get
 * each other's answers, are lost, or run twice; some are cancelled or have too little time. */
#include "tests/random.h"
#include "tests/rpc/rpc_ranks.h"
#include "tests/whole.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/unit.h"

enum { THREADS = 3, WINDOW = 6, LONGEST = 200000 };

static struct rpc_rank all[RANKS_MAX];
static int rounds;
/* By rank: what "add" must come to. */
static atomic_ulong sums[RANKS_MAX];

struct flight {
	tutti_rpc_future *future;
	tutti_rpc_answer answer;
	uint8_t *data, *room;
	size_t bytes;
	uint64_t pattern;
	bool may_fail;
	atomic_int done; /* calls of its done function */
	bool has_done;
};

struct caller {
	struct rpc_rank *r;
	uint64_t seed;
	struct flight flights[WINDOW];
};

static size_t some_bytes(uint64_t *seed)
{
	static const size_t below[] = {200, 10, 9000, LONGEST};

	return random_below(seed, below[random_below(seed, 4)]);
}

static void note_done(void *arg, tutti_status status)
{
	struct flight *f = arg;

	(void)status;
	atomic_fetch_add(&f->done, 1);
}

static void land(struct caller *c, struct flight *f)
{
	struct rpc_rank *r = c->r;

	if (!f->future)
		return;
	if (random_below(&c->seed, 12) == 0) {
		tutti_rpc_cancel(f->future);
		f->may_fail = true;
	}
	tutti_status status = tutti_rpc_wait(&f->future, 0);
	if (status == TUTTI_OK)
		RPC_TRUE(r, f->answer.bytes == f->bytes &&
				    rpc_has_pattern(f->answer.data, f->bytes, f->pattern));
	else
		RPC_TRUE(r, f->may_fail);
	RPC_TRUE(r, atomic_load(&f->done) == f->has_done);
	if (f->answer.data != f->room)
		tutti_rpc_free(f->answer.data);
}

static void take_off(struct caller *c, struct flight *f, int to)
{
	static const char *const names[] = {"echo", "short", "pieces", "room"};
	struct rpc_rank *r = c->r;
	tutti_rpc_options options = {0};

	land(c, f);
	f->bytes = some_bytes(&c->seed);
	f->pattern = random_next(&c->seed);
	f->may_fail = random_below(&c->seed, 20) == 0;
	f->has_done = random_below(&c->seed, 3) == 0;
	atomic_store(&f->done, 0);
	f->answer = (tutti_rpc_answer){0};
	if (random_below(&c->seed, 2))
		f->answer = (tutti_rpc_answer){.data = f->room, .bytes = LONGEST};
	if (f->may_fail)
		options.timeout_ms = 1;
	if (f->has_done) {
		options.done = note_done;
		options.done_arg = f;
	}
	rpc_pattern(f->data, f->bytes, f->pattern);
	size_t a = random_below(&c->seed, f->bytes + 1);
	tutti_rpc_piece two[] = {{f->data, a}, {f->data + a, f->bytes - a}};
	tutti_status status = tutti_rpc_call_async(r->rpc, to, names[random_below(&c->seed, 4)],
						   two, 2, &f->answer, &options, &f->future);
	RPC_TRUE(r, status == TUTTI_OK || (status == TUTTI_ERR_TIMEOUT && f->may_fail));
}

static void add_to(struct caller *c, int to)
{
	uint64_t number = random_below(&c->seed, 1000);
	size_t rest = some_bytes(&c->seed);
	uint8_t *zeros = calloc(1, rest + 1);
	tutti_rpc_piece two[] = {{&number, sizeof number}, {zeros, rest}};

	if (random_below(&c->seed, 2))
		RPC_OK(c->r, tutti_rpc_send(c->r->rpc, to, "add", two, 2, NULL));
	else
		RPC_OK(c->r, tutti_rpc_call(c->r->rpc, to, "add", two, 2, NULL, NULL));
	atomic_fetch_add(&sums[to], number);
	free(zeros);
}

static void *make_calls(void *arg)
{
	struct caller *c = arg;
	struct rpc_rank *r = c->r;

	for (int w = 0; w < WINDOW; w++) {
		c->flights[w].data = malloc(LONGEST);
		c->flights[w].room = malloc(LONGEST);
	}
	for (int i = 0; i < rounds; i++) {
		int to = (int)random_below(&c->seed, (uint64_t)r->rank->size);
		switch (random_below(&c->seed, 6)) {
		case 0:
			add_to(c, to);
			break;
		case 1:
			rpc_check_echo(r, to, "back", some_bytes(&c->seed), random_next(&c->seed));
			break;
		default:
			take_off(c, &c->flights[random_below(&c->seed, WINDOW)], to);
		}
	}
	for (int w = 0; w < WINDOW; w++) {
		land(c, &c->flights[w]);
		free(c->flights[w].data);
		free(c->flights[w].room);
	}
	return NULL;
}

static void program(struct rank *rank)
{
	struct rpc_rank *r = &all[rank->rank];
	struct caller callers[THREADS] = {{0}};
	pthread_t threads[THREADS];

	atomic_store(&sums[rank->rank], 0);
	/* Each thread of a caller may wait in "back", and needs "echo" to run elsewhere. */
	rpc_open(r, rank, &(tutti_rpc_config){.threads = 2 + THREADS * rank->size, .calls = 12});
	for (int t = 0; t < THREADS; t++) {
		callers[t].r = r;
		callers[t].seed = rank->seed * 100 + (uint64_t)(rank->rank * THREADS + t);
		if (pthread_create(&threads[t], NULL, make_calls, &callers[t]) != 0)
			abort();
	}
	for (int t = 0; t < THREADS; t++)
		pthread_join(threads[t], NULL);
	RPC_OK(r, tutti_rpc_shutdown(r->rpc, 0));
	RPC_TRUE(r, atomic_load(&r->sum) == atomic_load(&sums[rank->rank]));
	tutti_rpc_destroy(r->rpc);
}

static void random_programs(void **state)
{
	static const char *const transports[] = {NULL, "shm", "tcp"};
	static const int sizes[] = {1, 2, 3, 5, 8};
	uint64_t seed = getenv("TEST_SEED") ? strtoull(getenv("TEST_SEED"), NULL, 10)
					    : (uint64_t)getpid() * 1000;

	print_message("TEST_SEED=%llu\n", (unsigned long long)seed);
	rounds = whole_or(100, 40, 25);
	for (int t = 0; t < 3; t++)
		for (int s = 0; s < whole_or(5, 3, 3); s++)
			with_ranks(sizes[s], transports[t], seed + (uint64_t)(10 * t + s), program);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(random_programs),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
