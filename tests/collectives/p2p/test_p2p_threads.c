/* slow: 2 s */
/* Without this, sends and receives of the public API could lose, mix up or block messages between
 * ranks as threads: over every transport, beside collectives, with senders that leave early. */
#include "tests/collectives/thread_ranks.h"
#include "tests/random.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit.h"

static int32_t value(int from, int to, size_t i)
{
	return (int32_t)((uint32_t)from * 1000003u + (uint32_t)to * 10007u + (uint32_t)i);
}

/* A ring of blocking calls; short sends need no receiver, long ones take turns. */
static void ring(struct rank *r)
{
	static const size_t counts[] = {0, 1, 64, 4096, 4097, 200000};
	int next = (r->rank + 1) % r->size, before = (r->rank + r->size - 1) % r->size;

	for (size_t c = 0; c < sizeof counts / sizeof counts[0]; c++) {
		size_t n = counts[c];
		int32_t *out = malloc(n * 4 + 4), *in = malloc(n * 4 + 4);
		tutti_work *work = NULL;
		tutti_call call = {.tag = 5}, async = {.tag = 5, .work = &work};
		bool is_short = n * 4 <= 16384;
		for (size_t i = 0; i < n; i++)
			out[i] = value(r->rank, next, i);
		if (!is_short && r->rank == 0)
			expect(r, "async recv",
			       tutti_recv(in, n, TUTTI_I32, before, r->comm, &async));
		if (is_short || r->rank == 0)
			expect(r, "send", tutti_send(out, n, TUTTI_I32, next, r->comm, &call));
		if (is_short || r->rank != 0)
			expect(r, "recv", tutti_recv(in, n, TUTTI_I32, before, r->comm, &call));
		if (!is_short && r->rank != 0)
			expect(r, "send", tutti_send(out, n, TUTTI_I32, next, r->comm, &call));
		expect(r, "wait", tutti_work_wait(&work, 0));
		for (size_t i = 0; i < n; i++)
			if (in[i] != value(before, r->rank, i)) {
				report_wrong(r, "bytes of the ring", TUTTI_OK);
				break;
			}
		free(out);
		free(in);
	}
}

/* A short send is done though its receiver is in a collective, and the other way round. */
static void beside_collectives(struct rank *r)
{
	int32_t word = r->rank + 100, sum = 0, got = -1;
	static int32_t big[2][20000];
	tutti_work *work = NULL;
	tutti_call async = {.tag = 2, .work = &work}, call = {.tag = 1};

	if (r->size == 1)
		return;
	if (r->rank == 0)
		expect(r, "send", tutti_send(&word, 1, TUTTI_I32, 1, r->comm, &call));
	if (r->rank == 0)
		expect(r, "send", tutti_send(big[0], 20000, TUTTI_I32, 1, r->comm, &async));
	for (int i = 0; i < 20; i++)
		expect(r, "all_reduce",
		       tutti_all_reduce(&word, &sum, 1, TUTTI_I32, TUTTI_SUM, r->comm, NULL));
	if (r->rank == 1) {
		expect(r, "recv", tutti_recv(&got, 1, TUTTI_I32, 0, r->comm, &call));
		if (got != 100)
			report_wrong(r, "the word", TUTTI_OK);
		async.work = NULL;
		expect(r, "recv", tutti_recv(big[1], 20000, TUTTI_I32, 0, r->comm, &async));
	}
	expect(r, "wait", tutti_work_wait(&work, 0));
	tutti_stats stats;
	tutti_comm_stats(r->comm, &stats);
	if (tutti_comm_sequence(r->comm) != 20)
		report_wrong(r, "messages took sequence numbers", TUTTI_OK);
	if (r->rank == 0 && (stats.messages < 2 || stats.sent_bytes < 80004))
		report_wrong(r, "messages are not counted", TUTTI_OK);
	if (r->rank == 1 && stats.received_bytes < 80004)
		report_wrong(r, "received bytes are not counted", TUTTI_OK);
}

static void test_simple(void **state)
{
	everywhere(ring);
	everywhere(beside_collectives);
}

#define MESSAGES 150

struct message {
	int from, to, tag, after; /* after: of how many barriers the send comes            */
	size_t bytes;
	uint8_t *buf;
	tutti_work *work;
};

static void draw(struct rank *r, struct message *all)
{
	uint64_t state = r->seed;
	for (int i = 0; i < MESSAGES; i++) {
		uint64_t size = random_below(&state, 10);
		all[i] = (struct message){.from = (int)random_below(&state, (uint64_t)r->size),
					  .to = (int)random_below(&state, (uint64_t)r->size),
					  .tag = (int)random_below(&state, 3)};
		all[i].bytes = size < 5   ? random_below(&state, 300)
			       : size < 9 ? random_below(&state, 40000)
					  : random_below(&state, 600000);
	}
}

static void fill(const struct message *all, const struct message *m, uint8_t *buf)
{
	for (size_t b = 0; b < m->bytes; b++)
		buf[b] = (uint8_t)((size_t)(m - all) * 151 + b * 3 + (b >> 9));
}

static void check(struct rank *r, const struct message *all, const struct message *m)
{
	uint8_t *want = malloc(m->bytes + 1);
	fill(all, m, want);
	if (memcmp(want, m->buf, m->bytes) != 0)
		report_wrong(r, "bytes of a random program", TUTTI_OK);
	if (m->buf[m->bytes] != 0xa5)
		report_wrong(r, "a byte behind a buffer", TUTTI_OK);
	free(want);
}

/* Everything asynchronous: sends in order, receives of each (peer, tag) in order but otherwise
 * mixed, collectives in between, waits and tests from the last to the first. */
static void random_program(struct rank *r)
{
	struct message out[MESSAGES], in[MESSAGES];
	uint64_t own = r->seed * 31 + (uint64_t)r->rank;
	int32_t one = 1, sum = 0;

	draw(r, out);
	memcpy(in, out, sizeof in);
	for (int i = 0; i < MESSAGES; i++) {
		struct message *o = &out[i], *n = &in[(i * 7 + r->rank) % MESSAGES];
		tutti_call send = {.tag = o->tag, .work = &o->work};
		if (o->from == r->rank) {
			o->buf = malloc(o->bytes + 1);
			fill(out, o, o->buf);
			expect(r, "send",
			       tutti_send(o->buf, o->bytes, TUTTI_U8, o->to, r->comm, &send));
		}
		/* The first of n's queue that is not posted yet. */
		struct message *first = NULL;
		for (int k = 0; k < MESSAGES && !first; k++)
			if (in[k].from == n->from && in[k].to == n->to && in[k].tag == n->tag &&
			    !in[k].buf)
				first = &in[k];
		if (first && first->to == r->rank) {
			tutti_call recv = {.tag = first->tag, .work = &first->work};
			first->buf = malloc(first->bytes + 1);
			first->buf[first->bytes] = 0xa5;
			expect(r, "recv",
			       tutti_recv(first->buf, first->bytes, TUTTI_U8, first->from, r->comm,
					  &recv));
		}
		if (i % 25 == 24)
			expect(r, "all_reduce",
			       tutti_all_reduce(&one, &sum, 1, TUTTI_I32, TUTTI_SUM, r->comm,
						NULL));
	}
	for (int i = MESSAGES - 1; i >= 0; i--) {
		int done = 0;
		while (out[i].work && !done && random_below(&own, 2))
			expect(r, "test", tutti_work_test(out[i].work, &done));
		expect(r, "wait for a recv", tutti_work_wait(&in[i].work, 0));
		if (in[i].buf)
			check(r, in, &in[i]);
		free(in[i].buf);
	}
	for (int i = 0; i < MESSAGES; i++) {
		expect(r, "wait for a send", tutti_work_wait(&out[i].work, 0));
		free(out[i].buf);
	}
	if (sum != r->size)
		report_wrong(r, "a sum", TUTTI_OK);
}

static void test_random_programs(void **state)
{
	static const char *const transports[] = {"tcp", "shm", NULL};
	for (int t = 0; t < 3; t++)
		for (uint64_t seed = 1; seed <= 4; seed++)
			with_ranks(1 + (int)(seed * 2 - 1), transports[t], seed, random_program);
}

/* A transport that somebody else has written serves them as well. */
static void test_plugin(void **state)
{
	char path[1024];

	if (!getenv("BUILD_DIR"))
		fail_msg("BUILD_DIR is not set: run this by ctest");
	snprintf(path, sizeof path, "%s/tests/mailbox_plugin.so", getenv("BUILD_DIR"));
	setenv("TUTTI_TRANSPORT_PLUGIN", path, 1);
	with_ranks(3, "mailbox", 1, ring);
	with_ranks(3, "mailbox", 2, beside_collectives);
	with_ranks(4, "mailbox", 3, random_program);
	unsetenv("TUTTI_TRANSPORT_PLUGIN");
}

#define TASKS 40

/* Workers send what they have and leave, each at its own time; the master goes on receiving. */
static void master_and_workers(struct rank *r)
{
	int32_t word[2], served[RANKS_MAX] = {0};
	if (r->rank == 0) {
		for (int i = 0; i < TASKS * (r->size - 1); i++) {
			int source = -1;
			tutti_call call = {.tag = 7, .source = &source};
			expect(r, "recv from anybody",
			       tutti_recv(word, 2, TUTTI_I32, TUTTI_ANY, r->comm, &call));
			if (source < 1 || source >= r->size || word[0] != source ||
			    word[1] != served[source]++) {
				report_wrong(r, "a source or an order", TUTTI_OK);
				return;
			}
		}
		return;
	}
	for (int i = 0; i < TASKS; i++) {
		tutti_call call = {.tag = 7};
		word[0] = r->rank;
		word[1] = i;
		expect(r, "send", tutti_send(word, 2, TUTTI_I32, 0, r->comm, &call));
		word[0] = word[1] = -1;
	}
	tutti_comm_destroy(r->comm);
	r->comm = NULL;
}

/* What was sent gets there, though its sender left at once. */
static void sent_and_left(struct rank *r)
{
	static const char text[] = "sent just before the end";
	char got[sizeof text] = "";
	if (r->rank == 0 || r->rank == r->size - 1) {
		for (int p = 1; p < r->size - 1; p++)
			expect(r, "send",
			       tutti_send(text, sizeof text, TUTTI_U8, p, r->comm, NULL));
		tutti_comm_destroy(r->comm);
		r->comm = NULL;
		return;
	}
	for (int k = 0; k < 2; k++) {
		expect(r, "recv",
		       tutti_recv(got, sizeof got, TUTTI_U8, k ? r->size - 1 : 0, r->comm, NULL));
		if (strcmp(got, text) != 0)
			report_wrong(r, "the last words", TUTTI_OK);
	}
}

/* The last rank leaves without a word: no rank waits for its deadline, and what was sent to it
 * delays none. */
static void left_without_a_word(struct rank *r)
{
	int32_t word = 1;
	tutti_status status;
	if (r->size == 1)
		return;
	if (r->rank == r->size - 1) {
		tutti_comm_destroy(r->comm);
		r->comm = NULL;
		return;
	}
	if (r->rank == 0)
		expect(r, "send", tutti_send(&word, 1, TUTTI_I32, r->size - 1, r->comm, NULL));
	/* The others wait for the failure of rank 0, which concerns all. */
	status = tutti_recv(&word, 1, TUTTI_I32, r->rank == 0 ? r->size - 1 : TUTTI_ANY, r->comm,
			    NULL);
	if (status != TUTTI_ERR_PEER)
		report_wrong(r, "a recv from a rank that has left", status);
}

static void test_leaving(void **state)
{
	everywhere(left_without_a_word);
	everywhere(master_and_workers);
	everywhere(sent_and_left);
}

static void expect_mismatch(struct rank *r, const char *what, tutti_status status)
{
	if (status != TUTTI_ERR_MISMATCH ||
	    !strstr(tutti_comm_error(r->comm),
		    "rank 0 called send(f32, 50000, tag 3) to rank 1, which called recv(f32, "
		    "49999, tag 3)"))
		report_wrong(r, what, status);
}

static void note_status(void *arg, tutti_status status)
{
	atomic_store((atomic_int *)arg, (int)status);
}

/* The calls of ranks 0 and 1 that differ end with an error each, however they were made: blocking,
 * with a callback, in a group. All ranks go on. */
static void mismatch(struct rank *r)
{
	static float out[50000], in[50000];
	tutti_call call = {.tag = 3};
	float sum = 1;

	for (int how = 0; how < 3 && r->size > 1 && r->rank < 2; how++) {
		atomic_int noted = TUTTI_IN_PROGRESS;
		tutti_work *work = NULL;
		tutti_call called = {
			.tag = 3, .work = &work, .done = note_status, .done_arg = &noted};
		const tutti_call *c = how == 1 ? &called : &call;
		if (how == 2)
			tutti_group_begin();
		tutti_status status = r->rank == 0
					      ? tutti_send(out, 50000, TUTTI_F32, 1, r->comm, c)
					      : tutti_recv(in, 49999, TUTTI_F32, 0, r->comm, c);
		if (how == 2) {
			expect(r, "a sum in a group",
			       tutti_all_reduce(&sum, &sum, 1, TUTTI_F32, TUTTI_SUM, r->other,
						NULL));
			status = tutti_group_end(NULL);
		}
		if (how == 1)
			status = tutti_work_wait(&work, 0);
		expect_mismatch(r, "a send and a recv that differ", status);
		while (how == 1 && atomic_load(&noted) == TUTTI_IN_PROGRESS)
			sched_yield();
		if (how == 1 && atomic_load(&noted) != TUTTI_ERR_MISMATCH)
			report_wrong(r, "the callback's status", (tutti_status)noted);
	}
	if (r->size > 1 && r->rank > 1)
		expect(r, "a sum in a group",
		       tutti_all_reduce(&sum, &sum, 1, TUTTI_F32, TUTTI_SUM, r->other, NULL));
	ring(r);
	expect(r, "all_reduce",
	       tutti_all_reduce(&sum, &sum, 1, TUTTI_F32, TUTTI_SUM, r->comm, NULL));
}

static void late(struct rank *r)
{
	static float big[50000];
	tutti_call call = {.tag = 3, .timeout_ms = 150};
	if (r->size < 3 || r->rank != 0)
		return;
	tutti_status status = tutti_recv(big, 50000, TUTTI_F32, 2, r->comm, &call);
	if (status != TUTTI_ERR_TIMEOUT ||
	    !strstr(tutti_comm_error(r->comm), "for send(f32, 50000, tag 3) from rank 2"))
		report_wrong(r, "a recv without its send", status);
}

static void *abort_it(void *arg)
{
	tutti_comm_abort(arg);
	return NULL;
}

static void aborted(struct rank *r)
{
	static float big[2][50000];
	pthread_t thread;
	if (r->size != 2)
		return;
	/* Both have spoken on the channel, so that the failure is seen there. */
	if (r->rank == 0)
		expect(r, "send", tutti_send(&r->rank, 1, TUTTI_I32, 1, r->comm, NULL));
	expect(r, "recv", tutti_recv(big[r->rank], 1, TUTTI_I32, !r->rank, r->comm, NULL));
	if (r->rank == 1)
		expect(r, "send", tutti_send(&r->rank, 1, TUTTI_I32, 0, r->comm, NULL));
	if (r->rank == 0)
		pthread_create(&thread, NULL, abort_it, r->comm);
	tutti_status status = tutti_recv(big[r->rank], 50000, TUTTI_F32, !r->rank, r->comm, NULL);
	if (r->rank == 0)
		pthread_join(thread, NULL);
	if (status != TUTTI_ERR_ABORTED && (r->rank == 0 || status != TUTTI_ERR_PEER))
		report_wrong(r, "an aborted recv", status);
}

static void test_failures(void **state)
{
	everywhere(mismatch);
	everywhere(late);
	everywhere(aborted);
}

static void test_invalid(void **state)
{
	tutti_comm *comm;
	int x = 0;
	tutti_call bad_tag = {.tag = -1}, bad_time = {.timeout_ms = -1};

	assert_int_equal(tutti_init_all(&comm, 1, NULL), TUTTI_OK);
	assert_int_equal(tutti_send(&x, 1, TUTTI_I32, 0, NULL, NULL), TUTTI_ERR_INVALID);
	assert_int_equal(tutti_send(&x, 1, TUTTI_I32, 1, comm, NULL), TUTTI_ERR_INVALID);
	assert_int_equal(tutti_send(&x, 1, TUTTI_I32, TUTTI_ANY, comm, NULL), TUTTI_ERR_INVALID);
	assert_int_equal(tutti_recv(&x, 1, TUTTI_I32, -2, comm, NULL), TUTTI_ERR_INVALID);
	assert_int_equal(tutti_recv(NULL, 1, TUTTI_I32, 0, comm, NULL), TUTTI_ERR_INVALID);
	assert_int_equal(tutti_recv(&x, 1, (tutti_dtype)99, 0, comm, NULL), TUTTI_ERR_INVALID);
	assert_int_equal(tutti_recv(&x, SIZE_MAX / 2, TUTTI_I32, 0, comm, NULL), TUTTI_ERR_INVALID);
	assert_int_equal(tutti_send(&x, 1, TUTTI_I32, 0, comm, &bad_tag), TUTTI_ERR_INVALID);
	assert_int_equal(tutti_send(&x, 1, TUTTI_I32, 0, comm, &bad_time), TUTTI_ERR_INVALID);
	assert_true(strlen(tutti_comm_error(NULL)) > 20);
	assert_int_equal(tutti_comm_status(comm), TUTTI_OK);
	tutti_comm_destroy(comm);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_simple),   cmocka_unit_test(test_random_programs),
		cmocka_unit_test(test_plugin),   cmocka_unit_test(test_leaving),
		cmocka_unit_test(test_failures), cmocka_unit_test(test_invalid),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
