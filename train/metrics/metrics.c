/* Metrics on one rank: the table of metrics, and what is added to them. Only creation communicates.
 */

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

tutti_status metrics_check(const tutti_metrics *metrics, const char *function)
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

static tutti_status check_declaration(const tutti_metrics *metrics, const char *name,
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
	if (check_declaration(metrics, name, kind) != TUTTI_OK ||
	    metrics_declare(metrics, name, kind) != TUTTI_OK)
		return -1;
	return metrics->count - 1;
}

static tutti_status check_metric(const tutti_metrics *metrics, const char *function, int metric)
{
	TRY(metrics_check(metrics, function));
	if (metric < 0 || metric >= metrics->count)
		return fail_invalid("%s: there is no metric %d among %d.", function, metric,
				    metrics->count);
	return TUTTI_OK;
}

double metric_combine(int32_t kind, double before, double value)
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
	TRY(check_metric(metrics, "tutti_metrics_add", metric));
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
	TRY(check_metric(metrics, "tutti_metrics_value", metric));
	if (!value)
		return fail_invalid("tutti_metrics_value needs value, not NULL.");
	*value = metrics->metrics[metric].has_reduced ? metrics->metrics[metric].reduced : NAN;
	return TUTTI_OK;
}
