/* tutti-trace merge: the dumps of several ranks as one. */
#include "merge.h"

#include <stdlib.h>
#include <string.h>

static bool merge_load_all(struct log *log, const struct arguments *arguments)
{
	char why[600];

	for (int i = 0; i < arguments->word_count; i++)
		if (!trace_load_file(log, arguments->words[i], why, sizeof why)) {
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
		code = write_out(arguments, &log);
	}
	parts_free(&parts);
	log_free(&log);
	return code;
}
