/* Buckets: gradients in reverse order of registration, reduced while backward goes on. */
#ifndef TRAIN_BUCKET_H
#define TRAIN_BUCKET_H

#include "train/trainer.h"

/* An extern gradient of at least so many bytes is a bucket of its own. */
#define BUCKET_IN_PLACE_BYTES ((size_t)1 << 20)

/* Gradients begin on a cache line of their own. */
static inline size_t padded(size_t elements)
{
	return (elements + 15) & ~(size_t)15;
}

/* The caller's memory is reduced where it lies; every other gradient lies, or is copied, in ours.
 */
static inline bool param_reduced_in_place(const struct param *param)
{
	return param->is_extern && param->count * sizeof(float) >= BUCKET_IN_PLACE_BYTES;
}

/* Cuts the model's gradients into buckets; collective, for their memory. */
tutti_status buckets_create(tutti_trainer *trainer);
/* Waits for what is under way, then frees. */
void buckets_destroy(tutti_trainer *trainer);

/* A step's first micro-batch begins: gradients are zero. */
void buckets_zero(tutti_trainer *trainer);
/* A step's last micro-batch begins: nothing is ready. */
void buckets_reset(tutti_trainer *trainer);
/* The parameter's gradient is final. Starts every bucket whose turn has come and returns at once.
 */
tutti_status bucket_param_ready(tutti_trainer *trainer, int param);
/* Starts all that no hook started, so that the ranks' calls still match. */
tutti_status buckets_flush(tutti_trainer *trainer);
/* Until every bucket started is reduced or failed. Returns the first failure. */
tutti_status buckets_wait(tutti_trainer *trainer);

#endif
