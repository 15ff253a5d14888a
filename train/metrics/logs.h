/* The log files of a run. A format is a file of its own and a line in logs.c. */
#ifndef TRAIN_LOGS_H
#define TRAIN_LOGS_H

#include "train/metrics/log_file.h"
#include "train/metrics/metrics.h"

struct log_row {
	int64_t step;
	double seconds;                 /* since 1970 */
	int count;
	const struct metric_id *ids;
	const struct metric *metrics;   /* reduced, has_reduced */
};

struct log_format {
	unsigned flag;                  /* TUTTI_LOG_* */
	const char *name;               /* of the file below dir, if open is NULL */
	/* Opens the file. Writes *file on TUTTI_OK only. */
	tutti_status (*open)(struct log_file *file, const char *dir);
	/* Checks what is in the file and writes its head, before the first row and again after a
	 * failure. buffer is empty. May be NULL. */
	tutti_status (*begin)(struct log_file *file, struct log_buffer *buffer,
			      const struct metric_id *ids, int count);
	/* Appends a row to a buffer that has room for it. */
	void (*encode)(struct log_buffer *buffer, const struct log_row *row);
};

extern const struct log_format log_csv, log_json, log_tensorboard;

/* formats 0 means all. Makes dir; its parent exists. */
tutti_status logs_open(struct logs **logs, const char *dir, unsigned formats);
/* NULL is allowed. */
void logs_close(struct logs *logs);
tutti_status logs_begin(struct logs *logs, const struct metric_id *ids, int count);
/* Writes to every file, also after a failure. Returns the first failure. */
tutti_status logs_append(struct logs *logs, const struct log_row *row);
tutti_status logs_sync(struct logs *logs);

#endif
