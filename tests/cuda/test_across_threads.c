/* slow: 4 s */
/* Calls across nodes of ranks that are threads, so that ThreadSanitizer sees all of them: a queue
 * of calls that another thread reads, kernels of two communicators on one GPU, scratch that is used
 * again too early. SEED repeats one. */
#include "across_calls.h"
#include "gpu.h"

#include "collectives/comm/join.h"
#include "tests/collectives/thread_ranks.h"
#include "tests/limit.h"
#include "tests/random.h"
#include "tests/whole.h"

#include <stdio.h>
#include <stdlib.h>

#include "tests/unit.h"

#define ROUNDS  4
#define FLIGHT  3
#define STREAMS (FLIGHT + 4) /* of a rank: two for each communicator */

static int nodes;
static bool in_turn;

/* A process is on one machine, its ranks are not. */
tutti_status __real_comm_describe(struct tutti_comm *comm, struct member *member);
tutti_status __wrap_comm_describe(struct tutti_comm *comm, struct member *member);
tutti_status __wrap_comm_describe(struct tutti_comm *comm, struct member *member)
{
	int node = in_turn ? comm->rank % nodes : comm->rank / (comm->size / nodes);

	snprintf(comm->place.host_id, sizeof comm->place.host_id, "node%d", node);
	return __real_comm_describe(comm, member);
}

struct flight {
	struct across_call call;
	CUstream stream;
	tutti_work *work;
};

static void start(struct rank *r, struct flight *f, tutti_comm *comm, uint64_t *own)
{
	tutti_call call = {.stream = f->stream};

	f->work = NULL;
	if (random_below(own, 2))
		call.work = &f->work;
	expect(r, "issue", across_issue(&f->call, comm, &call));
}

static void end(struct rank *r, struct flight *f)
{
	if (f->work)
		expect(r, "wait", tutti_work_wait(&f->work, 0));
	gpu_sync(f->stream);
	if (!r->why[0] && !across_check(&f->call))
		report_wrong(r, f->call.why, TUTTI_OK);
}

static void calls(struct rank *r)
{
	uint64_t shared = r->seed, own = r->seed * 31 + (uint64_t)r->rank;
	struct flight flight[FLIGHT];
	int in_flight = gpu_threads(r->size, STREAMS) == r->size ? FLIGHT : 1;
	int rounds = whole_or(ROUNDS, ROUNDS, 2);

	gpu_use(r->rank % gpu_count());
	if (!r->comm->device || !r->other->device)
		report_wrong(r, "no kernels", TUTTI_OK);
	for (int i = 0; i < in_flight; i++) {
		expect(r, "open", across_open(&flight[i].call, r->comm, false));
		flight[i].stream = gpu_stream();
	}
	for (int round = 0; round < rounds && !r->why[0]; round++) {
		for (int i = 0; i < in_flight; i++) {
			across_draw(&flight[i].call, &shared);
			expect(r, "on the host", across_prepare(&flight[i].call, r->comm));
		}
		for (int i = 0; i < in_flight; i++)
			start(r, &flight[i], random_below(&shared, 2) ? r->comm : r->other, &own);
		for (int i = 0; i < in_flight; i++)
			end(r, &flight[i]);
	}
	for (int i = 0; i < in_flight; i++) {
		across_close(&flight[i].call);
		gpu_stream_free(flight[i].stream);
	}
}

static void run(int ranks, int on_nodes, bool numbered_in_turn)
{
	const char *text = getenv("SEED");
	uint64_t seed = text ? strtoull(text, NULL, 10) : 11;

	nodes = on_nodes;
	in_turn = numbered_in_turn;
	print_message("%d ranks on %d nodes, seed %llu\n", ranks, nodes, (unsigned long long)seed);
	with_ranks(ranks, NULL, seed, calls);
}

static void test_by_node(void **state)
{
	run(4, 2, false);
}

static void test_in_turn(void **state)
{
	if (gpu_threads(6, STREAMS) == 6)
		run(6, 3, true);
	else
		run(4, 2, true);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_by_node),
		cmocka_unit_test(test_in_turn),
	};

	test_limit(300);
	if (!gpu_open())
		return 77;
	gpu_use(0);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
