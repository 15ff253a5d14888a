/* The measurements' results, as JSON: figures with names, and rows of bandwidths. */
#include "limits.h"
#include "whole_file.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define FIGURES 64
#define ROWS    64
#define SKIPPED 8

static struct {
	const char *name;
	double value;
	struct spread spread; /* all 0: it has none */
} figures[FIGURES];

static struct {
	const char *pattern;
	int cores;
	size_t bytes;
	struct spread gigabytes;
} rows[ROWS];

static struct {
	const char *what, *why;
} skipped[SKIPPED];

static int figure_count, row_count, skipped_count;

void limits_figure(const char *name, double value)
{
	limits_figure_spread(name, (struct spread){.best = value});
}

void limits_figure_spread(const char *name, struct spread found)
{
	if (figure_count == FIGURES)
		return;
	figures[figure_count].name = name;
	figures[figure_count].value = found.best;
	figures[figure_count++].spread = found;
}

void limits_bandwidth_figure(const char *pattern, int cores, size_t bytes, struct spread gigabytes)
{
	if (row_count == ROWS)
		return;
	rows[row_count].pattern = pattern;
	rows[row_count].cores = cores;
	rows[row_count].bytes = bytes;
	rows[row_count++].gigabytes = gigabytes;
}

void limits_skip(const char *what, const char *why)
{
	printf("%s: not measured, since %s.\n", what, why);
	if (skipped_count == SKIPPED)
		return;
	skipped[skipped_count].what = what;
	skipped[skipped_count++].why = why;
}

static struct whole_file output;
static const char *output_path;

static void write_spread(FILE *file, struct spread s)
{
	fprintf(file, "[%.6g, %.6g, %.6g]", s.low, s.middle, s.high);
}

static void write_figures(FILE *file)
{
	const char *comma = "";

	for (int i = 0; i < figure_count; i++)
		fprintf(file, ",\n \"%s\": %.6g", figures[i].name, figures[i].value);
	fprintf(file, ",\n \"quartiles\": {");
	for (int i = 0; i < figure_count; i++) {
		if (figures[i].spread.middle == 0)
			continue;
		fprintf(file, "%s\"%s\": ", comma, figures[i].name);
		write_spread(file, figures[i].spread);
		comma = ", ";
	}
	fprintf(file, "}");
}

static void write_rows(FILE *file)
{
	fprintf(file, ",\n \"bandwidth\": [");
	for (int i = 0; i < row_count; i++) {
		fprintf(file,
			"%s\n  {\"pattern\": \"%s\", \"cores\": %d, \"bytes\": %zu, "
			"\"GBps\": %.6g, \"quartiles\": ",
			i ? "," : "", rows[i].pattern, rows[i].cores, rows[i].bytes,
			rows[i].gigabytes.best);
		write_spread(file, rows[i].gigabytes);
		fprintf(file, "}");
	}
	fprintf(file, "]");
}

static void limits_report_write_all(FILE *file)
{
	fprintf(file, "{\"program\": \"limits\", \"library\": \"Tutti %s (%s)\", \"cores\": %d",
		tutti_version(), tutti_revision(), limits_cores());
	write_figures(file);
	write_rows(file);
	fprintf(file, ",\n \"skipped\": {");
	for (int i = 0; i < skipped_count; i++)
		fprintf(file, "%s\"%s\": \"%s\"", i ? ", " : "", skipped[i].what, skipped[i].why);
	fprintf(file, "}}\n");
}

static bool limits_report_complain(void)
{
	fprintf(stderr, "limits: %s cannot be written: %s.\n", output_path, strerror(errno));
	return false;
}

bool limits_open(const char *path)
{
	output_path = path;
	return whole_file_open(&output, path) || limits_report_complain();
}

int limits_close(bool is_complete)
{
	if (output.stream && is_complete)
		limits_report_write_all(output.stream);
	return whole_file_close(&output, is_complete) || limits_report_complain() ? 0 : 1;
}
