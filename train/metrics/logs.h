/* The files of a run's metrics. A format is a file of its own and a line in logs.c. */
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
	/* Opens the file below dir. Writes *file on TUTTI_OK only. */
	tutti_status (*open)(struct log_file *file, const char *dir);
	/* Before the first row, and again where a begin has failed: what is in the file is looked at, and its head
	 * written. buffer is empty. NULL: there is nothing to do. */
	tutti_status (*begin)(struct log_file *file, struct log_buffer *buffer,
			      const struct metric_id *ids, int count);
	/* The bytes of a row, into a buffer that has room for it. */
	void (*encode)(struct log_buffer *buffer, const struct log_row *row);
};

extern const struct log_format log_csv, log_json, log_tensorboard;

/* formats 0 means all. Makes dir, but not what it is in. */
tutti_status logs_open(struct logs **logs, const char *dir, unsigned formats);
/* NULL is fine. */
void logs_close(struct logs *logs);
tutti_status logs_begin(struct logs *logs, const struct metric_id *ids, int count);
/* To every file, also behind one that cannot be written; returns the first failure. */
tutti_status logs_append(struct logs *logs, const struct log_row *row);
tutti_status logs_sync(struct logs *logs);

#endif
