/* Local SGD: the mean over ranks of the values that each has trained alone. Contiguous values are
 * averaged in one collective. */
#include "train/base/base.h"
#include "train/precision/precision.h"
#include "train/strategies/strategies.h"

static tutti_status average_piece(tutti_trainer *trainer, const struct piece *piece)
{
	TRY(trainer_average(trainer, piece->home, piece->value, piece->count, piece->count));
	piece_narrow(trainer, piece);
	return TUTTI_OK;
}

/* Every rank has the same kinds of state, because all ranks pass the same groups. */
static tutti_status average_state(tutti_trainer *trainer, const struct piece *piece)
{
	if (piece->m)
		TRY(trainer_average(trainer, piece->home, piece->m, piece->count, piece->count));
	return piece->v
		       ? trainer_average(trainer, piece->home, piece->v, piece->count, piece->count)
		       : TUTTI_OK;
}

static bool lies_together(const tutti_trainer *trainer, const struct bucket *bucket)
{
	return !bucket->span->has_extern && trainer->config.param_dtype == TUTTI_F32 &&
	       !trainer_offloads(trainer);
}

tutti_status local_sgd_average(tutti_trainer *trainer)
{
	for (int b = 0; b < trainer->layout.trained_count; b++) {
		struct bucket *bucket = &trainer->buckets[b];
		if (lies_together(trainer, bucket))
			TRY(trainer_average(trainer, bucket->home, (float *)(void *)bucket->data,
					    bucket->span->count, bucket->span->elements));
		for (int i = 0; i < bucket->piece_count; i++) {
			const struct piece *piece = &trainer->pieces[bucket->first_piece + i];
			if (!lies_together(trainer, bucket))
				TRY(average_piece(trainer, piece));
			if (trainer->config.local_sgd_state)
				TRY(average_state(trainer, piece));
			state_let_go(trainer, piece, 0, piece->count);
		}
	}
	return TUTTI_OK;
}
