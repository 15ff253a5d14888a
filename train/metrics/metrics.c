/* The table of metrics, what is added to them on one rank, and rows over all ranks. Of the first
 * two only creation communicates. */
#include "train/metrics/metrics.h"

#include "train/metrics/logs.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Only rank 0 has files, so only its formats are checked. */
static tutti_status metrics_check_config(const tutti_metrics_config *config, int rank)
{
	const tutti_metrics_config zero = {0};
	const unsigned all = TUTTI_LOG_CSV | TUTTI_LOG_JSON | TUTTI_LOG_TENSORBOARD;

	if (config->interval < 0)
		return fail_invalid("tutti_metrics_config: interval is %d; it must be at least 1 "
				    "step, or 0 for 1.",
				    config->interval);
	if (rank == 0 && (config->formats & ~all))
		return fail_invalid(
			"tutti_metrics_config: formats 0x%x has unknown bits; use TUTTI_LOG_*.",
			config->formats);
	if (memcmp(config->reserved, zero.reserved, sizeof zero.reserved) != 0)
		return fail_invalid(
			"tutti_metrics_config.reserved is not zero: zero-initialise it.");
	return TUTTI_OK;
}

/* The local part of creation. */
static tutti_status metrics_make(tutti_metrics **metrics, tutti_comm *comm,
				 const tutti_metrics_config *config)
{
	TRY(metrics_check_config(config, tutti_rank(comm)));
	tutti_metrics *made = calloc(1, sizeof *made);
	if (!made)
		return fail_no_memory("metrics");
	made->comm = comm;
	made->rank = tutti_rank(comm);
	made->size = tutti_size(comm);
	made->interval = config->interval ? config->interval : 1;
	*metrics = made;
	if (made->rank != 0 || !config->dir)
		return TUTTI_OK;
	return logs_open(&made->logs, config->dir, config->formats);
}

tutti_status tutti_metrics_create(tutti_metrics **metrics, tutti_comm *comm,
				  const tutti_metrics_config *config)
{
	const tutti_metrics_config zero = {0};
	tutti_metrics *made = NULL;

	if (!metrics || !comm)
		return fail_invalid(
			"tutti_metrics_create needs metrics and a communicator, not NULL.");
	tutti_status status = error_agree(comm, metrics_make(&made, comm, config ? config : &zero));
	if (status == TUTTI_OK) {
		*metrics = made;
		return TUTTI_OK;
	}
	struct kept_error kept = kept_error_of(status);
	tutti_metrics_destroy(made);
	return kept_error_return(&kept);
}

void tutti_metrics_destroy(tutti_metrics *metrics)
{
	if (!metrics)
		return;
	logs_close(metrics->logs);
	free(metrics->records);
	free(metrics->metrics);
	free(metrics->ids);
	free(metrics);
}

/* INVALID if metrics is NULL. */
static tutti_status metrics_check(const tutti_metrics *metrics, const char *function)
{
	if (!metrics)
		return fail_invalid("%s needs metrics, not NULL.", function);
	return TUTTI_OK;
}

static tutti_status metrics_check_name(const tutti_metrics *metrics, const char *name)
{
	if (!name || !*name || strlen(name) >= METRIC_NAME_BYTES || !utf8_is_valid(name))
		return fail_invalid(
			"A metric's name has 1 to %d bytes of UTF-8; '%.130s' does not.",
			METRIC_NAME_BYTES - 1, name ? name : "NULL");
	if (strcmp(name, "step") == 0 || strcmp(name, "time") == 0)
		return fail_invalid("Every row has a '%s' already: call the metric something else.",
				    name);
	for (int m = 0; m < metrics->count; m++)
		if (strcmp(metrics->ids[m].name, name) == 0)
			return fail_invalid("Metric %d already has the name '%s'.", m, name);
	return TUTTI_OK;
}

static tutti_status metrics_check_declaration(const tutti_metrics *metrics, const char *name,
					      tutti_metric_kind kind)
{
	TRY(metrics_check(metrics, "tutti_metrics_declare"));
	if (metrics->has_begun)
		return fail_invalid("tutti_metrics_declare: declare metrics before the first "
				    "tutti_metrics_step.");
	if (kind < TUTTI_METRIC_MEAN || kind > TUTTI_METRIC_LAST)
		return fail_invalid("tutti_metrics_declare: there is no metric kind %d.",
				    (int)kind);
	if (metrics->count == METRICS_MAX)
		return fail_invalid(
			"tutti_metrics_declare: there are already %d metrics, the most allowed.",
			METRICS_MAX);
	return metrics_check_name(metrics, name);
}

static tutti_status metrics_declare(tutti_metrics *metrics, const char *name,
				    tutti_metric_kind kind)
{
	size_t count = (size_t)metrics->count;

	TRY(array_grow(&metrics->ids, count, sizeof *metrics->ids, "metrics"));
	TRY(array_grow(&metrics->metrics, count, sizeof *metrics->metrics, "metrics"));
	metrics->metrics[count] = (struct metric){0};
	strcpy(metrics->ids[count].name, name);
	metrics->ids[count].kind = kind;
	metrics->count++;
	return TUTTI_OK;
}

int tutti_metrics_declare(tutti_metrics *metrics, const char *name, tutti_metric_kind kind)
{
	if (metrics_check_declaration(metrics, name, kind) != TUTTI_OK ||
	    metrics_declare(metrics, name, kind) != TUTTI_OK)
		return -1;
	return metrics->count - 1;
}

static tutti_status metrics_check_metric(const tutti_metrics *metrics, const char *function,
					 int metric)
{
	TRY(metrics_check(metrics, function));
	if (metric < 0 || metric >= metrics->count)
		return fail_invalid("%s: there is no metric %d among %d.", function, metric,
				    metrics->count);
	return TUTTI_OK;
}

/* Combines two values of a kind, of one rank or of several. */
static double metric_combine(int32_t kind, double before, double value)
{
	switch (kind) {
	case TUTTI_METRIC_MIN:
		return isnan(before) || before < value ? before : value;
	case TUTTI_METRIC_MAX:
		return isnan(before) || before > value ? before : value;
	case TUTTI_METRIC_LAST:
		return value;
	default:
		return before + value;
	}
}

tutti_status tutti_metrics_add(tutti_metrics *metrics, int metric, double value, double items)
{
	TRY(metrics_check_metric(metrics, "tutti_metrics_add", metric));
	if (!(items >= 0) || isinf(items))
		return fail_invalid("tutti_metrics_add: metric '%s' got %g items; items must be "
				    "finite and at least 0.",
				    metrics->ids[metric].name, items);
	struct metric *m = &metrics->metrics[metric];
	if (items > 0) {
		m->value = m->items > 0 ? metric_combine(metrics->ids[metric].kind, m->value, value)
					: value;
		m->items += items;
	}
	return TUTTI_OK;
}

tutti_status tutti_metrics_value(const tutti_metrics *metrics, int metric, double *value)
{
	TRY(metrics_check_metric(metrics, "tutti_metrics_value", metric));
	if (!value)
		return fail_invalid("tutti_metrics_value needs value, not NULL.");
	*value = metrics->metrics[metric].has_reduced ? metrics->metrics[metric].reduced : NAN;
	return TUTTI_OK;
}

/* ---- rows ---- */

/* A row: each rank packs its numbers into one record, one collective gathers all records, and each
 * rank reduces them in the order of ranks, so that all have the same bits. Rank 0 writes the row to
 * its files.
 *
 * A record is the step, the status of rank 0's files in the row before, and two numbers for each
 * metric. An all_gather of P records sends more than an all_reduce, but it serves sums, extremes
 * and rank 0's values in one collective, and NaN needs no special case. */

enum { WORD_STEP, WORD_STATUS, HEAD_WORDS, METRIC_WORDS = 2 };

static size_t metrics_record_words(const tutti_metrics *metrics)
{
	return HEAD_WORDS + METRIC_WORDS * (size_t)metrics->count;
}

static union metric_number *metrics_row_record_of(const tutti_metrics *metrics, int rank)
{
	return metrics->records + (size_t)rank * metrics_record_words(metrics);
}

/* The table of metrics, a line each. */
static void metrics_row_describe(FILE *text, const void *of)
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
static tutti_status metrics_row_prepare(tutti_metrics *metrics)
{
	size_t words = (size_t)metrics->size * metrics_record_words(metrics);

	free(metrics->records);
	metrics->records = malloc(words * sizeof *metrics->records);
	if (!metrics->records)
		return fail_no_memory("%zu words of metrics", words);
	return metrics->logs ? logs_begin(metrics->logs, metrics->ids, metrics->count) : TUTTI_OK;
}

static tutti_status metrics_row_begin(tutti_metrics *metrics)
{
	if (metrics->has_begun)
		return TUTTI_OK;
	TRY(texts_compare(metrics->comm, "metrics",
			  "declare the same metrics in the same order on every rank",
			  metrics_row_describe, metrics));
	TRY(error_agree(metrics->comm, metrics_row_prepare(metrics)));
	metrics->has_begun = true;
	return TUTTI_OK;
}

/* Fills this rank's record, and clears the metrics for the next interval. */
static void metrics_row_pack(tutti_metrics *metrics)
{
	union metric_number *next = metrics_row_record_of(metrics, metrics->rank);

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

static tutti_status metrics_row_check_steps(const tutti_metrics *metrics)
{
	long long first = (long long)metrics_row_record_of(metrics, 0)[WORD_STEP].integer;

	for (int r = 1; r < metrics->size; r++) {
		long long step = (long long)metrics_row_record_of(metrics, r)[WORD_STEP].integer;
		if (step != first)
			return fail(TUTTI_ERR_MISMATCH,
				    "tutti_metrics_step: rank %d is at step %lld, but rank 0 "
				    "is at step %lld.",
				    r, step, first);
	}
	return TUTTI_OK;
}

static void metrics_row_reduce(tutti_metrics *metrics, int m)
{
	int32_t kind = metrics->ids[m].kind;
	int ranks = kind == TUTTI_METRIC_LAST ? 1 : metrics->size;
	double value = 0, items = 0;

	for (int r = 0; r < ranks; r++) {
		const union metric_number *pair =
			metrics_row_record_of(metrics, r) + HEAD_WORDS + METRIC_WORDS * m;
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
static void metrics_row_write_row(tutti_metrics *metrics)
{
	const struct log_row row = {.step = metrics->last_step,
				    .seconds = log_date(),
				    .count = metrics->count,
				    .ids = metrics->ids,
				    .metrics = metrics->metrics};

	metrics->failure = kept_error_of(logs_append(metrics->logs, &row));
}

static tutti_status metrics_make_row(tutti_metrics *metrics)
{
	struct kept_error earlier = metrics->failure;

	metrics->counted = 0;
	metrics_row_pack(metrics);
	TRY(tutti_all_gather(metrics_row_record_of(metrics, metrics->rank), metrics->records,
			     metrics_record_words(metrics), TUTTI_I64, metrics->comm, NULL));
	TRY(metrics_row_check_steps(metrics));
	for (int m = 0; m < metrics->count; m++)
		metrics_row_reduce(metrics, m);
	if (metrics->logs)
		metrics_row_write_row(metrics);
	if (metrics_row_record_of(metrics, 0)[WORD_STATUS].integer != TUTTI_OK)
		return error_broadcast(metrics->comm, &earlier, 0);
	return TUTTI_OK;
}

tutti_status tutti_metrics_step(tutti_metrics *metrics, int64_t step)
{
	TRY(metrics_check(metrics, "tutti_metrics_step"));
	TRY(metrics_row_begin(metrics));
	metrics->last_step = step;
	metrics->counted++;
	return metrics->counted < metrics->interval ? TUTTI_OK : metrics_make_row(metrics);
}

/* Rank 0: returns the failure of the last row, or syncs the files. */
static tutti_status metrics_sync_files(tutti_metrics *metrics)
{
	struct kept_error failure = metrics->failure;

	metrics->failure.status = TUTTI_OK;
	TRY(kept_error_return(&failure));
	return metrics->logs ? logs_sync(metrics->logs) : TUTTI_OK;
}

tutti_status tutti_metrics_flush(tutti_metrics *metrics)
{
	TRY(metrics_check(metrics, "tutti_metrics_flush"));
	tutti_status status = metrics->counted > 0 ? metrics_make_row(metrics) : TUTTI_OK;
	struct kept_error kept = kept_error_of(status);
	tutti_status synced = error_agree(metrics->comm, metrics_sync_files(metrics));
	return status == TUTTI_OK ? synced : kept_error_return(&kept);
}
