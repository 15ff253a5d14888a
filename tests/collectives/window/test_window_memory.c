/* Would break: memory that all ranks of a node can reach: allocated by agreement, used without
 * staging from any communicator, freed by each rank for itself. */
#include "window_team.h"

#include "collectives/window/window_internal.h"
#include "core/clock.h"
#include "core/status.h"
#include "tests/limit.h"

#include <sched.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/unit.h"

#define BYTES (1u << 20)
#define COUNT 50000

static uint64_t staged(const struct window *window)
{
	uint64_t all, bytes;
	window_stats(window, &all, &bytes);
	return bytes;
}

static void call_on(struct window *window, int rank, int size, enum collective collective,
		    uint8_t *arena, bool in_place)
{
	struct call call = {
		collective,
		TUTTI_F32,
		TUTTI_SUM,
		size - 1,
		collective == COLL_ALL_REDUCE || collective == COLL_BROADCAST ? COUNT : COUNT / 4,
		3};
	struct manner manner = {.is_in_place = in_place,
				.send_shift = (size_t)rank * 4,
				.send_arena = arena,
				.recv_arena = arena ? arena + BYTES / 2 : NULL};
	call_make(window, rank, size, &call, &manner);
}

/* Killed: zero_copy_publish gives no id; zero_copy_begin always false. */
static void use_shared(struct window *window, int rank, void *arg)
{
	int size = *(int *)arg;
	uint8_t *arena = team_alloc(window, BYTES);
	uint64_t all, bytes;

	for (size_t i = 0; i < BYTES; i++)
		team_check(arena[i] == 0, "byte %zu is not zero", i);
	for (int collective = 0; collective < COLL_MEM_ALLOC; collective++) {
		call_on(window, rank, size, (enum collective)collective, arena, false);
		call_on(window, rank, size, (enum collective)collective, arena, true);
		/* Half of the ranks in place. */
		call_on(window, rank, size, (enum collective)collective, arena, rank % 2);
	}
	window_stats(window, &all, &bytes);
	team_check(all > 0 && bytes == 0, "%llu bytes were staged", (unsigned long long)bytes);
	/* One rank without it: all stage. */
	call_on(window, rank, size, COLL_ALL_REDUCE, rank == 0 ? NULL : arena, false);
	bytes = staged(window);
	team_check(bytes > 0, "nothing was staged");
	/* Of these only the root's matters. */
	call_on(window, rank, size, COLL_BROADCAST, rank == size - 1 ? arena : NULL, false);
	call_on(window, rank, size, COLL_SCATTER, rank == size - 1 ? arena : NULL, false);
	call_on(window, rank, size, COLL_SCATTERV, rank == size - 1 ? arena : NULL, false);
	team_check(staged(window) == bytes, "staged");
	team_check(window_mem_free(arena) == TUTTI_OK, "%s", last_error());
	team_check(window_mem_free(arena) == TUTTI_ERR_INVALID, "freed twice");
	team_check(window_mem_free(&size) == TUTTI_ERR_INVALID,
		   "freed memory of another allocator");
}

static void test_zero_copy(void **state)
{
	for (int processes = 0; processes < 2; processes++) {
		for (int size = 2; size <= 3; size++) {
			struct team team = {.size = size,
					    .are_processes = processes,
					    .member = use_shared,
					    .arg = &size};
			assert_int_equal(team_run(&team), 0);
		}
	}
}

static struct window *join(const uint64_t *id, uint64_t which, int rank, int size)
{
	struct window_config config = {
		rank, size, {id[0] + which, id[1]}, 8u << 20, wait_policy_on(3, wait_cores()),
		true, 0,    wait_cores(),           NULL};
	struct window *window;

	team_check(window_join(&window, &config, deadline_after_ms(60000), NULL, NULL) == TUTTI_OK,
		   "%s", last_error());
	return window;
}

/* Ranks 0 and 1 share memory that rank 2 has not; all three make calls with it.
 * Killed: has_process always true (rank 0 believes that all reach it, rank 2 knows better). */
static void reach_member(const uint64_t *id, int rank)
{
	struct window *all = join(id, 0, rank, 3);
	struct window *part = join(id, rank < 2 ? 1 : 2, rank < 2 ? rank : 0, rank < 2 ? 2 : 1);
	uint8_t *partial = team_alloc(part, BYTES), *whole = team_alloc(all, BYTES);

	for (int collective = 0; collective < COLL_MEM_ALLOC; collective++)
		call_on(all, rank, 3, (enum collective)collective, partial, false);
	team_check(staged(all) > 0, "memory that rank 2 has not was used without staging");
	/* What the larger one has allocated serves the smaller one. */
	call_on(part, rank % 2, rank < 2 ? 2 : 1, COLL_ALL_REDUCE, whole, false);
	team_check(staged(part) == 0, "memory of another communicator was staged");
	/* Rank 0 has freed its own; the others' is still reached by all. */
	if (rank == 0)
		window_mem_free(whole);
	uint64_t before = staged(all);
	call_on(all, rank, 3, COLL_BROADCAST, rank == 0 ? NULL : whole, false);
	team_check(staged(all) == before, "a rank's own free took away another's memory");
	if (rank != 0)
		window_mem_free(whole);
	/* The communicators may go before their memory. */
	window_destroy(part);
	window_destroy(all);
	memset(partial, 1, BYTES);
	team_check(window_mem_free(partial) == TUTTI_OK, "%s", last_error());
}

static void test_reach(void **state)
{
	uint64_t id[2] = {clock_now_ns(), (uint64_t)getpid()};
	pid_t pids[3];

	for (int rank = 0; rank < 3; rank++) {
		pids[rank] = fork();
		assert_true(pids[rank] >= 0);
		if (pids[rank] == 0) {
			test_limit(100);
			reach_member(id, rank);
			_exit(0);
		}
	}
	for (int rank = 0; rank < 3; rank++) {
		int status;
		assert_int_equal(waitpid(pids[rank], &status, 0), pids[rank]);
		assert_int_equal(status, 0);
	}
}

static int mappings(void)
{
	FILE *maps = fopen("/proc/self/maps", "r");
	char line[512];
	int n = 0;

	while (maps && fgets(line, sizeof line, maps))
		n += strstr(line, "memfd:tutti-memory") != NULL;
	fclose(maps);
	return n;
}

/* Killed: the leader keeps its allocation when it was refused; reap() does nothing. */
static void allocate_much(struct window *window, int rank, void *arg)
{
	struct call_args args = {
		.collective = COLL_MEM_ALLOC, .count = (size_t)1 << 50, .fingerprint = 5};
	int size = *(int *)arg, last;
	uint8_t *arena;

	team_check(team_drive(window, &args) == TUTTI_ERR_MEMORY, "too much was given");
	team_check(strstr(last_error(), "rank 0"), "%s", last_error());
	/* A verdict of all ranks: the window goes on. */
	call_on(window, rank, size, COLL_ALL_REDUCE, NULL, false);
	for (int i = 0; i < 50; i++) {
		arena = team_alloc(window, (size_t)i << 14);
		if (i)
			memset(arena, rank, (size_t)i << 14);
		team_check(window_mem_free(arena) == TUTTI_OK, "%s", last_error());
	}
	arena = team_alloc(window, 1);
	last = mappings();
	team_check(last <= 4 * size, "%d mappings are left over", last);
	team_check(window_mem_free(arena) == TUTTI_OK, "%s", last_error());
}

static void test_allocations_end(void **state)
{
	for (int processes = 0; processes < 2; processes++) {
		int size = 2;
		struct team team = {.size = size,
				    .are_processes = processes,
				    .member = allocate_much,
				    .arg = &size};
		assert_int_equal(team_run(&team), 0);
	}
}

/* The ranks take what the leader sends one by one, for its socket has no room for all of it.
 * Killed: the others are told to take it only when all is sent. */
static void pass_through_little_room(struct window *window, int rank, void *arg)
{
	const int least = 1;

	(void)arg;
	team_check(rank != 0 || setsockopt(window->memory.mail, SOL_SOCKET, SO_SNDBUF, &least,
					   sizeof least) == 0,
		   "SO_SNDBUF");
	for (int i = 0; i < 3; i++) {
		uint8_t *arena = team_alloc(window, BYTES);
		call_on(window, rank, TEAM_RANKS, COLL_ALL_REDUCE, arena, false);
		team_check(window_mem_free(arena) == TUTTI_OK, "%s", last_error());
	}
}

static void test_little_room(void **state)
{
	struct team team = {
		.size = TEAM_RANKS, .are_processes = true, .member = pass_through_little_room};

	assert_int_equal(team_run(&team), 0);
}

/* Rank 1 stores into rank 0's region after rank 0 has taken it back.
 * Killed: make_private keeps the mapping (no mremap); the table keeps what is withdrawn. */
static void wake_late(struct window *window, int rank, void *arg)
{
	atomic_int *phase = arg;
	uint8_t *arena = team_alloc(window, BYTES), *other = arena - 2 * BYTES;

	if (rank == 1) {
		while (atomic_load(phase) == 0)
			sched_yield();
		memset(other, 99, BYTES);
		atomic_store(phase, 2);
		call_on(window, rank, 2, COLL_ALL_REDUCE, arena, false);
		return;
	}
	memset(arena, 7, BYTES);
	team_check(window_mem_withdraw(window) == TUTTI_OK, "%s", last_error());
	atomic_store(phase, 1);
	while (atomic_load(phase) != 2)
		sched_yield();
	for (size_t i = 0; i < BYTES; i++)
		team_check(arena[i] == 7, "byte %zu was overwritten", i);
	/* Ordinary memory now: the other rank's is staged with it. */
	call_on(window, rank, 2, COLL_ALL_REDUCE, arena, false);
	team_check(staged(window) > 0, "not staged");
	team_check(window_mem_free(arena) == TUTTI_OK, "%s", last_error());
}

static void test_late_waker(void **state)
{
	atomic_int *phase =
		mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	struct team team = {.size = 2, .are_processes = true, .member = wake_late, .arg = phase};

	assert_int_equal(team_run(&team), 0);
	munmap(phase, 4096);
}

#define LATE_RANKS 3
#define LATE_BYTES ((size_t)16 << 20)
#define LATE_BLOCK ((size_t)2 << 20)

/* All ranks are played by this thread. Returns how many are done. */
static int advance_all(struct window *const *windows, struct window_run *const *runs, int skip)
{
	int done = 0;

	for (int rank = 0; rank < LATE_RANKS; rank++) {
		bool moved;
		if (rank == skip)
			continue;
		tutti_status status = window_advance(windows[rank], runs[rank], &moved);
		team_check(status == TUTTI_OK || status == TUTTI_IN_PROGRESS, "rank %d: %s", rank,
			   last_error());
		done += status == TUTTI_OK;
	}
	return done;
}

static void allocate_all(struct window *const *windows, uint8_t **arenas)
{
	struct call_args args = {.collective = COLL_MEM_ALLOC,
				 .dtype = TUTTI_U8,
				 .count = LATE_BYTES,
				 .fingerprint = 9};
	struct window_run runs[LATE_RANKS], *all[LATE_RANKS];

	for (int rank = 0; rank < LATE_RANKS; rank++) {
		all[rank] = &runs[rank];
		window_begin(windows[rank], all[rank], &args);
	}
	while (advance_all(windows, all, -1) < LATE_RANKS)
		;
	for (int rank = 0; rank < LATE_RANKS; rank++)
		arenas[rank] = runs[rank].memory;
}

/* The others go as far as they can before rank late makes the call; its buffers are in reach, or
 * not. */
static void call_late(struct window *const *windows, uint8_t *const *arenas,
		      const struct call *call, int late, bool in_reach)
{
	static struct made made[LATE_RANKS];
	struct window_run *runs[LATE_RANKS];
	struct manner manner[LATE_RANKS];

	for (int rank = 0; rank < LATE_RANKS; rank++) {
		uint8_t *arena = rank != late || in_reach ? arenas[rank] : NULL;
		manner[rank] = (struct manner){.is_in_place = true,
					       .send_arena = arena,
					       .recv_arena = arena ? arena + LATE_BYTES / 2 : NULL};
		made[rank].size = LATE_RANKS;
		runs[rank] = &made[rank].run;
		if (rank != late)
			made_begin(&made[rank], windows[rank], rank, call, &manner[rank]);
	}
	for (int i = 0; i < 100; i++)
		advance_all(windows, runs, late);
	made_begin(&made[late], windows[late], late, call, &manner[late]);
	while (advance_all(windows, runs, -1) < LATE_RANKS)
		;
	for (int rank = 0; rank < LATE_RANKS; rank++)
		made_check(&made[rank]);
}

/* Killed: the way that a call goes decided before the lines that it depends on are there. */
static void test_late(void **state)
{
	static const enum collective collectives[] = {COLL_REDUCE,  COLL_BROADCAST, COLL_GATHER,
						      COLL_GATHERV, COLL_SCATTER,   COLL_SCATTERV};
	struct window *windows[LATE_RANKS];
	uint8_t *arenas[LATE_RANKS];

	for (int is_oversubscribed = 0; is_oversubscribed < 2; is_oversubscribed++) {
		struct team team = {.size = LATE_RANKS, .is_oversubscribed = is_oversubscribed};
		team_open(&team, windows);
		allocate_all(windows, arenas);
		for (size_t i = 0; i < sizeof collectives / sizeof *collectives; i++)
			for (int late = 0; late < LATE_RANKS; late++) {
				struct call call = {collectives[i], TUTTI_I32, TUTTI_SUM, 1,
						    LATE_BLOCK / 4, 3};
				call_late(windows, arenas, &call, late, true);
				call_late(windows, arenas, &call, late, false);
			}
		for (int rank = 0; rank < LATE_RANKS; rank++)
			assert_int_equal(window_mem_free(arenas[rank]), TUTTI_OK);
		team_close(windows, LATE_RANKS);
	}
}

static bool is_mapped(const char *name)
{
	char line[512];
	bool found = false;
	FILE *maps = fopen("/proc/self/maps", "r");

	team_check(maps != NULL, "maps");
	while (fgets(line, sizeof line, maps))
		found |= strstr(line, name) != NULL;
	fclose(maps);
	return found;
}

/* Rank 1 has made the call, and dies before it takes its part. */
static void lose_the_taker(struct window *window, int rank, void *arg)
{
	struct call_args args = {
		.collective = COLL_MEM_ALLOC, .dtype = TUTTI_U8, .count = BYTES, .fingerprint = 9};
	struct window_run run;

	(void)arg;
	window_begin(window, &run, &args);
	if (rank == 1)
		_exit(0);
	tutti_status status = window_drive(window, &run, TEAM_TIMEOUT_NS, NULL, NULL, NULL);
	team_check(status == TUTTI_ERR_PEER, "status %d: %s", (int)status, last_error());
	team_check(is_mapped("tutti-memory"), "it was not made");
	window_mem_drop(run.memory);
	team_check(!is_mapped("tutti-memory"), "it is kept");
}

static void test_lost_taker(void **state)
{
	int size = 2;
	struct team team = {
		.size = size, .are_processes = true, .member = lose_the_taker, .arg = &size};

	assert_int_equal(team_run(&team), 0);
}

/* Room for the window, but not for so much: no signal, and all hear of it. */
static void want_much(struct window *window, int rank, void *arg)
{
	struct call_args args = {
		.collective = COLL_MEM_ALLOC, .dtype = TUTTI_U8, .count = BYTES, .fingerprint = 9};
	struct rlimit limit;
	struct window_run run;

	team_check(getrlimit(RLIMIT_FSIZE, &limit) == 0, "getrlimit");
	limit.rlim_cur = BYTES;
	team_check(setrlimit(RLIMIT_FSIZE, &limit) == 0, "setrlimit");
	window_begin(window, &run, &args);
	tutti_status status = window_drive(window, &run, TEAM_TIMEOUT_NS, NULL, NULL, NULL);
	team_check(status == TUTTI_ERR_MEMORY, "status %d", (int)status);
	team_check(strstr(last_error(), "rank 0 has failed") &&
			   strstr(last_error(), "File too large (errno 27)") &&
			   strstr(last_error(), "of 1048576 bytes: raise `ulimit -f`"),
		   "%s", last_error());
	call_on(window, rank, *(int *)arg, COLL_ALL_REDUCE, NULL, false);
}

static void test_limited_files(void **state)
{
	int size = 2;
	struct team team = {.size = size, .are_processes = true, .member = want_much, .arg = &size};

	assert_int_equal(team_run(&team), 0);
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
/* No room to map it in the second of three ranks: all say how much of what that one was refused. */
static void want_more_than_fits(struct window *window, int rank, void *arg)
{
	size_t bytes = (size_t)1 << 30;
	struct call_args args = {.collective = COLL_MEM_ALLOC,
				 .dtype = TUTTI_U8,
				 .count = bytes / 3,
				 .fingerprint = 9};
	struct rlimit limit;
	struct window_run run;

	if (rank == 1) {
		team_check(getrlimit(RLIMIT_AS, &limit) == 0, "getrlimit");
		limit.rlim_cur = (rlim_t)bytes / 2;
		team_check(setrlimit(RLIMIT_AS, &limit) == 0, "setrlimit");
	}
	window_begin(window, &run, &args);
	tutti_status status = window_drive(window, &run, TEAM_TIMEOUT_NS, NULL, NULL, NULL);
	team_check(status == TUTTI_ERR_MEMORY, "status %d", (int)status);
	team_check(strstr(last_error(), "rank 1 has failed: ") &&
			   strstr(last_error(), "bytes of shared memory: Cannot allocate memory") &&
			   strstr(last_error(), "map 536870912 bytes in all: raise `ulimit -v`"),
		   "%s", last_error());
	call_on(window, rank, *(int *)arg, COLL_ALL_REDUCE, NULL, false);
}

static void test_limited_addresses(void **state)
{
	int size = 3;
	struct team team = {
		.size = size, .are_processes = true, .member = want_more_than_fits, .arg = &size};

	assert_int_equal(team_run(&team), 0);
}
#endif

int main(void)
{
	const struct CMUnitTest tests[] = {
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
		cmocka_unit_test(test_limited_addresses),
#endif
		cmocka_unit_test(test_zero_copy),
		cmocka_unit_test(test_reach),
		cmocka_unit_test(test_allocations_end),
		cmocka_unit_test(test_little_room),
		cmocka_unit_test(test_late_waker),
		cmocka_unit_test(test_late),
		cmocka_unit_test(test_lost_taker),
		cmocka_unit_test(test_limited_files),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
