/* slow: 20 s */
/* no_tsan: its ranks are processes, which TSan sees nothing of */
/* What would break: a rank that is killed takes calls between the others with it: they fail, are
 * executed twice or never, or wait; a call to it that hangs; references that it held for ever. */
#include "tests/collectives/rank_processes.h"
#include "tests/random.h"
#include "tests/rpc/rpc_ranks.h"
#include "tests/whole.h"

#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/unit.h"

enum { THREADS = 2, LONGEST = 300000 };

static uint64_t run_seed;
static int victim, rounds;

/* ---- every rank calls every rank, and one dies ---- */

struct counts {
	struct rpc_rank r;
	struct rank rank;
	atomic_ulong from[PROCESSES_MOST]; /* executed here, of each caller */
	atomic_ulong to[PROCESSES_MOST];   /* begun here, and over with OK */
	atomic_int died, rounds_done;
};

static tutti_status count(void *arg, const tutti_rpc_request *request, tutti_rpc_reply *reply)
{
	struct counts *c = arg;
	tutti_rpc_piece piece = {request->data, request->bytes};

	atomic_fetch_add(&c->from[request->rank], 1);
	return tutti_rpc_reply_pieces(reply, &piece, 1, NULL, NULL);
}

static tutti_status told(void *arg, const tutti_rpc_request *request, tutti_rpc_reply *reply)
{
	struct counts *c = arg;
	unsigned long n = atomic_load(&c->from[request->rank]);

	return tutti_rpc_reply_copy(reply, &n, sizeof n);
}

static void note_death(void *arg, int rank)
{
	struct counts *c = arg;

	if (rank != victim || atomic_fetch_add(&c->died, 1) > 0)
		report_wrong(&c->rank, "death", TUTTI_OK);
}

static void call(struct counts *c, int to, uint64_t *seed, uint8_t *data)
{
	static const char *const names[] = {"count", "count_short"};
	const char *name = names[random_below(seed, 2)];
	size_t bytes =
		random_below(seed, 4) ? random_below(seed, 300) : random_below(seed, LONGEST);
	uint64_t pattern = random_next(seed);
	tutti_rpc_piece two[] = {{data, bytes / 2}, {data + bytes / 2, bytes - bytes / 2}};
	tutti_rpc_answer answer = {0};
	bool is_one_way = random_below(seed, 4) == 0;

	rpc_pattern(data, bytes, pattern);
	tutti_status status = is_one_way
				      ? tutti_rpc_send(c->r.rpc, to, name, two, 2, NULL)
				      : tutti_rpc_call(c->r.rpc, to, name, two, 2, &answer, NULL);
	if (status == TUTTI_OK && !is_one_way)
		RPC_TRUE(&c->r,
			 answer.bytes == bytes && rpc_has_pattern(answer.data, bytes, pattern));
	if (status == TUTTI_OK)
		atomic_fetch_add(&c->to[to], 1);
	else if (to != victim || status != TUTTI_ERR_PEER)
		report_wrong(&c->rank, "call", status);
	tutti_rpc_free(answer.data);
}

static void *make_calls(void *arg)
{
	struct counts *c = arg;
	uint8_t *data = malloc(LONGEST);
	uint64_t seed = run_seed + 1000 * (uint64_t)c->rank.rank +
			(uint64_t)atomic_fetch_add(&c->rounds_done, 1);

	for (int i = 0; i < rounds; i++) {
		if (c->rank.rank == victim && i == rounds / 4 + (int)(seed % 7))
			kill(getpid(), SIGKILL);
		for (int k = 0; k < c->rank.size; k++)
			call(c, (c->rank.rank + k) % c->rank.size, &seed, data);
	}
	free(data);
	return NULL;
}

/* One-way calls have run when the count has come to what it must be; it never goes beyond. */
static void compare(struct counts *c, int to)
{
	unsigned long there = 0, expected = atomic_load(&c->to[to]);
	tutti_rpc_answer answer = {.data = &there, .bytes = sizeof there};
	bool is_over = false;

	for (int i = 0; i < 10000 && !is_over && !c->rank.why[0]; i++) {
		answer.bytes = sizeof there;
		RPC_OK(&c->r, tutti_rpc_call(c->r.rpc, to, "told", NULL, 0, &answer, NULL));
		is_over = there >= expected;
		if (!is_over)
			poll(NULL, 0, 1);
	}
	if (there != expected)
		fprintf(stderr,
			"rank %d has called rank %d %lu times, which counts %lu; seed %llu\n",
			c->rank.rank, to, expected, there, (unsigned long long)run_seed);
	RPC_TRUE(&c->r, there == expected);
}

static void end_rank(struct rank *rank)
{
	if (!rank->why[0])
		return;
	fprintf(stderr, "seed %llu: %s\n", (unsigned long long)run_seed, rank->why);
	_exit(1);
}

static void all_call(tutti_comm *comm)
{
	static struct counts c;
	pthread_t threads[THREADS];

	c.rank = (struct rank){.comm = comm, .rank = tutti_rank(comm), .size = tutti_size(comm)};
	tutti_rpc_config config = {.died = note_death, .died_arg = &c, .threads = 3, .calls = 16};
	rpc_open(&c.r, &c.rank, &config);
	tutti_rpc_function more[] = {
		{.name = "count", .fn = count, .arg = &c},
		{.name = "count_short", .fn = count, .arg = &c, .flags = TUTTI_RPC_SHORT},
		{.name = "told", .fn = told, .arg = &c, .flags = TUTTI_RPC_SHORT}};
	for (int i = 0; i < 3; i++)
		RPC_OK(&c.r, tutti_rpc_register(c.r.rpc, &more[i]));
	RPC_OK(&c.r, tutti_barrier(comm, NULL));
	for (int i = 0; i < THREADS; i++)
		if (pthread_create(&threads[i], NULL, make_calls, &c) != 0)
			abort();
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	for (int to = 0; to < c.rank.size; to++)
		if (to != victim)
			compare(&c, to);
	RPC_OK(&c.r, tutti_rpc_shutdown(c.r.rpc, 0));
	RPC_TRUE(&c.r, victim < 0 || !tutti_rpc_is_alive(c.r.rpc, victim));
	tutti_rpc_destroy(c.r.rpc);
	end_rank(&c.rank);
}

static void a_rank_is_killed(void **state)
{
	run_seed = getenv("TEST_SEED") ? strtoull(getenv("TEST_SEED"), NULL, 10)
				       : (uint64_t)getpid() * 1000;
	print_message("TEST_SEED=%llu\n", (unsigned long long)run_seed);
	rounds = whole_or(60, 20, 20);
	for (int repeat = 0; repeat < whole_or(3, 1, 1); repeat++)
		for (int w = 0; w < way_count; w++) {
			run_seed += 17;
			victim = (int)(run_seed % PROCESSES);
			processes_run(&ways[w], NULL, all_call, NULL, 1u << victim);
		}
}

static void no_rank_is_killed(void **state)
{
	run_seed = 5;
	rounds = 10;
	victim = -1;
	for (int w = 0; w < way_count; w++)
		processes_run(&ways[w], NULL, all_call, NULL, 0);
}

/* ---- references of a rank that is killed ---- */

static atomic_int destroyed;

static void note_destroyed(void *object)
{
	if (object != &destroyed)
		abort();
	atomic_fetch_add(&destroyed, 1);
}

/* Rank 0 owns the object. Rank 1 gets it, and gives it to rank 2, and dies with all that it holds.
 * Then rank 2 gives it back. */
static tutti_rpc_ref given;
static atomic_int was_given;

static tutti_status give(void *arg, const tutti_rpc_request *request, tutti_rpc_reply *reply)
{
	(void)arg;
	(void)reply;
	memcpy(&given, request->data, sizeof given);
	atomic_store(&was_given, 1);
	return TUTTI_OK;
}

static void give_to(struct rpc_rank *r, const tutti_rpc_ref *ref, int rank)
{
	tutti_rpc_piece piece = {ref, sizeof *ref};

	RPC_OK(r, tutti_rpc_ref_share(r->rpc, ref, rank));
	RPC_OK(r, tutti_rpc_call(r->rpc, rank, "give", &piece, 1, NULL, NULL));
}

static void wait_for_death(struct rpc_rank *r, int rank)
{
	while (tutti_rpc_is_alive(r->rpc, rank))
		poll(NULL, 0, 1);
}

static void references(tutti_comm *comm)
{
	struct rank rank = {.comm = comm, .rank = tutti_rank(comm), .size = tutti_size(comm)};
	static struct rpc_rank r;
	tutti_rpc_function f = {.name = "give", .fn = give, .flags = TUTTI_RPC_SHORT};
	tutti_rpc_ref ref;

	rpc_open(&r, &rank, NULL);
	RPC_OK(&r, tutti_rpc_register(r.rpc, &f));
	RPC_OK(&r, tutti_barrier(comm, NULL));
	if (rank.rank == 0) {
		RPC_OK(&r, tutti_rpc_ref_create(r.rpc, &destroyed, note_destroyed, &ref));
		give_to(&r, &ref, 1);
		RPC_OK(&r, tutti_rpc_ref_release(r.rpc, &ref));
		wait_for_death(&r, 1);
		RPC_TRUE(&r, atomic_load(&destroyed) == 0); /* rank 2 has it */
		rpc_expect_error(&r, tutti_rpc_ref_share(r.rpc, &ref, 1), TUTTI_ERR_INVALID,
				 "no count");
		atomic_fetch_add(&shared->here[0], 1);
		rpc_until(&r, &destroyed, 1);
	} else if (rank.rank == 1) {
		rpc_until(&r, &was_given, 1);
		give_to(&r, &given, 2);
		kill(getpid(), SIGKILL);
	} else if (rank.rank == 2) {
		rpc_until(&r, &was_given, 1);
		wait_for_death(&r, 1);
		rpc_expect_error(&r, tutti_rpc_ref_share(r.rpc, &given, 1), TUTTI_ERR_PEER, "died");
		processes_wait(&shared->here[0], 1);
		RPC_OK(&r, tutti_rpc_ref_release(r.rpc, &given));
	}
	rpc_close(&r);
	RPC_TRUE(&r, atomic_load(&destroyed) == (rank.rank == 0));
	end_rank(&rank);
}

static void references_of_a_rank_that_is_killed(void **state)
{
	process_count = 3;
	for (int w = 0; w < way_count; w++)
		processes_run(&ways[w], NULL, references, NULL, 1u << 1);
	process_count = PROCESSES;
}

/* ---- deaths while the others leave ---- */

static void leave(tutti_comm *comm)
{
	struct rank rank = {.comm = comm, .rank = tutti_rank(comm), .size = tutti_size(comm)};
	static struct rpc_rank r;

	rpc_open(&r, &rank, NULL);
	RPC_OK(&r, tutti_barrier(comm, NULL));
	if (rank.rank == victim)
		kill(getpid(), SIGKILL);
	RPC_OK(&r, tutti_rpc_shutdown(r.rpc, 0));
	tutti_rpc_destroy(r.rpc);
	end_rank(&rank);
}

static void a_rank_is_killed_while_the_others_leave(void **state)
{
	process_count = 4;
	for (victim = 0; victim < 4; victim += 3) /* the one that all report to, and another */
		for (int w = 0; w < way_count; w++)
			processes_run(&ways[w], NULL, leave, NULL, 1u << victim);
	process_count = PROCESSES;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(no_rank_is_killed),
		cmocka_unit_test(a_rank_is_killed),
		cmocka_unit_test(references_of_a_rank_that_is_killed),
		cmocka_unit_test(a_rank_is_killed_while_the_others_leave),
	};
	if (!processes_open())
		return 77;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
