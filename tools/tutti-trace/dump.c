/* The traces of running processes, as a file. */
#include "merge.h"

#include "core/status.h"
#include "tools/attach.h"

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

/* What could be read is written; the first thing that could not is the exit code. */
int dump(const struct arguments *arguments)
{
	struct log log = {0};
	int code = ATTACH_OK, written = ATTACH_OK;

	for (int i = 0; i < arguments->word_count; i++) {
		struct trace_process process;
		char why[600];
		int pid;
		parse_pid(arguments->words[i], &pid);
		enum attach_code one = attach_read(pid, &process, why, sizeof why);
		if (one == ATTACH_OK && !log_add(&log, &process)) {
			trace_process_free(&process);
			snprintf(why, sizeof why, "There is not enough memory.");
			one = ATTACH_FAILED;
		}
		if (one != ATTACH_OK) {
			fprintf(stderr, "tutti-trace: %s\n", why);
			code = code == ATTACH_OK ? (int)one : code;
		}
	}
	if (log.count)
		written = write_out(arguments, &log);
	log_free(&log);
	return code == ATTACH_OK ? written : code;
}
