/* tutti-trace dump and merge: the traces of processes as a file, and those of several ranks as one;
 * parse.c understands what is in a file. */
#include "merge.h"

#include "core/status.h"
#include "tools/must.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define FILE_MOST (INT64_C(1) << 30)

static char *merge_read_all(FILE *file, size_t *bytes)
{
	size_t room = 0;
	char *content = NULL;

	*bytes = 0;
	do {
		room = room ? 2 * room : 1 << 16;
		if (room > FILE_MOST) {
			free(content);
			errno = EFBIG;
			return NULL;
		}
		content = must_have(realloc(content, room + 1));
		*bytes += fread(content + *bytes, 1, room - *bytes, file);
	} while (*bytes == room);
	content[*bytes] = '\0';
	return content;
}

static bool merge_load_file(struct log *log, const char *path, char *why, size_t why_bytes)
{
	char reason[200];
	size_t bytes;

	errno = 0;
	FILE *file = strcmp(path, "-") == 0 ? stdin : fopen(path, "re");
	char *content = file ? merge_read_all(file, &bytes) : NULL;
	bool is_read = content && !ferror(file), is_whole = false;
	if (file && file != stdin)
		fclose(file);
	if (!is_read) {
		snprintf(why, why_bytes, "%s could not be read: %s.", path, strerror(errno));
	} else {
		is_whole = load_text(log, content, reason, sizeof reason);
		if (!is_whole)
			snprintf(why, why_bytes, "%s is no trace: %s.", path, reason);
	}
	free(content);
	return is_whole;
}

/* To where the arguments say. */
static int trace_output(const struct arguments *arguments, const struct log *log)
{
	if (arguments->output) {
		if (trace_write_file(arguments->output, log->processes, log->count) == TUTTI_OK)
			return ATTACH_OK;
		fprintf(stderr, "tutti-trace: %s.\n", last_error());
		return ATTACH_FAILED;
	}
	trace_write(stdout, log->processes, log->count);
	return ATTACH_OK; /* whether it could be written is found out in the end */
}

/* Writes all traces that can be read. The exit code is that of the first one that cannot. */
int trace_dump(const struct arguments *arguments)
{
	struct log log = {0};
	int code = attach_all(&log, arguments->words, arguments->word_count, true);
	int written = log.count ? trace_output(arguments, &log) : ATTACH_OK;

	log_free(&log);
	return code == ATTACH_OK ? written : code;
}

static bool merge_load_all(struct log *log, const struct arguments *arguments)
{
	char why[600];

	for (int i = 0; i < arguments->word_count; i++)
		if (!merge_load_file(log, arguments->words[i], why, sizeof why)) {
			fprintf(stderr, "tutti-trace: %s\n", why);
			return false;
		}
	return true;
}

/* By rank, as viewers show them. */
static int merge_by_rank(const void *a, const void *b)
{
	const struct trace_process *x = a, *y = b;
	int x_rank = x->comm_count ? x->comms[0].rank : -1;
	int y_rank = y->comm_count ? y->comms[0].rank : -1;

	return (x_rank > y_rank) - (x_rank < y_rank);
}

int trace_merge(const struct arguments *arguments)
{
	FILE *report = arguments->output ? stdout : stderr;
	struct log log = {0};
	struct parts parts = {0};
	int code = ATTACH_FAILED;

	if (merge_load_all(&log, arguments)) {
		if (log.count)
			qsort(log.processes, log.count, sizeof *log.processes, merge_by_rank);
		parts_find(&parts, &log);
		clocks_align(&log, &parts, report);
		late_report(&log, &parts, arguments->all, report);
		code = trace_output(arguments, &log);
	}
	parts_free(&parts);
	log_free(&log);
	return code;
}
