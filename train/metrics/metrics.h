/* What a run logs: a table of metrics, the same on all ranks, and what was added to each since the
 * last row. */
#ifndef TRAIN_METRICS_H
#define TRAIN_METRICS_H

#include "train/base/train_error.h"

#include <tutti/train.h>

#include <stdbool.h>

enum { METRICS_MAX = 1024, METRIC_NAME_BYTES = 128 };

/* What ranks compare, byte by byte: zero behind the name's end. */
struct metric_id {
	char name[METRIC_NAME_BYTES];
	int32_t kind;
};

struct metric {
	double value, items;      /* added here since the last row; items 0: nothing */
	double reduced;           /* the last row's value, over all ranks */
	bool has_reduced;
};

/* A number as it travels: all_gather moves bits. */
union word {
	double real;
	int64_t integer;
};

struct logs;

struct tutti_metrics {
	tutti_comm *comm;
	int rank, size, interval;
	int count, room;                /* metrics, of both tables below */
	struct metric_id *ids;
	struct metric *metrics;
	bool has_begun;                 /* the table was compared and is closed */
	int counted;                    /* steps since the last row */
	int64_t last_step;
	union word *records;            /* one of each rank, while a row is made */
	struct logs *logs;              /* rank 0's files; elsewhere NULL */
	struct train_failure failure;          /* rank 0: of the last row's files, not told yet */
};

/* INVALID when metrics is NULL. */
tutti_status metrics_check(const tutti_metrics *metrics, const char *function);
/* Collective: MISMATCH on all ranks where the tables or intervals differ. */
tutti_status metrics_compare(tutti_metrics *metrics);
/* What two values of a kind are together: of one rank's adds, and of ranks. */
double metric_combine(int32_t kind, double before, double value);

#endif
