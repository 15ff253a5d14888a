/* Random programs of ranks that are threads and share a GPU: from one seed, calls on two
 * communicators, in two streams of each rank, on buffers that lie anywhere. Each rank draws how a
 * call ends for it. SEED repeats one. */
#include "gpu.h"

#include "tests/collectives/thread_ranks.h"
#include "tests/limit.h"
#include "tests/random.h"

#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit.h"

#define STEPS  40
#define FLIGHT 5 /* steps between two looks at results */
#define MOST   5000
#define SLACK  16 /* bytes that a buffer may begin late */

enum what { ALL_REDUCE, IN_PLACE, REDUCE, GATHERV, ALL_TO_ALLV, GROUP, WHATS };
enum ending { IN_STREAM, JOINED, WAITED, CALLED, BLOCKING, ENDINGS };

/* A call: what all ranks agree on, and then this rank's part. */
struct step {
	enum what what;
	int root;
	size_t count, counts[RANKS_MAX];
	uint32_t salt;
	enum ending ending;
	int32_t *in, *out; /* pinned */
	char *send, *recv;
	atomic_bool is_called;
};

struct program {
	struct rank *r;
	struct step steps[FLIGHT];
	CUstream streams[2];
	uint64_t own;
};

static size_t room(const struct rank *r)
{
	return (size_t)r->size * MOST * sizeof(int32_t) + SLACK;
}

static int32_t value(const struct step *s, int rank, size_t i)
{
	return (int32_t)(s->salt + (uint32_t)rank * 7919u + (uint32_t)i * 31u);
}

static void draw(struct step *s, const struct rank *r, uint64_t *shared)
{
	static const size_t counts[] = {0, 1, 7, 100, 1023, 2048, MOST};

	s->what = (enum what)random_below(shared, WHATS);
	s->root = (int)random_below(shared, (uint64_t)r->size);
	s->count = counts[random_below(shared, sizeof counts / sizeof *counts)];
	s->salt = (uint32_t)random_next(shared);
	for (int i = 0; i < r->size; i++)
		s->counts[i] = random_below(shared, 3) ? random_below(shared, MOST) : 0;
}

/* Rank a has counts[a] for every other rank, and so all know what they get. */
static tutti_status all_to_allv(const struct step *s, const struct rank *r, tutti_comm *comm,
				const tutti_call *call)
{
	size_t from[RANKS_MAX], zero[RANKS_MAX] = {0};

	for (int i = 0; i < r->size; i++)
		from[i] = s->counts[r->rank];
	return tutti_all_to_allv(s->counts[r->rank] ? s->send : NULL, from, zero, s->recv,
				 s->counts, NULL, TUTTI_I32, comm, call);
}

/* A ring of messages beside a sum. */
static tutti_status group(const struct step *s, const struct rank *r, tutti_comm *comm,
			  const tutti_call *call)
{
	int next = (r->rank + 1) % r->size, before = (r->rank + r->size - 1) % r->size;
	size_t bytes = s->count * sizeof(int32_t);

	tutti_group_begin();
	tutti_send(s->send, s->count, TUTTI_I32, next, comm, NULL);
	tutti_all_reduce(s->send, s->recv + bytes, s->count, TUTTI_I32, TUTTI_SUM, comm, NULL);
	tutti_recv(s->recv, s->count, TUTTI_I32, before, comm, NULL);
	return tutti_group_end(call);
}

static tutti_status issue(const struct step *s, const struct rank *r, tutti_comm *comm,
			  const tutti_call *call)
{
	switch (s->what) {
	case ALL_REDUCE:
		return tutti_all_reduce(s->send, s->recv, s->count, TUTTI_I32, TUTTI_SUM, comm,
					call);
	case IN_PLACE:
		return tutti_all_reduce(s->recv, s->recv, s->count, TUTTI_I32, TUTTI_SUM, comm,
					call);
	case REDUCE:
		return tutti_reduce(s->send, s->recv, s->count, TUTTI_I32, TUTTI_SUM, s->root, comm,
				    call);
	case GATHERV:
		return tutti_gatherv(s->counts[r->rank] ? s->send : NULL, s->recv, s->counts, NULL,
				     TUTTI_I32, s->root, comm, call);
	case ALL_TO_ALLV:
		return all_to_allv(s, r, comm, call);
	default:
		return group(s, r, comm, call);
	}
}

static int32_t sum(const struct step *s, int size, size_t i)
{
	uint32_t all = 0;

	for (int k = 0; k < size; k++)
		all += (uint32_t)value(s, k, i);
	return (int32_t)all;
}

/* Elements that rank k's data are at the front of what comes, one rank after the other. */
static bool blocks_are_right(const struct step *s, int size)
{
	const int32_t *at = s->out;

	for (int k = 0; k < size; k++)
		for (size_t i = 0; i < s->counts[k]; i++)
			if (*at++ != value(s, k, i))
				return false;
	return true;
}

static bool sums_are_right(const struct step *s, int size, const int32_t *at)
{
	for (size_t i = 0; i < s->count; i++)
		if (at[i] != sum(s, size, i))
			return false;
	return true;
}

static bool is_right(const struct step *s, const struct rank *r)
{
	int before = (r->rank + r->size - 1) % r->size;

	if (s->what == GATHERV || s->what == ALL_TO_ALLV)
		return (s->what == GATHERV && s->root != r->rank) || blocks_are_right(s, r->size);
	if (s->what == REDUCE && s->root != r->rank)
		return true;
	for (size_t i = 0; s->what == GROUP && i < s->count; i++)
		if (s->out[i] != value(s, before, i))
			return false;
	return sums_are_right(s, r->size, s->out + (s->what == GROUP ? s->count : 0));
}

static void note_call(void *arg, tutti_status status)
{
	struct step *s = arg;

	if (status == TUTTI_OK)
		atomic_store(&s->is_called, true);
}

/* Puts what is sent in front of the call, makes it, and copies what came behind it. */
static void run(struct program *p, struct step *s, tutti_comm *comm, CUstream stream,
		CUstream other)
{
	struct rank *r = p->r;
	tutti_work *work = NULL;
	tutti_call call = {.stream = stream};

	if (s->ending == JOINED || s->ending == WAITED)
		call.work = &work;
	if (s->ending == CALLED)
		call.done = note_call, call.done_arg = s;
	gpu_copy_in(stream, s->what == IN_PLACE ? s->recv : s->send, s->in, MOST * sizeof(int32_t));
	if (s->ending == BLOCKING)
		gpu_sync(stream);
	expect(r, "a call", issue(s, r, comm, s->ending == BLOCKING ? NULL : &call));
	if (s->ending == JOINED) {
		expect(r, "wait_stream", tutti_work_wait_stream(work, other));
		tutti_work_release(&work);
	}
	expect(r, "work_wait", tutti_work_wait(&work, 0));
	while (s->ending == CALLED && !atomic_load(&s->is_called) &&
	       tutti_comm_status(comm) == TUTTI_OK)
		sched_yield();
	gpu_copy_in(s->ending == JOINED ? other : stream, s->out, s->recv, room(r) - SLACK);
}

/* Buffers that begin at any multiple of an element. */
static void open_step(struct program *p, struct step *s)
{
	s->send = (char *)gpu_alloc(room(p->r)) + 4 * random_below(&p->own, SLACK / 4);
	s->recv = (char *)gpu_alloc(room(p->r)) + 4 * random_below(&p->own, SLACK / 4);
	s->in = gpu_alloc_pinned(room(p->r));
	s->out = gpu_alloc_pinned(room(p->r));
}

static void *begin_of(char *buffer)
{
	return buffer - (uintptr_t)buffer % SLACK;
}

static void close_step(struct step *s)
{
	gpu_free(begin_of(s->send));
	gpu_free(begin_of(s->recv));
	gpu_free_pinned(s->in);
	gpu_free_pinned(s->out);
}

static void look(struct program *p, int first)
{
	char text[100];

	gpu_sync(p->streams[0]);
	gpu_sync(p->streams[1]);
	for (int i = 0; i < FLIGHT; i++) {
		const struct step *s = &p->steps[i];
		if (is_right(s, p->r))
			continue;
		snprintf(text, sizeof text, "step %d: call %d, ending %d, count %zu", first + i,
			 (int)s->what, (int)s->ending, s->count);
		report_wrong(p->r, text, TUTTI_OK);
	}
}

static void program(struct rank *r)
{
	struct program *p = calloc(1, sizeof *p);
	uint64_t shared = r->seed;

	p->r = r;
	p->own = r->seed * 31 + (uint64_t)r->rank;
	gpu_use(r->rank % gpu_count());
	for (int i = 0; i < 2; i++)
		p->streams[i] = gpu_stream();
	for (int i = 0; i < FLIGHT; i++)
		open_step(p, &p->steps[i]);
	for (int i = 0; i < STEPS && !r->why[0]; i++) {
		struct step *s = &p->steps[i % FLIGHT];
		draw(s, r, &shared);
		for (size_t k = 0; k < MOST; k++)
			s->in[k] = value(s, r->rank, k);
		atomic_store(&s->is_called, false);
		s->ending = i == 0 ? BLOCKING : (enum ending)random_below(&p->own, ENDINGS);
		uint64_t stream = random_below(&p->own, 2);
		run(p, s, random_below(&shared, 2) ? r->comm : r->other, p->streams[stream],
		    p->streams[1 - stream]);
		if (i % FLIGHT == FLIGHT - 1)
			look(p, i - FLIGHT + 1);
	}
	for (int i = 0; i < FLIGHT; i++)
		close_step(&p->steps[i]);
	gpu_stream_free(p->streams[0]);
	gpu_stream_free(p->streams[1]);
	free(p);
}

static void run_all(uint64_t seed)
{
	static const int sizes[] = {2, 3, 5};

	for (int i = 0; i < 3; i++) {
		int size = gpu_threads(sizes[i], 6);
		with_ranks(size, NULL, seed + (uint64_t)i, program);
		with_ranks(size, "tcp", seed + (uint64_t)i, program);
	}
}

static uint64_t seed(void)
{
	const char *text = getenv("SEED");

	return text ? strtoull(text, NULL, 10) : 20261126;
}

static void test_by_engine(void **state)
{
	run_all(seed());
}

static void test_on_device(void **state)
{
	gpu_use(0);
	run_all(seed());
	GPU(ctx_set_current, NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_by_engine),
		cmocka_unit_test(test_on_device),
	};

	test_limit(120);
	if (!gpu_open()) {
		puts("there is no CUDA driver, or no device");
		return 77;
	}
	return cmocka_run_group_tests(tests, NULL, NULL);
}
