/* replica_step: trains the perceptron by DDP, Mirrored or DataParallel, and prints its speed as
 * examples/gpt does: perf/training runs it for its rows of replicas. */
#include "measure.h"
#include "perceptron.h"

#include "core/program/line.h"
#include "core/program/output.h"

#include <string.h>

enum { LAYERS = PERCEPTRON_LAYERS, WIDTH = PERCEPTRON_WIDTH };
enum { REPLICAS_MAX = 64, BATCH_MAX = 4096, STEPS_MAX = 1000000 };

static const char *const ways[] = {"ddp", "mirrored", "data_parallel", "share_params"};
enum way { DDP, MIRRORED, DATA_PARALLEL, SHARE_PARAMS, WAYS };

static const tutti_optimizer adamw = {
	.kind = TUTTI_ADAMW, .lr = 1e-4f, .beta1 = 0.9f, .beta2 = 0.99f, .eps = 1e-8f};

struct options {
	int ranks, way, replicas, batch, steps;
};

static bool replica_step_parse_way(const char *text, void *to)
{
	for (int way = DDP; way < WAYS; way++)
		if (strcmp(text, ways[way]) == 0) {
			*(int *)to = way;
			return true;
		}
	return false;
}

#define AT(member) .at = offsetof(struct options, member)

static const struct line_option replica_step_options[] = {
	{"ranks", 0, "N", AT(ranks), 1, 4096, NULL,
	 "of way ddp: starts N ranks of itself, without tuttirun"},
	{"way", 0, "WAY", AT(way), .parse = replica_step_parse_way,
	 .help = "ddp: one rank, under tuttirun with as many as it starts (the default);\n"
		 "mirrored, data_parallel: replicas in threads; share_params: DataParallel\n"
		 "whose replicas read the first one's parameters in place"},
	{"replicas", 0, "N", AT(replicas), 1, REPLICAS_MAX, NULL,
	 "threads, 1 to 64 (2); not with ddp"},
	{"batch", 0, "N", AT(batch), 1, BATCH_MAX, NULL,
	 "samples of a step, over all, 1 to 4096 (16)"},
	{"steps", 0, "N", AT(steps), 1, STEPS_MAX, NULL,
	 "1 to 1000000 (21); the last line is of all but the first"},
	{0},
};
static const char replica_step_about[] =
	"Trains a perceptron of 5 million parameters with AdamW, and prints samples a second.\n"
	"Exit code: 0; 2 for a line that cannot be understood; 3 when a call failed.";
static const struct line_table replica_step_line = {.options = replica_step_options,
						    .about = replica_step_about};

/* ---- the functions of a replica */

static tutti_status replica_step_forward(tutti_replica *r)
{
	struct perceptron_work *w = (struct perceptron_work *)r->arg + r->index;

	w->x[0] = r->inputs;
	for (int l = 0; l < LAYERS; l++)
		perceptron_forward(tutti_replica_param(r, l), w->x[l],
				   perceptron_output(w, l, r->outputs), r->items);
	return TUTTI_OK;
}

static tutti_status replica_step_loss(tutti_replica *r)
{
	r->loss = perceptron_loss(r->outputs, r->output_grads, r->items);
	return TUTTI_OK;
}

static tutti_status replica_step_backward(tutti_replica *r)
{
	struct perceptron_work *w = (struct perceptron_work *)r->arg + r->index;
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
	struct perceptron_work work[REPLICAS_MAX];
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
		perceptron_work_create(&t->work[r], t->items / (size_t)o->replicas + 1);
	t->inputs = perceptron_floats(t->items * WIDTH);
	t->outputs = perceptron_floats(t->items * WIDTH);
}

static void replica_step_stop(struct training *t)
{
	tutti_data_parallel_destroy(t->dp);
	tutti_trainer_destroy(t->trainer);
	for (int r = 0; r < t->options.replicas; r++) {
		tutti_comm_destroy(t->comms[r]);
		perceptron_work_destroy(&t->work[r]);
	}
	free(t->inputs);
	free(t->outputs);
}

static double replica_step_ddp(struct training *t)
{
	double items = (double)t->items, sum;

	sum = perceptron_step(t->trainer, &adamw, &t->work[0], t->inputs, t->outputs, t->items);
	MUST(tutti_means(t->trainer, &sum, &items, &sum, 1));
	return sum;
}

/* Returns the mean loss. */
static double perf_replica_step(struct training *t)
{
	tutti_data_parallel_info info;
	const tutti_data_parallel_batch batch = {
		.inputs = t->inputs, .items = t->items, .outputs = t->outputs};

	if (t->trainer)
		return replica_step_ddp(t);
	MUST(tutti_data_parallel_step(t->dp, &batch, &adamw, 1, &info));
	return info.loss;
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
	double since = measure_seconds(CLOCK_MONOTONIC), waited_since = replica_step_waited(t);
	int steps = 0;

	for (int s = 0; s < o->steps; s++) {
		perceptron_fill(t->inputs, (size_t)s * (size_t)o->batch + t->first, t->items);
		double mean = perf_replica_step(t);
		steps++;
		if (s > 0 && s + 1 < o->steps)
			continue;
		double now = measure_seconds(CLOCK_MONOTONIC), waited_now = replica_step_waited(t);
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

static int replica_step_take_part(int argc, char **argv)
{
	static struct training training;

	training.options = (struct options){.replicas = 2, .batch = 16, .steps = 21};
	int code = line_parse(&replica_step_line, &training.options, argc, argv);
	if (code >= 0)
		return code;
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
