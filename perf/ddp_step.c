/* ddp_step: one training step of a perceptron through the trainer's hooks, against the same step on
 * each rank alone and an all_reduce of as many bytes. What DDP hides of the second beside the first
 * shows in the ratio; it is for loaded machines (--load), too. */
#include "load.h"
#include "median.h"
#include "output.h"
#include "perceptron.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <tutti/train.h>

#define MUST(call)                                                                                 \
	((call) == TUTTI_OK                                                                        \
		 ? (void)0                                                                         \
		 : (fprintf(stderr, "ddp_step: %s\n", tutti_comm_error(NULL)), exit(3)))

enum { LAYERS = PERCEPTRON_LAYERS, WIDTH = PERCEPTRON_WIDTH, PARAMS = PERCEPTRON_PARAMS };
enum { SAMPLES_MAX = 256, ROUNDS_MAX = 1000 };
enum { ALONE, WIRE, DDP, WAYS };

static const char usage[] =
	"usage: ddp_step [--ranks N] [--rounds N] [--samples N] [--load N]\n"
	"A step of a perceptron of 5 million parameters, three ways in turns: on each rank alone; "
	"an\n"
	"all_reduce of as many bytes as it has gradients; and a DDP step of all ranks.\n"
	"  --ranks N    starts N ranks of itself; without it a launcher has\n"
	"  --rounds N   counted ones, 1 to 1000 (20); one before them is not\n"
	"  --samples N  of a rank in a step, 1 to 256 (8)\n"
	"  --load N     N busy processes beside the ranks of each machine (0)\n"
	"  -h, --help\n"
	"Exit code: 0; 2 for a line that cannot be understood; 3 when a call failed.\n";

struct options {
	int rounds, samples, load;
};

/* The ranks' own data; the weights are the trainers'. x[l] goes into layer l. */
static float x[LAYERS + 1][SAMPLES_MAX * WIDTH], dz[SAMPLES_MAX * WIDTH],
	spare[SAMPLES_MAX * WIDTH];

static double ddp_step_now_ms(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

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

static void perf_ddp_step(tutti_trainer *trainer, size_t samples)
{
	const tutti_optimizer sgd = {.kind = TUTTI_SGD, .lr = 1e-4f};

	MUST(tutti_micro_batch(trainer, TUTTI_PASS_LAST, (double)samples, NULL));
	for (int l = 0; l < LAYERS; l++) {
		MUST(tutti_forward_begin(trainer, l));
		perceptron_forward(tutti_param_data(trainer, l), x[l], x[l + 1], samples);
		MUST(tutti_forward_end(trainer, l));
	}
	perceptron_loss(x[LAYERS], dz, samples);
	for (int l = LAYERS - 1; l >= 0; l--) {
		MUST(tutti_backward_begin(trainer, l));
		perceptron_backward(
			tutti_param_data(trainer, l),
			(struct perceptron_grads){tutti_param_grad(trainer, l), dz, spare}, x[l],
			x[l + 1], samples);
		MUST(tutti_backward_end(trainer, l));
	}
	MUST(tutti_step(trainer, &sgd, 1, NULL));
}

struct setting {
	tutti_comm *comm;
	tutti_trainer *trainers[WAYS]; /* of WIRE none */
	float *gradients;
	int samples;
};

/* Milliseconds, of the slowest rank. */
static double ddp_step_measure(const struct setting *at, int way)
{
	MUST(tutti_barrier(at->comm, NULL));
	double took = ddp_step_now_ms();
	if (way == WIRE)
		MUST(tutti_all_reduce(at->gradients, at->gradients, PARAMS, TUTTI_F32, TUTTI_AVG,
				      at->comm, NULL));
	else
		perf_ddp_step(at->trainers[way], (size_t)at->samples);
	took = ddp_step_now_ms() - took;
	MUST(tutti_all_reduce(&took, &took, 1, TUTTI_F64, TUTTI_MAX, at->comm, NULL));
	return took;
}

static double ms[WAYS][ROUNDS_MAX], ratio[ROUNDS_MAX];

static void ddp_step_report(const struct options *o, const struct setting *at)
{
	for (int i = 0; i < o->rounds; i++)
		ratio[i] = ms[DDP][i] / (ms[ALONE][i] + ms[WIRE][i]);
	double middle = median(ratio, o->rounds), low = ratio[o->rounds / 4],
	       high = ratio[o->rounds - 1 - o->rounds / 4];
	if (tutti_rank(at->comm) == 0) {
		printf("# %d ranks, %d busy processes, %d samples, %d rounds; medians, ms\n",
		       tutti_size(at->comm), o->load, o->samples, o->rounds);
		printf("# %10s %10s %10s   ddp / (alone + wire)\n", "alone", "wire", "ddp");
		printf("  %10.2f %10.2f %10.2f   %.2f (%.2f-%.2f)\n", median(ms[ALONE], o->rounds),
		       median(ms[WIRE], o->rounds), median(ms[DDP], o->rounds), middle, low, high);
	}
}

static void ddp_step_measure_all(const struct options *o, const struct setting *at)
{
	for (int round = -1; round < o->rounds; round++)
		for (int i = 0; i < WAYS; i++) {
			int way = (i + round + WAYS) % WAYS; /* each begins some rounds */
			double took = ddp_step_measure(at, way);
			if (round >= 0)
				ms[way][round] = took;
		}
	ddp_step_report(o, at);
}

static int ddp_step_number(const char *text, int least, int most)
{
	char *end;
	long value = strtol(text, &end, 10);

	if (*text >= '0' && *text <= '9' && !*end && value >= least && value <= most)
		return (int)value;
	fprintf(stderr, "ddp_step: '%s' is not a number from %d to %d.\n%s", text, least, most,
		usage);
	exit(2);
}

static struct options ddp_step_options_of(int argc, char **argv)
{
	static const struct option names[] = {{"rounds", required_argument, NULL, 'r'},
					      {"samples", required_argument, NULL, 's'},
					      {"load", required_argument, NULL, 'l'},
					      {"help", no_argument, NULL, 'h'},
					      {0}};
	struct options o = {.rounds = 20, .samples = 8};

	for (int c; (c = getopt_long(argc, argv, "h", names, NULL)) != -1;) {
		if (c == 'h') {
			fputs(usage, stdout);
			exit(fflush(stdout) == 0 ? 0 : 3);
		}
		if (c == '?') {
			fputs(usage, stderr);
			exit(2);
		}
		*(c == 'r'   ? &o.rounds
		  : c == 's' ? &o.samples
			     : &o.load) =
			ddp_step_number(optarg, c != 'l', c == 's' ? SAMPLES_MAX : ROUNDS_MAX);
	}
	if (optind < argc)
		ddp_step_number(argv[optind], 1, 0);
	return o;
}

static int ddp_step_take_part(int argc, char **argv)
{
	struct options o = ddp_step_options_of(argc, argv);
	struct setting at = {.samples = o.samples};
	const tutti_config one = {.world_size = 1};
	struct load load = {0};
	tutti_comm *alone;

	MUST(tutti_init(&at.comm, NULL));
	MUST(tutti_init(&alone, &one));
	at.trainers[ALONE] = ddp_step_make_trainer(alone);
	at.trainers[DDP] = ddp_step_make_trainer(at.comm);
	MUST((at.gradients = calloc(PARAMS, sizeof(float))) ? TUTTI_OK : TUTTI_ERR_MEMORY);
	perceptron_fill(x[0], 0, SAMPLES_MAX);
	if (tutti_local_rank(at.comm) == 0 && !load_start(&load, o.load))
		return 3;
	ddp_step_measure_all(&o, &at);
	load_stop(&load);
	tutti_trainer_destroy(at.trainers[ALONE]);
	tutti_trainer_destroy(at.trainers[DDP]);
	free(at.gradients);
	tutti_comm_destroy(alone);
	tutti_comm_destroy(at.comm);
	output_flush();
	return output_is_well() ? 0 : 3;
}

int main(int argc, char **argv)
{
	return output_open() ? tutti_main(argc, argv, ddp_step_take_part) : 3;
}
