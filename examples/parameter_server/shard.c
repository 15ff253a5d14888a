/* See shard.h. */
#include "shard.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

tutti_status refuse(const char *format, long long got, long long wanted)
{
	char why[160];

	snprintf(why, sizeof why, format, got, wanted);
	return tutti_set_error(TUTTI_ERR_INVALID, why);
}

tutti_status shard_check_rows(const struct shard *shard, const int32_t *rows, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		if (rows[i] < 0 || rows[i] >= ROWS ||
		    job_server_of_row(shard->job, rows[i]) != shard->job->rank)
			return refuse("row %lld is not of server rank %lld", rows[i],
				      shard->job->rank);
	}
	return TUTTI_OK;
}

tutti_status shard_check_push(const struct shard *shard, const void *data, size_t bytes)
{
	const struct push_header *push = data;
	size_t before_rows = sizeof *push + shard_dense_bytes(shard);

	if (bytes < before_rows)
		return refuse("a push of %lld bytes, of at least %lld", (long long)bytes,
			      (long long)before_rows);
	if (push->num_rows < 0 || push->num_rows > ROWS)
		return refuse("a push of %lld rows, of %lld", push->num_rows, ROWS);
	const int32_t *rows = (const int32_t *)((const char *)data + before_rows);
	size_t num_rows = (size_t)push->num_rows;
	size_t wanted = before_rows + num_rows * (sizeof *rows + sizeof *shard->rows);
	if (bytes != wanted)
		return refuse("a push of %lld bytes instead of %lld", (long long)bytes,
			      (long long)wanted);
	return shard_check_rows(shard, rows, num_rows);
}

void shard_read_rows(const struct shard *shard, const int32_t *rows, size_t count,
		     float (*values)[DIM])
{
	for (size_t i = 0; i < count; i++)
		memcpy(values[i], shard->rows[rows[i] / shard->job->servers], sizeof *values);
}

void shard_apply(struct shard *shard, const struct push_header *push, float rate)
{
	int count = shard->range.end - shard->range.begin;
	const float *dense_grad = (const float *)(push + 1);
	const int32_t *rows = (const int32_t *)(dense_grad + count);
	const float(*rows_grad)[DIM] = (const float(*)[DIM])(rows + push->num_rows);

	for (int i = 0; i < count; i++)
		shard->dense[i] -= rate * dense_grad[i];
	for (int r = 0; r < push->num_rows; r++) {
		float *row = shard->rows[rows[r] / shard->job->servers];
		for (int i = 0; i < DIM; i++)
			row[i] -= rate * ROW_RATE * rows_grad[r][i];
	}
}

tutti_status shard_init(struct shard *shard, const struct job *job)
{
	*shard = (struct shard){.job = job, .range = job_dense(job, job->rank)};
	shard->dense = malloc(shard_dense_bytes(shard));
	shard->rows = calloc((size_t)(ROWS / job->servers + 1), sizeof *shard->rows);
	if (!shard->dense || !shard->rows)
		return tutti_set_error(TUTTI_ERR_MEMORY, "no memory for a server's shard");
	for (int i = shard->range.begin; i < shard->range.end; i++)
		shard->dense[i - shard->range.begin] = dense_init(i);
	for (int row = job->rank; row < ROWS; row += job->servers) {
		for (int i = 0; i < DIM; i++)
			shard->rows[row / job->servers][i] = row_init(row, i);
	}
	return TUTTI_OK;
}

void shard_finish(struct shard *shard)
{
	free(shard->dense);
	free(shard->rows);
}
