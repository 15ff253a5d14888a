/* One run of the program, on this rank: what its files share. */
#ifndef EXAMPLES_GPT_RUN_H
#define EXAMPLES_GPT_RUN_H

#include "gpt.h"
#include "options.h"
#include "text.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

struct run {
	struct options options;
	struct text text;
	unsigned char alphabet[256];     /* text.bytes, as checkpoints have them             */
	tutti_comm *comm;                /* all ranks that are there                         */
	tutti_comm *ranks;               /* those that train: the mesh's, or comm            */
	tutti_mesh *mesh;                /* NULL: all ranks have the whole model             */
	struct stages *stages;           /* NULL: no pipeline                                */
	int part, parts;                 /* this rank's sequences of a batch                 */
	int world;                       /* ranks that there should be                       */
	int rank, size;                  /* in ranks; rank -1: this one is a spare           */
	int64_t done;                    /* steps that are finished                          */
	bool is_later;                   /* ranks have died since the job began              */
	tutti_trainer *trainer;
	struct gpt gpt;
	struct attempt {                 /* at those two, while ranks may die meanwhile      */
		tutti_mesh *mesh;
		tutti_trainer *trainer;
		struct gpt gpt;
	} next;
	unsigned char *tokens, *targets; /* (sequences of this rank, length)                 */
	FILE *losses;                    /* NULL: not wanted, or this is not rank 0          */
	tutti_metrics *metrics;          /* NULL: not wanted                                 */
	int loss_metric, norm_metric, rate_metric;
};

/* The metrics of this communicator, if any are wanted. */
void log_start(struct run *run);
/* Whether this rank has the last stage. */
int run_has_head(const struct run *run);
/* The steps that are not done yet. Rank 0 prints how it goes. */
void train(struct run *run);
/* The loss over the whole text, which rank 0 prints: --test. evaluate.c */
void evaluate_text(struct run *run);
/* Whether the run trains nothing. */
static inline bool is_test(const struct run *run)
{
	return run->options.flags.test[0] != '\0';
}
/* Rank 0 prints what the model writes now; all ranks compute it. */
void sample(struct run *run);

#endif
