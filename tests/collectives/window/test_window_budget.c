/* Would break: jobs of many ranks on one node, if the shared memory of a rank grew with their
 * number. Bytes, not times: perf/scale has those. */
#include "collectives/window/window_internal.h"
#include "tests/limit.h"

#include <tutti/tutti.h>

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/unit.h"

#define WINDOW_BYTES ((size_t)8 << 20) /* TUTTI_WINDOW_BYTES, by itself */
#define PAGE         4096u
#define COUNT        ((size_t)1 << 18)
#define MOST         64

/* What docs/environment.md states for a rank; head and rounding are once a window. */
static size_t budget(int ranks, size_t window_bytes)
{
	return (size_t)ranks * (window_bytes + sizeof(struct board_place)) +
	       sizeof(struct segment_head) + 4 * (size_t)PAGE;
}

static struct geometry geometry_of(int ranks, size_t window_bytes, bool shares_cores)
{
	struct window_config config = {.size = ranks, .window_bytes = window_bytes};
	struct geometry g;

	config.policy = wait_policy_on(1, wait_cores());
	config.policy.shares_cores = shares_cores;
	assert_int_equal(geometry_choose(&g, &config), TUTTI_OK);
	return g;
}

/* Killed: slot_bytes no longer bounded by what window_bytes leaves; WINDOW_SLOTS forgotten in that.
 */
static void bounded_for_any_number_of_ranks(void **state)
{
	static const size_t windows[] = {(size_t)1 << 20, WINDOW_BYTES, (size_t)64 << 20};

	for (size_t i = 0; i < sizeof windows / sizeof *windows; i++) {
		for (int ranks = 2; ranks <= WINDOW_MAX_RANKS; ranks += 1 + ranks / 8) {
			for (int shares = 0; shares < 2; shares++) {
				struct geometry g = geometry_of(ranks, windows[i], shares);

				assert_true(g.total_bytes <= budget(ranks, windows[i]));
				assert_true(g.slot_bytes > 0);
			}
		}
	}
}

/* Ranks bound to a core each have as many as there are of them, whatever each may use. Killed: this
 * process's own cores asked. */
static void cores_are_those_of_all_ranks(void **state)
{
	struct window_config config = {.size = 4, .window_bytes = WINDOW_BYTES};
	struct geometry on_two, on_three;

	config.policy.shares_cores = true;
	config.cores = 2;
	assert_int_equal(geometry_choose(&on_two, &config), TUTTI_OK);
	config.cores = 3;
	assert_int_equal(geometry_choose(&on_three, &config), TUTTI_OK);
	assert_true(on_two.by_root_bytes > on_three.by_root_bytes);
}

/* A rank's row has an entry for each other rank; nothing else may grow, and slots may not shrink.
 */
static void nothing_but_rows_grows(void **state)
{
	for (int shares = 0; shares < 2; shares++) {
		struct geometry few = geometry_of(2, WINDOW_BYTES, shares);

		for (int ranks = 4; ranks <= 128; ranks *= 2) {
			struct geometry many = geometry_of(ranks, WINDOW_BYTES, shares);
			size_t rows = 2 * (size_t)ranks * sizeof(struct row_entry);

			assert_int_equal(many.slot_bytes, few.slot_bytes);
			assert_true(many.total_bytes / (size_t)ranks <=
				    few.total_bytes / 2 + rows + 2 * WINDOW_ALIGN);
		}
	}
}

static size_t mapped(void)
{
	FILE *maps = fopen("/proc/self/maps", "r");
	char line[512];
	size_t bytes = 0;

	assert_non_null(maps);
	while (fgets(line, sizeof line, maps)) {
		unsigned long from, to;

		if (strstr(line, "memfd:tutti-") && sscanf(line, "%lx-%lx", &from, &to) == 2)
			bytes += to - from;
	}
	fclose(maps);
	return bytes;
}

static void *call_all(void *arg)
{
	float *data = calloc(COUNT, sizeof *data);
	tutti_status status = TUTTI_ERR_MEMORY;

	if (data)
		status = tutti_all_reduce(data, data, COUNT, TUTTI_F32, TUTTI_SUM, arg, NULL);
	if (status == TUTTI_OK)
		status = tutti_barrier(arg, NULL);
	free(data);
	return (void *)(uintptr_t)status;
}

/* What a process really maps, before and after calls that use all slots. */
static void bounded_as_mapped(void **state)
{
	static const int worlds[] = {2, 9, MOST};

	for (size_t i = 0; i < sizeof worlds / sizeof *worlds; i++) {
		tutti_comm *comms[MOST];
		pthread_t threads[MOST];
		int n = worlds[i];

		assert_int_equal(mapped(), 0);
		assert_int_equal(tutti_init_all(comms, n, NULL), TUTTI_OK);
		assert_in_range(mapped(), 1, budget(n, WINDOW_BYTES));
		for (int rank = 0; rank < n; rank++)
			assert_int_equal(
				pthread_create(&threads[rank], NULL, call_all, comms[rank]), 0);
		for (int rank = 0; rank < n; rank++) {
			void *status;

			pthread_join(threads[rank], &status);
			assert_int_equal((uintptr_t)status, TUTTI_OK);
		}
		assert_in_range(mapped(), 1, budget(n, WINDOW_BYTES));
		for (int rank = 0; rank < n; rank++)
			tutti_comm_destroy(comms[rank]);
	}
	assert_int_equal(mapped(), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(bounded_for_any_number_of_ranks),
		cmocka_unit_test(cores_are_those_of_all_ranks),
		cmocka_unit_test(nothing_but_rows_grows),
		cmocka_unit_test(bounded_as_mapped),
	};

	test_limit(250);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
