/* Would break: shared memory in 2 MiB pages: on every rank where the kernel can give them, none for
 * what is asked for in less, and none when the user says so or the kernel refuses, without harm. */
#include "window_team.h"

#include "core/shared_memory.h"
#include "core/status.h"
#include "tests/limit.h"

#include <tutti/tutti.h>

#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "tests/unit.h"

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

#define HUGE_PAGE ((size_t)2 << 20)
#define RANKS     2
#define BYTES     (2 * HUGE_PAGE + 12345) /* two large pages and some more ...     */
#define STRIDE    (3 * HUGE_PAGE)         /* ... and where the next rank's begins */
#define HUGE_KIB  (2 * RANKS * HUGE_PAGE / 1024)

/* Of all shared allocations that this process maps: a line of /proc/self/smaps. */
static size_t mapped_kib(const char *field)
{
	FILE *file = fopen("/proc/self/smaps", "r");
	bool is_ours = false;
	size_t sum = 0, kib;
	char line[512], name[64];
	unsigned long from, to;

	team_check(file, "no /proc/self/smaps");
	while (fgets(line, sizeof line, file)) {
		if (sscanf(line, "%lx-%lx ", &from, &to) == 2)
			is_ours = strstr(line, "memfd:tutti-memory") != NULL;
		else if (is_ours && sscanf(line, "%63[^:]: %zu", name, &kib) == 2 &&
			 strcmp(name, field) == 0)
			sum += kib;
	}
	fclose(file);
	return sum;
}

/* Whether the kernel makes large pages of as much fresh shared memory as the tests take. */
static bool can_collapse(void)
{
	size_t bytes = HUGE_KIB * 1024;
	struct shared_memory *memory;
	int fd;

	if (shared_memory_create("probe", bytes, &fd) != TUTTI_OK)
		return false;
	bool can = shared_memory_open(&memory, fd, bytes, (struct shared_memory_use){1, true}) ==
		   TUTTI_OK;
	close(fd);
	if (!can)
		return false;
	for (size_t i = 0; i < bytes; i += HUGE_PAGE)
		((volatile uint8_t *)memory->base)[i] = 0;
	can = madvise(memory->base, bytes, MADV_COLLAPSE) == 0;
	shared_memory_close(memory);
	return can;
}

/* A rank's memory is zero, is used by a call without staging, and seen whole by all ranks. */
static void use(struct window *window, int rank, uint8_t *arena)
{
	struct call call = {COLL_ALL_REDUCE, TUTTI_F32, TUTTI_SUM, 0, BYTES / 8, 3};
	struct manner manner = {.is_in_place = true, .send_arena = arena, .recv_arena = arena};
	const volatile uint8_t *all = arena - (size_t)rank * STRIDE;
	uint64_t moved, staged;

	for (size_t i = 0; i < BYTES; i++)
		team_check(arena[i] == 0, "byte %zu is not zero", i);
	call_make(window, rank, RANKS, &call, &manner);
	window_stats(window, &moved, &staged);
	team_check(staged == 0, "%llu bytes were staged", (unsigned long long)staged);
	for (size_t i = 0; i < RANKS * STRIDE; i += HUGE_PAGE)
		(void)all[i];
}

/* Rank 0's look at its process, when both have used both memories. */
static void wait_for_all(struct window *window, int rank)
{
	struct call call = {COLL_BARRIER, TUTTI_F32, TUTTI_SUM, 0, 0, 3};
	struct manner manner = {0};

	call_make(window, rank, RANKS, &call, &manner);
}

/* Killed: nothing touched before the pages are collapsed; no page collapsed but those of rank 0. */
static void take_large(struct window *window, int rank, void *arg)
{
	uint8_t *arena = team_alloc(window, BYTES);
	size_t kib;

	(void)arg;
	window_mem_enlarge(arena, BYTES, RANKS);
	use(window, rank, arena);
	kib = mapped_kib("ShmemPmdMapped");
	team_check(kib >= HUGE_KIB, "rank %d has %zu KiB in large pages", rank, kib);
	wait_for_all(window, rank);
	team_check(window_mem_free(arena) == TUTTI_OK, "%s", last_error());
}

static void large_pages_on_every_rank(void **state)
{
	if (!can_collapse()) {
		print_message("MADV_COLLAPSE (Linux 6.1): ");
		skip_because("the kernel makes no 2 MiB pages of shared memory");
	}
	for (int processes = 0; processes < 2; processes++) {
		struct team team = {
			.size = RANKS, .are_processes = processes, .member = take_large};
		assert_int_equal(team_run(&team), 0);
	}
}

/* Killed: pages in part of what was asked for collapsed, too. */
static void take_little(struct window *window, int rank, void *arg)
{
	uint8_t *arena = team_alloc(window, HUGE_PAGE - 1);

	(void)arg;
	window_mem_enlarge(arena, HUGE_PAGE - 1, RANKS);
	size_t kib = mapped_kib("Rss");
	team_check(kib <= 64, "%zu KiB are used up", kib);
	wait_for_all(window, rank);
	team_check(window_mem_free(arena) == TUTTI_OK, "%s", last_error());
}

static void less_than_a_page_takes_nothing(void **state)
{
	struct team team = {.size = RANKS, .member = take_little};

	assert_int_equal(team_run(&team), 0);
}

/* Killed: a refusal ends the process or the call. */
static void be_refused(struct window *window, int rank, void *arg)
{
	uint8_t *arena;

	(void)arg;
	team_check(prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0) == 0, "prctl");
	arena = team_alloc(window, BYTES);
	window_mem_enlarge(arena, BYTES, RANKS);
	team_check(mapped_kib("ShmemPmdMapped") == 0, "large pages although none are wanted");
	use(window, rank, arena);
	wait_for_all(window, rank);
	team_check(window_mem_free(arena) == TUTTI_OK, "%s", last_error());
}

static void a_refusal_harms_nobody(void **state)
{
	struct team team = {.size = RANKS, .are_processes = true, .member = be_refused};

	assert_int_equal(team_run(&team), 0);
}

static void *allocate(void *comm)
{
	void *memory;

	team_check(tutti_mem_alloc(&memory, BYTES, comm) == TUTTI_OK, "%s", last_error());
	return memory;
}

/* What two ranks' allocations take before anybody touches them. */
static size_t taken_kib(const char *huge_pages)
{
	tutti_comm *comms[RANKS];
	pthread_t thread;
	void *memory[RANKS];

	setenv("TUTTI_HUGE_PAGES", huge_pages, 1);
	assert_int_equal(tutti_init_all(comms, RANKS, NULL), TUTTI_OK);
	assert_int_equal(pthread_create(&thread, NULL, allocate, comms[1]), 0);
	memory[0] = allocate(comms[0]);
	pthread_join(thread, &memory[1]);
	size_t kib = mapped_kib("Rss");
	for (int rank = 0; rank < RANKS; rank++) {
		assert_int_equal(tutti_mem_free(memory[rank]), TUTTI_OK);
		tutti_comm_destroy(comms[rank]);
	}
	return kib;
}

/* Killed: tutti_mem_alloc without window_mem_enlarge; the variable not looked at. */
static void as_the_variable_says(void **state)
{
	assert_in_range(taken_kib("0"), 0, 64);
	if (can_collapse())
		assert_in_range(taken_kib("1"), HUGE_KIB, HUGE_KIB + 64);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(large_pages_on_every_rank),
		cmocka_unit_test(less_than_a_page_takes_nothing),
		cmocka_unit_test(a_refusal_harms_nobody),
		cmocka_unit_test(as_the_variable_says),
	};

	test_limit(250);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
