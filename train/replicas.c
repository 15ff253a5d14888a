/* Are all ranks' parameters the same to the bit? And means over ranks, the other small question. */
#include "train/explain.h"
#include "train/random.h"
#include "train/trainer.h"

#include <stdlib.h>

/* The rank that is alone: the first one whose hash is not the most common. -1: all are the same.
 * hashes of one parameter lie stride apart. */
static int odd_rank(const uint64_t *hashes, int size, int stride)
{
	int best = 0, best_votes = 0;

	for (int r = 0; r < size; r++) {
		int votes = 0;
		for (int s = 0; s < size; s++)
			votes += hashes[s * stride] == hashes[r * stride];
		if (votes == size)
			return -1;
		if (votes > best_votes) {
			best = r;
			best_votes = votes;
		}
	}
	for (int r = 0; r < size; r++)
		if (hashes[r * stride] != hashes[best * stride])
			return r;
	return -1;
}

static tutti_status compare(tutti_trainer *trainer, uint64_t *hashes)
{
	int count = trainer->model.param_count;

	for (int p = 0; p < count; p++)
		hashes[trainer->rank * count + p] = random_hash(
			trainer->tensors[p].data, trainer->model.params[p].count * sizeof(float));
	TRY(trainer_all_gather(trainer, hashes, (size_t)count * sizeof *hashes));
	for (int p = 0; p < count; p++) {
		int rank = odd_rank(hashes + p, trainer->size, count);
		if (rank >= 0)
			return train_fail(TUTTI_ERR_MISMATCH,
					  "The replicas differ after %llu steps: rank %d has other "
					  "values of parameter '%s' than most ranks.",
					  (unsigned long long)trainer->steps, rank,
					  trainer->model.params[p].name);
	}
	return TUTTI_OK;
}

tutti_status tutti_check_replicas(tutti_trainer *trainer)
{
	TRY(trainer_check(trainer, "tutti_check_replicas"));
	size_t hashes_count = (size_t)trainer->size * (size_t)trainer->model.param_count;
	uint64_t *hashes = malloc(hashes_count * sizeof *hashes + 1);
	if (!hashes)
		return train_fail(TUTTI_ERR_MEMORY, "There is no memory for %zu hashes.",
				  hashes_count);
	tutti_status status = compare(trainer, hashes);
	free(hashes);
	return status;
}

tutti_status tutti_means(tutti_trainer *trainer, const double *sums, const double *items,
			 double *means, int n)
{
	TRY(trainer_check(trainer, "tutti_means"));
	if (n < 0 || (n > 0 && (!sums || !items || !means)))
		return train_fail(TUTTI_ERR_INVALID,
				  "tutti_means needs sums, items and means for %d values.", n);
	double *both = malloc(2 * (size_t)n * sizeof *both + 1);
	if (!both)
		return train_fail(TUTTI_ERR_MEMORY, "There is no memory for %d means.", n);
	for (int i = 0; i < n; i++) {
		both[i] = sums[i];
		both[n + i] = items[i];
	}
	tutti_status status = trainer_all_reduce(trainer, both, 2 * (size_t)n, TUTTI_SUM);
	for (int i = 0; i < n && status == TUTTI_OK; i++)
		means[i] = both[i] / both[n + i];
	free(both);
	return status;
}
