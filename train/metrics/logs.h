/* The log files of a run. A format is a file of its own and a line in logs.c. */
#ifndef TRAIN_LOGS_H
#define TRAIN_LOGS_H

#include "train/metrics/metrics.h"

/* The date in seconds since 1970, for readers of logs. The clock may jump: nothing waits by it. */
double log_date(void);

struct log_row {
	int64_t step;
	double seconds;                 /* since 1970 */
	int count;
	const struct metric_id *ids;
	const struct metric *metrics;   /* reduced, has_reduced */
};

/* formats 0 means all. Makes dir; its parent exists. */
tutti_status logs_open(struct logs **logs, const char *dir, unsigned formats);
/* NULL is allowed. */
void logs_close(struct logs *logs);
tutti_status logs_begin(struct logs *logs, const struct metric_id *ids, int count);
/* Writes to every file, also after a failure. Returns the first failure. */
tutti_status logs_append(struct logs *logs, const struct log_row *row);
tutti_status logs_sync(struct logs *logs);

#endif
