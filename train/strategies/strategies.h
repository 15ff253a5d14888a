/* Parameters as forward and backward see them. */
#ifndef TRAIN_GATHER_H
#define TRAIN_GATHER_H

#include "train/state/trainer_state.h"

static inline int32_t unit_event(int unit, enum unit_pass pass)
{
	return unit * 4 + (int32_t)pass;
}

/* Where the author reads a parameter; NULL: not gathered, or its unit is not open. */
void *param_data(const tutti_trainer *trainer, int param);

/* FSDP. A micro-batch begins. */
tutti_status params_expect(tutti_trainer *trainer);
/* The values of all that unit uses are there; those of the next ones are on their way. */
tutti_status params_open(tutti_trainer *trainer, int unit, enum unit_pass pass);
/* They need not stay; is_over: nor for the unit that begins next. */
tutti_status params_close(tutti_trainer *trainer, int unit, bool is_over);
/* Frees all that is gathered: values change, or a step ends. */
tutti_status params_drop(tutti_trainer *trainer);
/* At the end of a step: MISMATCH when another rank gathers a unit meanwhile. */
tutti_status params_compare_order(tutti_trainer *trainer);

/* ZeRO: sends this rank's part of the bucket's updated values on their way to the others; FSDP:
 * nothing to send. */
tutti_status publish_bucket(tutti_trainer *trainer, int bucket);
/* Until the values of a bucket, or of all, are there. */
tutti_status publish_wait(tutti_trainer *trainer, int bucket);
tutti_status publish_wait_all(tutti_trainer *trainer);
/* After pieces have been written: all ranks get them. */
tutti_status publish_all(tutti_trainer *trainer);

#endif
