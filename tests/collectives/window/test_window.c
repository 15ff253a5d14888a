/* Would break: any collective of the window, for any dtype, op, size around a threshold, alignment,
 * with ranks as threads on one mapping (this is what TSan sees). */
#include "window_team.h"

#include "core/memory/dtype.h"
#include "core/memory/ops.h"

#include <string.h>

#include "tests/unit.h"

#define ARENA_BYTES (4u << 20)

static uint64_t seed;

/* Small windows, so that a few kilobytes are many pieces: slots of a rank. */
#define TINY_WINDOW 65536

/* What one rank does with call i of a test, from the seed alone. */
static struct manner random_manner(int rank, uint64_t i, uint8_t *arena)
{
	uint64_t h = team_random(seed, i, (uint64_t)rank + 1000);
	bool all_shared = team_random(seed, i, 1) % 2, shared = arena && (all_shared || h % 3 == 0);

	return (struct manner){
		.is_in_place = h >> 8 & 1,
		.is_async = h >> 9 & 1,
		.send_shift = h >> 10 & 1 ? h >> 12 & 31 : 0,
		.recv_shift = h >> 11 & 1 ? h >> 20 & 31 : 0,
		.send_arena = shared ? arena : NULL,
		.recv_arena = shared ? arena + ARENA_BYTES / 2 : NULL,
	};
}

static const size_t sizes[] = {
	0,    1,    2,    13,   14,   15,   16,   127,  128,   129,   1000,  1024,  1999,
	2047, 2048, 2049, 4095, 4096, 4097, 8000, 9999, 16384, 16385, 30000, 40001, 65537,
};

static void every_size(struct window *window, int rank, void *arg)
{
	int size = *(int *)arg;
	uint8_t *arena = team_alloc(window, ARENA_BYTES);
	uint64_t i = 0;

	for (int collective = 0; collective < COLL_MEM_ALLOC; collective++) {
		for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++, i++) {
			struct call call = {(enum collective)collective, TUTTI_F32, TUTTI_SUM,
					    (int)(i % (uint64_t)size),   sizes[s],  seed + i};
			/* Half of the sizes each; other teams have the other half. */
			if (((int)s + collective + size / 4) % 2)
				continue;
			/* A block for each rank: no less crosses the same thresholds. */
			if (s % 2 && call.count > 1000)
				call.count /= (size_t)size;
			if (call.count * (size_t)size > 160000)
				call.count = 160000 / (size_t)size + s;
			struct manner m = random_manner(rank, i, arena);
			if (call_send_bytes(&call, size) > ARENA_BYTES / 2 - 256 ||
			    call_recv_bytes(&call, size) > ARENA_BYTES / 2 - 256)
				m.send_arena = m.recv_arena = NULL;
			call_make(window, rank, size, &call, &m);
		}
	}
	team_check(window_mem_free(arena) == TUTTI_OK, "free");
}

static void test_every_size(void **state)
{
	for (int size = 1; size <= 8; size = size < 5 ? size + 1 : 8 + (size == 8)) {
		struct team team = {.size = size, .member = every_size, .arg = &size};
		team.window_bytes = size % 2 ? 0 : TINY_WINDOW;
		team_run(&team);
	}
}

static void every_type(struct window *window, int rank, void *arg)
{
	int size = *(int *)arg;
	uint8_t *arena = team_alloc(window, ARENA_BYTES);
	static const size_t counts[] = {1, 56, 2500, 12001};
	uint64_t i = 0;

	for (int dtype = 0; dtype <= TUTTI_U64; dtype++) {
		for (uint64_t o = 0; o < TEAM_OPS; o++) {
			tutti_op op = team_op(o, (tutti_dtype)dtype);
			if (o > 0 && op == TUTTI_SUM)
				continue;
			for (size_t c = 0; c < sizeof counts / sizeof *counts; c++, i++) {
				static const enum collective reducing[] = {
					COLL_ALL_REDUCE, COLL_REDUCE_SCATTER, COLL_REDUCE,
					COLL_REDUCE_SCATTERV};
				struct call call = {
					reducing[i / 4 % 4],       (tutti_dtype)dtype, op,
					(int)(i % (uint64_t)size), counts[c] + i % 2,  seed + i};
				struct manner m = random_manner(rank, i, arena);
				call_make(window, rank, size, &call, &m);
			}
		}
	}
	team_check(window_mem_free(arena) == TUTTI_OK, "free");
}

static void test_every_type(void **state)
{
	for (int size = 2; size <= 5; size += 3) {
		struct team team = {.size = size, .member = every_type, .arg = &size};
		team.window_bytes = TINY_WINDOW;
		team_run(&team);
	}
}

static struct call random_call(uint64_t i, int size)
{
	uint64_t h = team_random(seed, i, 7);
	struct call call = {(enum collective)(h % COLL_MEM_ALLOC),
			    (tutti_dtype)((h >> 8) % 14),
			    TUTTI_SUM,
			    (int)((h >> 24) % (uint64_t)size),
			    0,
			    seed + i};
	static const size_t limits[] = {4, 20, 3000, 50000};

	call.op = team_op(h >> 16 & 255, call.dtype);
	call.count = (h >> 32) % limits[h >> 20 & 3];
	return call;
}

static void mixed(struct window *window, int rank, void *arg)
{
	int size = *(int *)arg;
	uint8_t *arena = team_alloc(window, ARENA_BYTES);

	for (uint64_t i = 0; i < 200; i++) {
		struct call call = random_call(i, size);
		struct manner m = random_manner(rank, i, arena);
		if (call_send_bytes(&call, size) > ARENA_BYTES / 2 - 256 ||
		    call_recv_bytes(&call, size) > ARENA_BYTES / 2 - 256)
			m.send_arena = m.recv_arena = NULL;
		call_make(window, rank, size, &call, &m);
	}
	team_check(window_mem_free(arena) == TUTTI_OK, "free");
}

static void test_mixed(void **state)
{
	for (int size = 2; size <= 4; size++) {
		struct team team = {.size = size, .member = mixed, .arg = &size};
		team.window_bytes = TINY_WINDOW;
		team.is_oversubscribed = size == 3;
		team_run(&team);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_every_size),
		cmocka_unit_test(test_every_type),
		cmocka_unit_test(test_mixed),
	};
	seed = team_seed();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
