/* metrics.csv: RFC 4180 with lines that end in \n. The columns are step, time in seconds since
 * 1970, and the metrics in the order of declaration. A field is empty if the row has no value. */
#include "train/metrics/logs.h"

#include <string.h>

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

static tutti_status csv_begin(struct log_file *file, struct log_buffer *buffer,
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

static void csv_encode(struct log_buffer *buffer, const struct log_row *row)
{
	log_print(buffer, "%lld,%.3f", (long long)row->step, row->seconds);
	for (int m = 0; m < row->count; m++) {
		log_print(buffer, ",");
		if (row->metrics[m].has_reduced)
			log_put_number(buffer, row->metrics[m].reduced);
	}
	log_print(buffer, "\n");
}

const struct log_format log_csv = {
	.flag = TUTTI_LOG_CSV, .name = "metrics.csv", .begin = csv_begin, .encode = csv_encode};
