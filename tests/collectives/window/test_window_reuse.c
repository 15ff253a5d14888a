/* no_tsan: it has one thread */
/* Would break: a rank that has failed gives its buffers back to its caller, who uses them again
 * while others still read them: nobody may return OK with what lies there by then. One thread plays
 * all ranks. */
#include "window_team.h"

#include "collectives/window/window_internal.h"
#include "core/status.h"

#include <string.h>

#include "tests/unit.h"

#define RANKS 3
/* A run gives way after 16 steps of 256 KiB, and every rank has more to do. */
#define BLOCK ((size_t)5 << 20)
#define LATER 0x5a /* what the caller of the failed rank writes */

struct player {
	struct window *window;
	struct window_run run;
	uint8_t *send, *recv;
	tutti_status status;
};

static tutti_status advance(struct player *p)
{
	bool moved = true;

	while (moved && p->status == TUTTI_IN_PROGRESS)
		p->status = window_advance(p->window, &p->run, &moved);
	return p->status;
}

static void advance_once(struct player *p)
{
	bool moved;

	if (p->status == TUTTI_IN_PROGRESS)
		p->status = window_advance(p->window, &p->run, &moved);
}

static void start(struct player *p, struct call_args args)
{
	p->status = TUTTI_IN_PROGRESS;
	window_begin(p->window, &p->run, &args);
}

static void until_all_are_done(struct player *players)
{
	for (bool waits = true; waits;) {
		waits = false;
		for (int rank = 0; rank < RANKS; rank++)
			waits |= advance(&players[rank]) == TUTTI_IN_PROGRESS;
	}
}

static void open(struct player *players)
{
	struct team team = {.size = RANKS};
	struct window *windows[RANKS];

	team_open(&team, windows);
	for (int rank = 0; rank < RANKS; rank++) {
		struct call_args args = {
			.collective = COLL_MEM_ALLOC, .count = 2 * RANKS * BLOCK, .fingerprint = 3};
		players[rank].window = windows[rank];
		start(&players[rank], args);
	}
	until_all_are_done(players);
	for (int rank = 0; rank < RANKS; rank++) {
		assert_int_equal(players[rank].status, TUTTI_OK);
		players[rank].send = players[rank].run.memory;
		players[rank].recv = players[rank].send + RANKS * BLOCK;
		memset(players[rank].send, rank + 1, RANKS * BLOCK);
	}
}

static void close(struct player *players)
{
	struct window *windows[RANKS];

	for (int rank = 0; rank < RANKS; rank++) {
		window_mem_free(players[rank].send);
		windows[rank] = players[rank].window;
	}
	team_close(windows, RANKS);
}

/* All go some way, the victim as far as it can without the others. It fails, its caller writes, and
 * the others go on. Returns how many ranks ended well. */
static int fail_between(enum collective collective, int victim, int root, bool in_place)
{
	bool is_whole = collective == COLL_ALL_REDUCE || collective == COLL_REDUCE ||
			collective == COLL_BROADCAST;
	struct call call = {collective, TUTTI_U8, TUTTI_MAX, root, BLOCK * (is_whole ? RANKS : 1),
			    5};
	struct player players[RANKS], *failed = &players[victim];
	int well = 0;

	open(players);
	for (int rank = 0; rank < RANKS; rank++)
		start(&players[rank],
		      call_args_for(&call, players[rank].send,
				    in_place ? players[rank].send : players[rank].recv));
	for (int rank = 0; rank < RANKS; rank++)
		advance_once(&players[rank]);
	if (advance(failed) == TUTTI_IN_PROGRESS) {
		window_fail(failed->window, TUTTI_ERR_TIMEOUT, "This rank waited too long.");
		failed->status = TUTTI_ERR_TIMEOUT;
	}
	memset(failed->send, LATER, 2 * RANKS * BLOCK);
	until_all_are_done(players);
	for (int rank = 0; rank < RANKS; rank++) {
		if (rank != victim && players[rank].status == TUTTI_OK) {
			assert_null(memchr(players[rank].send, LATER, 2 * RANKS * BLOCK));
			well++;
		} else if (rank != victim) {
			assert_int_equal(players[rank].status, TUTTI_ERR_TIMEOUT);
			assert_non_null(strstr(last_error(), "waited too long"));
		}
	}
	close(players);
	return well;
}

/* Killed: zero_copy_step without a look at the failures. */
static void test_failed_rank(void **state)
{
	for (int victim = 0; victim < RANKS; victim += 2) {
		assert_int_equal(fail_between(COLL_ALL_REDUCE, victim, 0, false), 0);
		assert_int_equal(fail_between(COLL_REDUCE_SCATTER, victim, 0, false), 0);
		assert_int_equal(fail_between(COLL_ALL_GATHER, victim, 0, false), 0);
		assert_int_equal(fail_between(COLL_ALL_TO_ALL, victim, 0, false), 0);
		assert_int_equal(fail_between(COLL_REDUCE, victim, victim, false), 0);
		assert_int_equal(fail_between(COLL_BROADCAST, victim, victim, false), 0);
		assert_int_equal(fail_between(COLL_BROADCAST, victim, victim, true), 0);
		assert_int_equal(fail_between(COLL_SCATTER, victim, victim, false), 0);
		/* These do not read what is the victim's, or are done with it. */
		fail_between(COLL_REDUCE, victim, (victim + 1) % RANKS, false);
		fail_between(COLL_BROADCAST, victim, (victim + 1) % RANKS, false);
		fail_between(COLL_SCATTER, victim, (victim + 1) % RANKS, false);
		fail_between(COLL_GATHER, victim, (victim + 1) % RANKS, false);
		fail_between(COLL_GATHER, victim, victim, false);
	}
}

/* A rank that has failed frees its memory, while a rank of the same process may be in the middle of
 * a copy. */
static void test_freed_memory(void **state)
{
	struct player players[RANKS];

	open(players);
	assert_int_equal(window_mem_free(players[1].send), TUTTI_OK);
	assert_int_equal(players[1].send[BLOCK], 0);
	players[1].send[BLOCK] = 1;
	assert_int_equal(window_mem_free(players[1].send), TUTTI_ERR_INVALID);
	close(players);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_failed_rank),
		cmocka_unit_test(test_freed_memory),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
