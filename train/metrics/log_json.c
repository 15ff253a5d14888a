/* metrics.jsonl: one JSON object a line: step, time in seconds since 1970, and the metrics that
 * have a value. JSON (RFC 8259) has no NaN and no infinity. They are the strings of protobuf's
 * JSON, "NaN", "Infinity" and "-Infinity", which Python's float() and JavaScript's Number() read.
 */
#include "train/metrics/logs.h"

#include <math.h>

static const char head[] = "{\"step\":";

static tutti_status log_json_begin(struct log_file *file, struct log_buffer *buffer,
				   const struct metric_id *ids, int count)
{
	bool is_new;

	(void)buffer, (void)ids, (void)count;
	return log_file_resume(file, head, sizeof head - 1, &is_new);
}

static void put_string(struct log_buffer *buffer, const char *text)
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

static void json_encode(struct log_buffer *buffer, const struct log_row *row)
{
	log_print(buffer, "%s%lld,\"time\":%.3f", head, (long long)row->step, row->seconds);
	for (int m = 0; m < row->count; m++) {
		if (!row->metrics[m].has_reduced)
			continue;
		log_print(buffer, ",");
		put_string(buffer, row->ids[m].name);
		log_print(buffer, ":");
		log_json_put_value(buffer, row->metrics[m].reduced);
	}
	log_print(buffer, "}\n");
}

const struct log_format log_json = {.flag = TUTTI_LOG_JSON,
				    .name = "metrics.jsonl",
				    .begin = log_json_begin,
				    .encode = json_encode};
