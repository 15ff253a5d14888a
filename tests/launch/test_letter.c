/* What would break: a machine of tuttirun --hosts runs something else than it was told, with
 * another number, or as the machine that it is not; or it takes half a letter for a whole one. */
#include "launch/agent.h"
#include "launch/hosts.h"
#include "launch/meeting.h"

#include <fcntl.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/unit.h"

static char bytes[65536];
static struct letter letter;

static char input[] = "a\0b\n";

/* What one of two machines gets. Returns how many bytes follow the head. */
static long send_one(char **argv, int argc, int host, double left_s)
{
	static struct options options;
	char *names[] = {(char *)"a", (char *)"b"}, head[AGENT_HEAD_BYTES];
	struct hosts hosts = {.n = 2,
			      .name = names,
			      .input = {input, sizeof input},
			      .left_s = left_s,
			      .options = &options};
	struct meeting meeting = {
		.host = "a", .port = 29507, .is_chosen = true, .secret = "hidden"};
	int ends[2];
	long count;

	optind = 0;
	assert_int_equal(options_parse(&options, argc, argv), -1);
	options.nodes = 2;
	assert_int_equal(pipe(ends), 0);
	assert_int_equal(letter_send(ends[1], &hosts, &meeting, host), 0);
	assert_int_equal(read(ends[0], head, sizeof head), sizeof head);
	count = letter_bytes(head);
	assert_in_range(count, 1, sizeof bytes);
	assert_int_equal(read(ends[0], bytes, sizeof bytes), count);
	close(ends[0]);
	close(ends[1]);
	return count;
}

static bool has_variable(const char *variable)
{
	for (int i = 0; i < letter.variable_count; i++)
		if (strncmp(letter.variables[i], variable, strlen(variable)) == 0)
			return true;
	return false;
}

static void what_arrives(void **state)
{
	char text[] = "tuttirun -p -g 0 1 --max_restarts 3 --restart rank --master h:29 --hosts "
		      "a,b -- prog -n";
	char *argv[32];
	struct options o;
	int argc = 0;

	(void)state;
	for (char *word = strtok(text, " "); word; word = strtok(NULL, " "))
		argv[argc++] = word;
	argv[argc] = NULL;
	setenv("TUTTI_EXT_A", "b=c d", 1);
	setenv("TUTTI_HOST_ID", "here", 1);
	setenv("TUTTI_RESTARTED", "1", 1);
	setenv("DISPLAY", ":0", 1);
	assert_true(letter_read(&letter, bytes, (size_t)send_one(argv, argc, 1, 0)));
	assert_true(has_variable("TUTTI_EXT_A=b=c d") && has_variable("PATH="));
	assert_true(has_variable("TUTTI_SECRET=hidden") && has_variable(MEETING_CHOSEN "=1"));
	assert_int_equal(letter.input_bytes, 0);
	assert_false(has_variable("TUTTI_HOST_ID") || has_variable("DISPLAY"));
	assert_false(has_variable("TUTTI_RESTARTED"));

	setenv("TUTTI_SECRET", "hidden", 1);
	optind = 0;
	assert_int_equal(options_parse(&o, letter.word_count, letter.words), -1);
	assert_true(o.is_agent && o.prefix && o.ranks == 2 && o.max_restarts == 3);
	assert_true(o.nodes == 2 && o.node_rank == 1 && o.master_port == 29507);
	assert_string_equal(o.master_host, "a");
	assert_string_equal(o.devices, "0,1");
	assert_string_equal(o.program[0], "prog");
	assert_string_equal(o.program[1], "-n");
	assert_null(o.program[2]);
	letter_free(&letter);
}

/* Machines that are started again together start nothing again by themselves, and have the time
 * that is left. The first one has the input, whatever bytes that are. */
static void what_the_first_one_gets(void **state)
{
	char *argv[] = {(char *)"tuttirun",
			(char *)"-n1",
			(char *)"--hosts=a,b",
			(char *)"--timeout=9",
			(char *)"--max-restarts=3",
			(char *)"x",
			NULL};
	struct options o;

	(void)state;
	assert_true(letter_read(&letter, bytes, (size_t)send_one(argv, 6, 0, 1.5)));
	assert_int_equal(letter.input_bytes, sizeof input);
	assert_memory_equal(letter.input, input, sizeof input);
	setenv("TUTTI_SECRET", "hidden", 1);
	optind = 0;
	assert_int_equal(options_parse(&o, letter.word_count, letter.words), -1);
	assert_int_equal(o.node_rank, 0);
	assert_int_equal(o.max_restarts, 0);
	assert_true(o.timeout_s == 1.5);
	letter_free(&letter);
}

static void half_a_letter(void **state)
{
	char *argv[] = {(char *)"tuttirun", (char *)"-n1", (char *)"--hosts=a,b", (char *)"x",
			NULL};
	long count = send_one(argv, 4, 0, 0);

	(void)state;
	for (long n = 0; n < count; n++) {
		assert_false(letter_read(&letter, bytes, (size_t)n));
		letter_free(&letter);
	}
	assert_true(letter_read(&letter, bytes, (size_t)count));
	letter_free(&letter);
	bytes[count] = '\0';
	assert_false(letter_read(&letter, bytes, (size_t)count + 1));
	letter_free(&letter);
	assert_int_equal(letter_bytes("tuttirun 1 00000010\n"), -1);
	assert_int_equal(letter_bytes("tuttirun 2 7fffffff\n"), -1);
	assert_int_equal(letter_bytes("tuttirun 2 0000001f\n"), 31);
}

/* Pipes of a user have 64 MiB in all: only a long letter may take more of them than usual. */
static void pipe_of(size_t long_bytes, bool is_larger)
{
	static struct options options;
	char *argv[] = {(char *)"tuttirun", (char *)"-n1", (char *)"--hosts=a", NULL, NULL};
	char *names[] = {(char *)"a"};
	struct hosts hosts = {.n = 1, .name = names, .options = &options};
	struct meeting meeting = {.host = "a"};
	int ends[2], usual;

	argv[3] = malloc(long_bytes + 1);
	assert_non_null(argv[3]);
	memset(argv[3], 'x', long_bytes);
	argv[3][long_bytes] = '\0';
	optind = 0;
	assert_int_equal(options_parse(&options, 4, argv), -1);
	assert_int_equal(pipe2(ends, O_NONBLOCK), 0);
	usual = fcntl(ends[1], F_GETPIPE_SZ);
	assert_int_equal(letter_send(ends[1], &hosts, &meeting, 0),
			 long_bytes < AGENT_BYTES_MAX ? 0 : -1);
	assert_int_equal(fcntl(ends[1], F_GETPIPE_SZ) > usual, is_larger);
	close(ends[0]);
	close(ends[1]);
	free(argv[3]);
}

static void long_letters(void **state)
{
	(void)state;
	pipe_of(10, false);
	pipe_of(200000, true);
	pipe_of(AGENT_BYTES_MAX, false);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_arrives),
		cmocka_unit_test(what_the_first_one_gets),
		cmocka_unit_test(half_a_letter),
		cmocka_unit_test(long_letters),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
