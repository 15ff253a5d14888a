/* metrics.csv: RFC 4180 with lines that end in \n. The columns are step, time in seconds since
 * 1970, and the metrics in the order of declaration. A field is empty if the row has no value. */
#include "train/metrics/logs.h"

#include "train/base/train_error.h"

#include <string.h>

static tutti_status csv_open(struct log_file *file, const char *dir)
{
	return log_file_open(file, dir, "metrics.csv", 0);
}

/* Quotes the name if it would not be one field otherwise. */
static void put_name(struct log_buffer *buffer, const char *name)
{
	size_t bytes = strlen(name);

	if (!strpbrk(name, ",\"\r\n") && name[0] != ' ' && name[bytes - 1] != ' ') {
		log_put(buffer, name, bytes);
		return;
	}
	log_put(buffer, "\"", 1);
	for (size_t i = 0; i < bytes; i++)
		log_put(buffer, name[i] == '"' ? "\"\"" : name + i, name[i] == '"' ? 2 : 1);
	log_put(buffer, "\"", 1);
}

static tutti_status csv_begin(struct log_file *file, struct log_buffer *buffer,
			      const struct metric_id *ids, int count)
{
	bool is_new;

	log_put_text(buffer, "step,time");
	for (int m = 0; m < count; m++) {
		log_put(buffer, ",", 1);
		put_name(buffer, ids[m].name);
	}
	log_put(buffer, "\n", 2); /* with a terminating zero, for messages */
	buffer->used--;
	TRY(log_file_resume(file, buffer->bytes, buffer->used, &is_new));
	return is_new ? log_file_append(file, buffer->bytes, buffer->used) : TUTTI_OK;
}

static void csv_encode(struct log_buffer *buffer, const struct log_row *row)
{
	log_put_integer(buffer, row->step);
	log_put(buffer, ",", 1);
	log_put_seconds(buffer, row->seconds);
	for (int m = 0; m < row->count; m++) {
		log_put(buffer, ",", 1);
		if (row->metrics[m].has_reduced)
			log_put_number(buffer, row->metrics[m].reduced);
	}
	log_put(buffer, "\n", 1);
}

const struct log_format log_csv = {
	.flag = TUTTI_LOG_CSV, .open = csv_open, .begin = csv_begin, .encode = csv_encode};
