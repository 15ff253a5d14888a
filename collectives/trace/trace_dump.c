/* Writes this process's traces to a file: when the program asks for it, and when a communicator has
 * failed, if TUTTI_TRACE_DIR says where. */
#include "collectives/trace/trace_log.h"

#include "core/log.h"
#include "core/status.h"

#include <sys/stat.h>
#include <unistd.h>

#define PATH_BYTES 4096

static tutti_status dump(const char *path)
{
	struct trace_process process = {.pid = (int)getpid()};
	tutti_status status = trace_read_own(&process);

	if (status == TUTTI_OK)
		status = trace_write_file(path, &process, 1);
	trace_process_free(&process);
	return status;
}

tutti_status tutti_trace_dump(const char *path)
{
	last_error_clear();
	if (!path || !*path)
		return fail(TUTTI_ERR_INVALID, "tutti_trace_dump: path is %s",
			    path ? "empty" : "NULL");
	return dump(path);
}

/* The user did not name this file: a link could lead anywhere, and a pipe would be waited for. */
static bool is_foreign(const char *path)
{
	struct stat about;

	return lstat(path, &about) == 0 && !S_ISREG(about.st_mode);
}

/* Named by the process's first rank, not by its number: a job that is started again and again has
 * as many files as ranks. What goes wrong here is no failure: the caller has one already, and says
 * it after this. */
void trace_dump_failure(const char *folder)
{
	char path[PATH_BYTES];

	if (!folder)
		return;
	int n = snprintf(path, sizeof path, "%s/tutti-trace.%d.json", folder, trace_first_rank());
	if (is_foreign(path))
		log_info("no trace: %s is there, and is no regular file", path);
	else if ((size_t)n < sizeof path && dump(path) == TUTTI_OK)
		log_info("the trace is in %s", path);
	else
		log_info("no trace: %s", last_error());
}
