/* What would break: what others see of this process. Entries mixed of two operations, an old call's
 * end in a new one's entry, the operations of a communicator that is gone. */
#include "collectives/select/select.h"
#include "collectives/trace/trace_log.h"
#include "tests/entries.h"

#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/unit.h"

static struct trace *open_one(uint64_t name, int rank, int size)
{
	struct trace_about about = {.name = name, .rank = rank, .size = size, .way = "window"};
	struct trace *trace = NULL;
	assert_int_equal(trace_open(&trace, &about, algorithm_name), TUTTI_OK);
	return trace;
}

/* The call of this sequence has as many elements, so that a mixture shows. */
static struct trace_mark note(struct trace *t, uint64_t sequence)
{
	struct trace_mark mark =
		trace_note(t, trace_what(sequence, COLL_ALL_REDUCE, TUTTI_F32, TRACE_BY_WINDOW, 0),
			   trace_size(sequence, 0));
	atomic_store_explicit(&t->sequence, sequence, memory_order_relaxed);
	trace_began(&mark);
	return mark;
}

static void note_over(struct trace *t, uint64_t sequence, bool failed)
{
	struct trace_mark mark = note(t, sequence);
	trace_ended(&mark, failed);
}

/* Without a time. */
static void note_at_once(struct trace *t, uint64_t sequence)
{
	struct call_args args = {.collective = COLL_ALL_REDUCE,
				 .dtype = TUTTI_F32,
				 .count = sequence % TRACE_SHORT,
				 .sequence = sequence};
	trace_short(t, &args);
}

static struct trace_process read_all(void)
{
	struct trace_process p = {0};
	assert_int_equal(trace_read_own(&p), TUTTI_OK);
	return p;
}

static const struct trace_comm *find(const struct trace_process *p, uint64_t name)
{
	for (size_t i = 0; i < p->comm_count; i++)
		if (p->comms[i].name == name)
			return &p->comms[i];
	return NULL;
}

static void test_states(void **state)
{
	struct trace *t = open_one(7, 1, 3);
	note_over(t, 0, false);
	note_at_once(t, 1);
	note_over(t, 2, true);
	trace_note(t, trace_what(3, TRACE_RECV, TUTTI_U8, TRACE_BY_MESSAGE, TRACE_IS_ASYNC),
		   trace_size(5, TUTTI_ANY));
	struct trace_process p = read_all();
	const struct trace_comm *c = find(&p, 7);
	assert_non_null(c);
	assert_int_equal(c->rank, 1);
	assert_int_equal(c->size, 3);
	assert_string_equal(c->way, "window");
	assert_int_equal(c->op_count, 4);
	for (int i = 0; i < 3; i++) {
		assert_string_equal(c->ops[i].name, "all_reduce");
		assert_string_equal(c->ops[i].algorithm, "window");
		assert_int_equal(c->ops[i].sequence, i);
		assert_int_equal(c->ops[i].bytes, 4 * i);
		assert_int_equal(c->ops[i].peer, -1);
		assert_true(c->ops[i].begin_ns > 0 && c->ops[i].begin_ns <= p.now_ns);
		assert_true(i == 0 || c->ops[i].begin_ns >= c->ops[i - 1].begin_ns);
	}
	assert_int_equal(c->ops[0].state, TRACE_STATE_DONE);
	assert_true(c->ops[0].end_ns >= c->ops[0].begin_ns);
	assert_int_equal(c->ops[1].state, TRACE_STATE_DONE);
	assert_true(c->ops[1].end_ns == TRACE_UNKNOWN);
	assert_int_equal(c->ops[2].state, TRACE_STATE_FAILED);
	assert_string_equal(c->ops[3].name, "recv");
	assert_int_equal(c->ops[3].sequence, -1);
	assert_int_equal(c->ops[3].peer, -1);
	assert_int_equal(c->ops[3].state, TRACE_STATE_RUNS);
	assert_true(c->ops[3].is_async);
	trace_process_free(&p);
	trace_close(t);
}

/* What has no time of its own lies between those that have, in order. */
static void test_between(void **state)
{
	struct trace *t = open_one(13, 0, 1);
	note_at_once(t, 0);
	note_over(t, 1, false);
	for (uint64_t i = 2; i < 10; i++)
		note_at_once(t, i);
	note_over(t, 10, false);
	note_at_once(t, 11);
	struct trace_process p = read_all();
	const struct trace_op *op = find(&p, 13)->ops;
	for (int i = 0; i < 12; i++) {
		bool has_time = i == 1 || i == 10;
		assert_true(op[i].earliest_ns <= op[i].begin_ns);
		assert_true(op[i].begin_ns <= op[i].latest_ns);
		assert_true(i == 0 || op[i].begin_ns >= op[i - 1].begin_ns);
		if (has_time)
			assert_true(op[i].earliest_ns == op[i].latest_ns);
		if (i > 1 && i < 10) {
			assert_true(op[i].earliest_ns == op[1].end_ns);
			assert_true(op[i].latest_ns == op[10].begin_ns);
		}
	}
	assert_true(op[0].latest_ns == op[1].begin_ns && op[11].latest_ns == p.now_ns);
	trace_process_free(&p);
	trace_close(t);
}

static void test_the_last_ones(void **state)
{
	struct trace *t = open_one(8, 0, 1);
	for (uint64_t i = 0; i < 3 * TRACE_OPS + 5; i++)
		note_over(t, i, false);
	struct trace_process p = read_all();
	const struct trace_comm *c = find(&p, 8);
	assert_int_equal(c->op_count, TRACE_OPS);
	for (uint64_t i = 0; i < TRACE_OPS; i++) {
		assert_int_equal(c->ops[i].index, 2 * TRACE_OPS + 5 + i);
		assert_int_equal(c->ops[i].sequence, 2 * TRACE_OPS + 5 + i);
		assert_int_equal(c->ops[i].count, 2 * TRACE_OPS + 5 + i);
	}
	trace_process_free(&p);
	trace_close(t);
}

/* The sequence travels as its low half. */
static void test_long_ago(void **state)
{
	struct trace *t = open_one(9, 0, 1);
	uint64_t first = (UINT64_C(5) << 32) - 2;
	for (uint64_t i = 0; i < 4; i++)
		note(t, first + i);
	struct trace_process p = read_all();
	const struct trace_comm *c = find(&p, 9);
	for (uint64_t i = 0; i < 4; i++)
		assert_true((uint64_t)c->ops[i].sequence == first + i);
	trace_process_free(&p);
	trace_close(t);
}

static void test_late_end(void **state)
{
	struct trace *t = open_one(10, 0, 1);
	struct trace_mark old = note(t, 0), none = {0};
	for (uint64_t i = 1; i <= TRACE_OPS; i++)
		note(t, i);
	trace_ended_late(&old, false); /* its entry is another call's by now */
	trace_ended_late(&none, false);
	struct trace_process p = read_all();
	for (size_t i = 0; i < find(&p, 10)->op_count; i++)
		assert_int_equal(find(&p, 10)->ops[i].state, TRACE_STATE_RUNS);
	trace_process_free(&p);

	struct trace_mark latest = note(t, TRACE_OPS + 1);
	trace_ended_late(&latest, true);
	trace_ended_late(&latest, false); /* the first counts */
	p = read_all();
	const struct trace_comm *c = find(&p, 10);
	assert_int_equal(c->ops[c->op_count - 1].state, TRACE_STATE_FAILED);
	trace_process_free(&p);
	trace_close(t);
}

/* An asynchronous call gets a time when it waits. One that never does is one word in the end. */
static void test_late_begin(void **state)
{
	struct call_args args = {.collective = COLL_BROADCAST,
				 .dtype = TUTTI_F32,
				 .count = 3,
				 .root = 5,
				 .sequence = 4};
	struct trace *t = open_one(14, 0, 8);
	struct trace_mark prompt = trace_call(t, &args, TRACE_BY_WINDOW, TRACE_IS_ASYNC);
	struct trace_mark slow = trace_call(t, &args, TRACE_BY_WINDOW, TRACE_IS_ASYNC);
	trace_began_late(&slow);
	assert_true(trace_ended_at_once(&prompt, &args));
	assert_false(trace_ended_at_once(&slow, &args));
	trace_ended_late(&slow, false);
	struct trace_process p = read_all();
	const struct trace_op *op = find(&p, 14)->ops;
	for (int i = 0; i < 2; i++) {
		assert_string_equal(op[i].name, "broadcast");
		assert_int_equal(op[i].sequence, 4);
		assert_int_equal(op[i].count, 3);
		assert_int_equal(op[i].peer, 5);
		assert_true(op[i].is_async);
		assert_int_equal(op[i].state, TRACE_STATE_DONE);
	}
	assert_true(op[0].end_ns == TRACE_UNKNOWN && op[1].end_ns >= op[1].begin_ns);
	for (uint64_t i = 0; i < TRACE_OPS; i++)
		note_over(t, 5 + i, false);
	assert_false(trace_ended_at_once(&prompt, &args)); /* its entry is another call's by now */
	trace_process_free(&p);
	trace_close(t);
}

static void test_many_communicators(void **state)
{
	struct trace *traces[3 * TRACE_SLOTS];
	int files = open_descriptors();
	for (uint64_t i = 0; i < 3 * TRACE_SLOTS; i++) {
		traces[i] = open_one(100 + i, (int)i, 100);
		note(traces[i], i);
	}
	assert_int_equal(open_descriptors(), files + 3);
	for (uint64_t i = 0; i < 3 * TRACE_SLOTS; i += 2)
		trace_close(traces[i]);
	struct trace_process p = read_all();
	assert_int_equal(p.comm_count, 3 * TRACE_SLOTS / 2);
	for (uint64_t i = 0; i < 3 * TRACE_SLOTS; i++) {
		const struct trace_comm *c = find(&p, 100 + i);
		assert_true((c != NULL) == (i % 2 == 1));
		assert_true(!c || c->ops[0].count == i);
	}
	trace_process_free(&p);
	/* A new one in an old one's place has nothing of it. */
	traces[0] = open_one(200, 0, 1);
	p = read_all();
	assert_int_equal(find(&p, 200)->op_count, 0);
	assert_string_equal(find(&p, 200)->waits, "");
	trace_process_free(&p);
	trace_close(traces[0]);
	for (uint64_t i = 1; i < 3 * TRACE_SLOTS; i += 2)
		trace_close(traces[i]);
	assert_int_equal(open_descriptors(), files);
}

static void test_waits(void **state)
{
	struct trace *t = open_one(11, 0, 4);
	struct trace_wait wait = {.index = 0, .rank = 3, .text = "for \"rank\" 3\n"};
	note(t, 0);
	trace_waits(t, &wait);
	struct trace_process p = read_all();
	assert_int_equal(find(&p, 11)->waits_rank, 3);
	assert_string_equal(find(&p, 11)->waits, "for 'rank' 3?");
	trace_process_free(&p);
	trace_close(t);
}

#define OPS_WRITTEN 400000

/* An operation has the label that was given for it, and no earlier one's of its place. */
static void test_labels(void **state)
{
	char text[100], longest[56];

	memset(text, 'x', sizeof text - 1);
	text[sizeof text - 1] = '\0';
	memset(longest, 'x', sizeof longest - 1);
	longest[sizeof longest - 1] = '\0';
	for (int again = 0; again < 2; again++) { /* the second one is in the first one's place */
		struct trace *t = open_one(13, 0, 2);
		for (uint64_t i = 0; i < TRACE_OPS + 8; i++) {
			trace_label(t, again        ? NULL
				       : i % 4 == 0 ? "unit \"h\""
				       : i % 4 == 1 ? text
						    : NULL);
			i % 2 ? note_over(t, i, false) : (void)note(t, i);
		}
		for (uint64_t i = TRACE_OPS + 8; i < TRACE_OPS + 16; i++)
			note_at_once(t, i); /* in the places of labelled ones */
		struct trace_process p = read_all();
		const struct trace_comm *c = find(&p, 13);
		assert_int_equal(c->op_count, TRACE_OPS);
		for (size_t k = 0; k < c->op_count; k++) {
			uint64_t i = c->ops[k].index;
			bool has = !again && i < TRACE_OPS + 8;
			assert_string_equal(c->ops[k].label, has && i % 4 == 0   ? "unit 'h'"
							     : has && i % 4 == 1 ? longest
										 : "");
		}
		trace_process_free(&p);
		trace_close(t);
	}
}

static atomic_bool is_over;

static void *write_many(void *arg)
{
	struct trace *t = arg;
	char label[24];
	for (uint64_t i = 0; i < OPS_WRITTEN; i++) {
		snprintf(label, sizeof label, "for %llu", (unsigned long long)i);
		trace_label(t, i % 8 ? NULL : label);
		struct trace_wait wait = {.index = i, .rank = (int)(i % 4)};
		snprintf(wait.text, sizeof wait.text, "%llu", (unsigned long long)i);
		if (i % 2)
			note_over(t, i, i % 3 == 0);
		else
			note_at_once(t, i);
		if (i % 64 == 0)
			trace_waits(t, &wait);
	}
	atomic_store(&is_over, true);
	return NULL;
}

static void test_no_mixture(void **state)
{
	struct trace *t = open_one(12, 0, 4);
	pthread_t writer;
	size_t reads = 0, seen = 0;
	atomic_store(&is_over, false);
	assert_int_equal(pthread_create(&writer, NULL, write_many, t), 0);
	while (!atomic_load(&is_over)) {
		struct trace_process p = read_all();
		const struct trace_comm *c = find(&p, 12);
		for (size_t i = 0; i < c->op_count; i++) {
			uint64_t count = c->ops[i].index;
			assert_true((uint64_t)c->ops[i].sequence == count);
			if (c->ops[i].label[0])
				assert_true(strtoull(c->ops[i].label + 4, NULL, 10) == count);
			assert_true(c->ops[i].count == (count % 2 ? count : count % TRACE_SHORT));
		}
		if (c->waits[0])
			assert_true(strtoull(c->waits, NULL, 10) == c->waits_index);
		seen += c->op_count;
		reads++;
		trace_process_free(&p);
	}
	pthread_join(writer, NULL);
	print_message("%zu operations in %zu reads\n", seen, reads);
	assert_true(reads > 0);
	trace_close(t);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_states),        cmocka_unit_test(test_between),
		cmocka_unit_test(test_the_last_ones), cmocka_unit_test(test_long_ago),
		cmocka_unit_test(test_late_end),      cmocka_unit_test(test_waits),
		cmocka_unit_test(test_late_begin),    cmocka_unit_test(test_many_communicators),
		cmocka_unit_test(test_labels),        cmocka_unit_test(test_no_mixture),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
