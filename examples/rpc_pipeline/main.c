/* PyTorch's tutorial "Distributed Pipeline Parallelism Using RPC": rank 0 trains a model whose
 * layers are on the other ranks.
 *
 *     rpc_pipeline --ranks 3                        two stages, one on each of ranks 1 and 2
 *     rpc_pipeline --ranks 3 --split 1,2,4,8        the same training with as many micro-batches
 *     tuttirun -n 4 rpc_pipeline                    three stages, by a launcher
 *     rpc_pipeline --ranks 1                        one stage, on rank 0
 *
 * docs/remote-training.md goes through it. */
#include "master.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SPLITS_MOST = 8 };

struct options {
	int split[SPLITS_MOST], num_splits;
	struct training training; /* stages 0: one for each rank but 0 */
};

static int main_complain(const char *what)
{
	fprintf(stderr, "rpc_pipeline: %s\n", what);
	return 1;
}

static const char usage[] =
	"options are --ranks N, --stages 1 to 8, --split 1,2,4,... of up to 64 micro-batches and "
	"no more than the batch, --batch SAMPLES, --steps N, --lr RATE, --max-norm NORM, --help";

/* -1, which nothing here may be: the text is no whole number. */
static int rpc_pipeline_main_number(const char *text)
{
	char *end;
	long value = strtol(text, &end, 10);

	return end == text || *end || value < 0 || value > 1 << 30 ? -1 : (int)value;
}

static float rpc_pipeline_main_rate(const char *text)
{
	char *end;
	float value = strtof(text, &end);

	return end == text || *end ? -1 : value;
}

/* 0: the text is a list of numbers from 1 to PARTS_MOST. */
static int read_splits(struct options *options, const char *text)
{
	char *end = NULL;

	for (options->num_splits = 0; options->num_splits < SPLITS_MOST; text = end + 1) {
		long split = strtol(text, &end, 10);
		if (end == text || split < 1 || split > PARTS_MOST || (*end && *end != ','))
			return -1;
		options->split[options->num_splits++] = (int)split;
		if (*end == '\0')
			return 0;
	}
	return -1;
}

static int is_good(const struct options *o)
{
	const struct training *t = &o->training;

	for (int i = 0; i < o->num_splits; i++)
		if (o->split[i] > t->batch)
			return 0;
	return t->stages >= 0 && t->stages <= STAGES_MOST && t->batch <= 1 << 16 && t->steps > 0 &&
	       t->lr > 0 && t->max_norm >= 0;
}

static int rpc_pipeline_main_read_options(struct options *o, int argc, char **argv)
{
	static const struct option known[] = {{"stages", required_argument, NULL, 's'},
					      {"split", required_argument, NULL, 'p'},
					      {"batch", required_argument, NULL, 'b'},
					      {"steps", required_argument, NULL, 'n'},
					      {"lr", required_argument, NULL, 'l'},
					      {"max-norm", required_argument, NULL, 'm'},
					      {0}};
	int option;

	*o = (struct options){.split = {4},
			      .num_splits = 1,
			      .training = {.batch = 64, .steps = 40, .lr = 0.003f, .max_norm = 1}};
	while ((option = getopt_long(argc, argv, "", known, NULL)) != -1) {
		if (option == 's')
			o->training.stages = rpc_pipeline_main_number(optarg);
		else if (option == 'p' && read_splits(o, optarg) != 0)
			return -1;
		else if (option == 'b')
			o->training.batch = rpc_pipeline_main_number(optarg);
		else if (option == 'n')
			o->training.steps = rpc_pipeline_main_number(optarg);
		else if (option == 'l')
			o->training.lr = rpc_pipeline_main_rate(optarg);
		else if (option == 'm')
			o->training.max_norm = rpc_pipeline_main_rate(optarg);
		else if (option == '?')
			return -1;
	}
	return optind == argc && is_good(o) ? 0 : -1;
}

/* Each number of micro-batches begins with new stages. */
static tutti_status train_all(tutti_rpc *rpc, struct options *options)
{
	struct training *t = &options->training;
	int ranks = tutti_rpc_size(rpc);

	if (t->stages == 0)
		t->stages = ranks == 1 ? 1 : ranks - 1 < STAGES_MOST ? ranks - 1 : STAGES_MOST;
	for (int i = 0; i < options->num_splits; i++) {
		struct training_result result;
		t->split = options->split[i];
		tutti_status status = master_train(rpc, t, &result);
		if (status != TUTTI_OK)
			return status;
		printf("stages %d, micro-batches %d: loss %.6f, after %d steps %.6f; %.3f "
		       "s\n",
		       t->stages, t->split, result.first_loss, t->steps, result.last_loss,
		       result.seconds);
		fflush(stdout);
	}
	return TUTTI_OK;
}

/* Rank 0 trains, and the others serve until it has left. */
static tutti_status rpc_pipeline_main_run(tutti_comm *comm, struct options *options)
{
	const tutti_rpc_config config = {.functions = stage_functions,
					 .num_functions = STAGE_FUNCTIONS};
	tutti_rpc *rpc;
	tutti_status status = tutti_rpc_create(&rpc, comm, &config);

	if (status != TUTTI_OK)
		return status;
	if (tutti_rank(comm) == 0)
		status = train_all(rpc, options);
	if (status == TUTTI_OK) {
		status = tutti_rpc_shutdown(rpc, -1);
	} else {
		main_complain(tutti_comm_error(NULL));
		tutti_rpc_abort(rpc);
	}
	tutti_rpc_destroy(rpc);
	return status;
}

static int main_train(struct options *options)
{
	tutti_comm *comm;

	if (tutti_init(&comm, NULL) != TUTTI_OK)
		return main_complain(tutti_comm_error(NULL));
	printf("rank %d is process %d\n", tutti_rank(comm), (int)getpid());
	fflush(stdout);
	tutti_status status = rpc_pipeline_main_run(comm, options);
	tutti_comm_destroy(comm);
	fflush(stdout);
	return status != TUTTI_OK;
}

static int rpc_pipeline_main_work(int argc, char **argv)
{
	struct options options;

	if (argc == 2 && strcmp(argv[1], "--help") == 0)
		return printf("rpc_pipeline: %s\n", usage) < 0;
	if (rpc_pipeline_main_read_options(&options, argc, argv) != 0)
		return main_complain(usage);
	return main_train(&options);
}

int main(int argc, char **argv)
{
	return tutti_main(argc, argv, rpc_pipeline_main_work); /* with --ranks N: N of them */
}
