/* ddp_step: one training step of a perceptron through the trainer's hooks, against the same step on
 * each rank alone and an all_reduce of as many bytes. What DDP hides of the second beside the first
 * shows in the ratio; it is for loaded machines (--load), too. */
#include "load.h"
#include "measure.h"
#include "perceptron.h"

#include "core/program/line.h"
#include "core/program/output.h"

enum { SAMPLES_MAX = 256, PARAMS = PERCEPTRON_PARAMS };
enum { ALONE, WIRE, DDP, WAYS };

struct setting {
	int ranks, rounds, samples, load;
	tutti_comm *comm;
	tutti_trainer *trainers[WAYS]; /* of WIRE none */
	struct perceptron_work work;
	float *gradients, *inputs, *outputs;
};

#define AT(member) .at = offsetof(struct setting, member)

static const struct line_option ddp_step_options[] = {
	{"ranks", 0, "N", AT(ranks), 1, 4096, NULL,
	 "starts N ranks of itself; without it a launcher has"},
	{"rounds", 0, "N", AT(rounds), 1, MEASURE_ROUNDS, NULL,
	 "counted ones, 1 to 1000 (20); one before them is not"},
	{"samples", 0, "N", AT(samples), 1, SAMPLES_MAX, NULL, "of a rank in a step, 1 to 256 (8)"},
	{"load", 0, "N", AT(load), 0, LOAD_MAX, NULL,
	 "N busy processes beside the ranks of each machine (0)"},
	{0},
};
static const char ddp_step_about[] =
	"A step of a perceptron of 5 million parameters, three ways in turns: on each rank alone;\n"
	"an all_reduce of as many bytes as it has gradients; and a DDP step of all ranks.\n"
	"Exit code: 0; 2 for a line that cannot be understood; 3 when a call failed.";
static const struct line_table ddp_step_line = {.options = ddp_step_options,
						.about = ddp_step_about};

static tutti_trainer *ddp_step_make_trainer(tutti_comm *comm)
{
	const tutti_train_config config = {.strategy = TUTTI_DDP};
	tutti_trainer *trainer;
	tutti_model *model = perceptron_model();

	MUST(model ? TUTTI_OK : TUTTI_ERR_MEMORY);
	MUST(tutti_trainer_create(&trainer, model, comm, &config));
	tutti_model_destroy(model);
	MUST(perceptron_init(trainer));
	return trainer;
}

/* Milliseconds, of the slowest rank. */
static double ms[WAYS][MEASURE_ROUNDS];

static void ddp_step_measure(void *arg, int way, int round)
{
	const tutti_optimizer sgd = {.kind = TUTTI_SGD, .lr = 1e-4f};
	struct setting *at = arg;

	MUST(tutti_barrier(at->comm, NULL));
	double took = measure_seconds(CLOCK_MONOTONIC);
	if (way == WIRE)
		MUST(tutti_all_reduce(at->gradients, at->gradients, PARAMS, TUTTI_F32, TUTTI_AVG,
				      at->comm, NULL));
	else
		perceptron_step(at->trainers[way], &sgd, &at->work, at->inputs, at->outputs,
				(size_t)at->samples);
	took = (measure_seconds(CLOCK_MONOTONIC) - took) * 1e3;
	MUST(tutti_all_reduce(&took, &took, 1, TUTTI_F64, TUTTI_MAX, at->comm, NULL));
	if (round >= 0)
		ms[way][round] = took;
}

static void ddp_step_report(const struct setting *at)
{
	static double ratio[MEASURE_ROUNDS];
	int n = at->rounds;

	for (int i = 0; i < n; i++)
		ratio[i] = ms[DDP][i] / (ms[ALONE][i] + ms[WIRE][i]);
	double middle = measure_median(ratio, n), low = ratio[n / 4], high = ratio[n - 1 - n / 4];
	if (tutti_rank(at->comm) != 0)
		return;
	printf("# %d ranks, %d busy processes, %d samples, %d rounds; medians, ms\n",
	       tutti_size(at->comm), at->load, at->samples, n);
	printf("# %10s %10s %10s   ddp / (alone + wire)\n", "alone", "wire", "ddp");
	printf("  %10.2f %10.2f %10.2f   %.2f (%.2f-%.2f)\n", measure_median(ms[ALONE], n),
	       measure_median(ms[WIRE], n), measure_median(ms[DDP], n), middle, low, high);
}

static int ddp_step_take_part(int argc, char **argv)
{
	struct setting at = {.rounds = 20, .samples = 8};
	const tutti_config one = {.world_size = 1};
	struct load load = {0};
	tutti_comm *alone;
	int code = line_parse(&ddp_step_line, &at, argc, argv);

	if (code >= 0)
		return code;
	MUST(tutti_init(&at.comm, NULL));
	MUST(tutti_init(&alone, &one));
	at.trainers[ALONE] = ddp_step_make_trainer(alone);
	at.trainers[DDP] = ddp_step_make_trainer(at.comm);
	at.gradients = perceptron_floats(PARAMS);
	at.inputs = perceptron_floats((size_t)at.samples * PERCEPTRON_WIDTH);
	at.outputs = perceptron_floats((size_t)at.samples * PERCEPTRON_WIDTH);
	perceptron_work_create(&at.work, (size_t)at.samples);
	perceptron_fill(at.inputs, 0, (size_t)at.samples);
	if (tutti_local_rank(at.comm) == 0 && !load_start(&load, at.load))
		return 3;
	measure_turns(at.rounds, WAYS, ddp_step_measure, &at);
	ddp_step_report(&at);
	load_stop(&load);
	tutti_trainer_destroy(at.trainers[ALONE]);
	tutti_trainer_destroy(at.trainers[DDP]);
	perceptron_work_destroy(&at.work);
	free(at.gradients);
	free(at.inputs);
	free(at.outputs);
	tutti_comm_destroy(alone);
	tutti_comm_destroy(at.comm);
	output_flush();
	return output_is_well() ? 0 : 3;
}

int main(int argc, char **argv)
{
	return output_open() ? tutti_main(argc, argv, ddp_step_take_part) : 3;
}
