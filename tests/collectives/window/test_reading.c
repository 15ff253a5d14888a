/* Would break: ordinary buffers read where they lie in the other process. That ranks take different
 * ways; that a rank returns OK with what a failed rank's caller has written meanwhile; that a call
 * fails which slots could do, because a rank may not read (any more). */
#include "window_team.h"

#include "collectives/window/run_progress.h"
#include "collectives/window/window_internal.h"
#include "core/clock.h"

#include <string.h>

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/unit.h"

#define RANKS 3
#define LONG  100000 /* elements of a block */

static uint64_t seed;
static uint8_t room[RANKS][2][RANKS * LONG * sizeof(float)];

static struct call_args args_for(enum collective collective, size_t count, int rank, bool in_place)
{
	struct call call = {collective, TUTTI_F32, TUTTI_SUM, 0, count, 17};
	uint8_t *send = room[rank][0], *recv = room[rank][1];
	size_t own = (size_t)rank * count * sizeof(float);

	if (in_place && collective == COLL_ALL_GATHER)
		send = recv + own;
	if (in_place && collective == COLL_SCATTER && rank == 0)
		recv = send + own;
	return call_args_for(&call, send, recv);
}

/* All ranks' runs to the end; the path that all went, or NULL. */
static const char *play(struct window **windows, struct window_run *runs, int size)
{
	const char *path = NULL;
	int done = 0;

	for (int tries = 0; done < size; tries++) {
		int rank = tries % size;
		bool moved;
		if (progress_is_over(&runs[rank]))
			continue;
		assert_true(tries < 1000000);
		tutti_status status = window_advance(windows[rank], &runs[rank], &moved);
		assert_true(status == TUTTI_OK || status == TUTTI_IN_PROGRESS);
		done += status == TUTTI_OK;
	}
	for (int rank = 0; rank < size; rank++) {
		assert_true(rank == 0 || strcmp(path, runs[rank].path->name) == 0);
		path = runs[rank].path->name;
	}
	return path;
}

static const char *path_of(struct window **windows, enum collective collective, size_t count,
			   bool in_place, bool all_in_place)
{
	struct window_run runs[RANKS];

	for (int rank = 0; rank < RANKS; rank++) {
		struct call_args args =
			args_for(collective, count, rank, in_place && (all_in_place || rank != 1));
		window_begin(windows[rank], &runs[rank], &args);
	}
	return play(windows, runs, RANKS);
}

static void open_team(struct window **windows, size_t read_bytes)
{
	struct team team = {.size = RANKS, .read_bytes = read_bytes};
	team_open(&team, windows);
}

static void test_collectives(void **state)
{
	struct window *windows[RANKS];

	open_team(windows, 1);
	for (enum collective c = 0; c < COLL_BARRIER; c++) {
		bool reads = c == COLL_ALL_GATHER || c == COLL_ALL_TO_ALL || c == COLL_SCATTER;
		if (call_is_v(c))
			continue;
		assert_string_equal(path_of(windows, c, LONG, false, false),
				    reads ? "read" : "staged");
	}
	/* The root would do nothing while the others copy. */
	assert_string_equal(path_of(windows, COLL_SCATTER, LONG, true, true), "staged");
	team_close(windows, RANKS);
	open_team(windows, 0);
	assert_string_equal(path_of(windows, COLL_ALL_GATHER, LONG, true, true), "staged");
	team_close(windows, RANKS);
}

/* Killed: the ranks' lines not asked. */
static void test_who_decides(void **state)
{
	struct window *windows[RANKS];
	size_t whole = RANKS * LONG * sizeof(float);

	/* Threads, and who copies its own block too, only want to from 8 times as much on. */
	open_team(windows, whole / 2);
	assert_string_equal(path_of(windows, COLL_ALL_GATHER, LONG, true, true), "staged");
	team_close(windows, RANKS);
	open_team(windows, whole / 8);
	assert_string_equal(path_of(windows, COLL_ALL_GATHER, LONG, true, true), "read");
	assert_string_equal(path_of(windows, COLL_ALL_GATHER, LONG - 1000, true, true), "staged");
	team_close(windows, RANKS);
	/* One rank of three is not in place. */
	open_team(windows, 1);
	for (int rank = 0; rank < RANKS; rank++)
		windows[rank]->reads_from = rank == 1 ? whole : 1;
	assert_string_equal(path_of(windows, COLL_ALL_GATHER, LONG, true, false), "staged");
	assert_string_equal(path_of(windows, COLL_ALL_TO_ALL, LONG, false, false), "staged");
	windows[1]->reads_from = 1;
	assert_string_equal(path_of(windows, COLL_ALL_GATHER, LONG, true, false), "read");
	team_close(windows, RANKS);
	/* One cannot. */
	open_team(windows, 1);
	windows[2]->area->reads_from = UINT64_MAX;
	assert_string_equal(path_of(windows, COLL_ALL_GATHER, LONG, true, true), "staged");
	team_close(windows, RANKS);
}

/* A rank comes to its first call before another has found out whether it can read: it stages at
 * once. */
static void test_not_known_yet(void **state)
{
	struct window *windows[RANKS];
	struct window_run runs[RANKS];

	open_team(windows, 1);
	windows[2]->area->reads_from = 0;
	for (int rank = 0; rank < RANKS; rank++) {
		struct call_args args = args_for(COLL_ALL_GATHER, LONG, rank, false);
		if (rank == 2)
			windows[2]->area->reads_from = 1;
		window_begin(windows[rank], &runs[rank], &args);
	}
	assert_true(runs[0].first_is_staged && !runs[2].first_is_staged);
	assert_string_equal(play(windows, runs, RANKS), "staged");
	assert_string_equal(path_of(windows, COLL_ALL_GATHER, LONG, false, false), "read");
	team_close(windows, RANKS);
}

static struct call random_call(uint64_t i, int size)
{
	static const enum collective some[] = {COLL_ALL_GATHER,  COLL_ALL_TO_ALL,  COLL_SCATTER,
					       COLL_ALL_GATHERV, COLL_ALL_TO_ALLV, COLL_SCATTERV,
					       COLL_ALL_REDUCE,  COLL_BROADCAST};
	static const size_t limits[] = {20, 3000, 20000, 70000};
	uint64_t h = team_random(seed, i, 7);

	return (struct call){some[h % 8],
			     (h >> 8) % 2 ? TUTTI_F32 : TUTTI_U8,
			     TUTTI_SUM,
			     (int)((h >> 24) % (uint64_t)size),
			     (h >> 32) % limits[h >> 20 & 3],
			     seed + i};
}

static struct manner random_manner(uint64_t i, int rank)
{
	uint64_t h = team_random(seed, i, (uint64_t)rank + 1000);
	return (struct manner){h >> 8 & 1, h >> 9 & 1, h >> 10 & 31, h >> 20 & 31, NULL, NULL};
}

static void make_calls(struct window *window, int rank, void *arg)
{
	int size = *(int *)arg;
	uint64_t window_bytes, staged[2];

	for (uint64_t i = 0; i < 24; i++) {
		struct call call = random_call(i, size);
		struct manner manner = random_manner(i, rank);
		call_make(window, rank, size, &call, &manner);
	}
	/* That nothing was staged shows that the others' memory was read. */
	struct call call = {COLL_ALL_TO_ALL, TUTTI_F32, TUTTI_SUM, 0, 70000, seed};
	window_stats(window, &window_bytes, &staged[0]);
	call_make(window, rank, size, &call, &(struct manner){0});
	window_stats(window, &window_bytes, &staged[1]);
	team_check(size == 1 || staged[0] == staged[1], "%zu bytes were staged",
		   (size_t)(staged[1] - staged[0]));
}

static void test_values(void **state)
{
	for (int size = 1; size <= 4; size++) {
		for (int kind = 0; kind < 2; kind++) {
			struct team team = {.size = size,
					    .read_bytes = 1,
					    .are_processes = kind,
					    .is_oversubscribed = size % 2,
					    .member = make_calls,
					    .arg = &size};
			team.window_bytes = size % 2 ? 0 : 131072;
			assert_int_equal(team_run(&team), 0);
		}
	}
}

/* From now on process_vm_readv is EPERM, as in a container. */
static void forbid_reading(void)
{
	struct sock_filter filter[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_process_vm_readv, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | 1 /* EPERM */),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = {sizeof filter / sizeof *filter, filter};

	team_check(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0, "no_new_privs");
	team_check(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0, "seccomp");
}

/* Rank 1 may not after the third call: that and all later ones are right nevertheless. */
static void lose_permission(struct window *window, int rank, void *arg)
{
	for (uint64_t i = 0; i < 30; i++) {
		struct call call = random_call(i, RANKS);
		struct manner manner = random_manner(i, rank);
		if (i == 3 && rank == 1)
			forbid_reading();
		call_make(window, rank, RANKS, &call, &manner);
	}
	struct call call = {COLL_ALL_TO_ALL, TUTTI_F32, TUTTI_SUM, 0, 70000, seed};
	call_make(window, rank, RANKS, &call, &(struct manner){0});
	team_check(window->reads_from == UINT64_MAX, "rank %d still reads", rank);
	(void)arg;
}

static void test_permission_lost(void **state)
{
	struct team team = {
		.size = RANKS, .read_bytes = 1, .are_processes = true, .member = lose_permission};
	assert_int_equal(team_run(&team), 0);
}

/* A number that names another process now, perhaps one with memory at the same addresses. Killed:
 * its word not compared. */
static void test_another_process(void **state)
{
	struct window *windows[RANKS];

	for (int found_out = 0; found_out < 2; found_out++) {
		open_team(windows, 1);
		windows[1]->area->process ^= 1;
		if (found_out)
			read_find_out(windows[0], 1);
		assert_int_equal(windows[0]->area->reads_from, found_out ? UINT64_MAX : 1);
		assert_string_equal(path_of(windows, COLL_ALL_GATHER, LONG, true, true), "staged");
		assert_string_equal(path_of(windows, COLL_ALL_TO_ALL, LONG, false, false),
				    "staged");
		assert_int_equal(windows[2]->reads_from, UINT64_MAX);
		team_close(windows, RANKS);
	}
}

/* Of rank 0's buffer only its own block is there. Killed: reading_check_mapped left out (then it is
 * a signal). */
static void test_not_mapped(void **state)
{
	size_t bytes = LONG * sizeof(float);
	uint8_t *half = mmap(NULL, RANKS * bytes + 8192, PROT_READ | PROT_WRITE,
			     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	uint8_t *gone = half + (bytes + 8191) / 4096 * 4096;
	struct window *windows[RANKS];
	struct window_run runs[RANKS];
	tutti_status status[RANKS];
	bool moved;

	munmap(gone, bytes);
	open_team(windows, 1);
	for (int rank = 0; rank < RANKS; rank++) {
		struct call_args args = args_for(COLL_ALL_TO_ALL, LONG, rank, false);
		if (rank == 0)
			args.send = half + 100;
		window_begin(windows[rank], &runs[rank], &args);
		status[rank] = TUTTI_IN_PROGRESS;
	}
	for (int i = 0; i < 3000; i++) {
		int rank = i % RANKS;
		if (status[rank] != TUTTI_IN_PROGRESS)
			continue;
		status[rank] = window_advance(windows[rank], &runs[rank], &moved);
		if (status[rank] != TUTTI_IN_PROGRESS)
			assert_non_null(strstr(last_error(), "send buffer of rank 0"));
		if (status[rank] != TUTTI_IN_PROGRESS && rank == 0)
			window_fail(windows[0], status[0], last_error()); /* as the engine does */
	}
	assert_int_equal(status[0], TUTTI_ERR_SYSTEM);
	assert_int_equal(status[1], TUTTI_ERR_PEER);
	assert_int_equal(status[2], TUTTI_ERR_PEER);
	team_close(windows, RANKS);
	munmap(half, RANKS * bytes + 8192);
}

/* Rank 1 has read all and said so, waits, and fails; its caller uses the buffer again. What the
 * others read then is not what was sent. Killed: failures not looked at before WORD_TAKEN. */
static void test_failed_before_read(void **state)
{
	struct window *windows[RANKS];
	struct window_run runs[RANKS];
	bool moved;

	open_team(windows, 1);
	for (int rank = 0; rank < RANKS; rank++) {
		struct call_args args = args_for(COLL_ALL_GATHER, LONG, rank, false);
		window_begin(windows[rank], &runs[rank], &args);
	}
	for (int i = 0; i < 10; i++)
		assert_int_equal(window_advance(windows[1], &runs[1], &moved), TUTTI_IN_PROGRESS);
	assert_int_equal(runs[1].step, runs[1].steps - 1);
	window_fail(windows[1], TUTTI_ERR_TIMEOUT, "Rank 1 had no more time.");
	memset(room[1][0], 0x55, sizeof room[1][0]);
	for (int i = 0; i < 1000; i++) {
		int rank = i % 2 * 2;
		if (progress_is_over(&runs[rank]))
			continue;
		tutti_status status = window_advance(windows[rank], &runs[rank], &moved);
		assert_true(status == TUTTI_ERR_TIMEOUT || status == TUTTI_IN_PROGRESS);
	}
	assert_true(progress_is_over(&runs[0]) && progress_is_over(&runs[2]));
	assert_non_null(strstr(last_error(), "Rank 1 had no more time."));
	team_close(windows, RANKS);
}

/* A rank that failed after all were done with its buffers is no failure of this call. */
static void test_failed_after_read(void **state)
{
	struct window *windows[RANKS];
	struct window_run runs[RANKS];
	bool moved;

	open_team(windows, 1);
	for (int rank = 0; rank < RANKS; rank++) {
		struct call_args args = args_for(COLL_ALL_GATHER, LONG, rank, false);
		window_begin(windows[rank], &runs[rank], &args);
	}
	for (int rank = 0; rank < RANKS - 1; rank++)
		assert_int_equal(window_advance(windows[rank], &runs[rank], &moved),
				 TUTTI_IN_PROGRESS);
	assert_int_equal(window_advance(windows[2], &runs[2], &moved), TUTTI_OK);
	window_fail(windows[2], TUTTI_ERR_ABORTED, "Rank 2 gave up.");
	assert_int_equal(window_advance(windows[0], &runs[0], &moved), TUTTI_OK);
	assert_int_equal(window_advance(windows[1], &runs[1], &moved), TUTTI_OK);
	team_close(windows, RANKS);
}

static struct call_args copying_call(uint64_t i, int rank)
{
	return args_for(i % 2 ? COLL_ALL_GATHER : COLL_ALL_TO_ALL, LONG, rank, false);
}

static void test_kill(void **state)
{
	struct team_kill plan = {{.size = RANKS,
				  .window_bytes = 1u << 20,
				  .read_bytes = 1,
				  .is_oversubscribed = true},
				 copying_call,
				 .rounds = 6,
				 .most_calls = 50};
	team_kill(&plan, seed);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_collectives),       cmocka_unit_test(test_who_decides),
		cmocka_unit_test(test_not_known_yet),     cmocka_unit_test(test_values),
		cmocka_unit_test(test_permission_lost),   cmocka_unit_test(test_another_process),
		cmocka_unit_test(test_not_mapped),        cmocka_unit_test(test_failed_before_read),
		cmocka_unit_test(test_failed_after_read), cmocka_unit_test(test_kill),
	};
	seed = team_seed();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
