/* What would break: the time line and the blame. Hosts whose clocks began at different moments are
 * put where they belong, as surely as is claimed; the rank that came last to a collective is named,
 * and by how much. */
#include "tools/tutti-trace/merge.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit.h"

#define MS INT64_C(1000000)

/* A rank on a host, whose clock began at zero_ns of the true time; what it has done is added. */
static void add_rank(struct log *log, int rank, int size, const char *boot, int64_t zero_ns)
{
	struct trace_comm *comm = calloc(1, sizeof *comm);
	struct trace_process p = {.pid = 100 + rank, .comms = comm, .comm_count = 1};
	snprintf(p.host, sizeof p.host, "host %s", boot);
	snprintf(p.boot, sizeof p.boot, "%s", boot);
	p.start_ns = 1000;
	p.real_ns = zero_ns + 1000;
	p.now_ns = 9000 * MS - zero_ns;
	*comm = (struct trace_comm){
		.name = 77, .rank = rank, .size = size, .num_nodes = 1, .way = "tcp"};
	comm->ops = calloc(64, sizeof *comm->ops);
	log_add(log, &p);
}

/* By the true time. end 0: it still runs. */
static void add_op(struct log *log, int rank, const char *name, int64_t begin, int64_t end)
{
	struct trace_process *p = &log->processes[rank];
	struct trace_comm *c = p->comms;
	struct trace_op *op = &c->ops[c->op_count];
	int64_t zero = p->real_ns - 1000;
	*op = (struct trace_op){.index = c->op_count,
				.sequence = (int64_t)c->op_count,
				.bytes = 8,
				.earliest_ns = begin - zero,
				.latest_ns = begin - zero,
				.begin_ns = begin - zero,
				.end_ns = end ? end - zero : TRACE_UNKNOWN,
				.state = end ? TRACE_STATE_DONE : TRACE_STATE_RUNS};
	snprintf(op->name, sizeof op->name, "%s", name);
	c->op_count++;
}

static char *report_of(struct log *log)
{
	struct parts parts;
	char *report = NULL;
	size_t bytes;
	FILE *file = open_memstream(&report, &bytes);
	parts_find(&parts, log);
	clocks_align(log, &parts, file);
	late_report(log, &parts, true, file);
	fclose(file);
	parts_free(&parts);
	return report;
}

static void assert_says(const char *report, const char *what)
{
	if (!strstr(report, what)) {
		print_message("no '%s' in:\n%s", what, report);
		fail();
	}
}

/* The calendars are wrong; the collectives tell. */
static void test_clocks(void **state)
{
	struct log log = {0};
	int64_t zeros[] = {0, 123456 * MS + 789, 0}, worst = 0;
	(void)state;
	add_rank(&log, 0, 3, "a", zeros[0]);
	add_rank(&log, 1, 3, "b", zeros[1]);
	add_rank(&log, 2, 3, "a", zeros[2]);
	for (int i = 0; i < 20; i++) {
		int64_t t = i * 10 * MS, late = (i * 7919) % 1000 * 1000;
		/* A rank that comes last is done soon after. */
		add_op(&log, 0, "all_reduce", t, t + late + 60000);
		add_op(&log, 1, "all_reduce", t + (i % 2 ? late : 0), t + late + 50000);
		add_op(&log, 2, "all_reduce", t + late, t + late + 70000);
	}
	log.processes[1].real_ns += 5000 * MS;
	char *report = report_of(&log);
	for (int i = 0; i < 3; i++) {
		int64_t wrong = log.processes[i].shift_ns - zeros[i];
		worst = llabs(wrong) > worst ? llabs(wrong) : worst;
	}
	print_message("wrong by at most %lld ns\n%.120s\n", (long long)worst, report);
	assert_true(worst <= 60000);
	assert_says(report, "The clock of host b is set by that of host a: ");
	assert_says(report, "right within");
	free(report);
	log_free(&log);
}

static void test_no_meeting(void **state)
{
	struct log log = {0};
	(void)state;
	add_rank(&log, 0, 2, "a", 0);
	add_rank(&log, 1, 2, "b", 5000 * MS);
	add_op(&log, 0, "broadcast", MS, 2 * MS);
	add_op(&log, 1, "broadcast", MS, 2 * MS);
	char *report = report_of(&log);
	assert_says(report, "host b is set by its calendar");
	assert_true(log.processes[1].shift_ns == 5000 * MS);
	free(report);
	log_free(&log);
}

static void test_who_is_late(void **state)
{
	struct log log = {0};
	(void)state;
	for (int rank = 0; rank < 3; rank++)
		add_rank(&log, rank, 3, "a", 0);
	add_op(&log, 0, "all_reduce", 10 * MS, 25 * MS);
	add_op(&log, 1, "all_reduce", 24 * MS, 25 * MS);
	add_op(&log, 2, "all_reduce", 12 * MS, 25 * MS);
	add_op(&log, 0, "barrier", 30 * MS, 0);
	add_op(&log, 2, "barrier", 31 * MS, 0);
	char *report = report_of(&log);
	assert_says(report,
		    "all_reduce #0: rank 1 came last, 14000.000 us after rank 0, the first, "
		    "12000.000 us after the one before it");
	assert_says(report, "barrier #1: rank 1 has not come; rank 0 waits for 8.970000 s");
	assert_says(report, "rank 1 came last 1 times, and was waited for 12000.000 us");
	assert_says(report, "rank 0 came last 0 times");
	assert_int_equal(log.processes[1].comms[0].ops[0].last_by_ns, 12 * MS);
	assert_int_equal(log.processes[0].comms[0].ops[0].last_by_ns, 0);
	free(report);
	log_free(&log);
}

static void read_at(struct log *log, int rank, int64_t now)
{
	log->processes[rank].now_ns = now;
}

static void refuse(const char *report, const char *what)
{
	if (strstr(report, what)) {
		print_message("'%s' in:\n%s", what, report);
		fail();
	}
}

/* Three ranks that are well, read one after the other while they run: a trace says nothing of what
 * came after it. */
static void test_read_one_after_the_other(void **state)
{
	struct log log = {0};
	(void)state;
	for (int rank = 0; rank < 3; rank++) {
		add_rank(&log, rank, 3, "a", 0);
		read_at(&log, rank, (100 + 7 * rank) * MS);
		for (int64_t t = 80; t + 3 < 100 + 7 * rank; t += 3)
			add_op(&log, rank, "all_reduce", t * MS + rank, (t + 3) * MS);
	}
	/* In flight where the first two are looked at: #6 is done on rank 2. */
	add_op(&log, 0, "all_reduce", 98 * MS, 0);
	add_op(&log, 2, "all_reduce", 113 * MS, 0);
	char *report = report_of(&log);
	refuse(report, "has not come");
	assert_says(report, "all_reduce #5: rank 2 came last, 0.002 us after rank 0");
	refuse(report, "#7"); /* whether rank 0 has come last to that is not known */
	free(report);
	log_free(&log);
}

/* It had not come when it was read; and others' results show whether it has since. */
static void test_missing_when_read(void **state)
{
	struct log log = {0};
	(void)state;
	for (int rank = 0; rank < 3; rank++) {
		add_rank(&log, rank, 3, "a", 0);
		read_at(&log, rank, (100 + 7 * rank) * MS);
		add_op(&log, rank, "all_reduce", 10 * MS, 20 * MS);
	}
	add_op(&log, 1, "all_reduce", 50 * MS, 0);
	char *report = report_of(&log);
	assert_says(report, "all_reduce #1: rank 0 and 1 others have not come; rank 1 waits for "
			    "0.057000 s, and was looked at 0.007000 s later");
	free(report);
	add_op(&log, 2, "all_reduce", 104 * MS, 110 * MS);
	report = report_of(&log);
	refuse(report, "come;");
	free(report);
	log_free(&log);
}

/* Where one rank needs another the others need not. */
static void test_roots(void **state)
{
	struct log log = {0};
	(void)state;
	for (int rank = 0; rank < 3; rank++)
		add_rank(&log, rank, 3, "a", 0);
	add_op(&log, 1, "broadcast", 10 * MS, 20 * MS);
	add_op(&log, 2, "broadcast", 10 * MS, 0);
	for (int rank = 1; rank < 3; rank++)
		log.processes[rank].comms[0].ops[0].peer = 1;
	char *report = report_of(&log);
	assert_says(report, "broadcast #0: rank 0 has not come; rank 2 waits for 8.990000 s\n");
	free(report);
	for (int rank = 1; rank < 3; rank++)
		log.processes[rank].comms[0].ops[0].peer = 0;
	report = report_of(&log);
	refuse(report, "come;"); /* rank 1 has what only rank 0 can have sent */
	free(report);
	for (int rank = 1; rank < 3; rank++) {
		struct trace_op *op = &log.processes[rank].comms[0].ops[0];
		snprintf(op->name, sizeof op->name, "reduce");
		op->peer = 2;
	}
	report = report_of(&log);
	assert_says(report, "reduce #0: rank 0 has not come; rank 2 waits");
	free(report);
	log.processes[1].comms[0].ops[0].peer = log.processes[2].comms[0].ops[0].peer = 1;
	report = report_of(&log);
	refuse(report, "come;"); /* rank 1 has the sum of all */
	free(report);
	log_free(&log);
}

/* A rank that has failed comes no more, even if it was read before the others called. */
static void test_missing_in_a_failure(void **state)
{
	struct log log = {0};
	(void)state;
	add_rank(&log, 0, 2, "a", 0);
	add_rank(&log, 1, 2, "a", 0);
	read_at(&log, 0, 5 * MS);
	add_op(&log, 1, "barrier", 10 * MS, 30 * MS);
	log.processes[1].comms[0].ops[0].state = TRACE_STATE_FAILED;
	char *report = report_of(&log);
	refuse(report, "come;");
	free(report);
	log.processes[0].comms[0].status = TUTTI_ERR_ABORTED;
	report = report_of(&log);
	assert_says(report, "barrier #0: rank 0 has not come; rank 1 waited for 0.020000 s, until "
			    "that failed\n");
	free(report);
	log_free(&log);
}

static void test_unseen(void **state)
{
	struct log log = {0};
	(void)state;
	add_rank(&log, 0, 9, "a", 0);
	add_rank(&log, 4, 9, "a", 0);
	char *report = report_of(&log);
	assert_says(report,
		    "of 9 ranks, these are in no trace that was given: ranks 1 to 3, 5 to 8\n");
	free(report);
	for (int rank = 0; rank < 9; rank++)
		if (rank % 4)
			add_rank(&log, rank, 9, "a", 0);
	report = report_of(&log);
	assert_says(report, "these are in no trace that was given: rank 8\n");
	add_rank(&log, 8, 9, "a", 0);
	free(report);
	report = report_of(&log);
	refuse(report, "no trace");
	free(report);
	log_free(&log);
}

/* A rank that finds all others there has no time of its own: the others' waits tell when it came.
 */
static void test_without_a_clock(void **state)
{
	struct log log = {0};
	(void)state;
	for (int rank = 0; rank < 2; rank++)
		add_rank(&log, rank, 2, "a", 0);
	add_op(&log, 0, "all_reduce", 10 * MS, 25 * MS);
	add_op(&log, 1, "all_reduce", 14 * MS, 0);
	add_op(&log, 0, "all_reduce", 30 * MS, 0);
	add_op(&log, 1, "all_reduce", 33 * MS, 0);
	for (int k = 0; k < 4; k++) {
		struct trace_op *op = &log.processes[k % 2].comms[0].ops[k / 2];
		op->state = TRACE_STATE_DONE;
		if (k == 0)
			continue;
		op->earliest_ns = 5 * MS;
		op->latest_ns = 40 * MS;
	}
	char *report = report_of(&log);
	assert_says(report, "all_reduce #0: rank 1 came last, 15000.000 us after rank 0");
	assert_null(strstr(report, "all_reduce #1")); /* both came within a microsecond */
	free(report);
	log_free(&log);
}

/* A merged file is a file that can be merged, and says the same. */
static void test_round_trip(void **state)
{
	struct log log = {0}, again = {0};
	char *text = NULL, why[200];
	size_t bytes;
	(void)state;
	add_rank(&log, 0, 2, "a", 0);
	add_rank(&log, 1, 2, "a", 0);
	add_op(&log, 0, "all_gather", 5 * MS, 6 * MS);
	add_op(&log, 1, "all_gather", 5 * MS + 1, 0);
	log.processes[1].comms[0].waits_rank = 0;
	snprintf(log.processes[1].comms[0].waits, 20, "for rank 0");
	snprintf(log.processes[1].comms[0].title, 20, "grads");
	snprintf(log.processes[1].comms[0].ops[0].label, 20, "unit h.3");
	FILE *file = open_memstream(&text, &bytes);
	trace_write(file, log.processes, log.count);
	fclose(file);
	if (!load_text(&again, text, why, sizeof why)) {
		print_message("%s\n", why);
		if (strstr(why, "jansson was not installed"))
			skip_because("jansson is not installed");
	}
	assert_int_equal(again.count, 2);
	const struct trace_comm *c = again.processes[1].comms;
	assert_string_equal(c->ops[0].name, "all_gather");
	assert_int_equal(c->ops[0].begin_ns, 5 * MS + 1);
	assert_true(c->ops[0].end_ns == TRACE_UNKNOWN);
	assert_int_equal(again.processes[0].comms[0].ops[0].end_ns, 6 * MS);
	assert_string_equal(c->waits, "for rank 0");
	assert_string_equal(c->title, "grads");
	assert_string_equal(c->ops[0].label, "unit h.3");
	assert_string_equal(again.processes[0].comms[0].ops[0].label, "");
	assert_int_equal(c->waits_rank, 0);
	assert_true(c->name == 77);
	free(text);
	log_free(&log);
	log_free(&again);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_clocks),
		cmocka_unit_test(test_no_meeting),
		cmocka_unit_test(test_who_is_late),
		cmocka_unit_test(test_without_a_clock),
		cmocka_unit_test(test_round_trip),
		cmocka_unit_test(test_read_one_after_the_other),
		cmocka_unit_test(test_missing_when_read),
		cmocka_unit_test(test_roots),
		cmocka_unit_test(test_missing_in_a_failure),
		cmocka_unit_test(test_unseen),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
