/* The file that a trace is written to: a regular one takes its name when it is whole, so that a
 * reader, or a full disk, never leaves a half; anything else (a device, a pipe) is written to as it
 * is. */
#include "collectives/trace/trace_log.h"

#include "core/log.h"
#include "core/status.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#define TRIES        16
#define SUFFIX_BYTES 18 /* a dot, 16 digits, the end */

struct target {
	char path[PATH_MAX]; /* of a link: where it leads                     */
	int fd;              /* what is there and is no regular file; or -1 */
	mode_t mode;         /* of a regular file that is there; or 0       */
};

static tutti_status trace_file_failed(const char *path)
{
	return fail_errno("the trace could not be written: %.300s", path);
}

/* Opened, so that no file is replaced that could not be written to. Waits for a pipe's reader. */
static tutti_status trace_file_find_target(struct target *t, const char *path)
{
	struct stat about;
	int fd = open(path, O_WRONLY | O_NOCTTY | O_CLOEXEC);

	t->fd = -1;
	t->mode = 0;
	/* A file that has come since is the trace of another thread, which this one replaces. */
	if (fd < 0 && errno == ENOENT &&
	    (lstat(path, &about) == 0 ? S_ISREG(about.st_mode) : errno == ENOENT)) {
		snprintf(t->path, sizeof t->path, "%s", path);
		return TUTTI_OK;
	}
	if (fd < 0 || fstat(fd, &about) != 0) {
		tutti_status status = trace_file_failed(path);
		if (fd >= 0)
			close(fd);
		return status;
	}
	if (!S_ISREG(about.st_mode)) {
		t->fd = fd;
		return TUTTI_OK;
	}
	close(fd);
	t->mode = about.st_mode & 0777;
	return realpath(path, t->path) ? TUTTI_OK : trace_file_failed(path);
}

/* A new file beside the one that it is to become, whatever others have put there. -1 with errno. */
static int trace_file_open_part(char *part, size_t part_bytes, const struct target *t)
{
	int fd = -1;

	errno = EEXIST;
	for (int i = 0; i < TRIES && fd < 0 && errno == EEXIST; i++) {
		unsigned long long name;
		if (getrandom(&name, sizeof name, 0) != (ssize_t)sizeof name)
			return -1;
		snprintf(part, part_bytes, "%s.%016llx", t->path, name);
		fd = open(part, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
	}
	if (fd >= 0 && t->mode && fchmod(fd, t->mode) != 0) {
		int error = errno;
		close(fd);
		unlink(part);
		errno = error;
		return -1;
	}
	return fd;
}

/* Takes fd. False with errno: not all of it has been written. */
static bool trace_file_write_all(int fd, const struct trace_process *processes, size_t count)
{
	FILE *file = fdopen(fd, "w");

	if (!file) {
		close(fd);
		errno = ENOMEM;
		return false;
	}
	errno = 0;
	trace_write(file, processes, count);
	if (!ferror(file))
		return fclose(file) == 0;
	int error = errno ? errno : EIO;
	fclose(file);
	errno = error;
	return false;
}

tutti_status trace_write_file(const char *path, const struct trace_process *processes, size_t count)
{
	struct target target;
	char part[PATH_MAX + SUFFIX_BYTES];

	if (strnlen(path, PATH_MAX) > PATH_MAX - SUFFIX_BYTES)
		return fail(TUTTI_ERR_INVALID, "the path of a trace is longer than %d bytes",
			    PATH_MAX - SUFFIX_BYTES);
	TRY(trace_file_find_target(&target, path));
	if (target.fd >= 0)
		return trace_file_write_all(target.fd, processes, count) ? TUTTI_OK
									 : trace_file_failed(path);
	int fd = trace_file_open_part(part, sizeof part, &target);
	if (fd < 0)
		return trace_file_failed(path);
	if (trace_file_write_all(fd, processes, count) && rename(part, target.path) == 0)
		return TUTTI_OK;
	int error = errno;
	unlink(part);
	errno = error;
	return trace_file_failed(path);
}

#define PATH_BYTES 4096

static tutti_status trace_file_dump(const char *path)
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
	return trace_file_dump(path);
}

/* The user did not name this file: a link could lead anywhere, and a pipe would be waited for. */
static bool trace_file_is_foreign(const char *path)
{
	struct stat about;

	return lstat(path, &about) == 0 && !S_ISREG(about.st_mode);
}

/* Named by the process's first rank, not by its number: a job that is started again and again has
 * as many files as ranks. An error here is no failure: the caller has one already, and reports it
 * after this. */
void trace_dump_failure(const char *folder)
{
	char path[PATH_BYTES];

	if (!folder)
		return;
	int n = snprintf(path, sizeof path, "%s/tutti-trace.%d.json", folder, trace_first_rank());
	if (trace_file_is_foreign(path))
		log_info("no trace: %s is there, and is no regular file", path);
	else if ((size_t)n < sizeof path && trace_file_dump(path) == TUTTI_OK)
		log_info("the trace is in %s", path);
	else
		log_info("no trace: %s", last_error());
}
