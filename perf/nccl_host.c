/* One lock, and who has come. */
#include "nccl_host.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static struct {
	pthread_mutex_t lock;
	pthread_cond_t all_came;
	int ranks, came;
	uint64_t meetings;
	bool is_aborted;
	const void *data[NCCL_HOST_RANKS]; /* of a reduction, between two meetings */
} host = {.lock = PTHREAD_MUTEX_INITIALIZER, .all_came = PTHREAD_COND_INITIALIZER};

void nccl_host_open(int ranks)
{
	host.ranks = ranks;
}

tutti_status nccl_host_meet(void)
{
	pthread_mutex_lock(&host.lock);
	uint64_t meeting = host.meetings;
	if (++host.came == host.ranks) {
		host.came = 0;
		host.meetings++;
		pthread_cond_broadcast(&host.all_came);
	}
	while (meeting == host.meetings && !host.is_aborted)
		pthread_cond_wait(&host.all_came, &host.lock);
	bool is_aborted = host.is_aborted;
	pthread_mutex_unlock(&host.lock);
	return is_aborted ? TUTTI_ERR_ABORTED : TUTTI_OK;
}

void nccl_host_abort(void)
{
	pthread_mutex_lock(&host.lock);
	host.is_aborted = true;
	pthread_cond_broadcast(&host.all_came);
	pthread_mutex_unlock(&host.lock);
}

#define COMBINE(type, name)                                                                        \
	static void name(type *to, const type *from, size_t count, tutti_op op)                    \
	{                                                                                          \
		for (size_t i = 0; i < count; i++) {                                               \
			if (op == TUTTI_SUM)                                                       \
				to[i] = (type)(to[i] + from[i]);                                   \
			else if ((op == TUTTI_MAX) == (from[i] > to[i]))                           \
				to[i] = from[i];                                                   \
		}                                                                                  \
	}
COMBINE(double, combine_double)
COMBINE(uint64_t, combine_uint64)
COMBINE(int32_t, combine_int32)

static void nccl_host_combine(void *to, const void *from, size_t count, tutti_dtype dtype,
			      tutti_op op)
{
	if (dtype == TUTTI_F64)
		combine_double(to, from, count, op);
	else if (dtype == TUTTI_U64)
		combine_uint64(to, from, count, op);
	else
		combine_int32(to, from, count, op);
}

tutti_status nccl_host_all_reduce(int rank, void *data, size_t count, tutti_dtype dtype,
				  tutti_op op)
{
	bool is_known = (dtype == TUTTI_F64 || dtype == TUTTI_U64 || dtype == TUTTI_I32) &&
			(op == TUTTI_SUM || op == TUTTI_MIN || op == TUTTI_MAX);
	size_t bytes = count * (dtype == TUTTI_I32 ? 4 : 8);
	void *result = is_known ? malloc(bytes) : NULL;
	tutti_status status = TUTTI_ERR_UNSUPPORTED;

	if (!result) {
		nccl_host_abort();
		return status;
	}
	host.data[rank] = data;
	if ((status = nccl_host_meet()) == TUTTI_OK) {
		memcpy(result, host.data[0], bytes);
		for (int r = 1; r < host.ranks; r++)
			nccl_host_combine(result, host.data[r], count, dtype, op);
		status = nccl_host_meet();
	}
	if (status == TUTTI_OK)
		memcpy(data, result, bytes);
	free(result);
	return status;
}
