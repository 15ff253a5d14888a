/* All log files of a run. Each row goes to every format that was asked for. */
#include "train/metrics/logs.h"

#include "core/clock.h"

#include <assert.h>
#include <dirent.h>
#include <fcntl.h>
#include <locale.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- files that grow by whole rows, and the buffer in which a row is built ---- */

struct log_file {
	int fd; /* -1: not open */
	char path[DISK_PATH_BYTES];
};

/* The caller computes the room beforehand; to exceed it is a bug. */
struct log_buffer {
	char *bytes;
	size_t used, room;
};

struct log_format {
	unsigned flag;    /* TUTTI_LOG_* */
	const char *name; /* of the file below dir, if open is NULL */
	/* Opens the file. Writes *file on TUTTI_OK only. */
	tutti_status (*open)(struct log_file *file, const char *dir);
	/* Checks what is in the file and writes its head, before the first row and again after a
	 * failure. buffer is empty. May be NULL. */
	tutti_status (*begin)(struct log_file *file, struct log_buffer *buffer,
			      const struct metric_id *ids, int count);
	/* Appends a row to a buffer that has room for it. */
	void (*encode)(struct log_buffer *buffer, const struct log_row *row);
};

enum { BLOCK_BYTES = 4096 };

/* flags: for open(2), besides those for appending. Writes *file on TUTTI_OK only. */
static tutti_status log_file_open(struct log_file *file, const char *dir, const char *name,
				  int flags)
{
	struct log_file opened;

	TRY(disk_path(opened.path, "%s/%s", dir, name));
	opened.fd = open(opened.path, O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC | flags, 0666);
	if (opened.fd < 0)
		return disk_fail("Opening", opened.path);
	*file = opened;
	return TUTTI_OK;
}

static void log_file_close(struct log_file *file)
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
static tutti_status log_file_append(struct log_file *file, const char *bytes, size_t count)
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
static tutti_status log_find_last_end(struct log_file *file, off_t size, off_t *end)
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
static tutti_status log_check_head(struct log_file *file, off_t size, const char *head,
				   size_t bytes, bool *is_whole)
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

/* Prepares a file of an earlier run for more rows: removes half a row at its end. INVALID if it
 * does not begin with head. *is_new: the file is empty, also of head. */
static tutti_status log_file_resume(struct log_file *file, const char *head, size_t bytes,
				    bool *is_new)
{
	off_t size = 0, end = 0;
	bool is_whole = false;

	TRY(log_file_read_size(file, &size));
	TRY(log_check_head(file, size, head, bytes, &is_whole));
	if (is_whole)
		TRY(log_find_last_end(file, size, &end));
	if (end < size)
		TRY(disk_resize(file->fd, file->path, (uint64_t)end));
	*is_new = end == 0;
	return TUTTI_OK;
}

static void log_put(struct log_buffer *buffer, const void *bytes, size_t count)
{
	assert(count <= buffer->room - buffer->used);
	memcpy(buffer->bytes + buffer->used, bytes, count);
	buffer->used += count;
}

static void log_print(struct log_buffer *buffer, const char *format, ...)
{
	size_t left = buffer->room - buffer->used;
	va_list args;

	va_start(args, format);
	int count = vsnprintf(buffer->bytes + buffer->used, left, format, args);
	va_end(args);
	assert(count >= 0 && (size_t)count < left);
	buffer->used += (size_t)count;
}

/* The shortest decimal digits that give the same double back; nan, inf and -inf. */
static void log_put_number(struct log_buffer *buffer, double number)
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
	return 1e-9 * (double)clock_read_ns(CLOCK_REALTIME);
}

/* ---- CSV ---- */

/* metrics.csv: RFC 4180 with lines that end in \n. The columns are step, time in seconds since
 * 1970, and the metrics in the order of declaration. A field is empty if the row has no value. */

/* Quotes the name if it would not be one field otherwise. */
static void log_csv_put_name(struct log_buffer *buffer, const char *name)
{
	if (!strpbrk(name, ",\"\r\n") && name[0] != ' ' && name[strlen(name) - 1] != ' ') {
		log_print(buffer, "%s", name);
		return;
	}
	log_print(buffer, "\"");
	for (; *name; name++) {
		if (*name == '"')
			log_print(buffer, "\"");
		log_print(buffer, "%c", *name);
	}
	log_print(buffer, "\"");
}

static tutti_status log_csv_begin(struct log_file *file, struct log_buffer *buffer,
				  const struct metric_id *ids, int count)
{
	bool is_new;

	log_print(buffer, "step,time");
	for (int m = 0; m < count; m++) {
		log_print(buffer, ",");
		log_csv_put_name(buffer, ids[m].name);
	}
	log_print(buffer, "\n");
	TRY(log_file_resume(file, buffer->bytes, buffer->used, &is_new));
	return is_new ? log_file_append(file, buffer->bytes, buffer->used) : TUTTI_OK;
}

static void log_csv_encode(struct log_buffer *buffer, const struct log_row *row)
{
	log_print(buffer, "%lld,%.3f", (long long)row->step, row->seconds);
	for (int m = 0; m < row->count; m++) {
		log_print(buffer, ",");
		if (row->metrics[m].has_reduced)
			log_put_number(buffer, row->metrics[m].reduced);
	}
	log_print(buffer, "\n");
}

static const struct log_format log_csv = {.flag = TUTTI_LOG_CSV,
					  .name = "metrics.csv",
					  .begin = log_csv_begin,
					  .encode = log_csv_encode};

/* ---- JSON ---- */

/* metrics.jsonl: one JSON object a line: step, time in seconds since 1970, and the metrics that
 * have a value. JSON (RFC 8259) has no NaN and no infinity. They are the strings of protobuf's
 * JSON, "NaN", "Infinity" and "-Infinity", which Python's float() and JavaScript's Number() read.
 */

static const char json_head[] = "{\"step\":";

static tutti_status log_json_begin(struct log_file *file, struct log_buffer *buffer,
				   const struct metric_id *ids, int count)
{
	bool is_new;

	(void)buffer, (void)ids, (void)count;
	return log_file_resume(file, json_head, sizeof json_head - 1, &is_new);
}

static void log_put_string(struct log_buffer *buffer, const char *text)
{
	log_print(buffer, "\"");
	for (; *text; text++)
		if ((unsigned char)*text < 0x20)
			log_print(buffer, "\\u%04x", (unsigned)*text);
		else
			log_print(buffer, *text == '"' || *text == '\\' ? "\\%c" : "%c", *text);
	log_print(buffer, "\"");
}

static void log_json_put_value(struct log_buffer *buffer, double value)
{
	if (isnan(value))
		log_print(buffer, "\"NaN\"");
	else if (isinf(value))
		log_print(buffer, value > 0 ? "\"Infinity\"" : "\"-Infinity\"");
	else
		log_put_number(buffer, value);
}

static void log_json_encode(struct log_buffer *buffer, const struct log_row *row)
{
	log_print(buffer, "%s%lld,\"time\":%.3f", json_head, (long long)row->step, row->seconds);
	for (int m = 0; m < row->count; m++) {
		if (!row->metrics[m].has_reduced)
			continue;
		log_print(buffer, ",");
		log_put_string(buffer, row->ids[m].name);
		log_print(buffer, ":");
		log_json_put_value(buffer, row->metrics[m].reduced);
	}
	log_print(buffer, "}\n");
}

static const struct log_format log_json = {.flag = TUTTI_LOG_JSON,
					   .name = "metrics.jsonl",
					   .begin = log_json_begin,
					   .encode = log_json_encode};

/* ---- TensorBoard ---- */

/* events.out.tfevents.<seconds>.<host>: the file that TensorBoard reads, as its event.proto,
 * summary.proto and record files define it. Each start of a run makes one file. TensorBoard reads
 * the files of a directory in the order of their names, and where steps go back the later file
 * replaces them.
 *
 * A record is little-endian: u64 bytes; u32 checksum of these eight; the data; u32 checksum of the
 * data. A checksum is the CRC-32C, rotated and moved by a constant. The data is an Event: wall_time
 * = 1 (double), step = 2 (varint), and file_version = 3 (string; in the first record) or summary =
 * 5, which has for each metric a value = 1: tag = 1 (string), simple_value = 2 (float). A field
 * begins with its number times eight plus its wire type: 0 varint, 1 eight bytes, 2 length and
 * bytes, 5 four bytes. */

enum { RECORD_HEAD_BYTES = 12, HOST_BYTES = 65, NAME_BYTES = 128, VERSION_BYTES = 64 };
enum {
	EVENT_WALL_TIME = 1 << 3 | 1,
	EVENT_STEP = 2 << 3 | 0,
	EVENT_FILE_VERSION = 3 << 3 | 2,
	EVENT_SUMMARY = 5 << 3 | 2,
	SUMMARY_VALUE = 1 << 3 | 2,
	VALUE_TAG = 1 << 3 | 2,
	VALUE_SIMPLE = 2 << 3 | 5,
};
static const char events_prefix[] = "events.out.tfevents.";

static void log_put_little_endian(struct log_buffer *buffer, uint64_t number, int bytes)
{
	for (int i = 0; i < bytes; i++, number >>= 8) {
		unsigned char byte = (unsigned char)(number & 0xff);
		log_put(buffer, &byte, 1);
	}
}

static void log_put_byte(struct log_buffer *buffer, int byte)
{
	log_put_little_endian(buffer, (uint64_t)byte, 1);
}

static void log_put_varint(struct log_buffer *buffer, uint64_t number)
{
	for (; number >= 0x80; number >>= 7)
		log_put_byte(buffer, (int)(number & 0x7f) | 0x80);
	log_put_byte(buffer, (int)number);
}

static size_t log_varint_bytes(uint64_t number)
{
	size_t bytes = 1;

	while (number >>= 7)
		bytes++;
	return bytes;
}

static void log_put_checksum(struct log_buffer *buffer, size_t from)
{
	uint32_t crc = tutti_crc32c(0, buffer->bytes + from, buffer->used - from);
	log_put_little_endian(buffer, (uint32_t)((crc >> 15 | crc << 17) + 0xa282ead8u), 4);
}

/* Leaves room for the record's head, which log_close_record fills in. */
static void log_open_record(struct log_buffer *buffer, double seconds)
{
	uint64_t bits;

	log_put_little_endian(buffer, 0, 8);
	log_put_little_endian(buffer, 0, 4);
	memcpy(&bits, &seconds, sizeof bits);
	log_put_byte(buffer, EVENT_WALL_TIME);
	log_put_little_endian(buffer, bits, 8);
}

static void log_close_record(struct log_buffer *buffer)
{
	struct log_buffer head = {.bytes = buffer->bytes, .room = RECORD_HEAD_BYTES};

	log_put_little_endian(&head, buffer->used - RECORD_HEAD_BYTES, 8);
	log_put_checksum(&head, 0);
	log_put_checksum(buffer, RECORD_HEAD_BYTES);
}

static size_t log_value_bytes(const char *tag)
{
	size_t bytes = strlen(tag);
	return 1 + log_varint_bytes(bytes) + bytes + 1 + sizeof(float);
}

static void log_tensorboard_put_value(struct log_buffer *buffer, const char *tag, double number)
{
	float value = (float)number;
	uint32_t bits;

	log_put_byte(buffer, SUMMARY_VALUE);
	log_put_varint(buffer, log_value_bytes(tag));
	log_put_byte(buffer, VALUE_TAG);
	log_put_varint(buffer, strlen(tag));
	log_print(buffer, "%s", tag);
	log_put_byte(buffer, VALUE_SIMPLE);
	memcpy(&bits, &value, sizeof bits);
	log_put_little_endian(buffer, bits, 4);
}

static void log_tensorboard_encode(struct log_buffer *buffer, const struct log_row *row)
{
	size_t bytes = 0;

	for (int m = 0; m < row->count; m++)
		if (row->metrics[m].has_reduced) {
			size_t value = log_value_bytes(row->ids[m].name);
			bytes += 1 + log_varint_bytes(value) + value;
		}
	log_open_record(buffer, row->seconds);
	log_put_byte(buffer, EVENT_STEP);
	log_put_varint(buffer, (uint64_t)row->step);
	log_put_byte(buffer, EVENT_SUMMARY);
	log_put_varint(buffer, bytes);
	for (int m = 0; m < row->count; m++)
		if (row->metrics[m].has_reduced)
			log_tensorboard_put_value(buffer, row->ids[m].name,
						  row->metrics[m].reduced);
	log_close_record(buffer);
}

/* The first second from now on that sorts after all event files of the directory, for two starts
 * within a second and for a clock that was set back. */
static tutti_status log_free_second(const char *dir, long long *second)
{
	struct dirent *entry;
	DIR *listing = opendir(dir);

	*second = (long long)log_date();
	if (!listing)
		return disk_fail("Listing", dir);
	while ((entry = readdir(listing))) {
		if (strncmp(entry->d_name, events_prefix, sizeof events_prefix - 1) != 0)
			continue;
		long long taken = strtoll(entry->d_name + sizeof events_prefix - 1, NULL, 10);
		if (taken >= *second && taken < INT64_MAX)
			*second = taken + 1;
	}
	closedir(listing);
	return TUTTI_OK;
}

static tutti_status log_write_version(struct log_file *file, double seconds)
{
	static const char version[] = "brain.Event:2";
	char bytes[VERSION_BYTES];
	struct log_buffer buffer = {.bytes = bytes, .room = sizeof bytes};

	log_open_record(&buffer, seconds);
	log_put_byte(&buffer, EVENT_FILE_VERSION);
	log_put_varint(&buffer, sizeof version - 1);
	log_print(&buffer, "%s", version);
	log_close_record(&buffer);
	return log_file_append(file, buffer.bytes, buffer.used);
}

static tutti_status log_tensorboard_open(struct log_file *file, const char *dir)
{
	char host[HOST_BYTES] = "", name[NAME_BYTES];
	long long second;

	TRY(log_free_second(dir, &second));
	if (gethostname(host, sizeof host - 1) != 0 || host[0] == '\0')
		snprintf(host, sizeof host, "localhost");
	snprintf(name, sizeof name, "%s%010lld.%s", events_prefix, second, host);
	struct log_file opened;
	TRY(log_file_open(&opened, dir, name, O_EXCL));
	tutti_status status = log_write_version(&opened, (double)second);
	if (status == TUTTI_OK) {
		*file = opened;
		return TUTTI_OK;
	}
	unlink(opened.path);
	log_file_close(&opened);
	return status;
}

static const struct log_format log_tensorboard = {.flag = TUTTI_LOG_TENSORBOARD,
						  .open = log_tensorboard_open,
						  .encode = log_tensorboard_encode};

/* ---- all formats ---- */

static const struct log_format *const formats_there_are[] = {&log_csv, &log_json, &log_tensorboard};

enum {
	FORMATS = sizeof formats_there_are / sizeof *formats_there_are,
	/* The most bytes that a row needs in any format: for the row, for each metric besides its
	   name, and for each byte of a name (JSON's \u0001). */
	ROW_BYTES = 256,
	VALUE_BYTES = 64,
	NAME_FACTOR = 6,
};

struct logs {
	struct log_file files[FORMATS];
	locale_t c_locale; /* numbers have a point in every locale */
	struct log_buffer buffer;
};

static tutti_status logs_open_file(struct log_file *file, const char *dir,
				   const struct log_format *format)
{
	if (format->open)
		return format->open(file, dir);
	return log_file_open(file, dir, format->name, 0);
}

static tutti_status log_open_all(struct logs *logs, const char *dir, unsigned formats)
{
	for (int f = 0; f < FORMATS; f++)
		logs->files[f].fd = -1;
	logs->c_locale = newlocale(LC_NUMERIC_MASK, "C", (locale_t)0);
	if (!logs->c_locale)
		return fail_no_memory("the format of numbers");
	TRY(disk_make_folder(dir));
	for (int f = 0; f < FORMATS; f++)
		if (formats == 0 || (formats & formats_there_are[f]->flag))
			TRY(logs_open_file(&logs->files[f], dir, formats_there_are[f]));
	return TUTTI_OK;
}

tutti_status logs_open(struct logs **logs, const char *dir, unsigned formats)
{
	struct logs *opened = calloc(1, sizeof *opened);

	if (!opened)
		return fail_no_memory("log files");
	tutti_status status = log_open_all(opened, dir, formats);
	if (status == TUTTI_OK) {
		*logs = opened;
		return TUTTI_OK;
	}
	logs_close(opened);
	return status;
}

void logs_close(struct logs *logs)
{
	if (!logs)
		return;
	for (int f = 0; f < FORMATS; f++)
		log_file_close(&logs->files[f]);
	if (logs->c_locale)
		freelocale(logs->c_locale);
	free(logs->buffer.bytes);
	free(logs);
}

/* Makes a buffer for the largest possible row, so that rows allocate nothing. */
static tutti_status logs_make_buffer(struct logs *logs, const struct metric_id *ids, int count)
{
	size_t room = ROW_BYTES;

	for (int m = 0; m < count; m++)
		room += VALUE_BYTES + NAME_FACTOR * strlen(ids[m].name);
	free(logs->buffer.bytes);
	logs->buffer = (struct log_buffer){.bytes = malloc(room), .room = room};
	if (!logs->buffer.bytes)
		return fail_no_memory("a row of %zu bytes", room);
	return TUTTI_OK;
}

tutti_status logs_begin(struct logs *logs, const struct metric_id *ids, int count)
{
	TRY(logs_make_buffer(logs, ids, count));
	for (int f = 0; f < FORMATS; f++) {
		if (logs->files[f].fd < 0 || !formats_there_are[f]->begin)
			continue;
		logs->buffer.used = 0;
		TRY(formats_there_are[f]->begin(&logs->files[f], &logs->buffer, ids, count));
	}
	return TUTTI_OK;
}

tutti_status logs_append(struct logs *logs, const struct log_row *row)
{
	struct kept_error first = {0};

	for (int f = 0; f < FORMATS; f++) {
		if (logs->files[f].fd < 0)
			continue;
		logs->buffer.used = 0;
		locale_t before = uselocale(logs->c_locale);
		formats_there_are[f]->encode(&logs->buffer, row);
		uselocale(before);
		kept_error_note(&first, log_file_append(&logs->files[f], logs->buffer.bytes,
							logs->buffer.used));
	}
	return kept_error_return(&first);
}

tutti_status logs_sync(struct logs *logs)
{
	for (int f = 0; f < FORMATS; f++)
		if (logs->files[f].fd >= 0)
			TRY(disk_sync(logs->files[f].fd, logs->files[f].path));
	return TUTTI_OK;
}
