/* Compares the parameters of all ranks, bit by bit. */
#include "train/base/base.h"
#include "train/state/trainer_state.h"
#include "train/strategies/strategies.h"

#include <stdlib.h>

/* A rank's elements of a parameter. */
struct held {
	uint64_t hash;
	uint64_t elements; /* which of them: ranks with the same have the same number, 0 has none */
};

/* Among ranks with the same elements: the first whose hash is not the most common one, or -1. The
 * entries of one parameter are stride apart. */
static int odd_rank_of(const struct held *held, int first, int size, int stride)
{
	uint64_t elements = held[first * stride].elements;
	int best = first, best_votes = 0;

	for (int r = first; r < size; r++) {
		int votes = 0;
		for (int s = first; s < size; s++)
			votes += held[s * stride].elements == elements &&
				 held[s * stride].hash == held[r * stride].hash;
		if (held[r * stride].elements == elements && votes > best_votes) {
			best = r;
			best_votes = votes;
		}
	}
	for (int r = first; r < size; r++)
		if (held[r * stride].elements == elements &&
		    held[r * stride].hash != held[best * stride].hash)
			return r;
	return -1;
}

static int odd_rank(const struct held *held, int size, int stride)
{
	for (int r = 0; r < size; r++) {
		bool is_first = held[r * stride].elements > 0;
		for (int s = 0; s < r; s++)
			is_first &= held[s * stride].elements != held[r * stride].elements;
		int odd = is_first ? odd_rank_of(held, r, size, stride) : -1;
		if (odd >= 0)
			return odd;
	}
	return -1;
}

/* Hashes whole values if every rank of comm has them, otherwise this rank's part. */
static void hash_params(const tutti_trainer *trainer, struct held *held)
{
	size_t width = dtype_bytes(trainer->config.param_dtype);

	for (int p = 0; p < trainer->model.param_count; p++) {
		const struct bucket *bucket = bucket_of(trainer, p);
		const struct param *param = &trainer->model.params[p];
		bool is_sharded = bucket->span->is_sharded;
		int shards = trainer->layout.shard_size;
		held[param->part.index] =
			(struct held){is_sharded ? 0
						 : values_hash(bucket->home, param_data(trainer, p),
							       param->count * width),
				      1 + (uint64_t)(param->part.piece * shards +
						     (is_sharded ? trainer->shard_rank : 0))};
	}
	for (int i = 0; i < trainer->piece_count; i++) {
		const struct piece *piece = &trainer->pieces[i];
		const struct bucket *bucket = bucket_of(trainer, piece->param);
		if (bucket->span->is_sharded ||
		    (piece->low && piece->value && !bucket->span->is_split))
			held[trainer->model.params[piece->param].part.index].hash ^=
				piece_hash(trainer, piece);
	}
}

static tutti_status replicas_compare(tutti_trainer *trainer, struct held *held)
{
	const struct tutti_model *whole = trainer_whole(trainer);
	int count = whole->param_count;

	hash_params(trainer, held + (size_t)trainer->job.rank * (size_t)count);
	TRY(job_all_gather(trainer, held, (size_t)count * sizeof *held));
	for (int p = 0; p < count; p++) {
		int rank = odd_rank(held + p, trainer->job.size, count);
		if (rank >= 0)
			return fail(TUTTI_ERR_MISMATCH,
				    "The replicas differ after %llu steps: rank %d has other "
				    "values of parameter '%s' than most ranks have.",
				    (unsigned long long)trainer->steps, rank,
				    whole->params[p].name);
	}
	return TUTTI_OK;
}

tutti_status tutti_check_replicas(tutti_trainer *trainer)
{
	TRY(trainer_check(trainer, "tutti_check_replicas"));
	/* Between averages ranks may differ. */
	TRY(trainer_check_averaged(trainer, "tutti_check_replicas"));
	TRY(publish_wait_all(trainer));
	size_t count = (size_t)trainer->job.size * (size_t)trainer_whole(trainer)->param_count;
	struct held *held = calloc(count + 1, sizeof *held);
	tutti_status status = held ? TUTTI_OK : fail_no_memory("%zu hashes", count);
	status = job_agree(trainer, status);
	if (status == TUTTI_OK)
		status = replicas_compare(trainer, held);
	free(held);
	return status;
}
