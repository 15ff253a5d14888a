/* slow: 20 s */
/* Sums by the switch (NVLS): a result that differs from that of the kernels without it, a multicast
 * object that is used where the ranks' buffers lie apart, or before all ranks have it, one that is
 * never given back, or never used. */
#include "gpu_ranks.h"

#include "tests/limit.h"
#include "tests/random.h"
#include "tests/whole.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit.h"

#define BYTES ((size_t)512 << 10) /* of a block, in which buffers lie anywhere */
#define CALLS 14
#define MOST  8

/* A rank's own state; ranks may be threads. */
struct world {
	tutti_comm *comm;
	int rank, size;
	uint64_t shared; /* the same on all ranks */
	char *blocks[2], *plain[2];
	char *host, *by_lines, *by_switch;
	bool are_threads;
};

static void say(const struct world *w, const char *what, int call)
{
	fprintf(stderr, "rank %d of %d, call %d: %s\n", w->rank, w->size, call, what);
	exit(1);
}

static unsigned ask_driver(const char *name)
{
	unsigned answer;

	gpu_ask_emulated(name, &answer);
	return answer;
}

/* One call, as all ranks know it. */
struct sum {
	tutti_dtype dtype;
	tutti_op op;
	size_t element, count;
	size_t send_at, recv_at; /* elements into a block */
	bool in_place, is_apart; /* is_apart: rank 1's send buffer lies elsewhere */
};

static struct sum draw(uint64_t *seed, int size)
{
	static const tutti_dtype dtypes[] = {TUTTI_F32, TUTTI_F16, TUTTI_BF16, TUTTI_I32};
	struct sum s = {.dtype = dtypes[random_below(seed, 16) % 5 % 4]};
	size_t most;

	s.element = s.dtype == TUTTI_F32 || s.dtype == TUTTI_I32 ? 4 : 2;
	s.op = random_below(seed, 8) == 0 ? TUTTI_MAX
	       : random_below(seed, 3)    ? TUTTI_SUM
					  : TUTTI_AVG;
	/* More than packets take. */
	s.count = (263000 + random_below(seed, 50000)) / s.element; /* too long for packets */
	most = BYTES / s.element - s.count;
	s.send_at = random_below(seed, most - 64);
	s.recv_at = random_below(seed, 2) ? random_below(seed, most)
					  : s.send_at + 16 / s.element * random_below(seed, 3);
	s.in_place = random_below(seed, 3) == 0;
	s.is_apart = random_below(seed, 6) == 0 && size > 1;
	if (s.in_place)
		s.recv_at = s.send_at;
	/* Divided after the switch has rounded the sum: the kernels round once. */
	if (s.op == TUTTI_AVG && s.dtype == TUTTI_BF16 && (size & (size - 1)) != 0)
		s.op = TUTTI_SUM;
	return s;
}

/* Whether vectors of 16 bytes of the two lie alike, and the switch can do this sum. */
static bool goes_by_switch(const struct sum *s)
{
	if (s->dtype == TUTTI_I32 || s->op == TUTTI_MAX || s->is_apart ||
	    (s->dtype == TUTTI_F16 && s->op == TUTTI_AVG))
		return false;
	return (s->send_at * s->element) % 16 == (s->recv_at * s->element) % 16;
}

/* Numbers of many sizes, so that another order of the sum has other bits. */
static void fill(const struct world *w, const struct sum *s, int call)
{
	uint64_t seed = (uint64_t)w->rank * 1000003 + (uint64_t)call + 1;

	for (size_t i = 0; i < s->count; i++) {
		uint64_t bits = random_next(&seed);
		uint32_t word = (uint32_t)(bits & 0x807fffff) | (uint32_t)(120 + (bits >> 40) % 12)
									<< 23;
		uint16_t half = (uint16_t)((bits & 0x83ff) | (10 + (bits >> 40) % 10) << 10);
		if (s->dtype == TUTTI_BF16)
			half = (uint16_t)(word >> 16);
		memcpy(w->host + i * s->element, s->element == 4 ? (void *)&word : (void *)&half,
		       s->element);
	}
}

static void reduce_plain(const struct world *w, const struct sum *s)
{
	gpu_write(w->plain[0], w->host, s->count * s->element);
	gpu_rank_must(tutti_all_reduce(w->plain[0], w->plain[1], s->count, s->dtype, s->op, w->comm,
				       NULL),
		      "all_reduce by lines");
	gpu_read(w->by_lines, w->plain[1], s->count * s->element);
}

static char *send_of(const struct world *w, const struct sum *s)
{
	size_t at = s->send_at + (s->is_apart && w->rank == 1 ? 64 / s->element : 0);

	return w->blocks[0] + at * s->element;
}

static char *recv_of(const struct world *w, const struct sum *s)
{
	return s->in_place ? send_of(w, s) : w->blocks[1] + s->recv_at * s->element;
}

static void compare(const struct world *w, const struct sum *s, int call)
{
	gpu_read(w->by_switch, recv_of(w, s), s->count * s->element);
	if (memcmp(w->by_switch, w->by_lines, s->count * s->element) != 0)
		say(w, "other bits than those of the kernels without a switch", call);
}

/* Between barriers, so that the counts of threads are of this call alone. */
static void one_call(struct world *w, const struct sum *s, int call, bool has_switch)
{
	fill(w, s, call);
	reduce_plain(w, s);
	gpu_write(send_of(w, s), w->host, s->count * s->element);
	gpu_rank_must(tutti_barrier(w->comm, NULL), "barrier");
	unsigned before = ask_driver("fake_cuda_sums");
	gpu_rank_must(tutti_barrier(w->comm, NULL), "barrier");
	gpu_rank_must(tutti_all_reduce(send_of(w, s), recv_of(w, s), s->count, s->dtype, s->op,
				       w->comm, NULL),
		      "all_reduce");
	gpu_rank_must(tutti_barrier(w->comm, NULL), "barrier");
	unsigned sums = ask_driver("fake_cuda_sums") - before;
	compare(w, s, call);
	if ((sums > 0) != (has_switch && goes_by_switch(s)))
		say(w, sums ? "by a switch" : "not by a switch", call);
	/* All but the ends of each part of a rank's slice. */
	if (sums && !w->are_threads && sums < s->count * s->element / 16 / (size_t)w->size / 2)
		say(w, "little by the switch", call);
}

static void open_buffers(struct world *w)
{
	for (int b = 0; b < 2; b++) {
		void *block;
		gpu_rank_must(tutti_mem_alloc(&block, BYTES, w->comm), "mem_alloc");
		w->blocks[b] = block;
		w->plain[b] = gpu_alloc(BYTES);
	}
	w->host = malloc(BYTES);
	w->by_lines = malloc(BYTES);
	w->by_switch = malloc(BYTES);
}

static void close_buffers(struct world *w)
{
	for (int b = 0; b < 2; b++) {
		gpu_rank_must(tutti_mem_free(w->blocks[(b + w->rank) % 2]), "mem_free");
		gpu_free(w->plain[b]);
	}
	free(w->host);
	free(w->by_lines);
	free(w->by_switch);
}

/* Rounds that have multicast memory. */
enum { NONE, SECOND, ALL };

/* Two rounds: numbers of regions come again, in another order on each rank. */
static void all_calls(struct world *w, int which)
{
	for (int round = 0; round < 2; round++) {
		open_buffers(w);
		for (int call = 0; call < long_or(CALLS, 8, 8, 6); call++) {
			struct sum s = draw(&w->shared, w->size);
			one_call(w, &s, call, which == ALL || (which == SECOND && round == 1));
		}
		close_buffers(w);
	}
}

static struct world open_world(tutti_comm *comm)
{
	return (struct world){
		.comm = comm, .rank = tutti_rank(comm), .size = tutti_size(comm), .shared = 11};
}

static tutti_comm *open_comm(int rank, int is_deterministic)
{
	tutti_config config = {.device = rank + 1, .deterministic = is_deterministic};
	tutti_comm *comm;

	gpu_rank_must(tutti_init(&comm, &config), "init");
	return comm;
}

static void run_calls(tutti_comm *comm, int which)
{
	struct world w = open_world(comm);
	unsigned before = ask_driver("fake_cuda_pieces");

	all_calls(&w, which);
	gpu_rank_must(tutti_barrier(comm, NULL), "barrier");
	tutti_comm_destroy(comm);
	if (ask_driver("fake_cuda_pieces") != before)
		say(&w, "memory, or a multicast object, was not given back", -1);
}

static int calls(int rank, int which)
{
	run_calls(open_comm(rank, 0), which);
	return 0;
}

static int deterministic(int rank, int which)
{
	run_calls(open_comm(rank, 1), which);
	return 0;
}

static void *thread(void *arg)
{
	tutti_comm *comm = arg;
	struct world w = open_world(comm);

	gpu_use(w.rank);
	w.are_threads = true;
	all_calls(&w, ALL);
	gpu_rank_must(tutti_barrier(comm, NULL), "barrier");
	tutti_comm_destroy(comm);
	return NULL;
}

/* Of one process, with a GPU each. */
static int threads(int unused, int n)
{
	tutti_config config = {.device = 1};
	tutti_comm *comms[MOST];
	pthread_t ranks[MOST];

	(void)unused;
	gpu_rank_must(tutti_init_all(comms, n, &config), "init_all");
	unsigned before = ask_driver("fake_cuda_pieces");
	for (int r = 0; r < n; r++)
		pthread_create(&ranks[r], NULL, thread, comms[r]);
	for (int r = 0; r < n; r++)
		pthread_join(ranks[r], NULL);
	return ask_driver("fake_cuda_pieces") == before ? 0 : 1;
}

/* A graph of a sum by the switch, and one in place, with other numbers in each replay. */
static int replays(int rank, int unused)
{
	struct world w = open_world(open_comm(rank, 0));
	struct sum s = {TUTTI_F32, TUTTI_SUM, 4, 20001, 5, 9, false, false};
	tutti_call call = {.stream = NULL};
	CUgraphExec exec;
	CUgraph graph;
	CUstream stream;

	(void)unused;
	open_buffers(&w);
	call.stream = stream = gpu_stream();
	GPU(stream_begin_capture, stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
	gpu_rank_must(tutti_all_reduce(send_of(&w, &s), recv_of(&w, &s), s.count, s.dtype, s.op,
				       w.comm, &call),
		      "all_reduce");
	GPU(stream_end_capture, stream, &graph);
	GPU(graph_instantiate, &exec, graph, 0);
	for (int round = 0; round < 4; round++) {
		fill(&w, &s, round);
		reduce_plain(&w, &s);
		gpu_write(send_of(&w, &s), w.host, s.count * s.element);
		unsigned before = ask_driver("fake_cuda_sums");
		GPU(graph_launch, exec, stream);
		gpu_sync(stream);
		compare(&w, &s, round);
		if (ask_driver("fake_cuda_sums") == before)
			say(&w, "a replay was not by the switch", round);
	}
	gpu_rank_must(tutti_barrier(w.comm, NULL), "barrier");
	GPU(graph_exec_destroy, exec);
	GPU(graph_destroy, graph);
	gpu_stream_free(stream);
	close_buffers(&w);
	tutti_comm_destroy(w.comm);
	return 0;
}

/* Rank 0 does not come to a sum. Until the others' kernels have surely ended, its memory stays
 * where they reach it: nothing is given back by freeing it. */
static int fails(int rank, int unused)
{
	struct world w = open_world(open_comm(rank, 0));
	struct sum s = {TUTTI_F32, TUTTI_SUM, 4, 20000, 0, 0, false, false};
	tutti_call call = {.timeout_ms = 300};

	(void)unused;
	open_buffers(&w);
	call.stream = gpu_stream();
	if (rank > 0) {
		gpu_rank_must(tutti_all_reduce(send_of(&w, &s), recv_of(&w, &s), s.count, s.dtype,
					       s.op, w.comm, &call),
			      "all_reduce");
		gpu_sync(call.stream);
	}
	while (tutti_barrier(w.comm, NULL) == TUTTI_OK)
		;
	gpu_stream_free(call.stream);
	unsigned before = ask_driver("fake_cuda_pieces");
	close_buffers(&w);
	if (ask_driver("fake_cuda_pieces") != before)
		say(&w, "memory was given back that others may still use", -1);
	tutti_comm_destroy(w.comm);
	return 0;
}

static void set(const char *name, const char *value)
{
	if (value)
		setenv(name, value, 1);
	else
		unsetenv(name);
}

static void test_processes(void **state)
{
	for (int n = 3; n <= MOST; n += n == 3 ? 2 : 3)
		gpu_ranks_run(n, calls, ALL, 0);
}

static void test_threads(void **state)
{
	gpu_ranks_run(1, threads, 3, 0);
	gpu_ranks_run(1, threads, 5, 0);
}

static void test_replays(void **state)
{
	gpu_ranks_run(3, replays, 0, 0);
}

static void test_fabric(void **state)
{
	set("FAKE_CUDA_FABRIC", "1");
	gpu_ranks_run(4, calls, ALL, 0);
	set("FAKE_CUDA_FDS", "0");
	gpu_ranks_run(3, calls, ALL, 0);
	set("FAKE_CUDA_FDS", NULL);
	set("FAKE_CUDA_FABRIC", NULL);
}

/* Each rank's n-th call for it fails: rank 0 creates, all add, all bind. So rank 0 fails with the
 * first block, and the others with the second. */
static void test_without(void **state)
{
	static const char *const faults[] = {"0:multicast=1", "0:multicast=2", "0:multicast=3"};

	gpu_ranks_run(2, calls, NONE, 0); /* too few */
	gpu_ranks_run(3, deterministic, NONE, 0);
	set("FAKE_CUDA_MULTICAST", "0");
	gpu_ranks_run(3, calls, NONE, 0);
	set("FAKE_CUDA_MULTICAST", "1");
	for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
		set("FAKE_CUDA_FAULTS", faults[i]);
		gpu_ranks_run(3, calls, SECOND, 0);
	}
	set("FAKE_CUDA_FAULTS", NULL);
}

static void test_failure(void **state)
{
	gpu_ranks_run(3, fails, 0, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_processes), cmocka_unit_test(test_threads),
		cmocka_unit_test(test_replays),   cmocka_unit_test(test_fabric),
		cmocka_unit_test(test_without),   cmocka_unit_test(test_failure),
	};

	test_limit(300);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
