/* Would break: blocks that are taken for messages or collectives of the caller's, in random
 * programs of all of them. */
#include "tests/collectives/thread_ranks.h"
#include "tests/random.h"

#include <tutti/parallel.h>

#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tests/unit.h"

enum { STEPS = 40, COUNT_MAX = 40000, IN_FLIGHT = 4 };

/* A call of the caller's that is in flight. */
struct flight {
	tutti_work *works[2];
	int64_t *send, *recv;
	size_t count;
	int64_t wanted; /* of every element of recv, and its index */
	int step;
};

struct program {
	struct rank *r;
	uint64_t state; /* the same on all ranks */
	int step;
	size_t count;
	struct flight flights[IN_FLIGHT];
};

static int64_t value_of(int step, int rank)
{
	return (int64_t)step * 1000 + rank;
}

static void land(struct program *p, struct flight *f)
{
	for (int i = 0; i < 2; i++)
		if (f->works[i])
			expect(p->r, "a call of the caller's", tutti_work_wait(&f->works[i], 0));
	for (size_t i = 0; f->recv && i < f->count; i++)
		if (f->recv[i] != f->wanted) {
			report_wrong(p->r, "what a call of the caller's has received", TUTTI_OK);
			break;
		}
	free(f->send);
	free(f->recv);
	*f = (struct flight){0};
}

static struct flight *take_off(struct program *p, size_t count, int64_t send, int64_t wanted)
{
	struct flight *f = &p->flights[p->step % IN_FLIGHT];

	land(p, f);
	*f = (struct flight){.send = malloc((count + 1) * sizeof(int64_t)),
			     .recv = malloc((count + 1) * sizeof(int64_t)),
			     .count = count,
			     .wanted = wanted,
			     .step = p->step};
	for (size_t i = 0; i < count; i++)
		f->send[i] = send;
	return f;
}

/* To the next rank, with any tag, those included that look like someone's own. */
static void send_and_recv(struct program *p, size_t count)
{
	static const int tags[] = {0, 1, 2, 7, 0x70327032, INT_MAX - 2, INT_MAX - 1, INT_MAX};
	int size = p->r->size, from = (p->r->rank + size - 1) % size, to = (p->r->rank + 1) % size;
	int tag = tags[random_below(&p->state, sizeof tags / sizeof *tags)];
	bool is_any = random_below(&p->state, 2) != 0;
	struct flight *f =
		take_off(p, count, value_of(p->step, p->r->rank), value_of(p->step, from));
	tutti_call call = {.work = &f->works[0], .tag = tag};

	if (is_any && size > 2)
		is_any = false; /* another rank's message of the same tag would be as good */
	expect(p->r, "recv",
	       tutti_recv(f->recv, count, TUTTI_I64, is_any ? TUTTI_ANY : from, p->r->comm, &call));
	call.work = &f->works[1];
	expect(p->r, "send", tutti_send(f->send, count, TUTTI_I64, to, p->r->comm, &call));
}

static void all_reduce(struct program *p, size_t count)
{
	int64_t size = p->r->size, sum = size * p->step * 1000 + size * (size - 1) / 2;
	struct flight *f = take_off(p, count, value_of(p->step, p->r->rank), sum);
	const tutti_call call = {.work = &f->works[0]};

	expect(p->r, "all_reduce",
	       tutti_all_reduce(f->send, f->recv, count, TUTTI_I64, TUTTI_SUM, p->r->comm, &call));
}

static void broadcast(struct program *p, size_t count)
{
	int root = (int)random_below(&p->state, (uint64_t)p->r->size);
	struct flight *f =
		take_off(p, count, value_of(p->step, p->r->rank), value_of(p->step, root));
	const tutti_call call = {.work = &f->works[0]};

	expect(p->r, "broadcast",
	       tutti_broadcast(f->send, f->recv, count, TUTTI_I64, root, p->r->comm, &call));
}

static tutti_status read_block(void *arg, int rank, void *data, size_t count)
{
	struct program *p = arg;
	const int64_t *values = data;

	for (size_t i = 0; i < count; i++)
		if (values[i] != value_of(p->step, rank)) {
			report_wrong(p->r, "a value of a block", TUTTI_OK);
			break;
		}
	return TUTTI_OK;
}

static tutti_status write_block(void *arg, int rank, void *data, size_t count)
{
	struct program *p = arg;

	for (size_t i = 0; i < count; i++)
		((int64_t *)data)[i] = value_of(p->step, p->r->rank) + rank;
	return TUTTI_OK;
}

static void gather_each(struct program *p, size_t count)
{
	int64_t *send = malloc((count + 1) * sizeof *send);

	for (size_t i = 0; i < count; i++)
		send[i] = value_of(p->step, p->r->rank);
	expect(p->r, "all_gather_each",
	       tutti_all_gather_each(send, count, TUTTI_I64, read_block, p, p->r->comm, NULL));
	free(send);
}

static void scatter_each(struct program *p, size_t count)
{
	int64_t size = p->r->size, rank = p->r->rank;
	int64_t sum = size * (p->step * (int64_t)1000 + rank) + size * (size - 1) / 2;
	int64_t *recv = malloc((count + 1) * sizeof *recv);

	expect(p->r, "reduce_scatter_each",
	       tutti_reduce_scatter_each(recv, count, TUTTI_I64, TUTTI_SUM, write_block, p,
					 p->r->comm, NULL));
	for (size_t i = 0; i < count; i++)
		if (recv[i] != sum) {
			report_wrong(p->r, "a sum", TUTTI_OK);
			break;
		}
	free(recv);
}

static void run_program(struct rank *r)
{
	struct program p = {.r = r, .state = r->seed};

	for (p.step = 1; p.step <= STEPS; p.step++) {
		size_t count = random_below(&p.state, random_below(&p.state, 3) ? 300 : COUNT_MAX);

		switch (random_below(&p.state, 7)) {
		case 0:
			all_reduce(&p, count);
			break;
		case 1:
			broadcast(&p, count);
			break;
		case 2:
		case 3:
			send_and_recv(&p, count);
			break;
		case 4:
		case 5:
			gather_each(&p, count);
			break;
		default:
			scatter_each(&p, count);
		}
	}
	for (int i = 0; i < IN_FLIGHT; i++)
		land(&p, &p.flights[i]);
}

static void test_programs(void **state)
{
	uint64_t seed = (uint64_t)time(NULL);
	const char *given = getenv("SEED");

	seed = given ? strtoull(given, NULL, 0) : seed;
	print_message("SEED=%llu\n", (unsigned long long)seed);
	for (int n = 1; n <= RANKS_MAX; n++) {
		with_ranks(n, NULL, seed, run_program);
		setenv("TUTTI_WINDOW", "0", 1);
		with_ranks(n, "shm", seed, run_program);
		unsetenv("TUTTI_WINDOW");
		with_ranks(n, "tcp", seed, run_program);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_programs)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
