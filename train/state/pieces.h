/* What this rank holds of a parameter once gradients are reduced: a flat range of it. With DDP all
 * of it; where state is sharded, the part of this rank's shard that lies in the parameter. The
 * norm, the update, rounding, reading, writing and checkpoints go over pieces and know of no
 * strategy. */
#ifndef TRAIN_PIECE_H
#define TRAIN_PIECE_H

#include <tutti/train.h>

struct piece {
	int param;           /* index in the model */
	size_t first, count; /* elements of the parameter; count > 0 */
	float *value; /* f32: the parameter itself or its master copy; NULL: frozen, and of 16 bits
		       */
	void *low;    /* of 16 bits: where value is rounded to; else NULL */
	float *m, *v; /* the optimizer's state; NULL: there is none, or not yet */
	size_t state_first; /* where it lies in the files of state */
	void *sum;          /* the reduced gradient; NULL: frozen */
	tutti_dtype sum_dtype;
	size_t save_first, save_count; /* what of these elements this rank writes to a checkpoint:
					  replicas share it */
};

/* The calls below let go of pages of offload_dir's files as soon as they have been through them. */

/* f32 values of elements [first, first + count) of the piece. */
void piece_read(const tutti_trainer *trainer, const struct piece *piece, size_t first, size_t count,
		float *values);
/* Sets them, with what is rounded from them on this rank. Other ranks see them after publish_all.
 */
void piece_write(tutti_trainer *trainer, const struct piece *piece, size_t first, size_t count,
		 const float *values);
/* All master copies from what is rounded from them, or the other way round. */
void pieces_widen(const tutti_trainer *trainer);
void pieces_narrow(const tutti_trainer *trainer);
/* Of the value's bits. */
uint64_t piece_hash(const tutti_trainer *trainer, const struct piece *piece);

#endif
