/* replica_step: trains the perceptron by DDP, Mirrored or DataParallel, and prints its speed as
 * examples/gpt does: perf/training runs it for its rows of replicas. */
#include "output.h"
#include "perceptron.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define MUST(call)                                                                                 \
	((call) == TUTTI_OK                                                                        \
		 ? (void)0                                                                         \
		 : (fprintf(stderr, "replica_step: %s\n", tutti_comm_error(NULL)), exit(3)))

enum { LAYERS = PERCEPTRON_LAYERS, WIDTH = PERCEPTRON_WIDTH };
enum { REPLICAS_MAX = 64, BATCH_MAX = 4096, STEPS_MAX = 1000000 };

static const char usage[] =
	"usage: replica_step [--ranks N] [--way WAY] [--replicas N] [--batch N] [--steps N]\n"
	"Trains a perceptron of 5 million parameters with AdamW, and prints samples a second.\n"
	"  --ranks N     of way ddp: starts N ranks of itself, without tuttirun\n"
	"  --way WAY     ddp: one rank, under tuttirun with as many as it starts (the default);\n"
	"                mirrored, data_parallel: replicas in threads; share_params: DataParallel\n"
	"                whose replicas read the first one's parameters in place\n"
	"  --replicas N  threads, 1 to 64 (2); not with ddp\n"
	"  --batch N     samples of a step, over all, 1 to 4096 (16)\n"
	"  --steps N     1 to 1000000 (21); the last line is of all but the first\n"
	"  -h, --help\n"
	"Exit code: 0; 2 for a line that cannot be understood; 3 when a call failed.\n";

static const char *const ways[] = {"ddp", "mirrored", "data_parallel", "share_params"};
enum way { DDP, MIRRORED, DATA_PARALLEL, SHARE_PARAMS, WAYS };

static const tutti_optimizer adamw = {
	.kind = TUTTI_ADAMW, .lr = 1e-4f, .beta1 = 0.9f, .beta2 = 0.99f, .eps = 1e-8f};

struct options {
	enum way way;
	int replicas, batch, steps;
};

/* One replica's activations: x[l] goes into layer l. */
struct work {
	const float *x[LAYERS + 1];
	float *hidden[LAYERS]; /* x[1] to x[LAYERS - 1] */
	float *dz, *spare;
};

static float *replica_step_floats(size_t count)
{
	float *made = calloc(count ? count : 1, sizeof *made);

	MUST(made ? TUTTI_OK
		  : tutti_set_error(TUTTI_ERR_MEMORY, "There is no memory for activations."));
	return made;
}

static void work_create(struct work *w, size_t samples)
{
	for (int l = 1; l < LAYERS; l++)
		w->hidden[l] = replica_step_floats(samples * WIDTH);
	w->dz = replica_step_floats(samples * WIDTH);
	w->spare = replica_step_floats(samples * WIDTH);
}

static void work_destroy(struct work *w)
{
	for (int l = 1; l < LAYERS; l++)
		free(w->hidden[l]);
	free(w->dz);
	free(w->spare);
}

static float *layer_output(struct work *w, int l, float *outputs)
{
	float *out = l + 1 < LAYERS ? w->hidden[l + 1] : outputs;

	w->x[l + 1] = out;
	return out;
}

/* ---- the functions of a replica */

static tutti_status replica_step_forward(tutti_replica *r)
{
	struct work *w = (struct work *)r->arg + r->index;

	w->x[0] = r->inputs;
	for (int l = 0; l < LAYERS; l++)
		perceptron_forward(tutti_replica_param(r, l), w->x[l],
				   layer_output(w, l, r->outputs), r->items);
	return TUTTI_OK;
}

static tutti_status replica_step_loss(tutti_replica *r)
{
	r->loss = perceptron_loss(r->outputs, r->output_grads, r->items);
	return TUTTI_OK;
}

static tutti_status replica_step_backward(tutti_replica *r)
{
	struct work *w = (struct work *)r->arg + r->index;
	tutti_status status = TUTTI_OK;

	memcpy(w->dz, r->output_grads, r->items * WIDTH * sizeof *w->dz);
	for (int l = LAYERS - 1; l >= 0 && status == TUTTI_OK; l--) {
		perceptron_backward(
			tutti_replica_param(r, l),
			(struct perceptron_grads){tutti_replica_grad(r, l), w->dz, w->spare},
			w->x[l], w->x[l + 1], r->items);
		status = tutti_replica_grad_ready(r, l);
	}
	return status;
}

/* ---- the ways */

/* One way's training. */
struct training {
	struct options options;
	tutti_comm *comms[REPLICAS_MAX];
	tutti_trainer *trainer;  /* DDP */
	tutti_data_parallel *dp; /* else */
	struct work work[REPLICAS_MAX];
	float *inputs, *outputs; /* of this process */
	size_t first, items;     /* its samples of each batch */
	int rank;
};

static tutti_status replica_step_init(tutti_trainer *trainer, int replica, void *arg)
{
	(void)replica;
	(void)arg;
	return perceptron_init(trainer);
}

static void start_replicas(struct training *t, tutti_model *model)
{
	const struct options *o = &t->options;
	const tutti_data_parallel_config config = {.model = model,
						   .forward = replica_step_forward,
						   .loss = replica_step_loss,
						   .backward = replica_step_backward,
						   .arg = t->work,
						   .input_bytes = WIDTH * sizeof(float),
						   .output_count = WIDTH,
						   .share_params = o->way == SHARE_PARAMS};

	MUST(tutti_init_all(t->comms, o->replicas, NULL));
	MUST(o->way == MIRRORED
		     ? tutti_mirrored_create(&t->dp, t->comms, o->replicas, &config)
		     : tutti_data_parallel_create(&t->dp, t->comms, o->replicas, &config));
	MUST(tutti_data_parallel_run(t->dp, replica_step_init, NULL));
}

static void replica_step_start(struct training *t)
{
	struct options *o = &t->options;
	size_t batch = (size_t)o->batch;
	tutti_model *model = perceptron_model();

	MUST(model ? TUTTI_OK : TUTTI_ERR_MEMORY);
	t->items = batch;
	if (o->way == DDP) {
		o->replicas = 1;
		MUST(tutti_init(&t->comms[0], NULL));
		size_t rank = (size_t)tutti_rank(t->comms[0]),
		       size = (size_t)tutti_size(t->comms[0]);
		t->rank = (int)rank;
		t->first = batch * rank / size;
		t->items = batch * (rank + 1) / size - t->first;
		MUST(tutti_trainer_create(&t->trainer, model, t->comms[0], NULL));
		MUST(perceptron_init(t->trainer));
	} else {
		start_replicas(t, model);
	}
	tutti_model_destroy(model);
	for (int r = 0; r < o->replicas; r++) /* a replica has at most so many */
		work_create(&t->work[r], t->items / (size_t)o->replicas + 1);
	t->inputs = replica_step_floats(t->items * WIDTH);
	t->outputs = replica_step_floats(t->items * WIDTH);
}

static void replica_step_stop(struct training *t)
{
	tutti_data_parallel_destroy(t->dp);
	tutti_trainer_destroy(t->trainer);
	for (int r = 0; r < t->options.replicas; r++) {
		tutti_comm_destroy(t->comms[r]);
		work_destroy(&t->work[r]);
	}
	free(t->inputs);
	free(t->outputs);
}

static double step_ddp(struct training *t)
{
	struct work *w = &t->work[0];
	tutti_trainer *trainer = t->trainer;
	double items = (double)t->items, sum;

	MUST(tutti_micro_batch(trainer, TUTTI_PASS_LAST, items, NULL));
	w->x[0] = t->inputs;
	for (int l = 0; l < LAYERS; l++) {
		MUST(tutti_forward_begin(trainer, l));
		perceptron_forward(tutti_param_data(trainer, l), w->x[l],
				   layer_output(w, l, t->outputs), t->items);
		MUST(tutti_forward_end(trainer, l));
	}
	sum = perceptron_loss(t->outputs, w->dz, t->items);
	for (int l = LAYERS - 1; l >= 0; l--) {
		MUST(tutti_backward_begin(trainer, l));
		perceptron_backward(
			tutti_param_data(trainer, l),
			(struct perceptron_grads){tutti_param_grad(trainer, l), w->dz, w->spare},
			w->x[l], w->x[l + 1], t->items);
		MUST(tutti_backward_end(trainer, l));
	}
	MUST(tutti_step(trainer, &adamw, 1, NULL));
	MUST(tutti_means(trainer, &sum, &items, &sum, 1));
	return sum;
}

/* Returns the mean loss. */
static double perf_replica_step(struct training *t)
{
	tutti_data_parallel_info info;
	const tutti_data_parallel_batch batch = {
		.inputs = t->inputs, .items = t->items, .outputs = t->outputs};

	if (t->trainer)
		return step_ddp(t);
	MUST(tutti_data_parallel_step(t->dp, &batch, &adamw, 1, &info));
	return info.loss;
}

static double replica_step_seconds_now(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static double replica_step_waited(const struct training *t)
{
	tutti_train_stats stats;

	MUST(t->trainer ? tutti_trainer_stats(t->trainer, &stats)
			: tutti_data_parallel_stats(t->dp, 0, &stats));
	return stats.exposed_seconds;
}

/* The first step touches memory for the first time, and has a line of its own. */
static void replica_step_train(struct training *t)
{
	const struct options *o = &t->options;
	double since = replica_step_seconds_now(), waited_since = replica_step_waited(t);
	int steps = 0;

	for (int s = 0; s < o->steps; s++) {
		perceptron_fill(t->inputs, (size_t)s * (size_t)o->batch + t->first, t->items);
		double mean = perf_replica_step(t);
		steps++;
		if (s > 0 && s + 1 < o->steps)
			continue;
		double now = replica_step_seconds_now(), waited_now = replica_step_waited(t);
		if (t->rank == 0)
			printf("step %4d   loss %.4f   %6.0f tokens/s   %4.1f %% waiting for "
			       "ranks\n",
			       s, mean / WIDTH, (double)steps * o->batch / (now - since),
			       100 * (waited_now - waited_since) / (now - since));
		output_flush();
		since = now;
		waited_since = waited_now;
		steps = 0;
	}
}

/* ---- options */

static void replica_step_refuse(const char *text, const char *why)
{
	fprintf(stderr, "replica_step: '%s' is not %s.\n%s", text, why, usage);
	exit(2);
}

static int replica_step_number(const char *text, int most)
{
	char *end, why[48];
	long value = strtol(text, &end, 10);

	if (*text >= '0' && *text <= '9' && !*end && value >= 1 && value <= most)
		return (int)value;
	snprintf(why, sizeof why, "a number from 1 to %d", most);
	replica_step_refuse(text, why);
	return 0;
}

static enum way way_of(const char *name)
{
	for (enum way way = DDP; way < WAYS; way++)
		if (strcmp(name, ways[way]) == 0)
			return way;
	replica_step_refuse(name, "a way");
	return DDP;
}

static struct options replica_step_options_of(int argc, char **argv)
{
	static const struct option names[] = {
		{"way", required_argument, NULL, 'w'},   {"replicas", required_argument, NULL, 'r'},
		{"batch", required_argument, NULL, 'b'}, {"steps", required_argument, NULL, 's'},
		{"help", no_argument, NULL, 'h'},        {0}};
	struct options o = {.way = DDP, .replicas = 2, .batch = 16, .steps = 21};

	for (int c; (c = getopt_long(argc, argv, "h", names, NULL)) != -1;) {
		if (c == 'h') {
			fputs(usage, stdout);
			exit(fflush(stdout) == 0 ? 0 : 3);
		}
		if (c == '?') {
			fputs(usage, stderr);
			exit(2);
		}
		if (c == 'w')
			o.way = way_of(optarg);
		else if (c == 'r')
			o.replicas = replica_step_number(optarg, REPLICAS_MAX);
		else if (c == 'b')
			o.batch = replica_step_number(optarg, BATCH_MAX);
		else
			o.steps = replica_step_number(optarg, STEPS_MAX);
	}
	if (optind < argc)
		replica_step_refuse(argv[optind], "an option");
	return o;
}

static int replica_step_take_part(int argc, char **argv)
{
	static struct training training;

	training.options = replica_step_options_of(argc, argv);
	replica_step_start(&training);
	replica_step_train(&training);
	replica_step_stop(&training);
	output_flush();
	return output_is_well() ? 0 : 3;
}

int main(int argc, char **argv)
{
	return output_open() ? tutti_main(argc, argv, replica_step_take_part) : 3;
}
