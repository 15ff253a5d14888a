/* no_tsan: it has one thread */
/* What would break: an option of any program that goes to another one's place, keeps its value to
 * itself, or is taken where it is wrong. What is said about wrong ones is in launch/test_comforts.
 */
#include "core/program/line.h"

#include <getopt.h>
#include <stdio.h>
#include <string.h>

#include "tests/unit.h"

struct values {
	int number, choice, is_short, sum, port;
	double real;
	size_t bytes;
	const char *text;
	bool is_long;
};

static const char *const colours[] = {"red", "blue", NULL};

static bool add(const char *text, void *to)
{
	*(int *)to += text[0] - '0';
	return text[0] != '9';
}

static bool read_port(const char *text, void *to)
{
	*(int *)to = text ? 5 : 1;
	return !text || strcmp(text, "5") == 0;
}

#define AT(member) .at = offsetof(struct values, member)

static const struct line_option options[] = {
	{"number", 'n', "N", AT(number), -5, 9, .help = ""},
	{"choice", 'c', "COLOUR", AT(choice), 3, .kind = LINE_CHOICE, .choices = colours,
	 .help = ""},
	{"short", 's', NULL, AT(is_short), .help = ""},
	{"long-one", 0, NULL, AT(is_long), .kind = LINE_BOOL, .help = ""},
	{"long-two", 0, "X", AT(real), -1, 1, .kind = LINE_REAL, .help = ""},
	{"bytes", 'b', "SIZE", AT(bytes), 64, .kind = LINE_BYTES, .help = ""},
	{"text", 't', "TEXT", AT(text), .kind = LINE_TEXT, .help = ""},
	{"add", 'a', "N", AT(sum), .parse = add, .takes_numbers = true, .help = ""},
	{"port", 0, "[=PORT]", AT(port), .parse = read_port, .help = ""},
	{0},
};
static const struct line_table without_operands = {.options = options};
static const struct line_table with_operands = {.options = options, .operands = " [FILE...]"};
static const struct line_table launcher = {
	.options = options, .operands = " PROGRAM", .is_launcher = true};

/* Reads a line of words; index: of the first operand. */
static int parse(const struct line_table *table, const char *line, struct values *values,
		 int *index)
{
	char copy[200], *words[32] = {(char *)"test"}, *word;
	int n = 1, code;

	*values = (struct values){0};
	snprintf(copy, sizeof copy, "%s", line);
	for (word = strtok(copy, " "); word; word = strtok(NULL, " "))
		words[n++] = word;
	optind = 0; /* glibc: begin anew */
	code = line_parse(table, values, n, words);
	*index = optind;
	return code;
}

static void values_of_each_kind(void **state)
{
	struct values v;
	int index;

	(void)state;
	assert_int_equal(parse(&without_operands,
			       "-n 9 -c blue -s --long-one --long-two=-.5 -b 1K --te word", &v,
			       &index),
			 -1);
	assert_int_equal(v.number, 9);
	assert_int_equal(v.choice, 4);
	assert_true(v.is_short && v.is_long && v.real == -0.5 && v.text && !v.port);
	assert_int_equal(v.bytes, 1024);
	assert_int_equal(parse(&with_operands, "--port file -a 1 2 3 --port=5 x", &v, &index), -1);
	assert_int_equal(v.sum, 6);
	assert_int_equal(v.port, 5);
	assert_int_equal(index, 7); /* behind all options, file and x */
	assert_int_equal(parse(&launcher, "-a1 prog -a 2", &v, &index), -1);
	assert_int_equal(v.sum, 1);
	assert_int_equal(index, 2);
}

static void wrong_lines(void **state)
{
	static const char *const lines[] = {
		"-n",           "-n 10",     "-n x",  "-c green", "-c",     "--short=1", "--lon",
		"--long-two 2", "-b 63",     "-b 1X", "--text=",  "-a 1 9", "--port=6",  "-x",
		"-sx",          "--nothing", "-sn",   "operand",  "--",     "-a 1 -- x",
	};
	struct values v;
	int index;

	(void)state;
	for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
		int code = parse(&without_operands, lines[i], &v, &index);
		if (code != (strcmp(lines[i], "--") == 0 ? -1 : 2))
			fail_msg("'%s' ends with %d", lines[i], code);
	}
	assert_int_equal(parse(&without_operands, "-s --help", &v, &index), 0);
	assert_int_equal(parse(&without_operands, "--version -x", &v, &index), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(values_of_each_kind),
		cmocka_unit_test(wrong_lines),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
