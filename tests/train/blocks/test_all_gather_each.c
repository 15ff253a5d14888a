/* Would break: blocks with other bits than an all_gather's, in another order than promised, or more
 * than two of them at once; a send buffer that is written; a call inside of fn. */
#include "core/memory/dtype.h"
#include "tests/collectives/thread_ranks.h"

#include <tutti/parallel.h>

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "tests/unit.h"

#define COUNT_MAX 30011
#define BYTES_MAX (COUNT_MAX * sizeof(uint64_t))

/* What fn has seen. */
struct seen {
	struct rank *r;
	bool is_reached;    /* blocks are seen where they are */
	const uint8_t *all; /* the blocks, by an all_gather */
	const void *own, *foreign[2];
	size_t count, bytes;
	int calls;
};

static void note(struct seen *s, bool holds, const char *what)
{
	if (!holds)
		report_wrong(s->r, what, TUTTI_OK);
}

static tutti_status see(void *arg, int rank, void *data, size_t count)
{
	struct seen *s = arg;
	int turn = s->calls++, other = turn - 1 < s->r->rank ? turn - 1 : turn;

	note(s, rank == (turn == 0 ? s->r->rank : other), "the order of the calls");
	note(s, count == s->count, "count");
	note(s, memcmp(data, s->all + (size_t)rank * s->bytes, s->bytes) == 0, "the bits");
	if (turn == 0) {
		note(s, data == s->own, "the own block is elsewhere");
		return TUTTI_OK;
	}
	if (s->is_reached)
		return TUTTI_OK;
	note(s, (uintptr_t)data % 64 == 0, "alignment");
	if (!s->foreign[turn % 2])
		s->foreign[turn % 2] = data;
	note(s, data == s->foreign[0] || data == s->foreign[1], "more than two foreign blocks");
	memset(data, 0xee, s->bytes); /* a later block does not come from what fn has left */
	return TUTTI_OK;
}

static void fill(uint8_t *to, size_t bytes, int rank)
{
	for (size_t i = 0; i < bytes; i++)
		to[i] = (uint8_t)((i * 37 + (size_t)rank * 101) * 2654435761u >> 8);
}

static void gather_once(struct seen s, tutti_dtype dtype, uint8_t *all)
{
	struct rank *r = s.r;

	s.all = all;
	s.bytes = s.count * dtype_bytes(dtype);
	expect(r, "all_gather", tutti_all_gather(s.own, all, s.count, dtype, r->comm, NULL));
	expect(r, "all_gather_each",
	       tutti_all_gather_each(s.own, s.count, dtype, see, &s, r->comm, NULL));
	note(&s, s.calls == r->size, "the number of calls");
}

/* Sizes go up and down, so that buffers are kept and are too small; pointers are unaligned; and
 * send may not be written. */
static void gather_all(struct rank *r)
{
	static const size_t counts[] = {1, COUNT_MAX, 0, 7, 4096, 1021, 20000};
	uint8_t *all = malloc(BYTES_MAX * (size_t)r->size);
	uint8_t *send = mmap(NULL, BYTES_MAX + 8, PROT_READ | PROT_WRITE,
			     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	fill(send, BYTES_MAX + 8, r->rank);
	mprotect(send, BYTES_MAX + 8, PROT_READ);
	for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
		for (int d = 0; d < DTYPE_COUNT; d += 1 + 2 * (r->size > 2))
			gather_once((struct seen){.r = r,
						  .own = send + (i + (size_t)d) % 8,
						  .count = counts[i]},
				    (tutti_dtype)d, all);
	munmap(send, BYTES_MAX + 8);
	free(all);
}

static void test_bits(void **state)
{
	for (int n = 1; n <= RANKS_MAX; n++) {
		with_ranks(n, NULL, 0, gather_all);
		with_ranks(n, "shm", 0, gather_all);
		with_ranks(n, "tcp", 0, gather_all);
	}
}

/* Algorithms that write a rank's own block, too. */
static void test_forced(void **state)
{
	static const char *const forced[] = {"all_gather=knomial", "broadcast=spread"};

	for (size_t i = 0; i < sizeof forced / sizeof *forced; i++) {
		setenv("TUTTI_ALGO", forced[i], 1);
		for (int n = 2; n <= 3; n++) {
			with_ranks(n, NULL, 0, gather_all);
			with_ranks(n, "tcp", 0, gather_all);
		}
		unsetenv("TUTTI_ALGO");
	}
}

/* Blocks that go in many pieces, or that are seen where they are: in every second call another rank
 * has its block in ordinary memory. */
static void gather_long(struct rank *r)
{
	size_t count = 700001, bytes = count * sizeof(float);
	uint8_t *shared = NULL, *plain = malloc(bytes), *all = malloc(bytes * (size_t)r->size);
	tutti_mem_place place;

	expect(r, "mem_alloc", tutti_mem_alloc((void **)&shared, bytes + 8, r->comm));
	bool has_window = tutti_mem_place_of(&place, shared, bytes, r->comm) == TUTTI_OK;
	for (int call = 0; call < 6; call++) {
		int odd_one = call % 2 ? call / 2 % r->size : -1;
		uint8_t *own = odd_one == r->rank ? plain : shared + (r->rank + call) % 8;
		fill(own, bytes, r->rank + call);
		gather_once((struct seen){.r = r,
					  .is_reached = has_window && odd_one < 0,
					  .own = own,
					  .count = count},
			    TUTTI_F32, all);
	}
	expect(r, "mem_free", tutti_mem_free(shared));
	free(plain);
	free(all);
}

static void test_long(void **state)
{
	everywhere(gather_long);
}

/* fn gathers on another communicator: its own buffers stay as they are. */
struct nest {
	struct rank *r;
	uint64_t sum;
	int depth;
};

static tutti_status nested(void *arg, int rank, void *data, size_t count)
{
	struct nest *n = arg;
	struct nest inner = {n->r, 0, n->depth + 1};
	uint64_t own = 1000 + (uint64_t)rank, size = (uint64_t)n->r->size;
	const uint64_t *value = data;

	if (n->depth == 0) {
		/* Other ranks are at another block: each sends its own number. */
		own = 100 + (uint64_t)n->r->rank;
		expect(n->r, "the inner call",
		       tutti_all_gather_each(&own, 1, TUTTI_U64, nested, &inner, n->r->other,
					     NULL));
		if (inner.sum != 100 * size + size * (size - 1) / 2)
			report_wrong(n->r, "the inner sum", TUTTI_OK);
	}
	n->sum += *value;
	return TUTTI_OK;
}

static void gather_nested(struct rank *r)
{
	struct nest n = {r, 0, 0};
	uint64_t own = (uint64_t)r->rank + 1, size = (uint64_t)r->size;

	expect(r, "the outer call",
	       tutti_all_gather_each(&own, 1, TUTTI_U64, nested, &n, r->comm, NULL));
	if (n.sum != size * (size + 1) / 2)
		report_wrong(r, "the outer sum", TUTTI_OK);
}

static void test_nested(void **state)
{
	everywhere(gather_nested);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_bits),
		cmocka_unit_test(test_forced),
		cmocka_unit_test(test_long),
		cmocka_unit_test(test_nested),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
