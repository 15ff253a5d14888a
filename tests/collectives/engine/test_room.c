/* Without this a program with more works in flight than there is room for could hang, or be told
 * that its peer is to blame when its deadline passes; or most time goes into looks at them. */
#include "collectives/comm/comm.h"
#include "collectives/engine/engine_internal.h"
#include "collectives/p2p/p2p_internal.h"
#include "core/clock.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "tests/unit.h"

#define LONG_MS  60000
#define SHORT_MS 200
#define OLD_MS   1500 /* of the one work that is issued just before there is no room */

static const char *const ways[] = {"shm", "tcp", NULL}; /* NULL: a window, and shm */

static void open_two(tutti_comm **comms, const char *transports)
{
	tutti_config config = {.transports = transports, .timeout_ms = LONG_MS};
	if (tutti_init_all(comms, 2, &config) != TUTTI_OK)
		fail_msg("init: %s", tutti_comm_error(NULL));
}

/* The n-th asynchronous send to or recv from the other rank; nothing holds its work. */
static tutti_status issue(tutti_comm *comm, bool sends, int timeout_ms)
{
	static uint64_t word[2][2];
	int me = tutti_rank(comm);
	tutti_work *work = NULL;
	tutti_call call = {.work = &work, .tag = 3, .timeout_ms = timeout_ms};
	tutti_status status = sends ? tutti_send(&word[me][0], 1, TUTTI_U64, !me, comm, &call)
				    : tutti_recv(&word[me][1], 1, TUTTI_U64, !me, comm, &call);
	if (status == TUTTI_OK)
		tutti_work_release(&work);
	return status;
}

static void fill(tutti_comm *comm, bool sends, int count)
{
	for (int i = 0; i < count; i++)
		if (issue(comm, sends, LONG_MS) != TUTTI_OK)
			fail_msg("call %d: %s", i, tutti_comm_error(comm));
}

static void assert_says(const tutti_comm *comm, const char *words)
{
	if (!strstr(tutti_comm_error(comm), words))
		fail_msg("\"%s\" is not in \"%s\"", words, tutti_comm_error(comm));
}

static void assert_no_room(tutti_comm *comm, const char *call)
{
	char oldest[100];
	snprintf(oldest, sizeof oldest, "the oldest, %s, has lasted ", call);
	assert_says(comm, "1024 works are in flight on this communicator (at most 1024): waited ");
	assert_says(comm, oldest);
	assert_says(comm, "wait for some before issuing more");
}

/* Nobody receives, or sends: the first call without room says so, at its own deadline. */
static void test_own_deadline(void **state)
{
	for (int k = 0; k < 6; k++) {
		bool sends = k % 2;
		tutti_comm *comms[2];
		open_two(comms, ways[k / 2]);
		/* As many short sends as there are slots are over at once. */
		fill(comms[0], sends, ENGINE_WORKS_MAX + (sends ? (int)P2P_SLOTS : 0));
		assert_int_equal(issue(comms[0], sends, SHORT_MS), TUTTI_ERR_TIMEOUT);
		assert_no_room(comms[0], sends ? "send(u64, 1, tag 3) to rank 1"
					       : "recv(u64, 1, tag 3) from rank 1");
		tutti_comm_destroy(comms[0]);
		tutti_comm_destroy(comms[1]);
	}
}

/* One of those that keep it out comes to its deadline first. */
static void test_deadline_of_another(void **state)
{
	tutti_comm *comms[2];
	open_two(comms, "shm");
	fill(comms[0], false, ENGINE_WORKS_MAX - 1);
	assert_int_equal(issue(comms[0], false, OLD_MS), TUTTI_OK);
	assert_int_equal(issue(comms[0], false, LONG_MS), TUTTI_ERR_TIMEOUT);
	assert_no_room(comms[0], "recv(u64, 1, tag 3) from rank 1");
	tutti_comm_destroy(comms[0]);
	tutti_comm_destroy(comms[1]);
}

/* Room comes while a call waits for it. */
static void test_room_comes(void **state)
{
	for (int w = 0; w < 3; w++) {
		tutti_comm *comms[2];
		open_two(comms, ways[w]);
		fill(comms[0], false, ENGINE_WORKS_MAX);
		fill(comms[1], true, 10);
		fill(comms[0], false, 10);
		fill(comms[1], true, ENGINE_WORKS_MAX);
		tutti_comm_destroy(comms[1]);
		tutti_comm_destroy(comms[0]);
	}
}

/* A call of a group waits for no room, also if it is the only one: what would make room may wait
 * for it. */
static void *send_then_receive_in_groups(void *arg)
{
	static uint64_t large[2][20000];
	tutti_comm *comm = arg;
	int me = tutti_rank(comm);
	tutti_call call = {.tag = 9};

	fill(comm, false, ENGINE_WORKS_MAX);
	if (tutti_group_begin() != TUTTI_OK)
		return "group_begin";
	tutti_status status = me == 0 ? tutti_send(large[0], 20000, TUTTI_U64, 1, comm, &call)
				      : tutti_recv(large[1], 20000, TUTTI_U64, 0, comm, &call);
	if (status != TUTTI_OK || tutti_group_end(NULL) != TUTTI_OK)
		return "the group";
	for (int i = 0; i < ENGINE_WORKS_MAX; i++)
		if (tutti_group_begin() != TUTTI_OK || issue(comm, true, LONG_MS) != TUTTI_OK ||
		    tutti_group_end(NULL) != TUTTI_OK)
			return "a send";
	return NULL;
}

static void test_group_of_one(void **state)
{
	for (int w = 0; w < 3; w++) {
		tutti_comm *comms[2];
		pthread_t threads[2];
		void *failed[2];
		open_two(comms, ways[w]);
		for (int r = 0; r < 2; r++)
			pthread_create(&threads[r], NULL, send_then_receive_in_groups, comms[r]);
		for (int r = 0; r < 2; r++)
			pthread_join(threads[r], &failed[r]);
		for (int r = 0; r < 2; r++)
			if (failed[r])
				fail_msg("rank %d: %s: %s", r, (char *)failed[r],
					 tutti_comm_error(comms[r]));
		tutti_comm_destroy(comms[0]);
		tutti_comm_destroy(comms[1]);
	}
}

/* ---- both sides -------------------------------------------------------------------------------
 */

struct side {
	tutti_comm *comm;
	tutti_status status;
};

static void *receive_then_send(void *arg)
{
	struct side *s = arg;
	s->status = TUTTI_OK;
	for (int i = 0; i < 2 * (ENGINE_WORKS_MAX + 10) && s->status == TUTTI_OK; i++)
		s->status = issue(s->comm, i >= ENGINE_WORKS_MAX + 10,
				  i < ENGINE_WORKS_MAX ? LONG_MS : SHORT_MS);
	return NULL;
}

/* All receives first and then all sends, on both ranks, does not get on. A rank that finds out says
 * why. */
static void test_both_sides(void **state)
{
	for (int w = 0; w < 3; w++) {
		tutti_comm *comms[2];
		struct side sides[2];
		pthread_t threads[2];
		open_two(comms, ways[w]);
		for (int r = 0; r < 2; r++) {
			sides[r].comm = comms[r];
			pthread_create(&threads[r], NULL, receive_then_send, &sides[r]);
		}
		for (int r = 0; r < 2; r++)
			pthread_join(threads[r], NULL);
		assert_true(sides[0].status == TUTTI_ERR_TIMEOUT ||
			    sides[1].status == TUTTI_ERR_TIMEOUT);
		for (int r = 0; r < 2; r++) {
			assert_true(sides[r].status == TUTTI_ERR_TIMEOUT ||
				    sides[r].status == TUTTI_ERR_PEER);
			assert_says(comms[r], "1024 works are in flight on this communicator");
			tutti_comm_destroy(comms[r]);
		}
	}
}

/* A look at all works costs the more the more there are: passes do not make it again at once. */
static void test_looks_are_rare(void **state)
{
	enum { PASSES = 20000, WORKS = 500 };
	tutti_comm *comms[2];
	uint64_t before, looks = 0, begin;

	open_two(comms, "shm");
	fill(comms[0], false, WORKS);
	begin = clock_now_ns();
	before = comms[0]->engine->watch.watched_ns;
	for (int i = 0; i < PASSES; i++) {
		struct engine *e = comms[0]->engine;
		engine_lock(e);
		engine_pass(e, false);
		looks += e->watch.watched_ns != before;
		before = e->watch.watched_ns;
		engine_unlock(e);
	}
	assert_true(looks > 0);
	assert_true(looks <= (clock_now_ns() - begin) / MS_TO_NS(1) * 2 + 2);
	fill(comms[1], true, WORKS);
	for (int r = 0; r < 2; r++)
		tutti_comm_destroy(comms[r]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_own_deadline), cmocka_unit_test(test_deadline_of_another),
		cmocka_unit_test(test_room_comes),   cmocka_unit_test(test_group_of_one),
		cmocka_unit_test(test_both_sides),   cmocka_unit_test(test_looks_are_rare),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
