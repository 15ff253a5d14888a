/* The memory of a rank of a candidate. */
#ifndef TUTTI_PLAN_LAYOUT_MEMORY_H
#define TUTTI_PLAN_LAYOUT_MEMORY_H

#include "layout_question.h"

/* Bytes, each of the rank with most of it. */
struct held_bytes {
	double trainer;     /* tutti_memory_estimate_on */
	double activations; /* of the micro-batches that the schedule holds, and work space      */
	double messages;    /* buffers of the pipeline                                           */
};

/* Estimates that were made before: several candidates have the same trainer. */
struct trainer_book {
	struct trainer_entry *entries;
	size_t count, room;
};
void trainer_book_close(struct trainer_book *book);

/* The trainer's and the activations'. */
struct held_bytes candidate_memory(const struct layout_question *question,
				   const struct candidate *candidate, struct trainer_book *book);
/* Those that a stage sends for one micro-batch. */
double message_bytes(const struct layout_question *question, const struct candidate *candidate);
/* Of one rank's pipeline. */
double pipeline_bytes(const struct layout_question *question, const struct candidate *candidate,
		      const struct schedule_buffers *buffers);

static inline double held_sum(const struct held_bytes *held)
{
	return held->trainer + held->activations + held->messages;
}

#endif
