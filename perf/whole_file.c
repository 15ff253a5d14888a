/* Writes a file under another name, and renames it when it is whole. */
#include "whole_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Beside the file, so that renaming it stays on one file system. NULL: no memory. */
static char *temporary_name(const struct whole_file *f)
{
	char *name = NULL;

	return asprintf(&name, "%s.%d.tmp", f->path, (int)getpid()) < 0 ? NULL : name;
}

static bool is_special(const char *path)
{
	struct stat status;

	return stat(path, &status) == 0 && !S_ISREG(status.st_mode);
}

/* A new file is made and taken away again: that there is room for its text shows only in the end.
 */
static bool can_be_written(const struct whole_file *f)
{
	char *name;
	int fd;

	if (access(f->path, F_OK) == 0 && access(f->path, W_OK) != 0)
		return false;
	if (is_special(f->path)) {
		fd = open(f->path, O_WRONLY | O_NONBLOCK | O_CLOEXEC);
		if (fd >= 0)
			close(fd);
		return fd >= 0 || errno == ENXIO; /* a pipe that has no reader yet */
	}
	name = temporary_name(f);
	fd = name ? open(name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666) : -1;
	if (fd >= 0) {
		close(fd);
		unlink(name);
	}
	free(name);
	return fd >= 0;
}

static void whole_file_forget(struct whole_file *f)
{
	free(f->text);
	free(f->path);
	*f = (struct whole_file){0};
}

bool whole_file_open(struct whole_file *f, const char *path)
{
	*f = (struct whole_file){.path = realpath(path, NULL)};
	if (!f->path)
		f->path = strdup(path);
	if (f->path && can_be_written(f))
		f->stream = open_memstream(&f->text, &f->bytes);
	if (f->stream)
		return true;
	int error = errno;
	whole_file_forget(f);
	errno = error;
	return false;
}

static bool write_to(FILE *file, const struct whole_file *f)
{
	bool is_written;

	if (!file)
		return false;
	is_written = fwrite(f->text, 1, f->bytes, file) == f->bytes;
	return fclose(file) == 0 && is_written;
}

static bool put_in_place(const struct whole_file *f)
{
	char *name;
	bool is_there;

	if (is_special(f->path))
		return write_to(fopen(f->path, "we"), f);
	name = temporary_name(f);
	is_there = name && write_to(fopen(name, "wxe"), f) && rename(name, f->path) == 0;
	if (name && !is_there) {
		int error = errno;
		unlink(name);
		errno = error;
	}
	free(name);
	return is_there;
}

bool whole_file_close(struct whole_file *f, bool is_complete)
{
	bool is_written;
	int error;

	if (!f->stream)
		return true;
	is_written = !ferror(f->stream);
	is_written = fclose(f->stream) == 0 && is_written;
	if (is_written && is_complete)
		is_written = put_in_place(f);
	error = errno;
	whole_file_forget(f);
	errno = error;
	return is_written;
}
