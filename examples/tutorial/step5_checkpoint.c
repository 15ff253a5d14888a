/* Step 5 of docs/tutorial.md: checkpoints. A job that is started again continues from the last. */
#include <math.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tutti/train.h>

#define MUST(call)                                                                                 \
	((call) == TUTTI_OK ? (void)0 : (fprintf(stderr, "%s\n", tutti_comm_error(NULL)), exit(1)))
enum { HIDDEN = 32, BATCH = 64, STEPS = 400, IN = 3 * HIDDEN, OUT = HIDDEN + 1 };

static float params[IN + OUT]; /* as they begin */
static float x[BATCH], y[BATCH], z[BATCH], hidden[BATCH][HIDDEN], error[BATCH];

/* The same number for the same seed and index, in [-1, 1]. */
static float uniform(uint32_t seed, uint32_t index)
{
	uint32_t hash = seed * 2654435761u + index;

	hash = (hash ^ (hash >> 16)) * 2246822519u;
	hash = (hash ^ (hash >> 13)) * 3266489917u;
	return (float)((hash ^ (hash >> 16)) >> 8) / 8388608.0f - 1;
}

static void init(void)
{
	for (uint32_t i = 0; i < IN; i++)
		params[i] = 2 * uniform(1, i);
	for (uint32_t i = 0; i < OUT; i++)
		params[IN + i] = 0.3f * uniform(2, i);
}

/* Samples first .. first + n - 1 of an endless data set. */
static void load(int first, int n)
{
	for (int i = 0; i < n; i++) {
		x[i] = uniform(3, (uint32_t)(first + i));
		y[i] = uniform(4, (uint32_t)(first + i));
		z[i] = sinf(3 * x[i]) * cosf(2 * y[i]);
	}
}

static void forward_in(const float *w, int n)
{
	for (int i = 0; i < n; i++)
		for (int h = 0; h < HIDDEN; h++)
			hidden[i][h] = tanhf(w[3 * h] * x[i] + w[3 * h + 1] * y[i] + w[3 * h + 2]);
}

/* Returns the sum of the squared errors. */
static double forward_out(const float *w, int n)
{
	double loss = 0;

	for (int i = 0; i < n; i++) {
		error[i] = w[HIDDEN] - z[i];
		for (int h = 0; h < HIDDEN; h++)
			error[i] += w[h] * hidden[i][h];
		loss += (double)(error[i] * error[i]);
	}
	return loss;
}

/* Adds the gradient of the sum; hidden becomes the gradient of what tanhf got. */
static void backward_out(const float *w, float *grad, int n)
{
	for (int i = 0; i < n; i++) {
		grad[HIDDEN] += 2 * error[i];
		for (int h = 0; h < HIDDEN; h++) {
			grad[h] += 2 * error[i] * hidden[i][h];
			hidden[i][h] = 2 * error[i] * w[h] * (1 - hidden[i][h] * hidden[i][h]);
		}
	}
}

static void backward_in(float *grad, int n)
{
	for (int i = 0; i < n; i++)
		for (int h = 0; h < HIDDEN; h++) {
			grad[3 * h] += hidden[i][h] * x[i];
			grad[3 * h + 1] += hidden[i][h] * y[i];
			grad[3 * h + 2] += hidden[i][h];
		}
}

/* Two units of one parameter each; both are numbered 0 and 1, in the order of forward. */
static tutti_trainer *describe(tutti_comm *comm)
{
	/* A bucket for each layer: this network is far smaller than the usual bucket. */
	const tutti_train_config config = {.strategy = TUTTI_FSDP, .bucket_bytes = 1};
	const int64_t counts[] = {IN, OUT};
	const char *names[] = {"in", "out"};
	tutti_model *model;
	tutti_trainer *trainer;

	MUST(tutti_model_create(&model));
	for (int i = 0; i < 2; i++) {
		int unit = tutti_model_unit(model, names[i]);
		int param = tutti_model_param(model, unit, names[i], 1, &counts[i], 0);
		MUST(param == i ? TUTTI_OK : TUTTI_ERR_INVALID);
	}
	MUST(tutti_trainer_create(&trainer, model, comm, &config));
	tutti_model_destroy(model);
	MUST(tutti_param_write(trainer, 0, 0, IN, params));
	MUST(tutti_param_write(trainer, 1, 0, OUT, params + IN));
	return trainer;
}

/* One step over n samples: returns the mean loss of all ranks' samples. */
static double learn(tutti_trainer *trainer, int n)
{
	const tutti_optimizer sgd = {.kind = TUTTI_SGD, .lr = 0.1f};
	double items = n;

	MUST(tutti_micro_batch(trainer, TUTTI_PASS_LAST, items, NULL));
	MUST(tutti_forward_begin(trainer, 0));
	forward_in(tutti_param_data(trainer, 0), n);
	MUST(tutti_forward_end(trainer, 0));
	MUST(tutti_forward_begin(trainer, 1));
	double loss = forward_out(tutti_param_data(trainer, 1), n);
	MUST(tutti_forward_end(trainer, 1));
	MUST(tutti_backward_begin(trainer, 1));
	backward_out(tutti_param_data(trainer, 1), tutti_param_grad(trainer, 1), n);
	MUST(tutti_backward_end(trainer, 1));
	MUST(tutti_backward_begin(trainer, 0));
	backward_in(tutti_param_grad(trainer, 0), n);
	MUST(tutti_backward_end(trainer, 0));
	MUST(tutti_step(trainer, &sgd, 1, NULL));
	MUST(tutti_means(trainer, &loss, &items, &loss, 1));
	return loss;
}

/* dies: the last rank is killed at step 220 of a training that began at step 0. */
static void train(tutti_comm *comm, int dies)
{
	int rank = tutti_rank(comm), size = tutti_size(comm);
	int first = BATCH * rank / size, last = BATCH * (rank + 1) / size;
	int64_t begin;

	init();
	tutti_trainer *trainer = describe(comm);
	MUST(tutti_load(trainer, "checkpoints", &begin));
	begin = begin < 0 ? 0 : begin; /* -1: there is no checkpoint */
	if (rank == 0)
		printf("begins at step %d\n", (int)begin);
	for (int step = (int)begin; step < STEPS; step++) {
		if (dies && begin == 0 && step == 220 && rank == size - 1)
			raise(SIGKILL);
		load(step * BATCH + first, last - first);
		double loss = learn(trainer, last - first);
		if (rank == 0 && step % 100 == 99)
			printf("step %3d  loss %.3f\n", step + 1, loss);
		if (step % 100 == 99)
			MUST(tutti_save(trainer, "checkpoints", step + 1));
	}
	MUST(tutti_save_wait(trainer));
	tutti_trainer_destroy(trainer);
}

static int work(int argc, char **argv)
{
	tutti_comm *comm;

	setvbuf(stdout, NULL, _IOLBF, 0); /* a line is written before the rank can be ended */
	MUST(tutti_init(&comm, NULL));
	train(comm, argc > 1 && strcmp(argv[1], "die") == 0);
	tutti_comm_destroy(comm);
	return 0;
}

int main(int argc, char **argv)
{
	return tutti_main(argc, argv, work); /* with --ranks N: N of them */
}
