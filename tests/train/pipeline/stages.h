/* A model of stages whose activations and gradients are known bytes, and callbacks that check them. */
#ifndef TESTS_STAGES_H
#define TESTS_STAGES_H

#include "train/pipeline/schedule/schedule.h"

#include <tutti/parallel.h>

struct stages {
	struct pipeline_shape shape;
	int rank; /* of "pp" */
	size_t bytes;
	uint64_t seed; /* of pauses */
	/* What was called in this step. */
	struct action *calls;
	int call_count;
	/* [task]: what the library gave, which stays until the release. */
	const unsigned char **in, **out_grad;
	int evaluated; /* micro-batches of an evaluation; 0: it is a step */
	/* The callback that fails, if failing_status is no OK, and what it says. */
	struct action failing;
	tutti_status failing_status;
	const char *failing_message;
	/* Called first, in every callback. May be NULL. */
	void (*before)(struct stages *stages, const struct action *action);
	void *before_arg;
};

/* A config for these stages; count and dtype are bytes and U8. */
tutti_pipeline_config stages_create(struct stages *stages, struct pipeline_shape shape, int rank,
				    size_t bytes, uint64_t seed);
void stages_destroy(struct stages *stages);
/* What comes next is an evaluation of so many micro-batches; 0: a step. */
void stages_evaluate(struct stages *stages, int micro_batches);
/* The calls of a step or evaluation that went well are the rank's list; forgets them. */
void stages_check_order(struct stages *stages);

#endif
