/* What would break: sweeps that never end, and options that are taken for something else. */
#include "perf/options.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit.h"

#include <getopt.h>

/* Parses a line of words. */
static int parse(const char *line, struct options *options)
{
	char copy[200], *words[32] = {(char *)"all_reduce_perf"}, *word;
	int n = 1;

	snprintf(copy, sizeof copy, "%s", line);
	for (word = strtok(copy, " "); word; word = strtok(NULL, " "))
		words[n++] = word;
	optind = 0; /* glibc: begin anew */
	return options_parse(options, n, words, collective_named("all_reduce"));
}

/* The sizes of a sweep, as text; gives up after 50. */
static const char *sizes(const char *line)
{
	static char text[600];
	struct options o;
	size_t bytes;
	int n = 0, used = 0;

	assert_int_equal(parse(line, &o), -1);
	for (bytes = o.min_bytes; bytes != SIZE_MAX && n < 50;
	     bytes = options_next_size(&o, bytes, 4), n++)
		used += snprintf(text + used, sizeof text - (size_t)used, "%zu ", bytes);
	assert_true(n < 50);
	return text;
}

static void sweeps_end(void **state)
{
	(void)state;
	assert_string_equal(sizes("-b 8 -e 64 -f 2"), "8 16 32 64 ");
	assert_string_equal(sizes("-b 8 -e 63 -f 2"), "8 16 32 ");
	assert_string_equal(sizes("-b 0 -e 32 -f 2"), "0 4 8 16 32 ");
	assert_string_equal(sizes("-b 0 -e 32 -i 16"), "0 16 32 ");
	assert_string_equal(sizes("-b 0 -e 0"), "0 ");
	assert_string_equal(sizes("-b 0 -e 0 -f 2"), "0 ");
	assert_string_equal(sizes("-b 0 -e 3 -f 2"), "0 ");
	assert_string_equal(sizes("-b 16 -e 16 -f 1"), "16 ");
	assert_string_equal(sizes("-b 16 -e 16 -i 0"), "16 ");
	assert_string_equal(sizes("-b 1M -e 3M"), "1048576 2097152 3145728 ");
	assert_string_equal(sizes("-b 0.5K -e 2k -f 2"), "512 1024 2048 ");
}

static void a_single_size_may_be_given_alone(void **state)
{
	(void)state;
	assert_string_equal(sizes("-b 1G"), "1073741824 ");
	assert_string_equal(sizes("-e 8"), "8 ");
	assert_string_equal(sizes(""), "33554432 ");
}

static void letters_mean_what_they_mean_in_nccl_tests(void **state)
{
	struct options o;

	(void)state;
	assert_int_equal(
		parse("-n 7 -w 3 -m 4 -c 0 -d bfloat16 -o max -r 2 -z 0 -t 2 -g 3 -u 5 -a 3", &o),
		-1);
	assert_int_equal(o.iterations, 7);
	assert_int_equal(o.warmups, 3);
	assert_int_equal(o.aggregated, 4);
	assert_int_equal(o.check, 0);
	assert_int_equal(o.dtype, TUTTI_BF16);
	assert_int_equal(o.op, TUTTI_MAX);
	assert_int_equal(o.root, 2);
	assert_int_equal(o.blocking, 0);
	assert_int_equal(o.threads, 6);
	assert_int_equal(o.gpus, 3);
	assert_int_equal(o.unalign, 5);
	assert_int_equal(o.average, 3);
	assert_int_equal(parse("-d all -o all -r all", &o), -1);
	assert_int_equal(o.dtype, ALL);
	assert_int_equal(o.op, ALL);
	assert_int_equal(o.root, ALL);
	assert_int_equal(
		parse("--minbytes 8 --maxbytes=64 --stepfactor 2 --iters 1 --zero-copy", &o), -1);
	assert_int_equal(o.min_bytes, 8);
	assert_int_equal(o.max_bytes, 64);
	assert_int_equal(o.iterations, 1);
	assert_int_equal(o.zero_copy, 1);
}

/* Without -g buffers are the host's, and calls are waited for, as on GPUs only with -z 1. */
static void gpus_are_asked_for(void **state)
{
	struct options o;

	(void)state;
	assert_int_equal(parse("-t 2", &o), -1);
	assert_int_equal(o.gpus, 0);
	assert_int_equal(o.blocking, 1);
	assert_int_equal(parse("-g 4 -G 5", &o), -1);
	assert_int_equal(o.threads, 4);
	assert_int_equal(o.graphs, 5);
	assert_int_equal(o.blocking, 0);
	assert_int_equal(parse("--ranks 2 --ngpus 1 -z 1", &o), -1);
	assert_int_equal(o.gpus, 1);
	assert_int_equal(o.ranks, 2);
	assert_int_equal(o.blocking, 1);
}

static void defaults_are_nccl_tests(void **state)
{
	struct options o;

	(void)state;
	assert_int_equal(parse("", &o), -1);
	assert_int_equal(o.iterations, 20);
	assert_int_equal(o.warmups, 1);
	assert_int_equal(o.check, 1);
	assert_int_equal(o.dtype, TUTTI_F32);
	assert_int_equal(o.op, TUTTI_SUM);
	assert_int_equal(o.average, 1);
	assert_int_equal(o.dirty, 1);
}

/* Words of a line cannot be empty or begin with a blank. */
static void empty_values_are_usage_errors(void **state)
{
	static const char *const options[] = {"-b", "-e", "-i", "-f",      "-n",     "-w", "-m",
					      "-c", "-d", "-o", "-r",      "-z",     "-t", "-g",
					      "-u", "-a", "-J", "--dirty", "--ranks"};
	static const char *const values[] = {"", " 1"};
	struct options o;

	(void)state;
	for (size_t i = 0; i < sizeof options / sizeof *options; i++) {
		for (size_t k = 0; k < 2; k++) {
			char *words[] = {(char *)"all_reduce_perf", (char *)options[i],
					 (char *)values[k], NULL};

			if (k == 1 && strcmp(options[i], "-J") == 0)
				continue;
			optind = 0;
			if (options_parse(&o, 3, words, collective_named("all_reduce")) != 2)
				fail_msg("%s '%s' is not a usage error", options[i], values[k]);
		}
	}
}

static const char *const bad_lines[] = {
	"-x",
	"-J",
	"--percentiles -m 2",
	"--percentiles -n 10000001",
	"stray",
	"-b",
	"-b 1X",
	"-b -1",
	"-b nan",
	"-b 1e300",
	"-b 1KK",
	"-b 2K -e 1K",
	"-d foo",
	"-d int7",
	"-o foo",
	"-o mulsum",
	"-o band",
	"-r -1",
	"-r x",
	"-n 0",
	"-n x",
	"-n 1.5",
	"-w -1",
	"-m 0",
	"-z 4",
	"-z 2",
	"-z 1x",
	"-c 2",
	"-c 5",
	"-c -1",
	"-c on",
	"-c 01x",
	"-b 16Q",
	"-b 16KB",
	"-b 1.2.3",
	"-b .",
	"-b K",
	"-b 0x10",
	"-b +8",
	"-b inf",
	"-b 65537G",
	"-b 99999999999999999999999999",
	"-e 16Q",
	"-e -16",
	"-i 16Q",
	"-i -1",
	"-i 99999999999G",
	"-f 2x",
	"-f -2",
	"-f 99999999999999999999",
	"-b 16 -e 16 -f 0",
	"-n -5",
	"-n +5",
	"-n 5x",
	"-n 99999999999999999999",
	"-w 1.0",
	"-w 4294967297",
	"-m -1",
	"-m 1025",
	"-m 1x",
	"-r 1x",
	"-r -9999999999999999999",
	"-t -2",
	"-t 1025",
	"-g 1x",
	"-g 4294967297",
	"-u 65537",
	"-u 1x",
	"-a -1",
	"-a mean",
	"--ranks -1",
	"--ranks 4097",
	"--ranks 2x",
	"--ranks 4294967298",
	"--dirty -1",
	"--dirty yes",
	"--zero-copy=1",
	"--percentiles=1",
	"-d",
	"-d float32x",
	"-d floatfloat",
	"-o sum,max",
	"-a 4",
	"-t 0",
	"-g 0",
	"-G 2",
	"-g 2 -G -1",
	"-g 2 -G 1x",
	"-g 2 -G 2 -z 1",
	"-g 2 -G 2 --percentiles",
	"-u -1",
	"-t 1024 -g 2",
	"--ranks 0",
	"--ranks 2 -t 2",
	"-i 1 -f 2",
	"--dirty 2",
	"-b 1 -e 2 -f 1",
	"-b 1 -e 2 -f 0",
	"-b 1 -e 2 -i 0",
	"-f 1.5",
	"--nothing",
};

static void bad_lines_are_usage_errors(void **state)
{
	struct options o;

	(void)state;
	for (size_t i = 0; i < sizeof bad_lines / sizeof *bad_lines; i++) {
		if (parse(bad_lines[i], &o) != 2)
			fail_msg("'%s' is not a usage error", bad_lines[i]);
	}
}

static int without_launcher(void **state)
{
	(void)state;
	return unsetenv("WORLD_SIZE") || unsetenv("RANK");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(sweeps_end),
		cmocka_unit_test(a_single_size_may_be_given_alone),
		cmocka_unit_test(letters_mean_what_they_mean_in_nccl_tests),
		cmocka_unit_test(gpus_are_asked_for),
		cmocka_unit_test(defaults_are_nccl_tests),
		cmocka_unit_test(bad_lines_are_usage_errors),
		cmocka_unit_test(empty_values_are_usage_errors),
	};

	return cmocka_run_group_tests(tests, without_launcher, NULL);
}
