/* Sums of squares over pieces, then over the ranks of the shard group in their order. */

#include "train/base/base.h"
#include "train/optimizer/optimizer.h"
#include "train/precision/precision.h"

#include <math.h>
#include <stdlib.h>

/* One rank's sums, of the pieces that only this rank of the shard group has. */
struct share {
	struct exact_sum exact; /* with deterministic */
	double sum;
	int64_t bad_param; /* -1: all are finite */
};

static void add_piece(const tutti_trainer *trainer, const struct piece *piece, struct share *share)
{
	bool is_finite;

	if (trainer->config.deterministic) {
		exact_sum_add(&share->exact, piece->sum, piece->sum_dtype, piece->count);
		is_finite = share->exact.nonfinite == 0;
	} else {
		double sum = kernel_sum_of_squares(piece->sum, piece->sum_dtype, piece->count);
		share->sum += sum;
		is_finite = isfinite(sum);
	}
	if (!is_finite && (share->bad_param < 0 || piece->param < share->bad_param) &&
	    kernel_first_nonfinite(piece->sum, piece->sum_dtype, piece->count) < piece->count)
		share->bad_param = piece->param;
}

static void add_pieces(const tutti_trainer *trainer, bool is_split, struct share *share)
{
	*share = (struct share){.bad_param = -1};
	for (int i = 0; i < trainer->piece_count; i++) {
		const struct piece *piece = &trainer->pieces[i];
		if (piece->sum && bucket_of(trainer, piece->param)->span->is_split == is_split)
			add_piece(trainer, piece, share);
	}
}

static void merge(struct share *sum, const struct share *more)
{
	exact_sum_merge(&sum->exact, &more->exact);
	sum->sum += more->sum;
	if (more->bad_param >= 0 && (sum->bad_param < 0 || more->bad_param < sum->bad_param))
		sum->bad_param = more->bad_param;
}

tutti_status norm_sum_of_squares(tutti_trainer *trainer, double *sum, int *bad_param)
{
	struct share *shares = trainer->shares, all;
	int ranks = trainer->layout.shard_size;

	add_pieces(trainer, true, &shares[trainer->shard_rank]);
	TRY(trainer_shard_gather(trainer, shares, sizeof *shares));
	add_pieces(trainer, false, &all);
	for (int r = 0; r < ranks; r++)
		merge(&all, &shares[r]);
	*sum = trainer->config.deterministic ? exact_sum_value(&all.exact) : all.sum;
	*bad_param = (int)all.bad_param;
	return TUTTI_OK;
}

tutti_status norm_create(tutti_trainer *trainer)
{
	trainer->shares = calloc((size_t)trainer->layout.shard_size, sizeof *trainer->shares);
	return trainer->shares ? TUTTI_OK : train_no_memory("a trainer's tables");
}
