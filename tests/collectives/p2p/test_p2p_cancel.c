/* Without this a cancelled recv could take a message with it, write its buffer later, or fail its
 * communicator; a recv that has met its message could be cancelled, too. */
#include "tests/collectives/thread_ranks.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>

#include "tests/unit.h"

#define ROUNDS 300

static tutti_work *post_recv(struct rank *r, void *buf, size_t bytes, int peer)
{
	tutti_work *work = NULL;
	tutti_call call = {.tag = 3, .work = &work};
	expect(r, "recv", tutti_recv(buf, bytes, TUTTI_U8, peer, r->comm, &call));
	return work;
}

static void send_to(struct rank *r, const void *buf, size_t bytes, int peer)
{
	tutti_call call = {.tag = 3};
	expect(r, "send", tutti_send(buf, bytes, TUTTI_U8, peer, r->comm, &call));
}

static void expect_cancelled(struct rank *r, tutti_work **work)
{
	tutti_status status = tutti_work_wait(work, 0);
	if (status != TUTTI_ERR_ABORTED ||
	    !strstr(tutti_comm_error(r->comm), "was cancelled (tutti_work_cancel)"))
		report_wrong(r, "the wait for a cancelled recv", status);
}

/* Rank 0 cancels the second of three recvs, before any message is sent: the messages go to the
 * others in order. */
static void in_between(struct rank *r)
{
	static uint8_t got[3][20000], words[2][20000];
	tutti_work *works[3];

	for (int k = 0; k < 4 && r->size > 1 && r->rank < 2; k++) {
		size_t bytes = k & 1 ? 20000 : 100;
		for (int i = 0; i < 3 && r->rank == 0; i++) {
			memset(got[i], 0xee, bytes);
			works[i] = post_recv(r, got[i], bytes, k & 2 ? TUTTI_ANY : 1);
		}
		if (r->rank == 0)
			expect(r, "cancel", tutti_work_cancel(works[1]));
		if (r->rank == 0 && tutti_work_cancel(works[1]) != TUTTI_ERR_INVALID)
			report_wrong(r, "a recv was cancelled twice", TUTTI_OK);
		expect(r, "sum of both",
		       tutti_all_reduce(&k, &k, 1, TUTTI_I32, TUTTI_MAX, r->other, NULL));
		for (int i = 0; i < 2 && r->rank == 1; i++) {
			memset(words[i], 10 * k + i, bytes);
			send_to(r, words[i], bytes, 0);
		}
		if (r->rank != 0)
			continue;
		expect_cancelled(r, &works[1]);
		expect(r, "wait", tutti_work_wait(&works[0], 0));
		expect(r, "wait", tutti_work_wait(&works[2], 0));
		if (got[0][bytes - 1] != 10 * k || got[2][bytes - 1] != 10 * k + 1)
			report_wrong(r, "messages after a cancelled recv", TUTTI_OK);
		if (got[1][0] != 0xee || got[1][bytes - 1] != 0xee)
			report_wrong(r, "the buffer of a cancelled recv", TUTTI_OK);
	}
	for (int k = 0; k < 4 && r->rank > 1; k++)
		expect(r, "sum of both",
		       tutti_all_reduce(&k, &k, 1, TUTTI_I32, TUTTI_MAX, r->other, NULL));
	expect(r, "barrier", tutti_barrier(r->comm, NULL));
}

/* Nothing but a recv that waits can be cancelled. */
static void what_cannot(struct rank *r)
{
	static uint8_t big[RANKS_MAX][20000], in[RANKS_MAX][20000];
	tutti_work *sent = NULL, *sum = NULL, *group = NULL;
	tutti_call send = {.tag = 3, .work = &sent}, reduce = {.work = &sum};
	tutti_call grouped = {.work = &group};
	int next = (r->rank + 1) % r->size, before = (r->rank + r->size - 1) % r->size;
	int32_t one = 1;

	expect(r, "send", tutti_send(big[r->rank], 20000, TUTTI_U8, next, r->comm, &send));
	if (tutti_work_cancel(sent) != TUTTI_ERR_INVALID)
		report_wrong(r, "a send was cancelled", TUTTI_OK);
	tutti_work *recv = post_recv(r, in[r->rank], 20000, before);
	int done = 0;
	while (!done)
		expect(r, "test", tutti_work_test(recv, &done));
	if (tutti_work_cancel(recv) != TUTTI_ERR_INVALID)
		report_wrong(r, "a recv that has ended was cancelled", TUTTI_OK);
	expect(r, "wait for the recv", tutti_work_wait(&recv, 0));
	expect(r, "wait for the send", tutti_work_wait(&sent, 0));
	expect(r, "all_reduce",
	       tutti_all_reduce(&one, &one, 1, TUTTI_I32, TUTTI_SUM, r->comm, &reduce));
	if (tutti_work_cancel(sum) != TUTTI_ERR_INVALID)
		report_wrong(r, "a collective was cancelled", TUTTI_OK);
	expect(r, "wait", tutti_work_wait(&sum, 0));
	tutti_group_begin();
	tutti_call member = {.tag = 4};
	expect(r, "recv", tutti_recv(in[r->rank], 10, TUTTI_U8, before, r->comm, &member));
	expect(r, "send", tutti_send(big[r->rank], 10, TUTTI_U8, next, r->comm, &member));
	expect(r, "group", tutti_group_end(&grouped));
	if (tutti_work_cancel(group) != TUTTI_ERR_INVALID)
		report_wrong(r, "a group was cancelled", TUTTI_OK);
	expect(r, "wait for the group", tutti_work_wait(&group, 0));
	if (tutti_work_cancel(NULL) != TUTTI_ERR_INVALID)
		report_wrong(r, "NULL was cancelled", TUTTI_OK);
}

struct canceller {
	pthread_t thread;
	tutti_work *_Atomic work; /* to be cancelled; NULL: not yet */
	atomic_int status, is_over;
};

static void *cancel_all(void *arg)
{
	struct canceller *c = arg;
	while (!atomic_load(&c->is_over)) {
		tutti_work *work = atomic_exchange(&c->work, NULL);
		if (work)
			atomic_store(&c->status, (int)tutti_work_cancel(work));
		else
			sched_yield();
	}
	return NULL;
}

static tutti_status cancel_by(struct canceller *c, tutti_work *work)
{
	atomic_store(&c->status, TUTTI_IN_PROGRESS);
	atomic_store(&c->work, work);
	while (atomic_load(&c->status) == TUTTI_IN_PROGRESS)
		sched_yield();
	return (tutti_status)atomic_load(&c->status);
}

/* Another thread of rank 0 cancels while rank 1's message comes: one of both happens, and then the
 * message is the next recv's. */
static void race(struct rank *r)
{
	static uint8_t got[20000], word[20000], again[20000];
	struct canceller c = {.is_over = 0};
	tutti_call start = {.tag = 5};
	uint8_t go = 1;

	if (r->size < 2 || r->rank > 1)
		return;
	if (r->rank == 0)
		pthread_create(&c.thread, NULL, cancel_all, &c);
	for (int i = 0; i < ROUNDS && !r->why[0]; i++) {
		size_t bytes = i % 3 ? 20000 : 100;
		if (r->rank == 1) {
			expect(r, "go", tutti_recv(&go, 1, TUTTI_U8, 0, r->comm, &start));
			memset(word, i, bytes);
			send_to(r, word, bytes, 0);
			continue;
		}
		got[0] = got[bytes - 1] = (uint8_t)(i + 1);
		tutti_work *work = post_recv(r, got, bytes, i & 1 ? TUTTI_ANY : 1);
		expect(r, "go", tutti_send(&go, 1, TUTTI_U8, 1, r->comm, &start));
		for (int k = 0; k < i % 17; k++)
			sched_yield();
		tutti_status cancelled = cancel_by(&c, work);
		if (cancelled == TUTTI_OK) {
			expect_cancelled(r, &work);
			work = post_recv(r, again, bytes, 1);
			expect(r, "the recv after it", tutti_work_wait(&work, 0));
			if (again[0] != (uint8_t)i || again[bytes - 1] != (uint8_t)i)
				report_wrong(r, "a cancelled recv's message is lost", TUTTI_OK);
			if (got[0] != (uint8_t)(i + 1) || got[bytes - 1] != (uint8_t)(i + 1))
				report_wrong(r, "a cancelled recv was written", TUTTI_OK);
		} else {
			expect(r, "a recv that was not cancelled", tutti_work_wait(&work, 0));
			if (got[0] != (uint8_t)i || got[bytes - 1] != (uint8_t)i)
				report_wrong(r, "bytes of a recv that was not cancelled", TUTTI_OK);
		}
	}
	atomic_store(&c.is_over, 1);
	if (r->rank == 0)
		pthread_join(c.thread, NULL);
}

static void test_in_between(void **state)
{
	everywhere(in_between);
}

static void test_what_cannot(void **state)
{
	everywhere(what_cannot);
}

static void test_race(void **state)
{
	with_ranks(2, "tcp", 1, race);
	with_ranks(2, "shm", 2, race);
	with_ranks(3, NULL, 3, race);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_in_between),
		cmocka_unit_test(test_what_cannot),
		cmocka_unit_test(test_race),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
