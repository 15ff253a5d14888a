/* Sums of squares over pieces, then over the ranks of the shard group in their order, then over
 * those of a mesh that have other parts of the model. On a device they are exact, with or without
 * deterministic. */

#include "train/base/base.h"
#include "train/optimizer/optimizer.h"
#include "train/precision/precision.h"

#include <math.h>
#include <stdlib.h>

/* One rank's sums, of the pieces that only this rank of the shard group has. */
struct share {
	struct exact_sum exact; /* with deterministic, or on a device */
	double sum;
	int64_t bad_param; /* in the whole model; -1: all are finite */
};

static const struct mesh_part *grad_norm_part_of(const tutti_trainer *trainer,
						 const struct piece *piece)
{
	return &trainer->model.params[piece->param].part;
}

/* Of ranks that have the same elements, one counts them. */
static bool grad_norm_is_measured(const tutti_trainer *trainer, const struct piece *piece)
{
	return piece->sum && grad_norm_part_of(trainer, piece)->is_counted;
}

static void grad_norm_add_piece(const tutti_trainer *trainer, const struct piece *piece,
				struct share *share)
{
	int param = grad_norm_part_of(trainer, piece)->index;
	bool is_finite;

	if (trainer->config.deterministic) {
		exact_sum_add(&share->exact, piece->sum, piece->sum_dtype, piece->count);
		is_finite = share->exact.nonfinite == 0;
	} else {
		double sum = kernel_sum_of_squares(piece->sum, piece->sum_dtype, piece->count);
		share->sum += sum;
		is_finite = isfinite(sum);
	}
	if (!is_finite && (share->bad_param < 0 || param < share->bad_param) &&
	    kernel_first_nonfinite(piece->sum, piece->sum_dtype, piece->count) < piece->count)
		share->bad_param = param;
}

/* Another rank counts it; but if ranks' copies differ, an infinity here must not pass. */
static void grad_norm_look_at(const tutti_trainer *trainer, const struct piece *piece,
			      struct share *share)
{
	struct share own = {.bad_param = -1};

	grad_norm_add_piece(trainer, piece, &own);
	if (own.bad_param < 0)
		return;
	share->exact.nonfinite++;
	share->sum = (double)NAN;
	if (share->bad_param < 0 || own.bad_param < share->bad_param)
		share->bad_param = own.bad_param;
}

static void grad_norm_add_pieces(const tutti_trainer *trainer, bool is_split, struct share *share)
{
	*share = (struct share){.bad_param = -1};
	for (int i = 0; i < trainer->piece_count; i++) {
		const struct piece *piece = &trainer->pieces[i];
		if (!piece->sum || bucket_of(trainer, piece->param)->span->is_split != is_split)
			continue;
		if (grad_norm_is_measured(trainer, piece))
			grad_norm_add_piece(trainer, piece, share);
		else
			grad_norm_look_at(trainer, piece, share);
	}
}

static void grad_norm_merge(struct share *sum, const struct share *more)
{
	exact_sum_merge(&sum->exact, &more->exact);
	sum->sum += more->sum;
	if (more->bad_param >= 0 && (sum->bad_param < 0 || more->bad_param < sum->bad_param))
		sum->bad_param = more->bad_param;
}

/* Both kinds of pieces at once, so that the host waits for each device once. */
static void grad_norm_begin_on_devices(const tutti_trainer *trainer)
{
	for (int h = 0; h < trainer->home_count; h++)
		train_device_squares_begin(trainer->homes[h].device);
	for (int i = 0; i < trainer->piece_count; i++) {
		const struct piece *piece = &trainer->pieces[i];
		if (grad_norm_is_measured(trainer, piece))
			train_device_squares_add(piece->home->device,
						 bucket_of(trainer, piece->param)->span->is_split,
						 piece->sum, piece->sum_dtype, piece->count,
						 grad_norm_part_of(trainer, piece)->index);
	}
}

static tutti_status grad_norm_add_on_devices(tutti_trainer *trainer, struct share *split,
					     struct share *whole)
{
	*whole = *split = (struct share){.bad_param = -1};
	grad_norm_begin_on_devices(trainer);
	for (int h = 0; h < trainer->home_count; h++) {
		struct exact_sum sums[DEVICE_SUMS] = {{{0}, 0}};
		int64_t bad[DEVICE_SUMS];
		train_device_squares_end(trainer->homes[h].device, sums, bad);
		grad_norm_merge(whole, &(struct share){.exact = sums[0], .bad_param = bad[0]});
		grad_norm_merge(split, &(struct share){.exact = sums[1], .bad_param = bad[1]});
	}
	tutti_status status = homes_failure(trainer);
	if (status != TUTTI_OK)
		trainer_abort(trainer); /* other ranks wait for this one's sum */
	return status;
}

/* Each rank of the mesh has its part of the sum in all. */
static tutti_status grad_norm_add_others(tutti_trainer *trainer, struct share *all)
{
	const struct trainer_mesh *mesh = trainer->mesh;
	struct share *shares = trainer->other_shares;

	if (!mesh || !mesh->others)
		return TUTTI_OK;
	shares[mesh->other_rank] = *all;
	TRY(others_all_gather(trainer, shares, sizeof *shares));
	*all = shares[0];
	for (int r = 1; r < mesh->other_count; r++)
		grad_norm_merge(all, &shares[r]);
	return TUTTI_OK;
}

tutti_status norm_sum_of_squares(tutti_trainer *trainer, double *sum, int *bad_param)
{
	struct share *shares = trainer->shares, all;
	int ranks = trainer->layout.shard_size;

	if (trainer->config.on_device) {
		TRY(grad_norm_add_on_devices(trainer, &shares[trainer->shard_rank], &all));
	} else {
		grad_norm_add_pieces(trainer, true, &shares[trainer->shard_rank]);
		grad_norm_add_pieces(trainer, false, &all);
	}
	TRY(trainer_shard_gather(trainer, shares, sizeof *shares));
	TRY(trainer_meet(trainer, 1, PURPOSE_NONE));
	for (int r = 0; r < ranks; r++)
		grad_norm_merge(&all, &shares[r]);
	TRY(grad_norm_add_others(trainer, &all));
	bool is_exact = trainer->config.deterministic || trainer->config.on_device;
	*sum = is_exact ? exact_sum_value(&all.exact) : all.sum;
	*bad_param = (int)all.bad_param;
	return TUTTI_OK;
}

tutti_status norm_create(tutti_trainer *trainer)
{
	size_t others = trainer->mesh ? (size_t)trainer->mesh->other_count : 1;

	trainer->shares = calloc((size_t)trainer->layout.shard_size, sizeof *trainer->shares);
	trainer->other_shares = calloc(others, sizeof *trainer->other_shares);
	return trainer->shares && trainer->other_shares ? TUTTI_OK
							: fail_no_memory("a trainer's tables");
}
