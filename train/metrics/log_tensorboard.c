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
#include "train/metrics/logs.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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
static const char prefix[] = "events.out.tfevents.";

static void put_little_endian(struct log_buffer *buffer, uint64_t number, int bytes)
{
	for (int i = 0; i < bytes; i++, number >>= 8) {
		unsigned char byte = (unsigned char)(number & 0xff);
		log_put(buffer, &byte, 1);
	}
}

static void put_byte(struct log_buffer *buffer, int byte)
{
	put_little_endian(buffer, (uint64_t)byte, 1);
}

static void put_varint(struct log_buffer *buffer, uint64_t number)
{
	for (; number >= 0x80; number >>= 7)
		put_byte(buffer, (int)(number & 0x7f) | 0x80);
	put_byte(buffer, (int)number);
}

static size_t varint_bytes(uint64_t number)
{
	size_t bytes = 1;

	while (number >>= 7)
		bytes++;
	return bytes;
}

static void put_checksum(struct log_buffer *buffer, size_t from)
{
	uint32_t crc = tutti_crc32c(0, buffer->bytes + from, buffer->used - from);
	put_little_endian(buffer, (uint32_t)((crc >> 15 | crc << 17) + 0xa282ead8u), 4);
}

/* Leaves room for the record's head, which close_record fills in. */
static void open_record(struct log_buffer *buffer, double seconds)
{
	uint64_t bits;

	put_little_endian(buffer, 0, 8);
	put_little_endian(buffer, 0, 4);
	memcpy(&bits, &seconds, sizeof bits);
	put_byte(buffer, EVENT_WALL_TIME);
	put_little_endian(buffer, bits, 8);
}

static void close_record(struct log_buffer *buffer)
{
	struct log_buffer head = {.bytes = buffer->bytes, .room = RECORD_HEAD_BYTES};

	put_little_endian(&head, buffer->used - RECORD_HEAD_BYTES, 8);
	put_checksum(&head, 0);
	put_checksum(buffer, RECORD_HEAD_BYTES);
}

static size_t value_bytes(const char *tag)
{
	size_t bytes = strlen(tag);
	return 1 + varint_bytes(bytes) + bytes + 1 + sizeof(float);
}

static void log_tensorboard_put_value(struct log_buffer *buffer, const char *tag, double number)
{
	float value = (float)number;
	uint32_t bits;

	put_byte(buffer, SUMMARY_VALUE);
	put_varint(buffer, value_bytes(tag));
	put_byte(buffer, VALUE_TAG);
	put_varint(buffer, strlen(tag));
	log_print(buffer, "%s", tag);
	put_byte(buffer, VALUE_SIMPLE);
	memcpy(&bits, &value, sizeof bits);
	put_little_endian(buffer, bits, 4);
}

static void tensorboard_encode(struct log_buffer *buffer, const struct log_row *row)
{
	size_t bytes = 0;

	for (int m = 0; m < row->count; m++)
		if (row->metrics[m].has_reduced) {
			size_t value = value_bytes(row->ids[m].name);
			bytes += 1 + varint_bytes(value) + value;
		}
	open_record(buffer, row->seconds);
	put_byte(buffer, EVENT_STEP);
	put_varint(buffer, (uint64_t)row->step);
	put_byte(buffer, EVENT_SUMMARY);
	put_varint(buffer, bytes);
	for (int m = 0; m < row->count; m++)
		if (row->metrics[m].has_reduced)
			log_tensorboard_put_value(buffer, row->ids[m].name,
						  row->metrics[m].reduced);
	close_record(buffer);
}

/* The first second from now on that sorts after all event files of the directory, for two starts
 * within a second and for a clock that was set back. */
static tutti_status free_second(const char *dir, long long *second)
{
	struct dirent *entry;
	DIR *listing = opendir(dir);

	*second = (long long)log_date();
	if (!listing)
		return disk_fail("Listing", dir);
	while ((entry = readdir(listing))) {
		if (strncmp(entry->d_name, prefix, sizeof prefix - 1) != 0)
			continue;
		long long taken = strtoll(entry->d_name + sizeof prefix - 1, NULL, 10);
		if (taken >= *second && taken < INT64_MAX)
			*second = taken + 1;
	}
	closedir(listing);
	return TUTTI_OK;
}

static tutti_status write_version(struct log_file *file, double seconds)
{
	static const char version[] = "brain.Event:2";
	char bytes[VERSION_BYTES];
	struct log_buffer buffer = {.bytes = bytes, .room = sizeof bytes};

	open_record(&buffer, seconds);
	put_byte(&buffer, EVENT_FILE_VERSION);
	put_varint(&buffer, sizeof version - 1);
	log_print(&buffer, "%s", version);
	close_record(&buffer);
	return log_file_append(file, buffer.bytes, buffer.used);
}

static tutti_status tensorboard_open(struct log_file *file, const char *dir)
{
	char host[HOST_BYTES] = "", name[NAME_BYTES];
	long long second;

	TRY(free_second(dir, &second));
	if (gethostname(host, sizeof host - 1) != 0 || host[0] == '\0')
		snprintf(host, sizeof host, "localhost");
	snprintf(name, sizeof name, "%s%010lld.%s", prefix, second, host);
	struct log_file opened;
	TRY(log_file_open(&opened, dir, name, O_EXCL));
	tutti_status status = write_version(&opened, (double)second);
	if (status == TUTTI_OK) {
		*file = opened;
		return TUTTI_OK;
	}
	unlink(opened.path);
	log_file_close(&opened);
	return status;
}

const struct log_format log_tensorboard = {
	.flag = TUTTI_LOG_TENSORBOARD, .open = tensorboard_open, .encode = tensorboard_encode};
