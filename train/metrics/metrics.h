/* Metrics of a run: a table that is the same on all ranks, and what was added to each metric since
 * the last row. Only files of this folder include this header. */
#ifndef TRAIN_METRICS_H
#define TRAIN_METRICS_H

#include "train/base/base.h"

#include <tutti/train.h>

enum { METRICS_MAX = 1024, METRIC_NAME_BYTES = 128 };

struct metric_id {
	char name[METRIC_NAME_BYTES];
	int32_t kind;
};

struct metric {
	double value, items;      /* added here since the last row, if items > 0 */
	double reduced;           /* the last row's value, over all ranks */
	bool has_reduced;
};

/* A number in a record: all_gather copies bits. */
union metric_number {
	double real;
	int64_t integer;
};

struct logs;

struct tutti_metrics {
	tutti_comm *comm;
	int rank, size, interval;
	int count;                      /* of both tables below */
	struct metric_id *ids;
	struct metric *metrics;
	bool has_begun;                 /* the ranks' tables were compared, and are closed */
	int counted;                    /* steps since the last row */
	int64_t last_step;
	union metric_number *records;            /* one of each rank */
	struct logs *logs;              /* NULL on other ranks than 0 */
	struct kept_error failure;          /* rank 0: of the last row's files, until other
					        * ranks know it */
};

#endif
