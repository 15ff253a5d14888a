/* All log files of a run. Each row goes to every format that was asked for. */
#include "train/metrics/logs.h"

#include <locale.h>
#include <stdlib.h>
#include <string.h>

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

static tutti_status open_all(struct logs *logs, const char *dir, unsigned formats)
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
	tutti_status status = open_all(opened, dir, formats);
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
