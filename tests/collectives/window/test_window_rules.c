/* slow: 3 s */
/* Would break: the rules of a window (docs/window.md). Each test says which line of the window,
 * changed, makes it fail. One thread plays all ranks, so every order of events is as written or
 * drawn from a seed. */
#include "window_team.h"

#include "collectives/window/window_internal.h"
#include "core/clock.h"
#include "core/status.h"
#include "core/memory/dtype.h"
#include "tests/limit.h"

#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <string.h>
#include <unistd.h>

#include "tests/unit.h"

#define RANKS 4

static uint64_t seed;

static tutti_status advance(struct window *window, struct window_run *run)
{
	bool moved;
	return window_advance(window, run, &moved);
}

/* The root has nothing to wait for, and nobody waits for it to have waited: its data fit the lines,
 * or the slots, which are free. */
static bool may_go(const struct made *root)
{
	return root->run.pieces <= WINDOW_SLOTS &&
	       (root->run.pattern == COLL_BROADCAST || root->run.pattern == COLL_SCATTER);
}

/* Killed: window_see_lines lets the root of a barrier (or a reduce) go at once. */
static void test_who_waits(void **state)
{
	struct team team = {.size = 2};
	struct window *windows[2];
	static const size_t counts[] = {0, 1, 300, 100000};

	team_open(&team, windows);
	for (int collective = 0; collective < COLL_MEM_ALLOC; collective++) {
		for (int c = 0; c < 8; c++) {
			struct call call = {(enum collective)collective,
					    TUTTI_U8,
					    TUTTI_SUM,
					    c % 2,
					    counts[c / 2],
					    seed + (uint64_t)c};
			struct made first = {.size = 2}, second = {.size = 2};
			struct manner manner = {0};
			tutti_status status0 = TUTTI_IN_PROGRESS, status1 = TUTTI_IN_PROGRESS;

			made_begin(&first, windows[call.root], call.root, &call, &manner);
			for (int i = 0; i < 5; i++)
				assert_int_equal(advance(windows[call.root], &first.run),
						 may_go(&first) ? TUTTI_OK : TUTTI_IN_PROGRESS);
			made_begin(&second, windows[1 - call.root], 1 - call.root, &call, &manner);
			while (status0 || status1) {
				status0 = advance(windows[call.root], &first.run);
				status1 = advance(windows[1 - call.root], &second.run);
				assert_true(status0 == TUTTI_OK || status0 == TUTTI_IN_PROGRESS);
				assert_true(status1 == TUTTI_OK || status1 == TUTTI_IN_PROGRESS);
			}
			made_check(&first);
			made_check(&second);
		}
	}
	team_close(windows, 2);
}

/* The rank ahead makes calls until it must wait, which it does until the other has come half the
 * way; the values of all of them arrive. Killed: WINDOW_LINES - 1 is WINDOW_LINES in window_begin,
 * or the room not waited for. */
static void check_ahead(enum collective collective, int ahead)
{
	enum { CALLS = WINDOW_LINES };
	struct team team = {.size = 2};
	struct window *windows[2];
	static struct made front[CALLS], back[CALLS];
	struct manner manner = {0};

	team_open(&team, windows);
	for (uint64_t i = 0; i < CALLS; i++) {
		struct call call = {collective, TUTTI_U8, TUTTI_SUM, 0, 1 + i * 7, seed + i};
		front[i] = (struct made){.size = 2};
		made_begin(&front[i], windows[ahead], ahead, &call, &manner);
		assert_int_equal(advance(windows[ahead], &front[i].run),
				 i < CALLS - 1 ? TUTTI_OK : TUTTI_IN_PROGRESS);
	}
	for (uint64_t i = 0; i < CALLS; i++) {
		struct call call = {collective, TUTTI_U8, TUTTI_SUM, 0, 1 + i * 7, seed + i};
		back[i] = (struct made){.size = 2};
		assert_int_equal(advance(windows[ahead], &front[CALLS - 1].run),
				 i < CALLS / 2 ? TUTTI_IN_PROGRESS : TUTTI_OK);
		made_begin(&back[i], windows[1 - ahead], 1 - ahead, &call, &manner);
		assert_int_equal(advance(windows[1 - ahead], &back[i].run), TUTTI_OK);
	}
	for (int i = 0; i < CALLS; i++) {
		made_check(&front[i]);
		made_check(&back[i]);
	}
	team_close(windows, 2);
}

static void test_who_runs_ahead(void **state)
{
	check_ahead(COLL_BROADCAST, 0);
	check_ahead(COLL_SCATTER, 0);
	check_ahead(COLL_REDUCE, 1);
	check_ahead(COLL_GATHER, 1);
}

/* A long rooted call of ordinary buffers: rank 2 has not come. The root of what goes out and those
 * that send to the root of a reduce are done without anybody, the other receivers with the root's
 * line. Then the root of the next call waits: of rank 2's line there is none, and its slots are not
 * free. */
static void check_long(enum collective collective, int first, int second)
{
	struct team team = {.size = 3, .is_oversubscribed = true};
	struct window *windows[3];
	struct made made[3] = {{.size = 3}, {.size = 3}, {.size = 3}};
	struct made next[3] = {{.size = 3}, {.size = 3}, {.size = 3}};
	struct call call = {collective, TUTTI_U8, TUTTI_SUM, 0, 50000, seed}, other = call;
	struct manner manner = {0};

	other.collective = COLL_BROADCAST;
	team_open(&team, windows);
	for (int i = 0; i < 3; i++) {
		int rank = i == 0 ? first : i == 1 ? second : 2;
		made_begin(&made[rank], windows[rank], rank, &call, &manner);
		assert_int_equal(advance(windows[rank], &made[rank].run),
				 rank || collective != COLL_REDUCE ? TUTTI_OK : TUTTI_IN_PROGRESS);
		if (i != 1)
			continue;
		made_begin(&next[first], windows[first], first, &other, &manner);
		assert_int_equal(advance(windows[first], &next[first].run), TUTTI_IN_PROGRESS);
	}
	assert_int_equal(advance(windows[0], &made[0].run), TUTTI_OK);
	for (int rank = 0; rank < 3; rank++)
		if (rank != first)
			made_begin(&next[rank], windows[rank], rank, &other, &manner);
	for (int i = 0; i < 6; i++)
		advance(windows[i % 3], &next[i % 3].run);
	for (int rank = 0; rank < 3; rank++) {
		assert_int_equal(advance(windows[rank], &next[rank].run), TUTTI_OK);
		made_check(&made[rank]);
		made_check(&next[rank]);
	}
	team_close(windows, 3);
}

/* Killed: window_set_peers lets a long broadcast's receivers wait for all, or its root; a reduce's
 * senders. */
static void test_long_alone(void **state)
{
	check_long(COLL_BROADCAST, 0, 1);
	check_long(COLL_SCATTER, 0, 1);
	check_long(COLL_REDUCE, 1, 0);
}

/* Both are roots and wait for no other rank, so it shows when one lacks room. Killed: see_room
 * without its comparison. */
static void test_mismatch_ahead(void **state)
{
	struct team team = {.size = 2};
	struct window *windows[2];
	struct window_run run;
	tutti_status status = TUTTI_OK;
	uint8_t byte = 0;

	team_open(&team, windows);
	for (uint32_t i = 0; i < 2 * WINDOW_LINES && status == TUTTI_OK; i++) {
		int rank = (int)(i % 2);
		struct call_args args = {.collective = COLL_BROADCAST,
					 .dtype = TUTTI_U8,
					 .root = rank,
					 .count = 1,
					 .send = &byte,
					 .recv = &byte,
					 .sequence = i / 2,
					 .fingerprint = 7u + (uint32_t)rank};
		struct call_record record = call_record_of(&args, 2, 0);
		recorder_add(board_recorder(window_board(windows[rank])), args.sequence, &record);
		window_begin(windows[rank], &run, &args);
		status = advance(windows[rank], &run);
	}
	assert_int_equal(status, TUTTI_ERR_MISMATCH);
	assert_non_null(strstr(last_error(), "rank 0 called broadcast(u8, 1, root 0) as #0"));
	assert_non_null(strstr(last_error(), "rank 1 called broadcast(u8, 1, root 1) as #0"));
	team_close(windows, 2);
}

struct player {
	struct made made;
	uint64_t next; /* the call it makes next */
	bool is_busy;
};

static struct call drawn_call(uint64_t i)
{
	static const size_t limits[] = {2, 40, 600, 4000};
	uint64_t h = team_random(seed, i, 7);
	struct call call = {(enum collective)(h % COLL_MEM_ALLOC),
			    TUTTI_I32,
			    TUTTI_SUM,
			    (int)(h >> 8 & 3) % RANKS,
			    0,
			    seed + i};

	call.count = (h >> 32) % limits[h >> 20 & 3];
	call.op = team_op(h >> 40 & 255, call.dtype);
	return call;
}

static void start(struct window *window, struct player *p, int rank)
{
	struct call call = drawn_call(p->next++);
	/* Ranks differ in what they pass: some in place, some not. */
	struct manner manner = {.is_in_place = team_random(call.seed, (uint64_t)rank, 3) % 2};

	p->made.size = RANKS;
	made_begin(&p->made, window, rank, &call, &manner);
	p->is_busy = true;
}

/* Advances ranks in an order from the seed: often one of them many times in a row, so that ranks
 * get as far ahead of each other as the window allows. Every call's values are checked. Killed:
 * WINDOW_SLOTS 2; staged_slot_is_free always 0; TAKEN not posted by a broadcast's root; a
 * generation not counted by one path; header compared with >= (the numbers wrap after 64 calls); a
 * line posted in another parity; staging before the others' TAKEN; rows written while the operation
 * before the last may still be read. */
static void play(uint64_t calls, bool is_oversubscribed)
{
	struct team team = {
		.size = RANKS, .window_bytes = 20000, .is_oversubscribed = is_oversubscribed};
	struct window *windows[RANKS];
	struct player players[RANKS] = {0};
	uint64_t turn = 0;
	int done = 0;

	team_open(&team, windows);
	while (done < RANKS) {
		uint64_t h = team_random(seed, turn++, 99);
		int rank = (int)(h % RANKS), burst = h >> 8 & 3 ? 1 : (int)(h >> 16 & 63);
		struct player *p = &players[rank];
		for (; burst >= 0 && (p->is_busy || p->next < calls); burst--) {
			if (!p->is_busy)
				start(windows[rank], p, rank);
			tutti_status status = advance(windows[rank], &p->made.run);
			team_check(status == TUTTI_OK || status == TUTTI_IN_PROGRESS, "%s",
				   last_error());
			if (status == TUTTI_OK) {
				made_check(&p->made);
				p->is_busy = false;
				done += p->next == calls;
			}
		}
		team_check(turn < calls * 100000, "the ranks wait for each other for ever");
	}
	team_close(windows, RANKS);
}

static void test_any_order(void **state)
{
	for (int round = 0; round < 16; round++, seed++)
		play(400, round % 2);
}

static void test_numbers_wrap(void **state)
{
	struct team team = {.size = 1};
	struct window *windows[1];
	struct call_args args = {.collective = COLL_BARRIER, .fingerprint = 1};
	struct window_run run;
	uint32_t first = 0;
	int wraps = 0;

	team_open(&team, windows);
	for (int i = 0; i < 200; i++) {
		window_begin(windows[0], &run, &args);
		assert_int_equal(advance(windows[0], &run), TUTTI_OK);
		wraps += run.number < first;
		first = run.number;
	}
	assert_int_equal(wraps, 1);
	team_close(windows, 1);
}

struct sleeper {
	struct window *window;
	struct window_run run;
	struct call_args args;
	atomic_int ready;
	tutti_status status;
};

static void *sleep_in_drive(void *arg)
{
	struct sleeper *s = arg;
	window_begin(s->window, &s->run, &s->args);
	s->status = window_drive(s->window, &s->run, TEAM_TIMEOUT_NS, NULL, NULL, NULL);
	return NULL;
}

/* A flag that is posted without a look for sleepers stands for a load that overtook its store.
 * Killed: doorbell_sleep's futex without a timeout. */
static void test_missed_sleeper_wakes(void **state)
{
	struct team team = {.size = 2, .is_oversubscribed = true};
	struct window *windows[2];
	struct sleeper s = {.args = {.collective = COLL_BARRIER, .fingerprint = 9}};
	pthread_t thread;
	struct line *line;

	test_limit(60);
	team_open(&team, windows);
	s.window = windows[0];
	assert_int_equal(pthread_create(&thread, NULL, sleep_in_drive, &s), 0);
	while (!atomic_load(&windows[0]->area->sleeps_for))
		sched_yield();
	line = line_of(windows[1], WINDOW_FIRST_NUMBER + 1, 1);
	atomic_store(&line->header, (WINDOW_FIRST_NUMBER + 1) | (uint64_t)9 << 32);
	pthread_join(thread, NULL);
	assert_int_equal(s.status, TUTTI_OK);
	team_close(windows, 2);
	test_limit(0);
}

/* A sleeper is woken, not only timed: with the timer alone, 300 sleeps are 0.3 s, and waking must
 * be seen on the doorbell. Killed: doorbell_wake does nothing. */
static void test_post_rings(void **state)
{
	struct team team = {.size = 2, .is_oversubscribed = true};
	struct window *windows[2];
	struct sleeper s = {.args = {.collective = COLL_BARRIER, .fingerprint = 9}};
	uint32_t rings = 0;

	test_limit(60);
	team_open(&team, windows);
	s.window = windows[0];
	while (!rings) {
		struct window_run run;
		pthread_t thread;
		assert_int_equal(pthread_create(&thread, NULL, sleep_in_drive, &s), 0);
		while (!atomic_load(&windows[0]->area->sleeps_for))
			sched_yield();
		window_begin(windows[1], &run, &s.args);
		while (advance(windows[1], &run) == TUTTI_IN_PROGRESS)
			sched_yield();
		pthread_join(thread, NULL);
		rings = atomic_load(&windows[0]->area->doorbell);
	}
	team_close(windows, 2);
	test_limit(0);
}

static void *half_driven(void *arg)
{
	struct sleeper *s = arg;

	window_begin(s->window, &s->run, &s->args);
	for (int i = 0; i < 3; i++)
		advance(s->window, &s->run);
	s->status = window_drive(s->window, &s->run, TEAM_TIMEOUT_NS, NULL, NULL, NULL);
	return NULL;
}

/* Killed: drive begins anew what advance has begun (run->step = 0, run->peer = 0 with a step done).
 */
static void test_drive_takes_over(void **state)
{
	struct team team = {.size = 2, .window_bytes = 65536};
	struct window *windows[2];
	enum { COUNT = 50000 };
	static int32_t a[COUNT], b[COUNT];

	test_limit(60);
	team_open(&team, windows);
	for (int round = 0; round < 20; round++) {
		struct sleeper s = {.window = windows[0]};
		struct window_run run;
		struct call_args args;
		pthread_t thread;
		for (int i = 0; i < COUNT; i++) {
			a[i] = i;
			b[i] = 3 * i + round;
		}
		args = (struct call_args){.collective = COLL_ALL_REDUCE,
					  .dtype = TUTTI_I32,
					  .op = TUTTI_SUM,
					  .count = COUNT,
					  .send = b,
					  .recv = b,
					  .sequence = 1,
					  .fingerprint = 7};
		s.args = args;
		s.args.send = s.args.recv = a;
		assert_int_equal(pthread_create(&thread, NULL, half_driven, &s), 0);
		window_begin(windows[1], &run, &args);
		while (advance(windows[1], &run) == TUTTI_IN_PROGRESS)
			sched_yield();
		pthread_join(thread, NULL);
		assert_int_equal(s.status, TUTTI_OK);
		for (int i = 0; i < COUNT; i++) {
			assert_int_equal(a[i], 4 * i + round);
			assert_int_equal(b[i], 4 * i + round);
		}
	}
	team_close(windows, 2);
	test_limit(0);
}

struct litmus {
	struct window *window;
	struct call_args args;
	atomic_int go, done;
};

/* As many as can be done in a while: a slow machine does fewer. */
#define LITMUS_ROUNDS 100000
#define LITMUS_NS     3000000000u

static void *post_at_once(void *arg)
{
	struct litmus *l = arg;

	for (int round = 1; round <= LITMUS_ROUNDS; round++) {
		struct window_run run;
		for (int looks = 0; atomic_load_explicit(&l->go, memory_order_acquire) < round;)
			if (++looks > 2000)
				sched_yield();
		if (atomic_load(&l->go) == INT_MAX)
			return NULL;
		/* With the count in this core's cache, the load is much faster than the store. */
		for (volatile int i = round % 128; i > 0; i--)
			atomic_load(&l->window->at.head->sleepers);
		window_begin(l->window, &run, &l->args);
		atomic_store_explicit(&l->done, round, memory_order_release);
		while (advance(l->window, &run) == TUTTI_IN_PROGRESS)
			sched_yield();
	}
	return NULL;
}

/* One rank arms while another posts: either the first sees the post or the second sees it armed.
 * Killed, on two cores, nearly always: window_arm without membarrier. */
static void test_litmus(void **state)
{
	struct team team = {.size = 2};
	struct window *windows[2];
	struct litmus l = {.args = {.collective = COLL_BARRIER, .fingerprint = 9}};
	pthread_t thread;
	uint64_t end = clock_now_ns() + LITMUS_NS;
	int lost = 0;

	if (wait_policy_on(2, wait_cores()).shares_cores)
		skip();
	test_limit(100);
	team_open(&team, windows);
	l.window = windows[1];
	assert_int_equal(pthread_create(&thread, NULL, post_at_once, &l), 0);
	for (int round = 1; round <= LITMUS_ROUNDS && clock_now_ns() < end; round++) {
		struct pollfd fd = {window_event_fd(windows[0]), POLLIN, 0};
		struct window_run run;
		window_begin(windows[0], &run, &l.args);
		atomic_store_explicit(&l.go, round, memory_order_release);
		for (volatile int i = round / 128 % 128; i > 0; i--)
			;
		if (!window_arm(windows[0], &run)) {
			while (atomic_load_explicit(&l.done, memory_order_acquire) != round)
				sched_yield();
			lost += poll(&fd, 1, 0) != 1;
			window_disarm(windows[0]);
		}
		while (advance(windows[0], &run) == TUTTI_IN_PROGRESS)
			sched_yield();
	}
	atomic_store(&l.go, INT_MAX);
	pthread_join(thread, NULL);
	assert_int_equal(lost, 0);
	team_close(windows, 2);
	test_limit(0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_who_waits),
		cmocka_unit_test(test_who_runs_ahead),
		cmocka_unit_test(test_long_alone),
		cmocka_unit_test(test_mismatch_ahead),
		cmocka_unit_test(test_any_order),
		cmocka_unit_test(test_numbers_wrap),
		cmocka_unit_test(test_missed_sleeper_wakes),
		cmocka_unit_test(test_post_rings),
		cmocka_unit_test(test_drive_takes_over),
		cmocka_unit_test(test_litmus),
	};
	seed = team_seed();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
