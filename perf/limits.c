/* limits: what the machine can do, and what Tutti costs apart from the data it moves. Only the
 * command line; the measurements are in the files beside this one. */
#include "limits.h"

#include <getopt.h>
#include <stdbool.h>
#include <stdio.h>
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
};

#define PARTS (sizeof parts / sizeof *parts)

static const char usage[] = "usage: limits [-J FILE] [PART...]\n";

static void print_help(void)
{
	fputs(usage, stdout);
	puts("What this machine can do, and what Tutti costs apart from the data. All parts, or "
	     "these:");
	for (size_t i = 0; i < PARTS; i++)
		printf("  %-10s  %s\n", parts[i].name, parts[i].what);
	puts("-J FILE writes the figures as JSON too.");
}

static const struct part *find(const char *name)
{
	for (size_t i = 0; i < PARTS; i++) {
		if (strcmp(parts[i].name, name) == 0)
			return &parts[i];
	}
	fprintf(stderr, "limits: there is no part '%s'.\n%s", name, usage);
	return NULL;
}

static int measure(char **names, int n)
{
	int failed = 0;

	for (size_t i = 0; n == 0 && i < PARTS; i++)
		failed |= parts[i].measure();
	for (int i = 0; i < n; i++)
		failed |= find(names[i])->measure();
	return failed;
}

int main(int argc, char **argv)
{
	static const struct option longs[] = {{"help", 0, NULL, 'h'}, {NULL, 0, NULL, 0}};
	const char *path = NULL;
	int option, code;

	while ((option = getopt_long(argc, argv, "J:h", longs, NULL)) != -1) {
		if (option == 'h') {
			print_help();
			return 0;
		}
		if (option != 'J') {
			fputs(usage, stderr);
			return 2;
		}
		path = optarg;
	}
	for (int i = optind; i < argc; i++) {
		if (!find(argv[i]))
			return 2;
	}
	if (path && !limits_open(path))
		return 2;
	code = measure(argv + optind, argc - optind);
	return code | limits_close(code == 0);
}
