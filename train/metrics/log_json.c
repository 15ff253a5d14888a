/* metrics.jsonl: one JSON object a line: step, time in seconds since 1970, and the metrics that
 * have a value. JSON (RFC 8259) has no NaN and no infinity. They are the strings of protobuf's
 * JSON, "NaN", "Infinity" and "-Infinity", which Python's float() and JavaScript's Number() read.
 */
#include "train/metrics/logs.h"

#include <math.h>
#include <stdio.h>

static const char head[] = "{\"step\":";

static tutti_status json_open(struct log_file *file, const char *dir)
{
	return log_file_open(file, dir, "metrics.jsonl", 0);
}

static tutti_status json_begin(struct log_file *file, struct log_buffer *buffer,
			       const struct metric_id *ids, int count)
{
	bool is_new;

	(void)buffer, (void)ids, (void)count;
	return log_file_resume(file, head, sizeof head - 1, &is_new);
}

static void put_string(struct log_buffer *buffer, const char *text)
{
	char escaped[8];

	log_put(buffer, "\"", 1);
	for (; *text; text++) {
		if ((unsigned char)*text < 0x20) {
			snprintf(escaped, sizeof escaped, "\\u%04x", (unsigned)*text);
			log_put_text(buffer, escaped);
			continue;
		}
		if (*text == '"' || *text == '\\')
			log_put(buffer, "\\", 1);
		log_put(buffer, text, 1);
	}
	log_put(buffer, "\"", 1);
}

static void put_value(struct log_buffer *buffer, double value)
{
	if (isnan(value))
		log_put_text(buffer, "\"NaN\"");
	else if (isinf(value))
		log_put_text(buffer, value > 0 ? "\"Infinity\"" : "\"-Infinity\"");
	else
		log_put_number(buffer, value);
}

static void json_encode(struct log_buffer *buffer, const struct log_row *row)
{
	log_put_text(buffer, head);
	log_put_integer(buffer, row->step);
	log_put_text(buffer, ",\"time\":");
	log_put_seconds(buffer, row->seconds);
	for (int m = 0; m < row->count; m++) {
		if (!row->metrics[m].has_reduced)
			continue;
		log_put(buffer, ",", 1);
		put_string(buffer, row->ids[m].name);
		log_put(buffer, ":", 1);
		put_value(buffer, row->metrics[m].reduced);
	}
	log_put_text(buffer, "}\n");
}

const struct log_format log_json = {
	.flag = TUTTI_LOG_JSON, .open = json_open, .begin = json_begin, .encode = json_encode};
