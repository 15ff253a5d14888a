/* What would break: finding the ranks of one communicator in the table of tutti-top. */
#include "tools/tutti-top/rows.h"

#include <stdio.h>
#include <string.h>

#include "tests/unit.h"

/* The world and a part of it, as each process has them. */
static struct trace_comm comms[4][2] = {
	{{.name = 7, .rank = 0, .size = 4}, {.name = 3, .rank = 0, .size = 2}},
	{{.name = 7, .rank = 1, .size = 4}, {.name = 5, .rank = 0, .size = 2}},
	{{.name = 7, .rank = 2, .size = 4}, {.name = 3, .rank = 1, .size = 2}},
	{{.name = 7, .rank = 3, .size = 4}, {.name = 5, .rank = 1, .size = 2}},
};

static void ranks_of_a_communicator_are_together(void **state)
{
	static const int expected[8][2] = {{11, 0}, {14, 1}, {12, 2}, {13, 3},
					   {11, 0}, {12, 1}, {14, 0}, {13, 1}};
	struct trace_process processes[4] = {
		{.pid = 13, .comms = comms[3], .comm_count = 2},
		{.pid = 11, .comms = comms[0], .comm_count = 2},
		{.pid = 14, .comms = comms[1], .comm_count = 2},
		{.pid = 12, .comms = comms[2], .comm_count = 2},
	};
	struct sample now = {.ns = 1000, .log = {processes, 4}}, before = {0};
	char line[400];
	FILE *file = tmpfile();
	int pid, rank;

	(void)state;
	assert_non_null(file);
	sample_print(&before, &now, file);
	rewind(file);
	assert_non_null(fgets(line, sizeof line, file)); /* the heading */
	for (int i = 0; i < 8; i++) {
		assert_non_null(fgets(line, sizeof line, file));
		assert_int_equal(sscanf(line, "%d %d", &pid, &rank), 2);
		if (pid != expected[i][0] || rank != expected[i][1])
			fail_msg("line %d is of process %d, rank %d: not of %d, rank %d", i, pid,
				 rank, expected[i][0], expected[i][1]);
	}
	fclose(file);
}

#define TABLE_BYTES 1000

static void print_table(struct trace_process *process, char text[TABLE_BYTES])
{
	struct sample now = {.ns = 1000, .log = {process, 1}}, before = {0};
	FILE *file = tmpfile();

	assert_non_null(file);
	sample_print(&before, &now, file);
	rewind(file);
	text[fread(text, 1, TABLE_BYTES - 1, file)] = '\0';
	fclose(file);
}

/* The name of a communicator, and what its operation is for. */
static void names_are_shown(void **state)
{
	struct trace_op op = {.sequence = 3, .name = "all_gather", .label = "unit h.3"};
	struct trace_comm comm = {
		.name = 7, .size = 1, .title = "grads", .ops = &op, .op_count = 1};
	struct trace_process process = {.pid = 11, .comms = &comm, .comm_count = 1};
	char text[TABLE_BYTES];

	(void)state;
	print_table(&process, text);
	assert_non_null(strstr(text, "00000000 grads "));
	assert_non_null(strstr(text, "  (unit h.3)\n"));
}

/* A call without a time of its own: it can be as old as the one before it. */
static void a_call_without_a_time_is_not_made_younger(void **state)
{
	struct trace_op op = {.name = "all_reduce",
			      .state = TRACE_STATE_DONE,
			      .earliest_ns = 1000000000,
			      .begin_ns = 5000000000,
			      .latest_ns = 9000000000,
			      .end_ns = TRACE_UNKNOWN};
	struct trace_comm comm = {.size = 1, .ops = &op, .op_count = 1};
	struct trace_process process = {
		.pid = 11, .comms = &comm, .comm_count = 1, .now_ns = 9000000000};
	char text[TABLE_BYTES];

	(void)state;
	print_table(&process, text);
	assert_non_null(strstr(text, " <8.000 s "));
}

/* The same for the page: who waits for whom, and rates since the look before. */
static void rows_as_json(void **state)
{
	struct trace_op op = {.index = 9,
			      .sequence = 3,
			      .name = "all_gather",
			      .label = "unit h.3",
			      .bytes = 500,
			      .earliest_ns = 1000000000,
			      .latest_ns = 1000000000};
	struct trace_comm comm = {.name = 7,
				  .rank = 1,
				  .size = 2,
				  .title = "grads",
				  .way = "tcp",
				  .ops = &op,
				  .op_count = 1,
				  .issued = 10,
				  .waits_index = 9,
				  .waits_rank = 0,
				  .waits = "for rank 0"};
	struct trace_comm earlier = {.name = 7, .rank = 1, .issued = 8};
	struct trace_process process = {
		.pid = 11, .host = "h", .comms = &comm, .comm_count = 1, .now_ns = 3500000000};
	struct trace_process process_before = {.pid = 11, .comms = &earlier, .comm_count = 1};
	struct sample before = {.ns = 1000000000, .log = {&process_before, 1}};
	struct sample now = {.ns = 1500000000, .log = {&process, 1}};
	char text[TABLE_BYTES];
	FILE *file = tmpfile();

	(void)state;
	assert_non_null(file);
	sample_print_json(&before, &now, file);
	rewind(file);
	text[fread(text, 1, TABLE_BYTES - 1, file)] = '\0';
	fclose(file);
	assert_string_equal(
		text,
		"{\"between\":0.500000,\"rows\":[\n{\"pid\":11,\"host\":\"h\",\"rank\":1,"
		"\"ranks\":2,\"comm\":\"0000000000000007\",\"name\":\"grads\",\"way\":\"tcp\","
		"\"calls\":4.000,\"bytes\":2000.000,\"operation\":\"all_gather #3\","
		"\"state\":\"under way\",\"seconds\":2.500000,\"is_about\":false,"
		"\"label\":\"unit h.3\",\"waits\":\"for rank 0\",\"waits_for\":0}]}\n");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(ranks_of_a_communicator_are_together),
		cmocka_unit_test(names_are_shown), cmocka_unit_test(rows_as_json),
		cmocka_unit_test(a_call_without_a_time_is_not_made_younger)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
