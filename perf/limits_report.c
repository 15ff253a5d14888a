/* What the measurements found, as JSON: figures with names, and rows of bandwidths. */
#include "limits.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define FIGURES 64
#define ROWS    64

static struct {
	const char *name;
	double value;
} figures[FIGURES];

static struct {
	const char *pattern;
	int cores;
	size_t bytes;
	double gigabytes;
} rows[ROWS];

static int figure_count, row_count;

void limits_figure(const char *name, double value)
{
	if (figure_count == FIGURES)
		return;
	figures[figure_count].name = name;
	figures[figure_count++].value = value;
}

void limits_bandwidth_figure(const char *pattern, int cores, size_t bytes, double gigabytes)
{
	if (row_count == ROWS)
		return;
	rows[row_count].pattern = pattern;
	rows[row_count].cores = cores;
	rows[row_count].bytes = bytes;
	rows[row_count++].gigabytes = gigabytes;
}

static struct {
	const char *path;
	FILE *file;
} output;

static void write_all(FILE *file)
{
	fprintf(file, "{\"program\": \"limits\", \"library\": \"Tutti %s\", \"cores\": %d",
		tutti_version(), limits_cores());
	for (int i = 0; i < figure_count; i++)
		fprintf(file, ",\n \"%s\": %.6g", figures[i].name, figures[i].value);
	fprintf(file, ",\n \"bandwidth\": [");
	for (int i = 0; i < row_count; i++)
		fprintf(file,
			"%s\n  {\"pattern\": \"%s\", \"cores\": %d, \"bytes\": %zu, "
			"\"GBps\": %.6g}",
			i ? "," : "", rows[i].pattern, rows[i].cores, rows[i].bytes,
			rows[i].gigabytes);
	fprintf(file, "]}\n");
}

static bool complain(void)
{
	fprintf(stderr, "limits: %s cannot be written: %s.\n", output.path, strerror(errno));
	return false;
}

bool limits_open(const char *path)
{
	output.path = path;
	output.file = fopen(path, "we"); /* measurements fork, and end without flushing */
	return output.file || complain();
}

/* A device or a pipe that was named as the file stays. */
static void take_away(void)
{
	struct stat status;

	if (lstat(output.path, &status) == 0 && S_ISREG(status.st_mode))
		unlink(output.path);
}

int limits_close(bool is_complete)
{
	bool is_written;

	if (!output.file)
		return 0;
	if (is_complete)
		write_all(output.file);
	is_written = fclose(output.file) == 0;
	if (is_complete && is_written)
		return 0;
	if (is_complete)
		complain();
	take_away();
	return is_complete;
}
