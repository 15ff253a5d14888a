/* The network of docs/tutorial.md in the threads of one process: DataParallel, or with --mirrored
 * replicas that keep their parameters. docs/data-parallel.md reads it line by line. */
#include <getopt.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tutti/train.h>

#define MUST(call)                                                                                 \
	((call) == TUTTI_OK ? (void)0 : (fprintf(stderr, "%s\n", tutti_comm_error(NULL)), exit(1)))
enum { HIDDEN = 32, BATCH = 64, STEPS = 400, TESTS = 50, REPLICAS_MAX = 64 };
enum { IN, OUT, PARAMS }; /* the parameters */
static const int64_t counts[PARAMS] = {3 * HIDDEN, HIDDEN + 1};

/* A batch's items. All replicas use these arrays, each its own items of them. */
static float points[BATCH][2], targets[BATCH], hidden[BATCH][HIDDEN];

/* The same number for the same seed and index, in [-1, 1]. */
static float data_parallel_uniform(uint32_t seed, uint32_t index)
{
	uint32_t hash = seed * 2654435761u + index;

	hash = (hash ^ (hash >> 16)) * 2246822519u;
	hash = (hash ^ (hash >> 13)) * 3266489917u;
	return (float)((hash ^ (hash >> 16)) >> 8) / 8388608.0f - 1;
}

/* Samples first .. first + n - 1 of an endless data set. */
static void data_parallel_load(int first, int n)
{
	for (int i = 0; i < n; i++) {
		points[i][0] = data_parallel_uniform(3, (uint32_t)(first + i));
		points[i][1] = data_parallel_uniform(4, (uint32_t)(first + i));
		targets[i] = sinf(3 * points[i][0]) * cosf(2 * points[i][1]);
	}
}

/* One output an item. */
static tutti_status data_parallel_forward(tutti_replica *r)
{
	const float *in = tutti_replica_param(r, IN), *out = tutti_replica_param(r, OUT);
	const float(*point)[2] = r->inputs;

	for (size_t i = 0; i < r->items; i++) {
		float *h = hidden[r->first + i];
		r->outputs[i] = out[HIDDEN];
		for (int k = 0; k < HIDDEN; k++) {
			h[k] = tanhf(in[3 * k] * point[i][0] + in[3 * k + 1] * point[i][1] +
				     in[3 * k + 2]);
			r->outputs[i] += out[k] * h[k];
		}
	}
	return TUTTI_OK;
}

/* The sum of squared errors, and its gradient. */
static tutti_status data_parallel_loss(tutti_replica *r)
{
	const float *target = r->targets;

	r->loss = 0;
	for (size_t i = 0; i < r->items; i++) {
		float error = r->outputs[i] - target[i];
		r->loss += (double)(error * error);
		r->output_grads[i] = 2 * error;
	}
	return TUTTI_OK;
}

static tutti_status data_parallel_backward(tutti_replica *r)
{
	const float *out = tutti_replica_param(r, OUT);
	float *in_grad = tutti_replica_grad(r, IN), *out_grad = tutti_replica_grad(r, OUT);
	const float(*point)[2] = r->inputs;

	for (size_t i = 0; i < r->items; i++) {
		const float *h = hidden[r->first + i], d = r->output_grads[i];
		out_grad[HIDDEN] += d;
		for (int k = 0; k < HIDDEN; k++) {
			float dz = d * out[k] * (1 - h[k] * h[k]);
			out_grad[k] += d * h[k];
			in_grad[3 * k] += dz * point[i][0];
			in_grad[3 * k + 1] += dz * point[i][1];
			in_grad[3 * k + 2] += dz;
		}
	}
	return TUTTI_OK;
}

/* First values, in each thread that has parameters of its own. */
static tutti_status data_parallel_init(tutti_trainer *trainer, int replica, void *arg)
{
	float values[3 * HIDDEN] = {0};

	(void)replica;
	(void)arg;
	for (uint32_t i = 0; i < 3 * HIDDEN; i++)
		values[i] = 2 * data_parallel_uniform(1, i);
	tutti_status status = tutti_param_write(trainer, IN, 0, 3 * HIDDEN, values);
	if (status != TUTTI_OK)
		return status;
	for (uint32_t i = 0; i < HIDDEN + 1; i++)
		values[i] = 0.3f * data_parallel_uniform(2, i);
	return tutti_param_write(trainer, OUT, 0, HIDDEN + 1, values);
}

static tutti_data_parallel *data_parallel_make(tutti_comm *const *comms, int replicas,
					       int is_mirrored)
{
	tutti_data_parallel *dp;
	tutti_data_parallel_config config = {.forward = data_parallel_forward,
					     .loss = data_parallel_loss,
					     .backward = data_parallel_backward,
					     .input_bytes = sizeof points[0],
					     .target_bytes = sizeof targets[0],
					     .output_count = 1};

	MUST(tutti_model_create(&config.model));
	for (int p = IN; p < PARAMS; p++) {
		const char *name = p == IN ? "in" : "out";
		int unit = tutti_model_unit(config.model, name);
		int param = tutti_model_param(config.model, unit, name, 1, &counts[p], 0);
		MUST(param == p ? TUTTI_OK : TUTTI_ERR_INVALID);
	}
	MUST(is_mirrored ? tutti_mirrored_create(&dp, comms, replicas, &config)
			 : tutti_data_parallel_create(&dp, comms, replicas, &config));
	tutti_model_destroy(config.model);
	MUST(tutti_data_parallel_run(dp, data_parallel_init, NULL));
	return dp;
}

static void data_parallel_train(tutti_data_parallel *dp)
{
	const tutti_optimizer sgd = {.kind = TUTTI_SGD, .lr = 0.1f};
	const tutti_data_parallel_batch batch = {
		.inputs = points, .targets = targets, .items = BATCH};
	tutti_data_parallel_info info;

	for (int step = 0; step < STEPS; step++) {
		data_parallel_load(step * BATCH, BATCH);
		MUST(tutti_data_parallel_step(dp, &batch, &sgd, 1, &info));
		if (step % 100 == 99)
			printf("step %3d  loss %.3f\n", step + 1, info.loss);
	}
}

/* Predictions for samples that were not trained on. */
static void data_parallel_test(tutti_data_parallel *dp)
{
	float outputs[TESTS];
	const tutti_data_parallel_batch batch = {
		.inputs = points, .items = TESTS, .outputs = outputs};
	double sum = 0;

	data_parallel_load(STEPS * BATCH, TESTS);
	MUST(tutti_data_parallel_forward(dp, &batch));
	for (int i = 0; i < TESTS; i++)
		sum += (double)((outputs[i] - targets[i]) * (outputs[i] - targets[i]));
	printf("%d other samples  loss %.3f\n", TESTS, sum / TESTS);
}

static int replicas_of(const char *text)
{
	char *end;
	long value = strtol(text, &end, 10);

	if (*end || value < 1 || value > REPLICAS_MAX) {
		fprintf(stderr, "data_parallel: --replicas is '%s'; it is 1 to %d.\n", text,
			REPLICAS_MAX);
		exit(2);
	}
	return (int)value;
}

int main(int argc, char **argv)
{
	static const struct option options[] = {{"replicas", required_argument, NULL, 'r'},
						{"mirrored", no_argument, NULL, 'm'},
						{0}};
	tutti_comm *comms[REPLICAS_MAX];
	int replicas = 2, is_mirrored = 0;

	bool is_wrong = false;
	for (int c; (c = getopt_long(argc, argv, "", options, NULL)) != -1;) {
		is_wrong = is_wrong || c == '?';
		is_mirrored = is_mirrored || c == 'm';
		replicas = c == 'r' ? replicas_of(optarg) : replicas;
	}
	if (is_wrong || optind < argc) {
		fprintf(stderr, "usage: data_parallel [--replicas N] [--mirrored]\n");
		return 2;
	}
	MUST(tutti_init_all(comms, replicas, NULL));
	tutti_data_parallel *dp = data_parallel_make(comms, replicas, is_mirrored);
	data_parallel_train(dp);
	data_parallel_test(dp);
	tutti_data_parallel_destroy(dp);
	for (int r = 0; r < replicas; r++)
		tutti_comm_destroy(comms[r]);
	return fflush(stdout) == 0 && !ferror(stdout) ? 0 : 3;
}
