/* Every collective in one graph, replayed with other contents. */
#include "graph_scene.h"

#include "gpu.h"

#include <stdio.h>
#include <string.h>

static void note_wrong(struct rank *r, const char *what, tutti_status status)
{
	if (!r->why[0])
		snprintf(r->why, sizeof r->why, "%s: %s: %.150s", what, tutti_status_string(status),
			 tutti_comm_error(NULL));
}

static void expect_ok(struct rank *r, const char *what, tutti_status status)
{
	if (status != TUTTI_OK)
		note_wrong(r, what, status);
}

enum kind {
	ALL_REDUCE,
	REDUCE,
	BROADCAST,
	ALL_GATHER,
	ALL_GATHERV,
	REDUCE_SCATTER,
	REDUCE_SCATTERV,
	GATHER,
	GATHERV,
	SCATTER,
	SCATTERV,
	ALL_TO_ALL,
	ALL_TO_ALLV,
	KINDS
};

struct scene {
	size_t n, words; /* of a block, and of a buffer: a block for each rank of each kind */
	uint32_t *host, *send, *recv;
	size_t counts[RANKS_MAX], offsets[RANKS_MAX], pairs[RANKS_MAX];
	CUstream stream;
};

/* Word i of block `to` that rank `from` has for a call. */
static uint32_t word(int from, int to, enum kind kind, int round, size_t i)
{
	return (uint32_t)(from * 1000003 + to * 10007 + (int)kind * 331 + round * 17) ^ (uint32_t)i;
}

static int root_of(const struct rank *r, enum kind kind)
{
	return (int)kind % r->size;
}

static size_t at(const struct rank *r, const struct scene *s, enum kind kind, int block)
{
	return ((size_t)kind * (size_t)r->size + (size_t)block) * s->n;
}

static void open_scene(struct scene *s, const struct rank *r, size_t n)
{
	s->n = n;
	s->words = (size_t)KINDS * (size_t)r->size * n;
	s->host = gpu_alloc_pinned(s->words * sizeof *s->host);
	s->send = gpu_alloc(s->words * sizeof *s->send);
	s->recv = gpu_alloc(s->words * sizeof *s->recv);
	s->stream = gpu_stream();
	for (int k = 0; k < r->size; k++) {
		s->counts[k] = k % 2 ? n - (size_t)k : 0;
		s->pairs[k] = (r->rank + k) % 2 ? n : 0;
		s->offsets[k] = (size_t)k * n;
	}
}

static void close_scene(struct scene *s)
{
	gpu_stream_free(s->stream);
	gpu_free_pinned(s->host);
	gpu_free(s->send);
	gpu_free(s->recv);
}

static tutti_status issue(const struct rank *r, const struct scene *s, enum kind kind,
			  const tutti_call *call)
{
	const uint32_t *send = s->send + at(r, s, kind, 0);
	uint32_t *recv = s->recv + at(r, s, kind, 0);
	const size_t *counts = s->counts, *offsets = s->offsets;
	int root = root_of(r, kind);
	bool has_none = counts[r->rank] == 0 && r->rank != root;
	tutti_comm *comm = r->comm;

	switch (kind) {
	case ALL_REDUCE:
		return tutti_all_reduce(send, recv, s->n, TUTTI_U32, TUTTI_SUM, comm, call);
	case REDUCE:
		return tutti_reduce(send, recv, s->n, TUTTI_U32, TUTTI_SUM, root, comm, call);
	case BROADCAST:
		return tutti_broadcast(send, recv, s->n, TUTTI_U32, root, comm, call);
	case ALL_GATHER:
		return tutti_all_gather(send, recv, s->n, TUTTI_U32, comm, call);
	case ALL_GATHERV:
		return tutti_all_gatherv(send, recv, counts, offsets, TUTTI_U32, comm, call);
	case REDUCE_SCATTER:
		return tutti_reduce_scatter(send, recv, s->n, TUTTI_U32, TUTTI_SUM, comm, call);
	case REDUCE_SCATTERV:
		return tutti_reduce_scatterv(send, recv, counts, offsets, TUTTI_U32, TUTTI_SUM,
					     comm, call);
	case GATHER:
		return tutti_gather(send, recv, s->n, TUTTI_U32, root, comm, call);
	case GATHERV:
		return tutti_gatherv(has_none ? NULL : send, recv, counts, offsets, TUTTI_U32, root,
				     comm, call);
	case SCATTER:
		return tutti_scatter(send, recv, s->n, TUTTI_U32, root, comm, call);
	case SCATTERV:
		return tutti_scatterv(send, has_none ? NULL : recv, counts, offsets, TUTTI_U32,
				      root, comm, call);
	case ALL_TO_ALL:
		return tutti_all_to_all(send, recv, s->n, TUTTI_U32, comm, call);
	case ALL_TO_ALLV:
		return tutti_all_to_allv(send, s->pairs, offsets, recv, s->pairs, offsets,
					 TUTTI_U32, comm, call);
	case KINDS:
		break;
	}
	return TUTTI_ERR_INTERNAL;
}

static void issue_all(struct rank *r, const struct scene *s)
{
	tutti_call call = {.stream = s->stream};

	for (int kind = 0; kind < KINDS; kind++) {
		expect_ok(r, "a captured collective", issue(r, s, (enum kind)kind, &call));
		if (kind % 5 == 0)
			expect_ok(r, "a captured barrier", tutti_barrier(r->comm, &call));
	}
	expect_ok(r, "a captured call without elements",
		  tutti_all_reduce(NULL, NULL, 0, TUTTI_U32, TUTTI_SUM, r->comm, &call));
}

static void fill(const struct rank *r, const struct scene *s, int round)
{
	for (int kind = 0; kind < KINDS; kind++)
		for (int to = 0; to < r->size; to++)
			for (size_t i = 0; i < s->n; i++)
				s->host[at(r, s, (enum kind)kind, to) + i] =
					word(r->rank, to, (enum kind)kind, round, i);
	gpu_copy_in(s->stream, s->send, s->host, s->words * sizeof *s->host);
	gpu_sync(s->stream);
	memset(s->host, 0x5a, s->words * sizeof *s->host);
	gpu_copy_in(s->stream, s->recv, s->host, s->words * sizeof *s->host);
	gpu_sync(s->stream);
}

/* How many words of block b of recv a call writes. */
static size_t length(const struct rank *r, const struct scene *s, enum kind kind, int b)
{
	bool is_root = r->rank == root_of(r, kind);

	switch (kind) {
	case ALL_GATHER:
	case ALL_TO_ALL:
		return s->n;
	case ALL_GATHERV:
		return s->counts[b];
	case ALL_TO_ALLV:
		return s->pairs[b];
	case GATHER:
		return is_root ? s->n : 0;
	case GATHERV:
		return is_root ? s->counts[b] : 0;
	case REDUCE:
		return is_root && b == 0 ? s->n : 0;
	case REDUCE_SCATTERV:
	case SCATTERV:
		return b == 0 ? s->counts[r->rank] : 0;
	default:
		return b == 0 ? s->n : 0;
	}
}

static uint32_t expected(const struct rank *r, enum kind kind, int b, int round, size_t i)
{
	bool is_scattered = kind == REDUCE_SCATTER || kind == REDUCE_SCATTERV;
	uint32_t sum = 0;

	switch (kind) {
	case ALL_REDUCE:
	case REDUCE:
	case REDUCE_SCATTER:
	case REDUCE_SCATTERV:
		for (int from = 0; from < r->size; from++)
			sum += word(from, is_scattered ? r->rank : 0, kind, round, i);
		return sum;
	case BROADCAST:
		return word(root_of(r, kind), 0, kind, round, i);
	case SCATTER:
	case SCATTERV:
		return word(root_of(r, kind), r->rank, kind, round, i);
	case ALL_TO_ALL:
	case ALL_TO_ALLV:
		return word(b, r->rank, kind, round, i);
	default:
		return word(b, 0, kind, round, i);
	}
}

static void check(struct rank *r, const struct scene *s, int round)
{
	char what[100];

	gpu_copy_in(s->stream, s->host, s->recv, s->words * sizeof *s->host);
	gpu_sync(s->stream);
	for (int kind = 0; kind < KINDS; kind++)
		for (int b = 0; b < r->size; b++)
			for (size_t i = 0; i < s->n; i++) {
				bool is_written = i < length(r, s, (enum kind)kind, b);
				uint32_t want = is_written
							? expected(r, (enum kind)kind, b, round, i)
							: 0x5a5a5a5a;
				if (s->host[at(r, s, (enum kind)kind, b) + i] == want)
					continue;
				snprintf(what, sizeof what, "call %d, round %d, block %d, word %zu",
					 kind, round, b, i);
				note_wrong(r, what, TUTTI_OK);
				return;
			}
}

void graph_scene_replay(struct rank *r, size_t n, int rounds)
{
	CUgraph graph;
	CUgraphExec exec;
	struct scene s;

	open_scene(&s, r, n);
	GPU(stream_begin_capture, s.stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
	issue_all(r, &s);
	GPU(stream_end_capture, s.stream, &graph);
	GPU(graph_instantiate, &exec, graph, 0);
	for (int round = 0; round < rounds; round++) {
		fill(r, &s, round);
		expect_ok(r, "barrier", tutti_barrier(r->comm, NULL));
		GPU(graph_launch, exec, s.stream);
		gpu_sync(s.stream);
		check(r, &s, round);
	}
	GPU(graph_exec_destroy, exec);
	GPU(graph_destroy, graph);
	close_scene(&s);
}
