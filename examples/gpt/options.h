/* The command line of the GPT. */
#ifndef EXAMPLES_GPT_OPTIONS_H
#define EXAMPLES_GPT_OPTIONS_H

#include <tutti/parallel.h>

#include <stdbool.h>

/* As options.c has their names and meanings. */
struct options {
	int ranks;                           /* 0: not given                                      */
	int steps, batch, length;            /* batch: sequences of all ranks together, each step */
	int micro_batches;                   /* parts in which a rank does its sequences          */
	int layers, heads, channels;
	float lr;
	size_t seed;
	tutti_train_options flags;           /* of any trainer: strategy and all that it takes    */
	bool has_mesh;                       /* ranks divide the model, or a sequence             */
	int dp, ep, pp, cp, tp;              /* ranks of the mesh's axes; dp 0: what is left      */
	tutti_schedule schedule;             /* of a pipeline                                     */
	int chunks;                          /* stages of a rank of it                            */
	int experts, expert_group;           /* of each block; tokens that share their capacity   */
	float expert_capacity, expert_balance;
	int recompute;
	int grow_wait_s;
	const char *dump_loss, *save, *export_to, *log; /* NULL: nowhere                          */
	int save_every, report_every, sample;
	const char *matmul;                  /* gpt_cuda: how matrices are multiplied             */
	char *const *paths;
	int path_count;
};

/* False: something is wrong and was said. --help ends the program. */
bool options_read(struct options *options, int argc, char **argv);

#endif
