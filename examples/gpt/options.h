/* The command line of the GPT. */
#ifndef EXAMPLES_GPT_OPTIONS_H
#define EXAMPLES_GPT_OPTIONS_H

#include <tutti/parallel.h>

struct options {
	int steps, batch, length;            /* batch: sequences of all ranks together, each step */
	int micro_batches;                   /* parts in which a rank does its sequences          */
	int layers, heads, channels;
	double lr;
	uint64_t seed;
	tutti_train_config config;           /* strategy and all that it takes                    */
	int dp, tp, pp;                      /* ranks of the mesh's axes; tp, pp 0: no mesh       */
	tutti_schedule schedule;             /* of a pipeline                                     */
	int chunks;                          /* stages of a rank of it                            */
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

/* Returns 0, or the status to exit with plus 1: --help was asked for, or something is wrong and was said. */
int options_read(struct options *options, int argc, char **argv);

#endif
