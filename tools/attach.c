/* Reads the traces of running processes through /proc. */
#include "tools/attach.h"

#include "core/status.h"
#include "core/words/number.h"
#include "tools/job.h"
#include "tools/must.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define LINK "/memfd:" TRACE_NAME " (deleted)"

/* The number that the process has in its own pid namespace (a container), which its trace has. */
static int attach_inner_pid(int pid)
{
	char path[64], line[256];
	int inner = pid;

	snprintf(path, sizeof path, "/proc/%d/status", pid);
	FILE *file = fopen(path, "re");
	while (file && fgets(line, sizeof line, file)) {
		char *last = strrchr(line, '\t');
		if (strncmp(line, "NSpid:", 6) == 0 && last)
			inner = atoi(last + 1);
	}
	if (file)
		fclose(file);
	return inner;
}

/* A file that cannot become shorter while it is mapped; else a load may be a SIGBUS. */
static const struct trace_page *attach_map_page(int fd, size_t *bytes)
{
	struct stat st;
	int seals = fcntl(fd, F_GET_SEALS);

	if (seals < 0 || !(seals & F_SEAL_SHRINK) || fstat(fd, &st) != 0 ||
	    st.st_size < (off_t)sizeof(struct trace_page))
		return NULL;
	*bytes = (size_t)st.st_size;
	void *at = mmap(NULL, *bytes, PROT_READ, MAP_SHARED, fd, 0);
	return at == MAP_FAILED ? NULL : at;
}

/* INVALID, UNSUPPORTED, MEMORY as trace_read. IN_PROGRESS: it was left by another process, whose
 * child this is. */
static tutti_status attach_read_fd(int fd, int pid, struct trace_process *process)
{
	char who[40];
	size_t bytes;
	const struct trace_page *page = attach_map_page(fd, &bytes);
	tutti_status status;

	snprintf(who, sizeof who, "Process %d", pid);
	if (!page)
		return fail(TUTTI_ERR_INVALID, "%s has a trace that is damaged", who);
	if (page->magic == TRACE_MAGIC && page->version == TRACE_VERSION &&
	    page->pid != attach_inner_pid(pid))
		status = TUTTI_IN_PROGRESS;
	else
		status = trace_read(process, page, bytes, who);
	munmap((void *)(uintptr_t)page, bytes);
	return status;
}

static enum attach_code attach_code_of(tutti_status status)
{
	return status == TUTTI_OK                ? ATTACH_OK
	       : status == TUTTI_ERR_UNSUPPORTED ? ATTACH_VERSION
	       : status == TUTTI_IN_PROGRESS     ? ATTACH_NO_TUTTI
						 : ATTACH_FAILED;
}

static enum attach_code attach_refused(int pid, int error, char *why, size_t why_bytes)
{
	if (error == ENOENT || error == ESRCH) {
		snprintf(why, why_bytes, "There is no process %d.", pid);
		return ATTACH_NOBODY;
	}
	snprintf(why, why_bytes,
		 "Process %d may not be looked at (%s): it is another user's, or has rights that "
		 "this user has not.",
		 pid, strerror(error));
	return ATTACH_REFUSED;
}

/* Looks at one descriptor; NO_TUTTI: it is no trace. */
static enum attach_code attach_look_at(int dir, const char *name, int pid,
				       struct trace_process *process, char *why, size_t why_bytes)
{
	char link[sizeof LINK + 1];
	ssize_t n = readlinkat(dir, name, link, sizeof link);

	if (n < 0 && errno == EACCES) /* root without capabilities may list them all the same */
		return attach_refused(pid, errno, why, why_bytes);
	if (n != sizeof LINK - 1 || memcmp(link, LINK, sizeof LINK - 1) != 0)
		return ATTACH_NO_TUTTI;
	int fd = openat(dir, name, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	if (fd < 0) /* it was closed just now */
		return ATTACH_NO_TUTTI;
	tutti_status status = attach_read_fd(fd, pid, process);
	close(fd);
	if (status != TUTTI_OK && status != TUTTI_IN_PROGRESS)
		snprintf(why, why_bytes, "%s.", last_error());
	return attach_code_of(status);
}

enum attach_code attach_read(int pid, struct trace_process *process, char *why, size_t why_bytes)
{
	enum attach_code code = ATTACH_NO_TUTTI;
	struct dirent *entry;
	char path[64];

	*process = (struct trace_process){.pid = pid};
	snprintf(path, sizeof path, "/proc/%d/fd", pid);
	DIR *dir = opendir(path);
	if (!dir)
		return attach_refused(pid, errno, why, why_bytes);
	snprintf(why, why_bytes, "Process %d does not use Tutti, or has no communicator now.", pid);
	while ((code == ATTACH_OK || code == ATTACH_NO_TUTTI) && (entry = readdir(dir))) {
		enum attach_code one =
			attach_look_at(dirfd(dir), entry->d_name, pid, process, why, why_bytes);
		code = one == ATTACH_NO_TUTTI ? code : one;
	}
	closedir(dir);
	if (code != ATTACH_OK)
		trace_process_free(process);
	process->pid = pid;
	return code;
}

void attach_op_name(const struct trace_op *op, char text[ATTACH_OP_BYTES])
{
	if (!op)
		snprintf(text, ATTACH_OP_BYTES, "-");
	else if (op->sequence >= 0)
		snprintf(text, ATTACH_OP_BYTES, "%s #%" PRId64, op->name, op->sequence);
	else if (op->peer >= 0)
		snprintf(text, ATTACH_OP_BYTES, "%s %s %d", op->name,
			 strcmp(op->name, "send") == 0 ? "to" : "from", op->peer);
	else
		snprintf(text, ATTACH_OP_BYTES, "%s%s", op->name,
			 strcmp(op->name, "recv") == 0 ? " from any" : "");
}

void log_add(struct log *log, const struct trace_process *process)
{
	log->processes =
		must_have(realloc(log->processes, (log->count + 1) * sizeof *log->processes));
	log->processes[log->count++] = *process;
}

void log_free(struct log *log)
{
	for (size_t i = 0; i < log->count; i++)
		trace_process_free(&log->processes[i]);
	free(log->processes);
	*log = (struct log){0};
}

/* Adds what the processes of a job have. */
static enum attach_code attach_job(struct log *log, int launcher, char *why, size_t why_bytes)
{
	struct job_list list = job_list(launcher);
	enum attach_code code = ATTACH_NO_TUTTI;
	char why_not[600];

	snprintf(why, why_bytes, "No rank of tuttirun, process %d, has a communicator now.",
		 launcher);
	for (size_t i = 0; i < list.count; i++) {
		struct trace_process process;
		enum attach_code one =
			attach_read(list.processes[i].pid, &process, why_not, sizeof why_not);

		if (one == ATTACH_OK)
			log_add(log, &process);
		else if (one != ATTACH_NO_TUTTI)
			snprintf(why, why_bytes, "%s", why_not);
		code = one == ATTACH_OK || code == ATTACH_NO_TUTTI ? one : code;
	}
	free(list.processes);
	return code;
}

enum attach_code attach_all(struct log *log, char *const *pids, int count, bool says_why)
{
	enum attach_code first = ATTACH_OK;

	for (int i = 0; i < count; i++) {
		struct trace_process process;
		char why[600];
		int pid = 0;
		number_read_int(pids[i], 1, INT_MAX, &pid);
		bool is_job = job_is_launcher(pid);
		enum attach_code code = is_job ? attach_job(log, pid, why, sizeof why)
					       : attach_read(pid, &process, why, sizeof why);
		if (code == ATTACH_OK && !is_job)
			log_add(log, &process);
		else if (code == ATTACH_OK)
			continue;
		else if (says_why)
			fprintf(stderr, "%s: %s\n", program_invocation_short_name, why);
		first = first == ATTACH_OK ? code : first;
	}
	return first;
}
