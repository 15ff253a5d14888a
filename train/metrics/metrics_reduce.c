/* A row: each rank packs its numbers into one record, one collective gathers all records, and each
 * rank reduces them in the order of ranks, so that all have the same bits. Rank 0 writes the row to
 * its files.
 *
 * A record is the step, the status of rank 0's files in the row before, and two numbers for each
 * metric. An all_gather of P records sends more than an all_reduce, but it serves sums, extremes
 * and rank 0's values in one collective, and NaN needs no special case. */

#include "train/metrics/logs.h"

#include <math.h>
#include <stdlib.h>

enum { WORD_STEP, WORD_STATUS, HEAD_WORDS, METRIC_WORDS = 2 };

static size_t record_words(const tutti_metrics *metrics)
{
	return HEAD_WORDS + METRIC_WORDS * (size_t)metrics->count;
}

static union metric_number *metrics_reduce_record_of(const tutti_metrics *metrics, int rank)
{
	return metrics->records + (size_t)rank * record_words(metrics);
}

/* The table of metrics, a line each. */
static void metrics_reduce_describe(FILE *text, const void *of)
{
	static const char *const kinds[] = {"mean", "sum", "min", "max", "last"};
	const tutti_metrics *metrics = of;

	fprintf(text, "a row every %d steps\n", metrics->interval);
	for (int m = 0; m < metrics->count; m++)
		fprintf(text, "metric '%s' (%s)\n", metrics->ids[m].name,
			kinds[metrics->ids[m].kind]);
}

/* The local preparation of the first row. If it fails, more metrics may be declared before the next
 * try, which make records longer. */
static tutti_status metrics_reduce_prepare(tutti_metrics *metrics)
{
	size_t words = (size_t)metrics->size * record_words(metrics);

	free(metrics->records);
	metrics->records = malloc(words * sizeof *metrics->records);
	if (!metrics->records)
		return fail_no_memory("%zu words of metrics", words);
	return metrics->logs ? logs_begin(metrics->logs, metrics->ids, metrics->count) : TUTTI_OK;
}

static tutti_status metrics_reduce_begin(tutti_metrics *metrics)
{
	if (metrics->has_begun)
		return TUTTI_OK;
	TRY(texts_compare(metrics->comm, "metrics",
			  "declare the same metrics in the same order on every rank",
			  metrics_reduce_describe, metrics));
	TRY(error_agree(metrics->comm, metrics_reduce_prepare(metrics)));
	metrics->has_begun = true;
	return TUTTI_OK;
}

/* Fills this rank's record, and clears the metrics for the next interval. */
static void metrics_reduce_pack(tutti_metrics *metrics)
{
	union metric_number *next = metrics_reduce_record_of(metrics, metrics->rank);

	next[WORD_STEP].integer = metrics->last_step;
	next[WORD_STATUS].integer = metrics->failure.status;
	next += HEAD_WORDS;
	for (int m = 0; m < metrics->count; m++, next += METRIC_WORDS) {
		struct metric *metric = &metrics->metrics[m];
		next[0].real = metric->value;
		next[1].real = metric->items;
		metric->value = metric->items = 0;
	}
}

static tutti_status metrics_reduce_check_steps(const tutti_metrics *metrics)
{
	long long first = (long long)metrics_reduce_record_of(metrics, 0)[WORD_STEP].integer;

	for (int r = 1; r < metrics->size; r++) {
		long long step = (long long)metrics_reduce_record_of(metrics, r)[WORD_STEP].integer;
		if (step != first)
			return fail(TUTTI_ERR_MISMATCH,
				    "tutti_metrics_step: rank %d is at step %lld, but rank 0 "
				    "is at step %lld.",
				    r, step, first);
	}
	return TUTTI_OK;
}

static void metrics_reduce(tutti_metrics *metrics, int m)
{
	int32_t kind = metrics->ids[m].kind;
	int ranks = kind == TUTTI_METRIC_LAST ? 1 : metrics->size;
	double value = 0, items = 0;

	for (int r = 0; r < ranks; r++) {
		const union metric_number *pair =
			metrics_reduce_record_of(metrics, r) + HEAD_WORDS + METRIC_WORDS * m;
		if (!(pair[1].real > 0))
			continue;
		value = items > 0 ? metric_combine(kind, value, pair[0].real) : pair[0].real;
		items += pair[1].real;
	}
	if (kind == TUTTI_METRIC_MEAN)
		value /= items;
	/* The NaN of a sum depends on the processor; all ranks write the same one. */
	metrics->metrics[m].reduced = isnan(value) ? (double)NAN : value;
	metrics->metrics[m].has_reduced = items > 0;
}

/* The next record reports a failure, because the other ranks have left this row's collective. */
static void metrics_reduce_write_row(tutti_metrics *metrics)
{
	const struct log_row row = {.step = metrics->last_step,
				    .seconds = log_date(),
				    .count = metrics->count,
				    .ids = metrics->ids,
				    .metrics = metrics->metrics};

	metrics->failure = kept_error_of(logs_append(metrics->logs, &row));
}

static tutti_status make_row(tutti_metrics *metrics)
{
	struct kept_error earlier = metrics->failure;

	metrics->counted = 0;
	metrics_reduce_pack(metrics);
	TRY(tutti_all_gather(metrics_reduce_record_of(metrics, metrics->rank), metrics->records,
			     record_words(metrics), TUTTI_I64, metrics->comm, NULL));
	TRY(metrics_reduce_check_steps(metrics));
	for (int m = 0; m < metrics->count; m++)
		metrics_reduce(metrics, m);
	if (metrics->logs)
		metrics_reduce_write_row(metrics);
	if (metrics_reduce_record_of(metrics, 0)[WORD_STATUS].integer != TUTTI_OK)
		return error_broadcast(metrics->comm, &earlier, 0);
	return TUTTI_OK;
}

tutti_status tutti_metrics_step(tutti_metrics *metrics, int64_t step)
{
	TRY(metrics_check(metrics, "tutti_metrics_step"));
	TRY(metrics_reduce_begin(metrics));
	metrics->last_step = step;
	metrics->counted++;
	return metrics->counted < metrics->interval ? TUTTI_OK : make_row(metrics);
}

/* Rank 0: returns the failure of the last row, or syncs the files. */
static tutti_status sync_files(tutti_metrics *metrics)
{
	struct kept_error failure = metrics->failure;

	metrics->failure.status = TUTTI_OK;
	TRY(kept_error_return(&failure));
	return metrics->logs ? logs_sync(metrics->logs) : TUTTI_OK;
}

tutti_status tutti_metrics_flush(tutti_metrics *metrics)
{
	TRY(metrics_check(metrics, "tutti_metrics_flush"));
	tutti_status status = metrics->counted > 0 ? make_row(metrics) : TUTTI_OK;
	struct kept_error kept = kept_error_of(status);
	tutti_status synced = error_agree(metrics->comm, sync_files(metrics));
	return status == TUTTI_OK ? synced : kept_error_return(&kept);
}
