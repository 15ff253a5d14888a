/* The trainer's own collectives, and how many bytes they are. */
#include "train/explain.h"
#include "train/trainer.h"

/* What a collective of the fewest bytes sends from this rank. */
static uint64_t all_reduce_bytes(const tutti_trainer *trainer, size_t bytes)
{
	return 2 * (uint64_t)(trainer->size - 1) * bytes / (uint64_t)trainer->size;
}

static uint64_t broadcast_bytes(const tutti_trainer *trainer, size_t bytes)
{
	return (uint64_t)(trainer->size - 1) * bytes / (uint64_t)trainer->size;
}

void count_bucket(tutti_trainer *trainer, size_t bytes)
{
	trainer->stats.sent_grad_bytes += all_reduce_bytes(trainer, bytes);
	trainer->stats.collectives++;
}

/* A blocking collective that began at begin has ended. */
static tutti_status count_blocking(tutti_trainer *trainer, tutti_status status, uint64_t sent,
				   double begin)
{
	trainer->stats.exposed_seconds += seconds_now() - begin;
	if (status != TUTTI_OK)
		return status;
	trainer->stats.sent_other_bytes += sent;
	trainer->stats.collectives++;
	return TUTTI_OK;
}

tutti_status trainer_all_reduce(tutti_trainer *trainer, double *values, size_t count, tutti_op op)
{
	double begin = seconds_now();
	tutti_status status =
		tutti_all_reduce(values, values, count, TUTTI_F64, op, trainer->comm, NULL);
	uint64_t sent = all_reduce_bytes(trainer, count * sizeof *values);
	return count_blocking(trainer, status, sent, begin);
}

tutti_status trainer_all_gather(tutti_trainer *trainer, void *all, size_t bytes_each)
{
	const char *own = (const char *)all + (size_t)trainer->rank * bytes_each;
	double begin = seconds_now();
	tutti_status status = tutti_all_gather(own, all, bytes_each, TUTTI_U8, trainer->comm, NULL);
	uint64_t sent = (uint64_t)(trainer->size - 1) * bytes_each;
	return count_blocking(trainer, status, sent, begin);
}

static size_t dtype_bytes(tutti_dtype dtype)
{
	switch (dtype) {
	case TUTTI_F64:
	case TUTTI_I64:
	case TUTTI_U64:
		return 8;
	case TUTTI_F32:
	case TUTTI_I32:
	case TUTTI_U32:
		return 4;
	case TUTTI_F16:
	case TUTTI_BF16:
	case TUTTI_I16:
	case TUTTI_U16:
		return 2;
	default:
		return 1;
	}
}

tutti_status trainer_broadcast(tutti_trainer *trainer, void *data, size_t count, tutti_dtype dtype,
			       int root)
{
	double begin = seconds_now();
	tutti_status status = tutti_broadcast(data, data, count, dtype, root, trainer->comm, NULL);
	uint64_t sent = broadcast_bytes(trainer, count * dtype_bytes(dtype));
	return count_blocking(trainer, status, sent, begin);
}
