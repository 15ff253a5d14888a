/* The log files of a run. A format is a file of its own and a line in logs.c. */
#ifndef TRAIN_LOGS_H
#define TRAIN_LOGS_H

#include "train/metrics/metrics.h"

/* log_file.c: a file that grows by whole rows, and the buffer in which a row is built. */

struct log_file {
	int fd;                         /* -1: not open */
	char path[DISK_PATH_BYTES];
};

/* flags: for open(2), besides those for appending. Writes *file on TUTTI_OK only. */
tutti_status log_file_open(struct log_file *file, const char *dir, const char *name, int flags);
void log_file_close(struct log_file *file);
/* Appends all of the bytes or, on an error, none. */
tutti_status log_file_append(struct log_file *file, const char *bytes, size_t count);
/* Prepares a file of an earlier run for more rows: removes half a row at its end. INVALID if it
 * does not begin with head. *is_new: the file is empty, also of head. */
tutti_status log_file_resume(struct log_file *file, const char *head, size_t bytes, bool *is_new);
/* The date in seconds since 1970, for readers of logs. The clock may jump: nothing waits by it. */
double log_date(void);

/* The caller computes the room beforehand; to exceed it is a bug. */
struct log_buffer {
	char *bytes;
	size_t used, room;
};
void log_put(struct log_buffer *buffer, const void *bytes, size_t count);
void log_print(struct log_buffer *buffer, const char *format, ...)
	__attribute__((format(printf, 2, 3)));
/* The shortest decimal digits that give the same double back; nan, inf and -inf. */
void log_put_number(struct log_buffer *buffer, double number);

/* logs.c */

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
