/* Compares the parameters of all ranks, bit by bit. */
#include "train/base/base.h"
#include "train/state/trainer_state.h"
#include "train/strategies/strategies.h"

#include <stdlib.h>

/* Among ranks first, first + step, ...: the first whose hash is not the most common one, or -1. The
 * hashes of one parameter are stride apart. */
static int odd_rank(const uint64_t *hashes, int first, int step, int size, int stride)
{
	int best = first, best_votes = 0;

	for (int r = first; r < size; r += step) {
		int votes = 0;
		for (int s = first; s < size; s += step)
			votes += hashes[s * stride] == hashes[r * stride];
		if (votes > best_votes) {
			best = r;
			best_votes = votes;
		}
	}
	for (int r = first; r < size; r += step)
		if (hashes[r * stride] != hashes[best * stride])
			return r;
	return -1;
}

/* Hashes whole values if every rank has them, otherwise this rank's part. */
static void hash_params(const tutti_trainer *trainer, uint64_t *hashes)
{
	size_t width = dtype_bytes(trainer->config.param_dtype);

	for (int p = 0; p < trainer->model.param_count; p++) {
		const struct bucket *bucket = bucket_of(trainer, p);
		hashes[p] = bucket->span->is_sharded
				    ? 0
				    : values_hash(bucket->home, param_data(trainer, p),
						  trainer->model.params[p].count * width);
	}
	for (int i = 0; i < trainer->piece_count; i++) {
		const struct piece *piece = &trainer->pieces[i];
		const struct bucket *bucket = bucket_of(trainer, piece->param);
		if (bucket->span->is_sharded ||
		    (piece->low && piece->value && !bucket->span->is_split))
			hashes[piece->param] ^= piece_hash(trainer, piece);
	}
}

static int odd_rank_of(const tutti_trainer *trainer, const uint64_t *hashes, int param)
{
	const struct param_span *span = bucket_of(trainer, param)->span;
	int step = span->is_sharded ? trainer->layout.shard_size : 1;

	for (int first = 0; first < step; first++) {
		int odd = odd_rank(hashes + param, first, step, trainer->size,
				   trainer->model.param_count);
		if (odd >= 0)
			return odd;
	}
	return -1;
}

static tutti_status compare(tutti_trainer *trainer, uint64_t *hashes)
{
	int count = trainer->model.param_count;

	hash_params(trainer, hashes + trainer->rank * count);
	TRY(trainer_all_gather(trainer, hashes, (size_t)count * sizeof *hashes));
	for (int p = 0; p < count; p++) {
		int rank = odd_rank_of(trainer, hashes, p);
		if (rank >= 0)
			return train_fail(TUTTI_ERR_MISMATCH,
					  "The replicas differ after %llu steps: rank %d has other "
					  "values of parameter '%s' than most ranks have.",
					  (unsigned long long)trainer->steps, rank,
					  trainer->model.params[p].name);
	}
	return TUTTI_OK;
}

tutti_status tutti_check_replicas(tutti_trainer *trainer)
{
	TRY(trainer_check(trainer, "tutti_check_replicas"));
	/* Between averages ranks may differ. */
	TRY(trainer_check_averaged(trainer, "tutti_check_replicas"));
	TRY(publish_wait_all(trainer));
	size_t hashes_count = (size_t)trainer->size * (size_t)trainer->model.param_count;
	uint64_t *hashes = malloc(hashes_count * sizeof *hashes + 1);
	tutti_status status = TUTTI_OK;
	if (!hashes)
		status = train_no_memory("%zu hashes", hashes_count);
	status = trainer_agree(trainer, status);
	if (status == TUTTI_OK)
		status = compare(trainer, hashes);
	free(hashes);
	return status;
}
