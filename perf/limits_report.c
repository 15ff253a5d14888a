/* The measurements' results, as JSON: figures with names, and rows of bandwidths. */
#include "limits.h"
#include "whole_file.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* The parts of the file, each written as its figures are found. */
enum { FIGURES, QUARTILES, BANDWIDTH, SKIPPED, LISTS };
static struct {
	FILE *stream;
	char *text;
	size_t bytes;
} lists[LISTS];

static struct whole_file output;
static const char *output_path;

/* The list's stream, after a comma where one is needed. */
static FILE *limits_report_next(int list)
{
	FILE *stream = lists[list].stream;

	fputs(ftell(stream) > 0 ? ",\n  " : "\n  ", stream);
	return stream;
}

void limits_figure(const char *name, double value)
{
	fprintf(limits_report_next(FIGURES), "\"%s\": %.6g", name, value);
}

void limits_figure_spread(const char *name, struct spread s)
{
	limits_figure(name, s.best);
	fprintf(limits_report_next(QUARTILES), "\"%s\": [%.6g, %.6g, %.6g]", name, s.low, s.middle,
		s.high);
}

void limits_bandwidth_figure(const char *pattern, int cores, size_t bytes, struct spread s)
{
	fprintf(limits_report_next(BANDWIDTH),
		"{\"pattern\": \"%s\", \"cores\": %d, \"bytes\": %zu, \"GBps\": %.6g, "
		"\"quartiles\": "
		"[%.6g, %.6g, %.6g]}",
		pattern, cores, bytes, s.best, s.low, s.middle, s.high);
}

void limits_skip(const char *what, const char *why)
{
	printf("%s: not measured, since %s.\n", what, why);
	fprintf(limits_report_next(SKIPPED), "\"%s\": \"%s\"", what, why);
}

static void limits_report_write(FILE *file)
{
	limits_figure("cores", limits_cores());
	for (int i = 0; i < LISTS; i++)
		fflush(lists[i].stream);
	fprintf(file,
		"{\"program\": \"limits\", \"library\": \"Tutti %s (%s)\",%s,\n \"quartiles\": "
		"{%s},\n"
		" \"bandwidth\": [%s],\n \"skipped\": {%s}}\n",
		tutti_version(), tutti_revision(), lists[FIGURES].text, lists[QUARTILES].text,
		lists[BANDWIDTH].text, lists[SKIPPED].text);
}

static bool limits_report_complain(void)
{
	fprintf(stderr, "limits: %s cannot be written: %s.\n", output_path, strerror(errno));
	return false;
}

bool limits_open(const char *path)
{
	output_path = path;
	for (int i = 0; i < LISTS; i++)
		lists[i].stream = open_memstream(&lists[i].text, &lists[i].bytes);
	return !path || whole_file_open(&output, path) || limits_report_complain();
}

int limits_close(bool is_complete)
{
	if (output.stream && is_complete)
		limits_report_write(output.stream);
	return whole_file_close(&output, is_complete) || limits_report_complain() ? 0 : 1;
}
