/* slow: 8 s */
/* no_tsan: its ranks are processes */
/* Calls of several nodes with GPUs: a share that another rank takes, a block of another node, a sum
 * that is divided twice, kernels that start in another order than those of the node's other ranks,
 * or bytes that cross between nodes more than once. SEED repeats random calls. */
#include "across_calls.h"
#include "gpu_ranks.h"

#include "tests/limit.h"
#include "tests/random.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/unit.h"

#define CALLS  8
#define FLIGHT 4

/* How ranks lie on nodes. MIXED: in no order, and so by the engine. */
enum order { BY_NODE, IN_TURN, MIXED };
struct cluster {
	int ranks, nodes;
	enum order order;
	int gpus;           /* the ranks take them in turn: where there is one all share it */
	const char *window; /* bytes: with few a call has several turns, or chunks          */
};
static const struct cluster clusters[] = {
	{4, 2, BY_NODE, 8, "1048576"}, {4, 2, IN_TURN, 8, "65536"}, {6, 3, BY_NODE, 8, "1048576"},
	{8, 2, IN_TURN, 8, "1048576"}, {4, 2, BY_NODE, 1, "65536"}, {6, 3, IN_TURN, 1, "65536"},
	{8, 4, BY_NODE, 1, "65536"},   {4, 2, MIXED, 8, "1048576"},
};
#define CLUSTERS ((int)(sizeof clusters / sizeof clusters[0]))

static int node_of_rank(const struct cluster *c, int rank)
{
	int local = c->ranks / c->nodes;

	return c->order == BY_NODE   ? rank / local
	       : c->order == IN_TURN ? rank % c->nodes
				     : (rank + 1) / 2 % c->nodes;
}

static tutti_comm *join(int rank, const struct cluster *c, bool is_deterministic)
{
	tutti_config config = {.device = rank % c->gpus + 1, .deterministic = is_deterministic};
	tutti_comm *comm;
	char host[16];

	snprintf(host, sizeof host, "node%d", node_of_rank(c, rank));
	setenv("TUTTI_HOST_ID", host, 1);
	setenv("TUTTI_WINDOW_BYTES", c->window, 1);
	gpu_use(rank % c->gpus);
	gpu_rank_must(tutti_init(&comm, &config), "init");
	return comm;
}

/* A call in flight, in a stream of its own. */
struct flight {
	struct across_call call;
	CUstream stream;
	CUevent begun;   /* the stream's earlier work is over ... */
	uint32_t *start; /* ... once this is the round's number */
	tutti_work *work;
};

static void open_flight(struct flight *f, tutti_comm *comm, bool is_mapped)
{
	gpu_rank_must(across_open(&f->call, comm, is_mapped), "mem_alloc");
	f->stream = gpu_stream();
	f->start = gpu_alloc_pinned(sizeof *f->start);
	*f->start = 0;
	GPU(event_create, &f->begun, CU_EVENT_DISABLE_TIMING);
}

static void close_flight(struct flight *f)
{
	across_close(&f->call);
	gpu_free_pinned(f->start);
	GPU(event_destroy, f->begun);
	gpu_stream_free(f->stream);
}

static void start(struct flight *f, uint32_t round, uint64_t *own, tutti_comm *comm)
{
	tutti_call in_stream = {.stream = f->stream}, handled = in_stream;

	handled.work = &f->work;
	f->work = NULL;
	GPU(stream_wait_value32, f->stream, (CUdeviceptr)(uintptr_t)f->start, round,
	    CU_STREAM_WAIT_VALUE_GEQ);
	GPU(event_record, f->begun, f->stream);
	gpu_rank_must(across_issue(&f->call, comm, random_below(own, 2) ? &handled : &in_stream),
		      "issue");
}

/* The streams come to their calls in an order of this rank's own. */
static void let_begin(struct flight *flight, uint32_t round, uint64_t *own)
{
	int first = (int)random_below(own, FLIGHT), step = 1 + 2 * (int)random_below(own, 2);

	for (int i = 0; i < FLIGHT; i++) {
		struct flight *f = &flight[(first + i * step) % FLIGHT];
		atomic_store((_Atomic uint32_t *)f->start, round);
		GPU(event_synchronize, f->begun);
	}
}

static void end(struct flight *f)
{
	if (f->work)
		gpu_rank_must(tutti_work_wait(&f->work, 0), "wait");
	gpu_sync(f->stream);
	if (across_check(&f->call))
		return;
	fprintf(stderr, "rank %d: %s\n", f->call.rank, f->call.why);
	exit(1);
}

/* Several calls at once. */
static void calls(int rank, const struct cluster *c, uint64_t drawn, bool is_mapped)
{
	tutti_comm *comm = join(rank, c, false);
	uint64_t shared = drawn, own = drawn * 31 + (uint64_t)rank;
	struct flight flight[FLIGHT];

	for (int i = 0; i < FLIGHT; i++)
		open_flight(&flight[i], comm, is_mapped);
	for (uint32_t round = 1; round <= CALLS / FLIGHT; round++) {
		for (int i = 0; i < FLIGHT; i++) {
			across_draw(&flight[i].call, &shared);
			gpu_rank_must(across_prepare(&flight[i].call, comm), "on the host");
		}
		for (int i = 0; i < FLIGHT; i++)
			start(&flight[i], round, &own, comm);
		let_begin(flight, round, &own);
		for (int i = 0; i < FLIGHT; i++)
			end(&flight[i]);
	}
	for (int i = 0; i < FLIGHT; i++)
		close_flight(&flight[i]);
	tutti_comm_destroy(comm);
}

static uint64_t seed(void)
{
	const char *text = getenv("SEED");

	return text ? strtoull(text, NULL, 10) : 5;
}

static int ordinary(int rank, int which)
{
	calls(rank, &clusters[which], seed() + (uint64_t)which, false);
	return 0;
}

/* Where only the engine serves such memory is the host's. */
static int mapped(int rank, int which)
{
	if (clusters[which].order != MIXED)
		calls(rank, &clusters[which], seed() + 50 + (uint64_t)which, true);
	return 0;
}

/* Bytes that this rank sends in a call on the device. */
#define SENT_BYTES ((size_t)384 << 10)
static uint64_t sent_in(enum across_what what, tutti_comm *comm)
{
	tutti_call call = {.stream = gpu_stream()};
	struct across_call a;
	tutti_stats before, after;

	gpu_rank_must(across_open(&a, comm, false), "open");
	across_set(&a, what, SENT_BYTES);
	gpu_rank_must(across_prepare(&a, comm), "on the host");
	gpu_rank_must(tutti_comm_stats(comm, &before), "stats");
	gpu_rank_must(across_issue(&a, comm, &call), "on the device");
	gpu_sync(call.stream);
	gpu_rank_must(tutti_comm_stats(comm, &after), "stats");
	if (!across_check(&a)) {
		fprintf(stderr, "rank %d: %s\n", a.rank, a.why);
		exit(1);
	}
	across_close(&a);
	gpu_stream_free(call.stream);
	return after.sent_bytes - before.sent_bytes;
}

/* A rank sends its share only: to each other node a part of it, and of an all_reduce what that part
 * came to. */
static uint64_t formula(enum across_what what, const struct cluster *c)
{
	uint64_t share = SENT_BYTES / (uint64_t)(c->ranks / c->nodes);

	return (what == ACROSS_ALL_REDUCE ? 2 : 1) * share * (uint64_t)(c->nodes - 1) /
	       (uint64_t)c->nodes;
}

static void expect_sent(enum across_what what, const struct cluster *c, bool goes_across,
			tutti_comm *comm)
{
	uint64_t sent = sent_in(what, comm), expected = formula(what, c);

	if ((sent == expected) == goes_across)
		return;
	fprintf(stderr, "rank %d sent %llu bytes in call %d; across nodes it sends %llu\n",
		tutti_rank(comm), (unsigned long long)sent, (int)what,
		(unsigned long long)expected);
	exit(1);
}

static int traffic(int rank, int which)
{
	const struct cluster *c = &clusters[which];
	tutti_comm *comm = join(rank, c, false);

	for (int what = 0; what < ACROSS_WHATS; what++)
		expect_sent((enum across_what)what, c, c->order != MIXED, comm);
	tutti_comm_destroy(comm);
	return 0;
}

/* Sums have one association, which the two levels do not have; what only moves goes across. */
static int deterministic(int rank, int which)
{
	const struct cluster *c = &clusters[which];
	tutti_comm *comm = join(rank, c, true);

	expect_sent(ACROSS_ALL_REDUCE, c, false, comm);
	expect_sent(ACROSS_REDUCE_SCATTER, c, false, comm);
	expect_sent(ACROSS_ALL_GATHER, c, true, comm);
	tutti_comm_destroy(comm);
	return 0;
}

static int forced(int rank, int which)
{
	const struct cluster *c = &clusters[which];

	setenv("TUTTI_ALGO", "reduce_scatter=direct,all_gather=two_level", 1);
	tutti_comm *comm = join(rank, c, false);
	expect_sent(ACROSS_REDUCE_SCATTER, c, false, comm);
	expect_sent(ACROSS_ALL_GATHER, c, true, comm);
	tutti_comm_destroy(comm);
	return 0;
}

/* The others hear of it, those of its node from their kernels' watch. */
static int killed(int rank, int what)
{
	const struct cluster *c = &clusters[0];
	tutti_comm *comm = join(rank, c, false);
	tutti_call call = {.stream = gpu_stream()};
	struct across_call a;

	gpu_rank_must(across_open(&a, comm, false), "open");
	across_set(&a, (enum across_what)what, SENT_BYTES);
	gpu_rank_must(across_prepare(&a, comm), "on the host");
	if (rank == c->ranks - 1)
		raise(SIGKILL);
	call.work = &(tutti_work *){NULL};
	tutti_status status = across_issue(&a, comm, &call);
	if (status == TUTTI_OK)
		status = tutti_work_wait(call.work, 0);
	if (status != TUTTI_ERR_PEER) {
		fprintf(stderr, "rank %d: %s: %s\n", rank, tutti_status_string(status),
			tutti_comm_error(comm));
		return 1;
	}
	across_close(&a);
	tutti_comm_destroy(comm);
	return 0;
}

static void run_all(int (*body)(int rank, int which))
{
	for (int i = 0; i < CLUSTERS; i++) {
		print_message("cluster %d\n", i);
		gpu_ranks_run(clusters[i].ranks, body, i, 0);
	}
}

static void test_ordinary(void **state)
{
	print_message("seed %llu\n", (unsigned long long)seed());
	run_all(ordinary);
}

static void test_mapped(void **state)
{
	print_message("seed %llu\n", (unsigned long long)seed());
	run_all(mapped);
}

static void test_traffic(void **state)
{
	run_all(traffic);
}

static void test_deterministic(void **state)
{
	gpu_ranks_run(clusters[0].ranks, deterministic, 0, 0);
}

static void test_forced(void **state)
{
	gpu_ranks_run(clusters[0].ranks, forced, 0, 0);
}

static void test_killed(void **state)
{
	for (int what = 0; what < ACROSS_WHATS; what++)
		gpu_ranks_run(clusters[0].ranks, killed, what, 1u << (clusters[0].ranks - 1));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_ordinary), cmocka_unit_test(test_mapped),
		cmocka_unit_test(test_traffic),  cmocka_unit_test(test_deterministic),
		cmocka_unit_test(test_forced),   cmocka_unit_test(test_killed),
	};

	test_limit(300);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
