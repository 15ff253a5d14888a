/* slow: 40 s */
/* no_tsan: its ranks are processes */
/* Graphs whose calls the engine replays: of several nodes, of processes that share a GPU, of GPUs
 * that do not reach each other. Replays that meet eager calls, or those of another launch; a gate
 * that is open too early or for ever shut; a failure that a stream does not survive. */
#include "graph_scene.h"

#include "gpu_ranks.h"

#include "tests/limit.h"
#include "tests/random.h"
#include "tests/whole.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/unit.h"

#define STEPS 100
#define BURST 8 /* steps that a GPU's queue holds: afterwards its driver waits, with a lock */
#define WORDS ((size_t)5000)
#define MOST  8     /* ranks */
#define LONG  30000 /* words: more than an eager message has */

/* How ranks lie on nodes, and on how many GPUs; more than one: a rank has its own. */
struct cluster {
	int ranks, nodes, gpus;
	const char *peers;
};
static const struct cluster clusters[] = {{4, 2, 8, "all"}, {6, 3, 8, "all"}, {8, 2, 8, "all"},
					  {4, 2, 1, "all"}, {2, 1, 1, "all"}, {3, 1, 1, "all"},
					  {8, 1, 1, "all"}, {3, 1, 3, "none"}};
#define CLUSTERS (int)(sizeof clusters / sizeof clusters[0])

static void join_as(struct rank *r, int rank, int which, int timeout_ms)
{
	const struct cluster *c = &clusters[which];
	int device = rank % (c->gpus < gpu_count() ? c->gpus : gpu_count());
	tutti_config config = {.device = device + 1, .timeout_ms = timeout_ms};
	char host[16];

	snprintf(host, sizeof host, "node%d", rank / (c->ranks / c->nodes));
	setenv("TUTTI_HOST_ID", host, 1);
	gpu_use(device);
	*r = (struct rank){.rank = rank, .size = c->ranks};
	gpu_rank_must(tutti_init(&r->comm, &config), "init");
}

static void join(struct rank *r, int rank, int which)
{
	join_as(r, rank, which, 0);
}

/* The rank's result. */
static int leave(struct rank *r)
{
	tutti_comm_destroy(r->comm);
	if (r->why[0])
		fprintf(stderr, "rank %d: %s\n", r->rank, r->why);
	return r->why[0] != 0;
}

static void begin_capture(CUstream stream)
{
	GPU(stream_begin_capture, stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
}

static CUgraphExec end_capture(CUstream stream)
{
	CUgraph graph;
	CUgraphExec exec;

	GPU(stream_end_capture, stream, &graph);
	GPU(graph_instantiate, &exec, graph, 0);
	GPU(graph_destroy, graph);
	return exec;
}

static int collectives(int rank, int which)
{
	struct rank r;

	join(&r, rank, which);
	graph_scene_replay(&r, 60, 20);
	graph_scene_replay(&r, 20011, 3);
	return leave(&r);
}

static tutti_status sum(const struct rank *r, const uint32_t *send, uint32_t *recv, CUstream stream)
{
	return tutti_all_reduce(send, recv, WORDS, TUTTI_U32, TUTTI_SUM, r->comm,
				&(tutti_call){.stream = stream});
}

static void fill(uint32_t *on_gpu, uint32_t first)
{
	static uint32_t words[WORDS];

	for (size_t i = 0; i < WORDS; i++)
		words[i] = first + (uint32_t)i;
	gpu_write(on_gpu, words, sizeof words);
}

static void check(struct rank *r, const uint32_t *on_gpu, uint32_t first, uint32_t factor)
{
	static uint32_t words[WORDS];
	char what[80];

	gpu_read(words, on_gpu, sizeof words);
	for (size_t i = 0; i < WORDS && !r->why[0]; i++)
		if (words[i] != first + (uint32_t)i * factor) {
			snprintf(what, sizeof what, "word %zu is %u and not %u", i, words[i],
				 first + (uint32_t)i * factor);
			report_wrong(r, what, TUTTI_OK);
		}
}

/* Steps in one stream, which the host does not wait for, but for a queue of limited length: graph
 * "there" sums x into y, graph "back" y into x and that into y, and eager calls do one or the
 * other. */
static int in_one_stream(int rank, int which)
{
	struct rank r;
	uint64_t seed = 7 + (uint64_t)which;
	int burst = gpu_is_emulated() ? long_or(STEPS, STEPS / 4, STEPS / 4, STEPS) : BURST,
	    steps = gpu_is_emulated() ? burst : 3 * BURST;

	join(&r, rank, which);
	CUstream stream = gpu_stream();
	uint32_t *x = gpu_alloc(WORDS * sizeof *x), *y = gpu_alloc(WORDS * sizeof *y);
	uint32_t size = (uint32_t)r.size, first = size * (size - 1) / 2, factor = size;
	begin_capture(stream);
	expect(&r, "there", sum(&r, x, y, stream));
	CUgraphExec there = end_capture(stream);
	begin_capture(stream);
	expect(&r, "back", sum(&r, y, x, stream));
	expect(&r, "there", sum(&r, x, y, stream));
	CUgraphExec back = end_capture(stream);
	fill(x, (uint32_t)rank);
	GPU(graph_launch, there, stream); /* all ranks have the same from here on */
	for (int step = 0; step < steps; step++) {
		unsigned kind = (unsigned)random_below(&seed, 3);
		if (kind == 0)
			GPU(graph_launch, back, stream);
		else
			expect(&r, "eager, back", sum(&r, y, x, stream));
		if (kind == 1)
			GPU(graph_launch, there, stream);
		else if (kind == 2)
			expect(&r, "eager, there", sum(&r, x, y, stream));
		first *= size * size;
		factor *= size * size;
		if (step % burst == burst - 1)
			gpu_sync(stream);
	}
	gpu_sync(stream);
	check(&r, y, first, factor);
	GPU(graph_exec_destroy, there);
	GPU(graph_exec_destroy, back);
	return leave(&r);
}

/* Each rank launches only after the one before it. Then half of them wait for their streams before
 * they come to a barrier, and half of them afterwards. */
static int one_by_one(int rank, int which)
{
	struct rank r;
	char token = 0;

	join(&r, rank, which);
	CUstream stream = gpu_stream();
	uint32_t *x = gpu_alloc(WORDS * sizeof *x), *y = gpu_alloc(WORDS * sizeof *y);
	uint32_t size = (uint32_t)r.size;
	begin_capture(stream);
	expect(&r, "captured", sum(&r, x, y, stream));
	CUgraphExec exec = end_capture(stream);
	for (int round = 0; round < 5; round++) {
		fill(x, (uint32_t)(rank + round));
		if (rank > 0)
			expect(&r, "token",
			       tutti_recv(&token, 1, TUTTI_U8, rank - 1, r.comm, NULL));
		GPU(graph_launch, exec, stream);
		if (rank + 1 < r.size)
			expect(&r, "token",
			       tutti_send(&token, 1, TUTTI_U8, rank + 1, r.comm, NULL));
		if ((rank + round) % 2)
			gpu_sync(stream);
		expect(&r, "barrier", tutti_barrier(r.comm, NULL));
		gpu_sync(stream);
		check(&r, y, size * (size - 1) / 2 + size * (uint32_t)round, size);
	}
	GPU(graph_exec_destroy, exec);
	return leave(&r);
}

/* Messages to all, of all, and of this rank to itself, as one group; then from each to the next,
 * alone. Eager ones with the same tags are under way all the time. */
struct post {
	uint32_t *send, *recv, *host;
	size_t n;
};

static uint32_t word(int from, int to, int round, size_t i)
{
	return (uint32_t)(from * 1009 + to * 131 + round) ^ (uint32_t)i;
}

static void capture_messages(struct rank *r, const struct post *p, CUstream stream)
{
	tutti_call call = {.stream = stream, .tag = 3};
	int next = (r->rank + 1) % r->size, before = (r->rank + r->size - 1) % r->size;
	size_t last = (size_t)r->size * p->n;

	expect(r, "begin", tutti_group_begin());
	for (int k = 0; k < r->size; k++) {
		size_t at = (size_t)k * p->n;
		expect(r, "send", tutti_send(p->send + at, p->n, TUTTI_U32, k, r->comm, &call));
		expect(r, "recv", tutti_recv(p->recv + at, p->n, TUTTI_U32, k, r->comm, &call));
	}
	expect(r, "end", tutti_group_end(&call));
	for (int turn = 0; turn < 2; turn++) /* so that large ones end */
		if ((r->rank == 0) == (turn == 0))
			expect(r, "send alone",
			       tutti_send(p->send, p->n, TUTTI_U32, next, r->comm, &call));
		else
			expect(r, "recv alone",
			       tutti_recv(p->recv + last, p->n, TUTTI_U32, before, r->comm, &call));
}

static void check_messages(struct rank *r, const struct post *p, int round)
{
	int before = (r->rank + r->size - 1) % r->size;
	size_t n = (size_t)(r->size + 1) * p->n;
	char what[80];

	gpu_read(p->host, p->recv, n * sizeof *p->host);
	for (size_t i = 0; i < n && !r->why[0]; i++) {
		int from = (int)(i / p->n), to = from == r->size ? 0 : r->rank;
		uint32_t want = word(from == r->size ? before : from, to, round, i % p->n);
		if (p->host[i] == want)
			continue;
		snprintf(what, sizeof what, "round %d, message of %d, word %zu", round, from,
			 i % p->n);
		report_wrong(r, what, TUTTI_OK);
	}
}

static void exchange(struct rank *r, size_t n, CUstream stream)
{
	struct post p = {.n = n};
	size_t all = (size_t)(r->size + 1) * n;
	int32_t in, out;
	int next = (r->rank + 1) % r->size, before = (r->rank + r->size - 1) % r->size;

	p.send = gpu_alloc(all * sizeof *p.send);
	p.recv = gpu_alloc(all * sizeof *p.recv);
	p.host = malloc(all * sizeof *p.host);
	begin_capture(stream);
	capture_messages(r, &p, stream);
	CUgraphExec exec = end_capture(stream);
	for (int round = 0; round < long_or(20, 8, 8, 20); round++) {
		tutti_work *works[2];
		for (size_t i = 0; i < (size_t)r->size * n; i++)
			p.host[i] = word(r->rank, (int)(i / n), round, i % n);
		gpu_write(p.send, p.host, (size_t)r->size * n * sizeof *p.host);
		out = r->rank * 100 + round;
		expect(r, "eager recv",
		       tutti_recv(&in, 1, TUTTI_I32, before, r->comm,
				  &(tutti_call){.tag = 3, .work = &works[0]}));
		GPU(graph_launch, exec, stream);
		expect(r, "eager send",
		       tutti_send(&out, 1, TUTTI_I32, next, r->comm,
				  &(tutti_call){.tag = 3, .work = &works[1]}));
		for (int i = 0; i < 2; i++)
			expect(r, "wait", tutti_work_wait(&works[i], 0));
		if (in != before * 100 + round)
			report_wrong(r, "an eager message", TUTTI_OK);
		gpu_sync(stream);
		check_messages(r, &p, round);
	}
	GPU(graph_exec_destroy, exec);
	free(p.host);
}

static int messages(int rank, int which)
{
	struct rank r;

	join(&r, rank, which);
	exchange(&r, 10, gpu_stream());
	exchange(&r, LONG, gpu_stream());
	return leave(&r);
}

/* Graphs that rank 1 has otherwise: another count, another order, another message. */
enum { OTHER_COUNT, OTHER_ORDER, OTHER_MESSAGE, DIFFERENCES };

/* Ranks that compare their calls before this one has captured all of its own have failed by then.
 */
static void expect_captured(struct rank *r, const char *what, tutti_status status)
{
	if (status != TUTTI_ERR_MISMATCH)
		expect(r, what, status);
}

static void capture_different(struct rank *r, int how, uint32_t *x, uint32_t *y, CUstream stream)
{
	tutti_call call = {.stream = stream};
	bool differs = r->rank == 1;
	size_t n = how == OTHER_COUNT && differs ? 64 : 128;

	if (how == OTHER_MESSAGE) {
		if (r->rank == 0)
			expect_captured(r, "send", tutti_send(x, 5, TUTTI_U32, 1, r->comm, &call));
		if (r->rank == 1)
			expect_captured(r, "recv", tutti_recv(x, 6, TUTTI_U32, 0, r->comm, &call));
		return;
	}
	expect_captured(r, "all_reduce",
			tutti_all_reduce(x, y, n, TUTTI_U32, TUTTI_SUM, r->comm, &call));
}

static int different(int rank, int how)
{
	struct rank r;
	CUgraphExec exec[2];

	join_as(&r, rank, 0, 20000);
	CUstream stream = gpu_stream();
	uint32_t *x = gpu_alloc(WORDS * sizeof *x), *y = gpu_alloc(WORDS * sizeof *y);
	for (int i = 0; i < 2; i++) {
		begin_capture(stream);
		capture_different(&r, how, i ? y : x, i ? x : y, stream);
		exec[i] = end_capture(stream);
	}
	for (int i = 0; i < 2; i++)
		GPU(graph_launch, exec[how == OTHER_ORDER && rank == 1 ? 1 - i : i], stream);
	gpu_sync(stream);
	int result = !gpu_ranks_fail(r.comm, TUTTI_ERR_MISMATCH, "ank");
	GPU(graph_launch, exec[0],
	    stream); /* of a communicator that has failed: it is over at once */
	gpu_sync(stream);
	tutti_comm_destroy(r.comm);
	GPU(graph_launch, exec[0], stream);
	gpu_sync(stream);
	for (int i = 0; i < 2; i++)
		GPU(graph_exec_destroy, exec[i]);
	if (r.why[0])
		fprintf(stderr, "rank %d: %s\n", r.rank, r.why);
	return result || r.why[0];
}

/* Two launches of one graph at once, on rank 0: neither has a call of its own. */
static int overlapping(int rank, int which)
{
	struct rank r;
	CUgraph graph;
	CUgraphExec exec[2];

	join(&r, rank, which);
	CUstream streams[2] = {gpu_stream(), gpu_stream()};
	uint32_t *x = gpu_alloc(WORDS * sizeof *x), *y = gpu_alloc(WORDS * sizeof *y);
	begin_capture(streams[0]);
	expect(&r, "captured", sum(&r, x, y, streams[0]));
	GPU(stream_end_capture, streams[0], &graph);
	/* A rank that captures later would be refused. Rank 0 may fail before the others return. */
	(void)tutti_barrier(r.comm, NULL);
	for (int i = 0; i < 2; i++) {
		GPU(graph_instantiate, &exec[i], graph, 0);
		if (rank == 0)
			GPU(graph_launch, exec[i], streams[i]);
	}
	int result = !gpu_ranks_fail(r.comm, rank == 0 ? TUTTI_ERR_INVALID : TUTTI_ERR_PEER,
				     "launched again");
	for (int i = 0; i < 2; i++) {
		gpu_sync(streams[i]);
		GPU(graph_exec_destroy, exec[i]);
	}
	GPU(graph_destroy, graph);
	return leave(&r) || result;
}

/* What a capture refuses, which leaves the communicator as it was; and how much there may be. */
static int refused(int rank, int which)
{
	struct rank r;
	tutti_status status = TUTTI_OK;
	CUgraph graph;
	int calls = 0;

	join(&r, rank, which);
	CUstream stream = gpu_stream();
	uint32_t *x = gpu_alloc(WORDS * sizeof *x), *y = gpu_alloc(WORDS * sizeof *y);
	begin_capture(stream);
	if (tutti_recv(x, 1, TUTTI_U32, TUTTI_ANY, r.comm, &(tutti_call){.stream = stream}) !=
	    TUTTI_ERR_INVALID)
		report_wrong(&r, "a captured recv from any rank", TUTTI_OK);
	expect(&r, "begin", tutti_group_begin());
	for (int i = 0; i < 129; i++)
		expect(&r, "send", tutti_send(x, 1, TUTTI_U32, 0, r.comm, NULL));
	if (tutti_group_end(&(tutti_call){.stream = stream}) != TUTTI_ERR_INVALID ||
	    !strstr(tutti_comm_error(NULL), "128 are the most"))
		report_wrong(&r, "too many messages at once", TUTTI_OK);
	GPU(stream_end_capture, stream, &graph);
	GPU(graph_destroy, graph);
	while (status == TUTTI_OK) {
		begin_capture(stream);
		for (int i = 0; i < 256 && status == TUTTI_OK; i++) {
			tutti_work *work = NULL;
			status = tutti_all_reduce(x, y, 1, TUTTI_U32, TUTTI_SUM, r.comm,
						  &(tutti_call){.stream = stream, .work = &work});
			calls += status == TUTTI_OK;
			if (status == TUTTI_OK && (!work || tutti_work_wait(&work, 1) != TUTTI_OK))
				report_wrong(&r, "a captured call's handle is over", TUTTI_OK);
		}
		GPU(stream_end_capture, stream, &graph);
		GPU(graph_destroy, graph);
	}
	if (status != TUTTI_ERR_INVALID || calls != 16384 ||
	    !strstr(tutti_comm_error(NULL), "has captured 16384 calls"))
		report_wrong(&r, "the most calls", status);
	expect(&r, "an eager call", sum(&r, x, y, stream));
	gpu_sync(stream);
	return leave(&r);
}

static void make_gpus(int which)
{
	char gpus[8];

	snprintf(gpus, sizeof gpus, "%d", clusters[which].gpus);
	setenv("FAKE_CUDA_DEVICES", gpus, 1);
	setenv("FAKE_CUDA_PEERS", clusters[which].peers, 1);
}

static void run_on(int which, int (*body)(int rank, int which))
{
	make_gpus(which);
	gpu_ranks_run(clusters[which].ranks, body, which, 0);
}

static void run_everywhere(int (*body)(int rank, int which))
{
	for (int i = 0; i < CLUSTERS; i++)
		run_on(i, body);
}

static void test_collectives(void **state)
{
	run_everywhere(collectives);
}

static void test_in_one_stream(void **state)
{
	print_message("seeds from 7 on\n");
	run_everywhere(in_one_stream);
}

static void test_one_by_one(void **state)
{
	run_everywhere(one_by_one);
}

static void test_messages(void **state)
{
	run_everywhere(messages);
}

static void test_different(void **state)
{
	make_gpus(0);
	for (int how = 0; how < DIFFERENCES; how++)
		gpu_ranks_run(clusters[0].ranks, different, how, 0);
}

static void test_overlapping(void **state)
{
	run_on(0, overlapping);
}

static void test_refused(void **state)
{
	run_on(4, refused);
}

/* argument: the one test to run, by its name */
int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_collectives), cmocka_unit_test(test_in_one_stream),
		cmocka_unit_test(test_one_by_one),  cmocka_unit_test(test_messages),
		cmocka_unit_test(test_different),   cmocka_unit_test(test_overlapping),
		cmocka_unit_test(test_refused),
	};

	test_limit(300);
	if (argc > 1)
		cmocka_set_test_filter(argv[1]);
	gpu_ranks_together();
	int failed = cmocka_run_group_tests(tests, NULL, NULL);
	gpu_ranks_apart();
	return failed;
}
