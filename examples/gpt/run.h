/* One run of the program, on this rank: what its files share. */
#ifndef EXAMPLES_GPT_RUN_H
#define EXAMPLES_GPT_RUN_H

#include "gpt.h"
#include "options.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/* Every different byte that occurs is a token. */
struct text {
	unsigned char *tokens;
	size_t count;
	int vocab;
	unsigned char bytes[GPT_MAX_VOCAB];  /* of token i */
};

struct run {
	struct options options;
	struct text text;
	unsigned char alphabet[GPT_MAX_VOCAB]; /* text.bytes, as checkpoints have them       */
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

/* ---- train.c ---- */
/* The metrics of this communicator, if any are wanted. */
void train_start_log(struct run *run);
/* The steps that are not done yet. Rank 0 prints how it goes. */
void train(struct run *run);
/* The loss over the whole text, which rank 0 prints: --test. */
void train_evaluate(struct run *run);
/* Rank 0 prints what the model writes now; all ranks compute it. */
void train_sample(struct run *run);

/* ---- pipeline.c ---- */
/* Of run->mesh and run->gpt. */
struct stages *stages_create(struct run *run);
void stages_destroy(struct stages *stages);
/* One sequence, run->tokens, forward; the last stage's logits are gpt's. */
void stages_evaluate(struct stages *stages);
/* A step's micro-batches, forward and backward, of this many sequences. */
void stages_run(struct stages *stages, int sequences);

/* ---- regroup.c: which ranks train, at the start and when some have died ---- */
/* Makes run->comm. */
void regroup_join(struct run *run);
/* Ranks have died: a new run->comm of the others, and of those in the dead ones' place. */
void regroup(struct run *run);
/* run->next.mesh, and which part of a batch is this rank's. False: no replica has a place for it. */
bool regroup_take_place(struct run *run);
/* As a spare, until the others have ended. A death ends it as any call of must. */
void regroup_stand_by(struct run *run);
/* To be called in each step, so that all hear when a spare dies; and with true at the end. */
void regroup_tell_spares(struct run *run, bool has_ended);
/* Frees the trainer, and what is on it. */
void regroup_drop(struct run *run);

#endif
