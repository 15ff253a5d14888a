/* slow: 3 s */
/* no_tsan: its ranks are processes: nothing is seen of what they share */
/* Would break: the window between processes, each with a mapping of its own: joining, flags,
 * staging, shared memory at different addresses. Random calls, made differently by every rank. */
#include "window_team.h"

#include "core/status.h"
#include "core/memory/dtype.h"
#include "core/memory/ops.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/unit.h"

#define ARENA_BYTES (2u << 20)
#define CALLS       120

static uint64_t seed;

static struct call random_call(uint64_t i, int size)
{
	static const size_t limits[] = {4, 20, 3000, 60000};
	uint64_t h = team_random(seed, i, 7);
	struct call call = {(enum collective)(h % COLL_MEM_ALLOC),
			    (tutti_dtype)((h >> 8) % 14),
			    TUTTI_SUM,
			    (int)((h >> 24) % (uint64_t)size),
			    0,
			    seed + i};

	call.op = team_op(h >> 16 & 255, call.dtype);
	call.count = (h >> 32) % limits[h >> 20 & 3];
	return call;
}

static void stress(struct window *window, int rank, void *arg)
{
	int size = *(int *)arg;
	uint8_t *arena;

	/* Every process has the memory at another address. */
	for (int i = 0; i < rank; i++)
		mmap(NULL, 3u << 20, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	arena = team_alloc(window, ARENA_BYTES);
	for (uint64_t i = 0; i < CALLS; i++) {
		struct call call = random_call(i, size);
		uint64_t h = team_random(seed, i, (uint64_t)rank + 1000);
		bool all = team_random(seed, i, 1) % 2, shared = all || h % 3 == 0;
		if (call_send_bytes(&call, size) > ARENA_BYTES / 2 - 256 ||
		    call_recv_bytes(&call, size) > ARENA_BYTES / 2 - 256)
			shared = false;
		struct manner m = {h >> 8 & 1,
				   h >> 9 & 1,
				   h >> 10 & 31,
				   h >> 20 & 31,
				   shared ? arena : NULL,
				   shared ? arena + ARENA_BYTES / 2 : NULL};
		call_make(window, rank, size, &call, &m);
	}
	team_check(window_mem_free(arena) == TUTTI_OK, "free");
}

static void test_stress(void **state)
{
	for (int size = 1; size <= 8; size++) {
		struct team team = {
			.size = size, .are_processes = true, .member = stress, .arg = &size};
		team.window_bytes = size % 3 ? 65536u << (size % 4) : 0;
		team.is_oversubscribed = size % 2;
		assert_int_equal(team_run(&team), 0);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_stress),
	};
	seed = team_seed();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
