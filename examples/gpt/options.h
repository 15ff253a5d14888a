/* The command line of the GPT. */
#ifndef EXAMPLES_GPT_OPTIONS_H
#define EXAMPLES_GPT_OPTIONS_H

#include <tutti/parallel.h>

struct options {
	int ranks;                           /* --ranks; 0: not given                             */
	int steps, batch, length;            /* batch: sequences of all ranks together, each step */
	int micro_batches;                   /* parts in which a rank does its sequences          */
	int layers, heads, channels;
	double lr;
	uint64_t seed;
	tutti_train_options flags;           /* of any trainer: strategy and all that it takes    */
	int dp, ep, pp, cp, tp;              /* ranks of the mesh's axes; 0: not given            */
	tutti_schedule schedule;             /* of a pipeline                                     */
	int chunks;                          /* stages of a rank of it                            */
	int by_heads;                        /* the form of context parallelism                   */
	int experts, expert_group;           /* of each block; tokens that share their capacity   */
	double expert_capacity, expert_balance;
	int recompute;
	int grow_wait_s;                      /* for ranks in the place of dead ones               */
	const char *dump_loss;               /* NULL: nowhere, as the following                   */
	const char *save;                    /* checkpoints: loaded at the start, if there are any */
	int save_every;
	int report_every, sample;             /* steps; characters written at the end              */
	const char *export_to;               /* one safetensors file, at the end                  */
	const char *log;                     /* metrics                                           */
	const char *matmul;                  /* gpt_cuda: how matrices are multiplied             */
	char *const *paths;
	int path_count;
};

/* Whether ranks divide the model, or a sequence. */
int options_have_mesh(const struct options *options);
/* Whether they go together; if not, says why. options_check.c */
int options_check(const struct options *options);
/* Returns 0, or the status to exit with plus 1: --help was asked for, or something is wrong and was said. */
int options_read(struct options *options, int argc, char **argv);

#endif
