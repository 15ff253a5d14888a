/* Files that grow row by row, and the parts of rows. */
#include "train/metrics/logs.h"

#include <assert.h>
#include <fcntl.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { BLOCK_BYTES = 4096 };

tutti_status log_file_open(struct log_file *file, const char *dir, const char *name, int flags)
{
	struct log_file opened;

	TRY(disk_path(opened.path, "%s/%s", dir, name));
	opened.fd = open(opened.path, O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC | flags, 0666);
	if (opened.fd < 0)
		return disk_fail("Opening", opened.path);
	*file = opened;
	return TUTTI_OK;
}

void log_file_close(struct log_file *file)
{
	if (file->fd >= 0)
		close(file->fd);
	file->fd = -1;
}

static tutti_status log_file_read_size(struct log_file *file, off_t *size)
{
	struct stat stat;

	if (fstat(file->fd, &stat) != 0)
		return disk_fail("Looking at", file->path);
	*size = stat.st_size;
	return TUTTI_OK;
}

/* The file is open for appending, so the offset of a write does not matter. */
tutti_status log_file_append(struct log_file *file, const char *bytes, size_t count)
{
	off_t before = 0, after = 0;

	TRY(log_file_read_size(file, &before));
	tutti_status status = disk_write(file->fd, file->path, bytes, count, (uint64_t)before);
	if (status == TUTTI_OK)
		return TUTTI_OK;
	struct kept_error kept = kept_error_of(status);
	TRY(log_file_read_size(file, &after));
	if (after > before) /* half a row would spoil the rows behind it */
		TRY(disk_resize(file->fd, file->path, (uint64_t)before));
	return kept_error_return(&kept);
}

/* *end: where the last line ends, or 0. */
static tutti_status find_last_end(struct log_file *file, off_t size, off_t *end)
{
	char block[BLOCK_BYTES];

	for (*end = size; *end > 0;) {
		size_t bytes = *end < BLOCK_BYTES ? (size_t)*end : BLOCK_BYTES;
		TRY(disk_read(file->fd, file->path, block, bytes, (uint64_t)*end - bytes));
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
		TRY(disk_read(file->fd, file->path, block, part, at));
		if (memcmp(block, head + at, part) != 0)
			return fail_invalid("The log file %s does not begin with %.120s: move it "
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

	TRY(log_file_read_size(file, &size));
	TRY(check_head(file, size, head, bytes, &is_whole));
	if (is_whole)
		TRY(find_last_end(file, size, &end));
	if (end < size)
		TRY(disk_resize(file->fd, file->path, (uint64_t)end));
	*is_new = end == 0;
	return TUTTI_OK;
}

void log_put(struct log_buffer *buffer, const void *bytes, size_t count)
{
	assert(count <= buffer->room - buffer->used);
	memcpy(buffer->bytes + buffer->used, bytes, count);
	buffer->used += count;
}

void log_print(struct log_buffer *buffer, const char *format, ...)
{
	size_t left = buffer->room - buffer->used;
	va_list args;

	va_start(args, format);
	int count = vsnprintf(buffer->bytes + buffer->used, left, format, args);
	va_end(args);
	assert(count >= 0 && (size_t)count < left);
	buffer->used += (size_t)count;
}

void log_put_number(struct log_buffer *buffer, double number)
{
	char text[40] = "nan";

	for (int digits = 15; digits <= 17 && !isnan(number); digits++) {
		snprintf(text, sizeof text, "%.*g", digits, number);
		if (strtod(text, NULL) == number)
			break;
	}
	log_print(buffer, "%s", text);
}

double log_date(void)
{
	struct timespec date;

	clock_gettime(CLOCK_REALTIME, &date);
	return (double)date.tv_sec + 1e-9 * (double)date.tv_nsec;
}
