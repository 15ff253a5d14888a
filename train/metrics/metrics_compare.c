/* Compares the metrics of all ranks, once, before the first row.
 *
 * Rank 0 broadcasts the size of its table and then the table. Each rank looks for the first line
 * that differs from its own. All ranks return the message of the lowest rank that found one. */
#include "train/metrics/metrics.h"

#include "train/base/base.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *kind_name(int32_t kind)
{
	static const char *const names[] = {"mean", "sum", "min", "max", "last"};
	return names[kind];
}

/* A line of a table, or "none". */
static void show(char *text, size_t bytes, const struct metric_id *ids, int count, int line)
{
	if (line < count)
		snprintf(text, bytes, "'%.127s' (%s)", ids[line].name, kind_name(ids[line].kind));
	else
		snprintf(text, bytes, "none");
}

static tutti_status compare_ids(const tutti_metrics *metrics, const struct metric_id *first_rank,
				int count)
{
	int line = 0;
	char own[METRIC_NAME_BYTES + 16], theirs[METRIC_NAME_BYTES + 16];

	while (line < count && line < metrics->count &&
	       memcmp(&metrics->ids[line], &first_rank[line], sizeof *first_rank) == 0)
		line++;
	if (line == count && line == metrics->count)
		return TUTTI_OK;
	show(own, sizeof own, metrics->ids, metrics->count, line);
	show(theirs, sizeof theirs, first_rank, count, line);
	return train_fail(TUTTI_ERR_MISMATCH,
			  "The metrics differ: as metric %d rank %d has %s, but rank 0 has %s; "
			  "declare the same metrics in the same order on every rank.",
			  line, metrics->rank, own, theirs);
}

static tutti_status compare(tutti_metrics *metrics, struct metric_id *ids, int count, int interval)
{
	size_t bytes = (size_t)count * sizeof *ids;

	if (metrics->rank == 0 && count > 0)
		memcpy(ids, metrics->ids, bytes);
	TRY(tutti_broadcast(ids, ids, bytes, TUTTI_U8, 0, metrics->comm, NULL));
	tutti_status status = compare_ids(metrics, ids, count);
	if (interval != metrics->interval)
		status = train_fail(TUTTI_ERR_MISMATCH,
				    "The metrics differ: rank %d makes a row every %d steps, but "
				    "rank 0 makes one every %d.",
				    metrics->rank, metrics->interval, interval);
	return failure_agree(metrics->comm, status);
}

tutti_status metrics_compare(tutti_metrics *metrics)
{
	int32_t sizes[2] = {metrics->count, metrics->interval};

	TRY(tutti_broadcast(sizes, sizes, 2, TUTTI_I32, 0, metrics->comm, NULL));
	struct metric_id *ids = malloc((size_t)sizes[0] * sizeof *ids + 1);
	tutti_status status = TUTTI_OK;
	if (!ids)
		status = train_no_memory("comparing %d metrics", sizes[0]);
	status = failure_agree(metrics->comm, status);
	if (status == TUTTI_OK)
		status = compare(metrics, ids, sizes[0], sizes[1]);
	free(ids);
	return status;
}
