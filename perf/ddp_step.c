/* ddp_step: a perceptron of 5 million parameters. By itself one training step through the trainer's
 * hooks, against the same step on each rank alone and an all_reduce of as many bytes: what DDP
 * hides of the second beside the first shows in the ratio; it is for loaded machines (--load), too.
 * With
 * --way it trains by DDP, Mirrored or DataParallel, and prints its speed as examples/gpt does:
 * perf/training runs it so. */
#include "load.h"
#include "measure.h"

#include "core/program/line.h"
#include "core/program/output.h"

#include <stdbool.h>
#include <string.h>
#include <tutti/train.h>

enum { LAYERS = 5, WIDTH = 1000, WEIGHTS = WIDTH * WIDTH, PARAMS = LAYERS * WEIGHTS };
enum { SAMPLES_MAX = 256, REPLICAS_MAX = 64, BATCH_MAX = 4096, STEPS_MAX = 1000000 };

static const char *const ways[] = {"ddp", "mirrored", "data_parallel", "share_params", NULL};
enum way { COMPARED, DDP, MIRRORED, DATA_PARALLEL, SHARE_PARAMS };

struct options {
	int ranks, rounds, samples, load; /* of steps that are compared */
	int way, replicas, batch, steps;  /* of training */
};

#define AT(member) .at = offsetof(struct options, member)

static const struct line_option ddp_step_options[] = {
	{"ranks", 0, "N", AT(ranks), 1, 4096, NULL,
	 "starts N ranks of itself; without it a launcher has"},
	{"rounds", 0, "N", AT(rounds), 1, MEASURE_ROUNDS, NULL,
	 "counted ones, 1 to 1000 (20); one before them is not"},
	{"samples", 0, "N", AT(samples), 1, SAMPLES_MAX, NULL, "of a rank in a step, 1 to 256 (8)"},
	{"load", 0, "N", AT(load), 0, LOAD_MAX, NULL,
	 "N busy processes beside the ranks of each machine (0)"},
	{"way", 0, "WAY", AT(way), .least = DDP, .kind = LINE_CHOICE, .choices = ways,
	 .help = "trains instead, with AdamW, and prints samples a second: ddp, by the\n"
		 "ranks; mirrored, data_parallel, by replicas in threads; share_params:\n"
		 "DataParallel whose replicas read the first one's parameters in place"},
	{"replicas", 0, "N", AT(replicas), 1, REPLICAS_MAX, NULL,
	 "threads, 1 to 64 (2); not with ddp"},
	{"batch", 0, "N", AT(batch), 1, BATCH_MAX, NULL,
	 "samples of a step of training, over all, 1 to 4096 (16)"},
	{"steps", 0, "N", AT(steps), 1, STEPS_MAX, NULL,
	 "of training, 1 to 1000000 (21); the last line is of all but the first"},
	{0},
};
static const char ddp_step_about[] =
	"A step of a perceptron of 5 million parameters, three ways in turns: on each rank alone;\n"
	"an all_reduce of as many bytes as it has gradients; and a DDP step of all ranks. With\n"
	"--way it is trained instead, and --rounds, --samples and --load have no meaning.\n"
	"Exit code: 0; 2 for a line that cannot be understood; 3 when a call failed.";
static const struct line_table ddp_step_line = {.options = ddp_step_options,
						.about = ddp_step_about};

/* ---- the perceptron: layers of (WIDTH, WIDTH) weights, each followed by relu, on one thread.
 * Arrays of samples are (samples, WIDTH). */

/* One replica's activations: x[l] goes into layer l. */
struct perceptron_work {
	const float *x[LAYERS + 1];
	float *hidden[LAYERS]; /* x[1] to x[LAYERS - 1] */
	float *dz, *spare;
};

/* A unit and a parameter for each layer, numbered as the layers. NULL, with an error: no memory. */
static tutti_model *ddp_step_perceptron_model(void)
{
	const int64_t shape[] = {WIDTH, WIDTH};
	tutti_model *model;
	int made = 0;

	if (tutti_model_create(&model) != TUTTI_OK)
		return NULL;
	for (int l = 0; l < LAYERS; l++) {
		char name[24];
		snprintf(name, sizeof name, "layer.%d", l);
		int unit = tutti_model_unit(model, name);
		made += tutti_model_param(model, unit, name, 2, shape, 0) == l;
	}
	if (made == LAYERS)
		return model;
	tutti_model_destroy(model);
	return NULL;
}

/* First weights of all layers, with which activations stay near 1: relu halves the variance of what
 * it gets. Collective. */
static tutti_status ddp_step_perceptron_init(tutti_trainer *trainer)
{
	float *weights = malloc(sizeof *weights * WEIGHTS);
	tutti_status status = TUTTI_OK;

	if (!weights)
		return tutti_set_error(TUTTI_ERR_MEMORY, "There is no memory for first weights.");
	for (int l = 0; l < LAYERS && status == TUTTI_OK; l++) {
		for (size_t i = 0; i < WEIGHTS; i++)
			weights[i] =
				((float)tutti_random(1, 0, (uint64_t)l, i) / 4294967296.0f - 0.5f) *
				0.155f;
		status = tutti_param_write(trainer, l, 0, WEIGHTS, weights);
	}
	free(weights);
	return status;
}

/* The inputs of sample number first and those that follow. */
static void ddp_step_perceptron_fill(float *inputs, size_t first, size_t samples)
{
	for (size_t s = 0; s < samples; s++)
		for (size_t i = 0; i < WIDTH; i++)
			inputs[s * WIDTH + i] = (float)(((first + s) * 31 + i * 17) % 100) / 50;
}

static float ddp_step_perceptron_dot(const float *a, const float *b)
{
	float sums[16] = {0}, sum = 0;
	for (int i = 0; i + 16 <= WIDTH; i += 16)
		for (int k = 0; k < 16; k++)
			sums[k] += a[i + k] * b[i + k];
	for (int i = WIDTH / 16 * 16; i < WIDTH; i++)
		sum += a[i] * b[i];
	for (int k = 0; k < 16; k++)
		sum += sums[k];
	return sum;
}

static void ddp_step_add_scaled(float *to, const float *from, float factor)
{
	for (int i = 0; i < WIDTH; i++)
		to[i] += factor * from[i];
}

/* out = max(0, w in) */
static void ddp_step_perceptron_forward(const float *w, const float *in, float *out, size_t samples)
{
	for (size_t row = 0; row < WIDTH; row++)
		for (size_t s = 0; s < samples; s++) {
			float z = ddp_step_perceptron_dot(w + row * WIDTH, in + s * WIDTH);
			out[s * WIDTH + row] = z > 0 ? z : 0;
		}
}

/* dz is the gradient of out, and becomes that of in; dw gets the weights' added. spare is as large
 * as dz. */
struct perceptron_grads {
	float *dw, *dz, *spare;
};

static void ddp_step_perceptron_backward(const float *w, struct perceptron_grads to,
					 const float *in, const float *out, size_t samples)
{
	memset(to.spare, 0, sizeof *to.spare * WIDTH * samples);
	for (size_t row = 0; row < WIDTH; row++)
		for (size_t s = 0; s < samples; s++) {
			size_t at = s * WIDTH + row;
			float d = out[at] > 0 ? to.dz[at] : 0;
			ddp_step_add_scaled(to.dw + row * WIDTH, in + s * WIDTH, d);
			ddp_step_add_scaled(to.spare + s * WIDTH, w + row * WIDTH, d);
		}
	memcpy(to.dz, to.spare, sizeof *to.dz * WIDTH * samples);
}

/* Of the loss (out - 1)^2 / 2: its sum, and the gradient. */
static double ddp_step_perceptron_loss(const float *out, float *grad, size_t samples)
{
	double sum = 0;

	for (size_t i = 0; i < samples * WIDTH; i++) {
		grad[i] = out[i] - 1;
		sum += 0.5 * (double)(grad[i] * grad[i]);
	}
	return sum;
}

/* Zeros. */
static float *ddp_step_perceptron_floats(size_t count)
{
	float *made = calloc(count ? count : 1, sizeof *made);

	MUST(made ? TUTTI_OK
		  : tutti_set_error(TUTTI_ERR_MEMORY, "There is no memory for activations."));
	return made;
}

static void ddp_step_perceptron_work_create(struct perceptron_work *w, size_t samples)
{
	for (int l = 1; l < LAYERS; l++)
		w->hidden[l] = ddp_step_perceptron_floats(samples * WIDTH);
	w->dz = ddp_step_perceptron_floats(samples * WIDTH);
	w->spare = ddp_step_perceptron_floats(samples * WIDTH);
}

static void ddp_step_perceptron_work_destroy(struct perceptron_work *w)
{
	for (int l = 1; l < LAYERS; l++)
		free(w->hidden[l]);
	free(w->dz);
	free(w->spare);
}

/* Of layer l, which becomes the next one's input; of the last one outputs. */
static float *ddp_step_perceptron_output(struct perceptron_work *w, int l, float *outputs)
{
	float *out = l + 1 < LAYERS ? w->hidden[l + 1] : outputs;

	w->x[l + 1] = out;
	return out;
}

/* One step of a trainer, from inputs to outputs; the sum of the losses. */
static double ddp_step_perceptron_step(tutti_trainer *trainer, const tutti_optimizer *optimizer,
				       struct perceptron_work *w, const float *inputs,
				       float *outputs, size_t samples)
{
	double sum;

	MUST(tutti_micro_batch(trainer, TUTTI_PASS_LAST, (double)samples, NULL));
	w->x[0] = inputs;
	for (int l = 0; l < LAYERS; l++) {
		MUST(tutti_forward_begin(trainer, l));
		ddp_step_perceptron_forward(tutti_param_data(trainer, l), w->x[l],
					    ddp_step_perceptron_output(w, l, outputs), samples);
		MUST(tutti_forward_end(trainer, l));
	}
	sum = ddp_step_perceptron_loss(outputs, w->dz, samples);
	for (int l = LAYERS - 1; l >= 0; l--) {
		MUST(tutti_backward_begin(trainer, l));
		ddp_step_perceptron_backward(
			tutti_param_data(trainer, l),
			(struct perceptron_grads){tutti_param_grad(trainer, l), w->dz, w->spare},
			w->x[l], w->x[l + 1], samples);
		MUST(tutti_backward_end(trainer, l));
	}
	MUST(tutti_step(trainer, optimizer, 1, NULL));
	return sum;
}

static tutti_trainer *ddp_step_perceptron_trainer(tutti_comm *comm)
{
	const tutti_train_config config = {.strategy = TUTTI_DDP};
	tutti_trainer *trainer;
	tutti_model *model = ddp_step_perceptron_model();

	MUST(model ? TUTTI_OK : TUTTI_ERR_MEMORY);
	MUST(tutti_trainer_create(&trainer, model, comm, &config));
	tutti_model_destroy(model);
	MUST(ddp_step_perceptron_init(trainer));
	return trainer;
}

/* ---- steps that are compared */

enum { ALONE, WIRE, TOGETHER, WAYS };

struct compared {
	const struct options *options;
	tutti_comm *comm;
	tutti_trainer *trainers[WAYS]; /* of WIRE none */
	struct perceptron_work work;
	float *gradients, *inputs, *outputs;
};

/* Milliseconds, of the slowest rank. */
static double ms[WAYS][MEASURE_ROUNDS];

static void ddp_step_measure(void *arg, int way, int round)
{
	const tutti_optimizer sgd = {.kind = TUTTI_SGD, .lr = 1e-4f};
	struct compared *at = arg;

	MUST(tutti_barrier(at->comm, NULL));
	double took = measure_seconds(CLOCK_MONOTONIC);
	if (way == WIRE)
		MUST(tutti_all_reduce(at->gradients, at->gradients, PARAMS, TUTTI_F32, TUTTI_AVG,
				      at->comm, NULL));
	else
		ddp_step_perceptron_step(at->trainers[way], &sgd, &at->work, at->inputs,
					 at->outputs, (size_t)at->options->samples);
	took = (measure_seconds(CLOCK_MONOTONIC) - took) * 1e3;
	MUST(tutti_all_reduce(&took, &took, 1, TUTTI_F64, TUTTI_MAX, at->comm, NULL));
	if (round >= 0)
		ms[way][round] = took;
}

static void ddp_step_report(const struct compared *at)
{
	static double ratio[MEASURE_ROUNDS];
	int n = at->options->rounds;

	for (int i = 0; i < n; i++)
		ratio[i] = ms[TOGETHER][i] / (ms[ALONE][i] + ms[WIRE][i]);
	double middle = measure_median(ratio, n), low = ratio[n / 4], high = ratio[n - 1 - n / 4];
	if (tutti_rank(at->comm) != 0)
		return;
	printf("# %d ranks, %d busy processes, %d samples, %d rounds; medians, ms\n",
	       tutti_size(at->comm), at->options->load, at->options->samples, n);
	printf("# %10s %10s %10s   ddp / (alone + wire)\n", "alone", "wire", "ddp");
	printf("  %10.2f %10.2f %10.2f   %.2f (%.2f-%.2f)\n", measure_median(ms[ALONE], n),
	       measure_median(ms[WIRE], n), measure_median(ms[TOGETHER], n), middle, low, high);
}

static int ddp_step_compare(const struct options *o)
{
	const tutti_config one = {.world_size = 1};
	size_t samples = (size_t)o->samples;
	struct compared at = {.options = o};
	struct load load = {0};
	tutti_comm *alone;

	MUST(tutti_init(&at.comm, NULL));
	MUST(tutti_init(&alone, &one));
	at.trainers[ALONE] = ddp_step_perceptron_trainer(alone);
	at.trainers[TOGETHER] = ddp_step_perceptron_trainer(at.comm);
	at.gradients = ddp_step_perceptron_floats(PARAMS);
	at.inputs = ddp_step_perceptron_floats(samples * WIDTH);
	at.outputs = ddp_step_perceptron_floats(samples * WIDTH);
	ddp_step_perceptron_work_create(&at.work, samples);
	ddp_step_perceptron_fill(at.inputs, 0, samples);
	if (tutti_local_rank(at.comm) == 0 && !load_start(&load, o->load))
		return 3;
	measure_turns(o->rounds, WAYS, ddp_step_measure, &at);
	ddp_step_report(&at);
	load_stop(&load);
	tutti_trainer_destroy(at.trainers[ALONE]);
	tutti_trainer_destroy(at.trainers[TOGETHER]);
	ddp_step_perceptron_work_destroy(&at.work);
	free(at.gradients);
	free(at.inputs);
	free(at.outputs);
	tutti_comm_destroy(alone);
	tutti_comm_destroy(at.comm);
	return 0;
}

/* ---- training: the functions of a replica */

static tutti_status ddp_step_replica_forward(tutti_replica *r)
{
	struct perceptron_work *w = (struct perceptron_work *)r->arg + r->index;

	w->x[0] = r->inputs;
	for (int l = 0; l < LAYERS; l++)
		ddp_step_perceptron_forward(tutti_replica_param(r, l), w->x[l],
					    ddp_step_perceptron_output(w, l, r->outputs), r->items);
	return TUTTI_OK;
}

static tutti_status ddp_step_replica_loss(tutti_replica *r)
{
	r->loss = ddp_step_perceptron_loss(r->outputs, r->output_grads, r->items);
	return TUTTI_OK;
}

static tutti_status ddp_step_replica_backward(tutti_replica *r)
{
	struct perceptron_work *w = (struct perceptron_work *)r->arg + r->index;
	tutti_status status = TUTTI_OK;

	memcpy(w->dz, r->output_grads, r->items * WIDTH * sizeof *w->dz);
	for (int l = LAYERS - 1; l >= 0 && status == TUTTI_OK; l--) {
		ddp_step_perceptron_backward(
			tutti_replica_param(r, l),
			(struct perceptron_grads){tutti_replica_grad(r, l), w->dz, w->spare},
			w->x[l], w->x[l + 1], r->items);
		status = tutti_replica_grad_ready(r, l);
	}
	return status;
}

/* ---- training: the ways */

/* One way's training. */
struct training {
	struct options options;
	tutti_comm *comms[REPLICAS_MAX];
	tutti_trainer *trainer;  /* DDP */
	tutti_data_parallel *dp; /* else */
	struct perceptron_work work[REPLICAS_MAX];
	float *inputs, *outputs; /* of this process */
	size_t first, items;     /* its samples of each batch */
	int rank;
};

static tutti_status ddp_step_replica_init(tutti_trainer *trainer, int replica, void *arg)
{
	(void)replica;
	(void)arg;
	return ddp_step_perceptron_init(trainer);
}

static const tutti_optimizer adamw = {
	.kind = TUTTI_ADAMW, .lr = 1e-4f, .beta1 = 0.9f, .beta2 = 0.99f, .eps = 1e-8f};

static void ddp_step_train_replicas(struct training *t)
{
	const struct options *o = &t->options;
	tutti_data_parallel_config config = {.model = ddp_step_perceptron_model(),
					     .forward = ddp_step_replica_forward,
					     .loss = ddp_step_replica_loss,
					     .backward = ddp_step_replica_backward,
					     .arg = t->work,
					     .input_bytes = WIDTH * sizeof(float),
					     .output_count = WIDTH,
					     .share_params = o->way == SHARE_PARAMS};

	MUST(config.model ? TUTTI_OK : TUTTI_ERR_MEMORY);
	MUST(tutti_init_all(t->comms, o->replicas, NULL));
	MUST(o->way == MIRRORED
		     ? tutti_mirrored_create(&t->dp, t->comms, o->replicas, &config)
		     : tutti_data_parallel_create(&t->dp, t->comms, o->replicas, &config));
	tutti_model_destroy(config.model);
	MUST(tutti_data_parallel_run(t->dp, ddp_step_replica_init, NULL));
}

static void ddp_step_train_begin(struct training *t)
{
	struct options *o = &t->options;
	size_t batch = (size_t)o->batch;

	t->items = batch;
	if (o->way == DDP) {
		o->replicas = 1;
		MUST(tutti_init(&t->comms[0], NULL));
		size_t rank = (size_t)tutti_rank(t->comms[0]),
		       size = (size_t)tutti_size(t->comms[0]);
		t->rank = (int)rank;
		t->first = batch * rank / size;
		t->items = batch * (rank + 1) / size - t->first;
		t->trainer = ddp_step_perceptron_trainer(t->comms[0]);
	} else {
		ddp_step_train_replicas(t);
	}
	for (int r = 0; r < o->replicas; r++) /* a replica has at most so many */
		ddp_step_perceptron_work_create(&t->work[r], t->items / (size_t)o->replicas + 1);
	t->inputs = ddp_step_perceptron_floats(t->items * WIDTH);
	t->outputs = ddp_step_perceptron_floats(t->items * WIDTH);
}

static void ddp_step_train_end(struct training *t)
{
	tutti_data_parallel_destroy(t->dp);
	tutti_trainer_destroy(t->trainer);
	for (int r = 0; r < t->options.replicas; r++) {
		tutti_comm_destroy(t->comms[r]);
		ddp_step_perceptron_work_destroy(&t->work[r]);
	}
	free(t->inputs);
	free(t->outputs);
}

static double ddp_step_train_ddp(struct training *t)
{
	double items = (double)t->items, sum;

	sum = ddp_step_perceptron_step(t->trainer, &adamw, &t->work[0], t->inputs, t->outputs,
				       t->items);
	MUST(tutti_means(t->trainer, &sum, &items, &sum, 1));
	return sum;
}

/* Returns the mean loss. */
static double ddp_step_train_once(struct training *t)
{
	tutti_data_parallel_info info;
	const tutti_data_parallel_batch batch = {
		.inputs = t->inputs, .items = t->items, .outputs = t->outputs};

	if (t->trainer)
		return ddp_step_train_ddp(t);
	MUST(tutti_data_parallel_step(t->dp, &batch, &adamw, 1, &info));
	return info.loss;
}

static double ddp_step_waited(const struct training *t)
{
	tutti_train_stats stats;

	MUST(t->trainer ? tutti_trainer_stats(t->trainer, &stats)
			: tutti_data_parallel_stats(t->dp, 0, &stats));
	return stats.exposed_seconds;
}

/* The first step touches memory for the first time, and has a line of its own. */
static void ddp_step_train_all(struct training *t)
{
	const struct options *o = &t->options;
	double since = measure_seconds(CLOCK_MONOTONIC), waited_since = ddp_step_waited(t);
	int steps = 0;

	for (int s = 0; s < o->steps; s++) {
		ddp_step_perceptron_fill(t->inputs, (size_t)s * (size_t)o->batch + t->first,
					 t->items);
		double mean = ddp_step_train_once(t);
		steps++;
		if (s > 0 && s + 1 < o->steps)
			continue;
		double now = measure_seconds(CLOCK_MONOTONIC), waited_now = ddp_step_waited(t);
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

static int ddp_step_train(const struct options *o)
{
	static struct training training;

	training.options = *o;
	ddp_step_train_begin(&training);
	ddp_step_train_all(&training);
	ddp_step_train_end(&training);
	return 0;
}

/* What was not given. */
static void ddp_step_fill_in(struct options *o)
{
	o->rounds = o->rounds ? o->rounds : 20;
	o->samples = o->samples ? o->samples : 8;
	o->replicas = o->replicas ? o->replicas : 2;
	o->batch = o->batch ? o->batch : 16;
	o->steps = o->steps ? o->steps : 21;
}

static int ddp_step_take_part(int argc, char **argv)
{
	struct options o = {0};
	int code = line_parse(&ddp_step_line, &o, argc, argv);

	if (code >= 0)
		return code;
	if (o.way == COMPARED && (o.replicas || o.batch || o.steps))
		return line_wrong("--replicas, --batch and --steps are of training: give --way.");
	if (o.way != COMPARED && (o.rounds || o.samples || o.load))
		return line_wrong("--rounds, --samples and --load are of a comparison, which goes "
				  "without --way.");
	ddp_step_fill_in(&o);
	code = o.way == COMPARED ? ddp_step_compare(&o) : ddp_step_train(&o);
	output_flush();
	return output_is_well() ? code : 3;
}

int main(int argc, char **argv)
{
	return output_open() ? tutti_main(argc, argv, ddp_step_take_part) : 3;
}
