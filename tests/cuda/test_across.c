/* slow: 5 s */
/* no_tsan: its ranks are processes */
/* An all_reduce of several nodes with GPUs: a share that another rank takes, a sum that is divided
 * twice, kernels that start in another order than those of the node's other ranks, or bytes that
 * cross between nodes more than once. */
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

#define COUNT_MOST 150000
#define CALLS      12
#define FLIGHT     3

/* How ranks lie on nodes. */
struct cluster {
	int ranks, nodes;
	bool in_turn;
	int gpus; /* the ranks take them in turn: where there is one all share it */
};
static const struct cluster clusters[] = {
	{4, 2, false, 8}, {4, 2, true, 8}, {6, 3, false, 8}, {8, 2, true, 8}, {4, 2, false, 1}};

static tutti_comm *join(int rank, const struct cluster *c)
{
	tutti_config config = {.device = rank % c->gpus + 1};
	tutti_comm *comm;
	char host[16];

	snprintf(host, sizeof host, "node%d",
		 c->in_turn ? rank % c->nodes : rank / (c->ranks / c->nodes));
	setenv("TUTTI_HOST_ID", host, 1);
	gpu_use(rank % c->gpus);
	gpu_rank_must(tutti_init(&comm, &config), "init");
	return comm;
}

static float value(int rank, int call, size_t i)
{
	return (float)((i * 7 + (size_t)call * 31 + (size_t)rank * 13) % 61);
}

/* A call in flight: where it lies, and what it is to be. */
struct flight {
	float *send, *recv;
	size_t count;
	tutti_op op;
	bool in_place;
	int call;
	CUstream stream;
	CUevent begun;   /* the stream's earlier work is over ... */
	uint32_t *start; /* ... once this is the call's number + 1 */
	tutti_work *work;
};

static void fill(struct flight *f, int rank)
{
	static float host[COUNT_MOST];

	for (size_t i = 0; i < f->count; i++)
		host[i] = value(rank, f->call, i);
	gpu_write(f->send, host, f->count * sizeof *host);
}

static void check(const struct flight *f, int ranks)
{
	static float host[COUNT_MOST];

	gpu_read(host, f->recv, f->count * sizeof *host);
	for (size_t i = 0; i < f->count; i++) {
		float sum = 0;
		for (int r = 0; r < ranks; r++)
			sum += value(r, f->call, i);
		if (f->op == TUTTI_AVG)
			sum /= (float)ranks;
		if (host[i] == sum)
			continue;
		fprintf(stderr, "call %d of %zu: element %zu is %g and not %g\n", f->call, f->count,
			i, (double)host[i], (double)sum);
		exit(1);
	}
}

static void start(struct flight *f, uint64_t *shared, int rank, int ways, tutti_comm *comm)
{
	tutti_call in_stream = {.stream = f->stream}, handled = in_stream;

	handled.work = &f->work;
	f->count = 16384 + random_below(shared, COUNT_MOST - 16384);
	f->op = random_below(shared, 2) && ways ? TUTTI_AVG : TUTTI_SUM;
	f->in_place = random_below(shared, 2);
	f->recv = f->in_place ? f->send : f->recv;
	f->work = NULL;
	fill(f, rank);
	GPU(stream_wait_value32, f->stream, (CUdeviceptr)(uintptr_t)f->start, (uint32_t)f->call + 1,
	    CU_STREAM_WAIT_VALUE_GEQ);
	GPU(event_record, f->begun, f->stream);
	gpu_rank_must(tutti_all_reduce(f->send, f->recv, f->count, TUTTI_F32, f->op, comm,
				       random_below(shared, 2) ? &handled : &in_stream),
		      "all_reduce");
}

/* The streams come to their calls in an order of this rank's own. */
static void let_begin(struct flight *flight, uint64_t *own)
{
	int first = (int)random_below(own, FLIGHT), step = 1 + (int)random_below(own, FLIGHT - 1);

	for (int i = 0; i < FLIGHT; i++) {
		struct flight *f = &flight[(first + i * step) % FLIGHT];
		atomic_store((_Atomic uint32_t *)f->start, (uint32_t)f->call + 1);
		GPU(event_synchronize, f->begun);
	}
}

/* Several calls at once, each in a stream of its own. ways: whether averages, which are exact only
 * where ranks are a power of two. */
static void calls(int rank, const struct cluster *c, uint64_t seed, bool is_mapped)
{
	tutti_comm *comm = join(rank, c);
	uint64_t shared = seed, own = seed * 31 + (uint64_t)rank;
	int ways = (c->ranks & (c->ranks - 1)) == 0;
	struct flight flight[FLIGHT], f;
	float *memory[2 * FLIGHT];

	for (int i = 0; i < 2 * FLIGHT; i++) {
		void *p = NULL;
		if (is_mapped)
			gpu_rank_must(tutti_mem_alloc(&p, COUNT_MOST * sizeof(float), comm),
				      "mem_alloc");
		memory[i] = is_mapped ? p : gpu_alloc(COUNT_MOST * sizeof(float));
	}
	for (int i = 0; i < FLIGHT; i++) {
		flight[i].stream = gpu_stream();
		flight[i].start = gpu_alloc_pinned(sizeof *flight[i].start);
		*flight[i].start = 0;
		GPU(event_create, &flight[i].begun, CU_EVENT_DISABLE_TIMING);
	}
	for (int call = 0; call < CALLS; call += FLIGHT) {
		for (int i = 0; i < FLIGHT; i++) {
			flight[i].send = memory[2 * i];
			flight[i].recv = memory[2 * i + 1];
			flight[i].call = call + i;
			start(&flight[i], &shared, rank, ways, comm);
		}
		let_begin(flight, &own);
		for (int i = 0; i < FLIGHT; i++) {
			f = flight[i];
			if (f.work)
				gpu_rank_must(tutti_work_wait(&f.work, 0), "wait");
			gpu_sync(f.stream);
			check(&f, c->ranks);
		}
	}
	for (int i = 0; i < FLIGHT; i++) {
		GPU(event_destroy, flight[i].begun);
		gpu_stream_free(flight[i].stream);
	}
	tutti_comm_destroy(comm);
}

static int ordinary(int rank, int which)
{
	calls(rank, &clusters[which], 5 + (uint64_t)which, false);
	return 0;
}

static int mapped(int rank, int which)
{
	calls(rank, &clusters[which], 50 + (uint64_t)which, true);
	return 0;
}

/* A rank sends its share only: to each other node a part of it, and what that part came to. */
static int traffic(int rank, int which)
{
	const struct cluster *c = &clusters[which];
	tutti_comm *comm = join(rank, c);
	struct flight f = {.count = 96 * 1024, .op = TUTTI_SUM};
	tutti_stats before, after;
	uint64_t share = f.count * sizeof(float) / (uint64_t)(c->ranks / c->nodes);
	uint64_t expected = 2 * share * (uint64_t)(c->nodes - 1) / (uint64_t)c->nodes;

	f.send = gpu_alloc(f.count * sizeof(float));
	f.recv = gpu_alloc(f.count * sizeof(float));
	fill(&f, rank);
	gpu_rank_must(tutti_comm_stats(comm, &before), "stats");
	gpu_rank_must(tutti_all_reduce(f.send, f.recv, f.count, TUTTI_F32, TUTTI_SUM, comm, NULL),
		      "all_reduce");
	gpu_rank_must(tutti_comm_stats(comm, &after), "stats");
	check(&f, c->ranks);
	if (after.sent_bytes - before.sent_bytes != expected) {
		fprintf(stderr, "rank %d sent %llu bytes and not %llu\n", rank,
			(unsigned long long)(after.sent_bytes - before.sent_bytes),
			(unsigned long long)expected);
		return 1;
	}
	tutti_comm_destroy(comm);
	return 0;
}

/* The others hear of it, those of its node from their kernels' watch. */
static int killed(int rank, int which)
{
	const struct cluster *c = &clusters[which];
	tutti_comm *comm = join(rank, c);
	struct flight f = {.count = 96 * 1024, .op = TUTTI_SUM};

	f.send = gpu_alloc(f.count * sizeof(float));
	f.recv = gpu_alloc(f.count * sizeof(float));
	fill(&f, rank);
	if (rank == c->ranks - 1)
		raise(SIGKILL);
	tutti_status status =
		tutti_all_reduce(f.send, f.recv, f.count, TUTTI_F32, TUTTI_SUM, comm, NULL);
	if (status != TUTTI_ERR_PEER) {
		fprintf(stderr, "rank %d: %s: %s\n", rank, tutti_status_string(status),
			tutti_comm_error(comm));
		return 1;
	}
	tutti_comm_destroy(comm);
	return 0;
}

static void run_all(int (*body)(int rank, int which))
{
	for (int i = 0; i < (int)(sizeof clusters / sizeof clusters[0]); i++)
		gpu_ranks_run(clusters[i].ranks, body, i, 0);
}

static void test_ordinary(void **state)
{
	(void)state;
	print_message("seeds 5 to 9\n");
	run_all(ordinary);
}

static void test_mapped(void **state)
{
	(void)state;
	print_message("seeds 50 to 54\n");
	run_all(mapped);
}

static void test_traffic(void **state)
{
	(void)state;
	run_all(traffic);
}

static void test_killed(void **state)
{
	(void)state;
	gpu_ranks_run(clusters[0].ranks, killed, 0, 1u << (clusters[0].ranks - 1));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_ordinary),
		cmocka_unit_test(test_mapped),
		cmocka_unit_test(test_traffic),
		cmocka_unit_test(test_killed),
	};

	test_limit(300);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
