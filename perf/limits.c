/* limits: what the machine can do, and what Tutti costs apart from the data it moves. Only the
 * command line; the measurements are in the files beside this one. */
#include "limits.h"
#include "output.h"

#include <getopt.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct part {
	const char *name, *what;
	int (*measure)(void);
} parts[] = {
	{"bandwidth", "memory bandwidth in the access patterns of collectives", limits_bandwidth},
	{"flag", "one signal from core to core", limits_flag},
	{"loopback", "TCP over loopback", limits_loopback},
	{"call", "one blocking call against a bare exchange of lines", limits_call},
	{"join", "how long tutti_init takes", limits_join},
	{"idle", "processor time of a rank that has nothing to do", limits_idle},
	{"memory", "of a rank", limits_memory},
	{"gpu", "a GPU's memory, and its way to the host", limits_gpu},
};

#define PARTS (sizeof parts / sizeof *parts)

static const char usage[] = "usage: limits [-J FILE] [--timeout S] [PART...]\n";

static void print_help(void)
{
	fputs(usage, stdout);
	puts("What this machine can do, and what Tutti costs apart from the data. All parts, or "
	     "these:");
	for (size_t i = 0; i < PARTS; i++)
		printf("  %-10s  %s\n", parts[i].name, parts[i].what);
	puts("-J FILE writes the figures as JSON too. --timeout S ends the ranks of a measurement "
	     "after\nso many seconds (120).");
	puts("Exit code: 0; 2 for a line that cannot be understood; 3 when something failed.");
}

static const struct part *limits_find(const char *name)
{
	for (size_t i = 0; i < PARTS; i++) {
		if (strcmp(parts[i].name, name) == 0)
			return &parts[i];
	}
	fprintf(stderr, "limits: there is no part '%s'.\n%s", name, usage);
	return NULL;
}

static bool measure_part(const struct part *part)
{
	if (part->measure() == 0)
		return true;
	fprintf(stderr, "limits: %s was not measured.\n", part->name);
	return false;
}

static bool limits_measure(char **names, int n)
{
	bool is_well = true;

	for (size_t i = 0; n == 0 && i < PARTS; i++)
		is_well &= measure_part(&parts[i]);
	for (int i = 0; i < n; i++)
		is_well &= measure_part(limits_find(names[i]));
	output_flush();
	return output_is_well() && is_well;
}

static bool read_timeout(const char *text)
{
	char *end;
	long seconds = strtol(text, &end, 10);

	if (*text < '0' || *text > '9' || *end || seconds < 1 || seconds > 86400) {
		fprintf(stderr, "limits: '%s' is not a number of seconds from 1 to 86400.\n%s",
			text, usage);
		return false;
	}
	limits_timeout_s = (int)seconds;
	return true;
}

/* Whether the line can be understood. *is_done: there is nothing to measure. */
static bool limits_read_line(int argc, char **argv, const char **path, bool *is_done)
{
	static const struct option longs[] = {
		{"help", 0, NULL, 'h'}, {"timeout", 1, NULL, 't'}, {NULL, 0, NULL, 0}};
	int option;

	while ((option = getopt_long(argc, argv, "J:h", longs, NULL)) != -1) {
		if (option == 'h') {
			print_help();
			*is_done = true;
			return true;
		}
		if (option == 'J') {
			*path = optarg;
		} else if (option != 't') {
			fputs(usage, stderr);
			return false;
		} else if (!read_timeout(optarg)) {
			return false;
		}
	}
	for (int i = optind; i < argc; i++) {
		if (!limits_find(argv[i]))
			return false;
	}
	return true;
}

int main(int argc, char **argv)
{
	const char *path = NULL;
	bool is_done = false, is_well;

	if (!output_open())
		return 3;
	if (!limits_read_line(argc, argv, &path, &is_done) || (path && !limits_open(path)))
		return 2;
	if (is_done) {
		output_flush();
		return output_is_well() ? 0 : 3;
	}
	is_well = limits_measure(argv + optind, argc - optind);
	return limits_close(is_well) == 0 && is_well ? 0 : 3;
}
