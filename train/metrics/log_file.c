/* Files that grow row by row, and the parts of rows. */
#include "train/metrics/log_file.h"

#include "train/base/train_error.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { BLOCK_BYTES = 4096 };

tutti_status log_file_fail(const struct log_file *file, const char *what)
{
	int error = errno;
	return train_fail(TUTTI_ERR_SYSTEM, "Rank 0 cannot %s the log file %s: %s (%d).", what,
			  path_shown(file->path), strerror(error), error);
}

tutti_status log_file_open(struct log_file *file, const char *dir, const char *name, int flags)
{
	struct log_file opened;

	if (asprintf(&opened.path, "%s/%s", dir, name) < 0)
		return train_no_memory("the name of a log file");
	opened.fd = open(opened.path, O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC | flags, 0666);
	if (opened.fd < 0) {
		tutti_status status = log_file_fail(&opened, "open");
		free(opened.path);
		return status;
	}
	*file = opened;
	return TUTTI_OK;
}

void log_file_close(struct log_file *file)
{
	if (file->fd >= 0)
		close(file->fd);
	free(file->path);
	*file = (struct log_file){.fd = -1};
}

static tutti_status read_size(struct log_file *file, off_t *size)
{
	struct stat stat;

	if (fstat(file->fd, &stat) != 0)
		return log_file_fail(file, "look at");
	*size = stat.st_size;
	return TUTTI_OK;
}

static tutti_status cut(struct log_file *file, off_t size)
{
	if (ftruncate(file->fd, size) != 0)
		return log_file_fail(file, "remove half a row from");
	return TUTTI_OK;
}

/* Removes half a row, which would spoil the rows behind it. */
static tutti_status take_back(struct log_file *file, off_t size)
{
	tutti_status status = log_file_fail(file, "write");
	struct train_failure kept = failure_of(status);

	TRY(cut(file, size));
	return failure_return(&kept);
}

tutti_status log_file_append(struct log_file *file, const char *bytes, size_t count)
{
	off_t size = 0;

	TRY(read_size(file, &size));
	for (size_t written = 0; written < count;) {
		ssize_t now = write(file->fd, bytes + written, count - written);
		if (now < 0 && errno == EINTR)
			continue;
		if (now == 0)
			errno = ENOSPC; /* files never do this; do not wait for ever */
		if (now <= 0)
			return written ? take_back(file, size) : log_file_fail(file, "write");
		written += (size_t)now;
	}
	return TUTTI_OK;
}

tutti_status log_file_sync(struct log_file *file)
{
	/* EINVAL, EROFS: the file is on no disk. */
	if (fsync(file->fd) != 0 && errno != EINVAL && errno != EROFS)
		return log_file_fail(file, "bring to disk");
	return TUTTI_OK;
}

/* Reads all of the bytes, which the file has. */
static tutti_status read_at(struct log_file *file, char *bytes, size_t count, off_t at)
{
	ssize_t got = pread(file->fd, bytes, count, at);

	if (got >= 0)
		errno = EIO; /* the file has become shorter */
	return got == (ssize_t)count ? TUTTI_OK : log_file_fail(file, "read");
}

/* *end: where the last line ends, or 0. */
static tutti_status find_last_end(struct log_file *file, off_t size, off_t *end)
{
	char block[BLOCK_BYTES];

	for (*end = size; *end > 0;) {
		size_t bytes = *end < BLOCK_BYTES ? (size_t)*end : BLOCK_BYTES;
		TRY(read_at(file, block, bytes, *end - (off_t)bytes));
		const char *newline = memrchr(block, '\n', bytes);
		*end -= newline ? block + bytes - (newline + 1) : (off_t)bytes;
		if (newline)
			break;
	}
	return TUTTI_OK;
}

/* *is_whole: the file begins with all of head. */
static tutti_status check_head(struct log_file *file, off_t size, const char *head, size_t bytes,
			       bool *is_whole)
{
	char block[BLOCK_BYTES];
	size_t end = (uint64_t)size < bytes ? (size_t)size : bytes;

	for (size_t at = 0; at < end;) {
		size_t part = end - at < sizeof block ? end - at : sizeof block;
		TRY(read_at(file, block, part, (off_t)at));
		if (memcmp(block, head + at, part) != 0)
			return train_fail(TUTTI_ERR_INVALID,
					  "The log file %s does not begin with %.120s: move it "
					  "away, or log to another directory.",
					  path_shown(file->path), head);
		at += part;
	}
	*is_whole = end == bytes;
	return TUTTI_OK;
}

tutti_status log_file_resume(struct log_file *file, const char *head, size_t bytes, bool *is_new)
{
	off_t size = 0, end = 0;
	bool is_whole = false;

	TRY(read_size(file, &size));
	TRY(check_head(file, size, head, bytes, &is_whole));
	if (is_whole)
		TRY(find_last_end(file, size, &end));
	if (end < size)
		TRY(cut(file, end));
	*is_new = end == 0;
	return TUTTI_OK;
}

void log_put(struct log_buffer *buffer, const void *bytes, size_t count)
{
	assert(count <= buffer->room - buffer->used);
	memcpy(buffer->bytes + buffer->used, bytes, count);
	buffer->used += count;
}

void log_put_text(struct log_buffer *buffer, const char *text)
{
	log_put(buffer, text, strlen(text));
}

void log_put_number(struct log_buffer *buffer, double number)
{
	char text[40];

	if (isnan(number)) {
		log_put_text(buffer, "nan");
		return;
	}
	for (int digits = 15; digits <= 17; digits++) {
		snprintf(text, sizeof text, "%.*g", digits, number);
		if (strtod(text, NULL) == number)
			break;
	}
	log_put_text(buffer, text);
}

void log_put_integer(struct log_buffer *buffer, int64_t number)
{
	char text[24];

	snprintf(text, sizeof text, "%lld", (long long)number);
	log_put_text(buffer, text);
}

void log_put_seconds(struct log_buffer *buffer, double seconds)
{
	char text[40];

	snprintf(text, sizeof text, "%.3f", seconds);
	log_put_text(buffer, text);
}

double log_date(void)
{
	struct timespec date;

	clock_gettime(CLOCK_REALTIME, &date);
	return (double)date.tv_sec + 1e-9 * (double)date.tv_nsec;
}
