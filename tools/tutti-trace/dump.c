/* The traces of running processes, as a file. */
#include "merge.h"

#include "core/status.h"

int write_out(const struct arguments *arguments, const struct log *log)
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
	int written = log.count ? write_out(arguments, &log) : ATTACH_OK;

	log_free(&log);
	return code == ATTACH_OK ? written : code;
}
