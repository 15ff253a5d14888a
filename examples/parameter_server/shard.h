/* One server's part of the parameters: a range of the dense ones, and every servers-th row of the
 * embedding table. The caller locks. */
#ifndef EXAMPLES_PARAMETER_SERVER_SHARD_H
#define EXAMPLES_PARAMETER_SERVER_SHARD_H

#include "job.h"

struct shard {
	const struct job *job;
	struct share range; /* of the dense parameters        */
	float *dense;       /* [range.end - range.begin]      */
	float (*rows)[DIM]; /* row r is at r / job->servers   */
};

/* With first values. MEMORY: finish it, too. */
tutti_status shard_init(struct shard *shard, const struct job *job);
void shard_finish(struct shard *shard);
static inline size_t shard_dense_bytes(const struct shard *shard)
{
	return (size_t)(shard->range.end - shard->range.begin) * sizeof(float);
}
/* INVALID: a row that this server does not have. Needs no lock. */
tutti_status shard_check_rows(const struct shard *shard, const int32_t *rows, size_t count);
/* INVALID: the bytes are not those of a push. Needs no lock. */
tutti_status shard_check_push(const struct shard *shard, const void *data, size_t bytes);
void shard_read_rows(const struct shard *shard, const int32_t *rows, size_t count,
		     float (*values)[DIM]);
/* A step of SGD by a push that was checked. */
void shard_apply(struct shard *shard, const struct push_header *push, float rate);
/* INVALID, with two numbers in its message. */
tutti_status refuse(const char *format, long long got, long long wanted);

#endif
