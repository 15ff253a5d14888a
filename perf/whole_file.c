/* Writes a file under another name, and renames it when it is whole. */
#include "whole_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static bool whole_file_is_special(const char *path)
{
	struct stat status;

	return stat(path, &status) == 0 && !S_ISREG(status.st_mode);
}

/* A new file is made and taken away again: that there is room for its text shows only in the end.
 */
static bool whole_file_can_be_written(const struct whole_file *f)
{
	int fd;

	if (!f->beside) {
		fd = open(f->path, O_WRONLY | O_NONBLOCK | O_CLOEXEC);
		if (fd >= 0)
			close(fd);
		return fd >= 0 || errno == ENXIO; /* a pipe that has no reader yet */
	}
	if (access(f->path, F_OK) == 0 && access(f->path, W_OK) != 0)
		return false;
	fd = open(f->beside, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
	if (fd >= 0) {
		close(fd);
		unlink(f->beside);
	}
	return fd >= 0;
}

/* errno stays. */
static void whole_file_forget(struct whole_file *f)
{
	int error = errno;

	free(f->text);
	free(f->path);
	free(f->beside);
	*f = (struct whole_file){0};
	errno = error;
}

bool whole_file_open(struct whole_file *f, const char *path)
{
	*f = (struct whole_file){.path = realpath(path, NULL)};
	if (!f->path)
		f->path = strdup(path);
	if (f->path && !whole_file_is_special(f->path) &&
	    asprintf(&f->beside, "%s.%d.tmp", f->path, (int)getpid()) < 0)
		f->beside = NULL;
	if (f->path && whole_file_can_be_written(f))
		f->stream = open_memstream(&f->text, &f->bytes);
	if (f->stream)
		return true;
	whole_file_forget(f);
	return false;
}

static bool whole_file_write(const struct whole_file *f)
{
	FILE *file = fopen(f->beside ? f->beside : f->path, f->beside ? "wxe" : "we");
	bool is_written = file && fwrite(f->text, 1, f->bytes, file) == f->bytes;

	if (file)
		is_written = fclose(file) == 0 && is_written;
	if (!f->beside || (is_written && rename(f->beside, f->path) == 0))
		return is_written;
	int error = errno;
	if (file)
		unlink(f->beside);
	errno = error;
	return false;
}

bool whole_file_close(struct whole_file *f, bool is_complete)
{
	bool is_written;

	if (!f->stream)
		return true;
	is_written = !ferror(f->stream);
	is_written = fclose(f->stream) == 0 && is_written;
	if (is_written && is_complete)
		is_written = whole_file_write(f);
	whole_file_forget(f);
	return is_written;
}
