/* Step 6 of docs/tutorial.md: the ranks that are left go on with one that is started again. */
#include <math.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tutti/train.h>

#define MUST(call)                                                                                 \
	((call) == TUTTI_OK ? (void)0 : (fprintf(stderr, "%s\n", tutti_comm_error(NULL)), exit(1)))
#define TRY(call)                                                                                  \
	do {                                                                                       \
		tutti_status status_ = (call);                                                     \
		if (status_ != TUTTI_OK)                                                           \
			return status_;                                                            \
	} while (0)
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
static tutti_status describe(tutti_trainer **trainer, tutti_comm *comm)
{
	/* Each rank keeps a copy of its left neighbour's part, too: shadow. */
	const tutti_train_config config = {.strategy = TUTTI_FSDP, .bucket_bytes = 1, .shadow = 1};
	const int64_t counts[] = {IN, OUT};
	const char *names[] = {"in", "out"};
	tutti_model *model;

	TRY(tutti_model_create(&model));
	for (int i = 0; i < 2; i++) {
		int unit = tutti_model_unit(model, names[i]);
		int param = tutti_model_param(model, unit, names[i], 1, &counts[i], 0);
		TRY(param == i ? TUTTI_OK : TUTTI_ERR_INVALID);
	}
	tutti_status status = tutti_trainer_create(trainer, model, comm, &config);
	tutti_model_destroy(model);
	TRY(status);
	TRY(tutti_param_write(*trainer, 0, 0, IN, params));
	TRY(tutti_param_write(*trainer, 1, 0, OUT, params + IN));
	return TUTTI_OK;
}

/* One step over n samples: *loss is the mean over all ranks' samples. */
static tutti_status learn(tutti_trainer *trainer, int n, double *loss)
{
	const tutti_optimizer sgd = {.kind = TUTTI_SGD, .lr = 0.1f};
	double items = n;

	TRY(tutti_micro_batch(trainer, TUTTI_PASS_LAST, items, NULL));
	TRY(tutti_forward_begin(trainer, 0));
	forward_in(tutti_param_data(trainer, 0), n);
	TRY(tutti_forward_end(trainer, 0));
	TRY(tutti_forward_begin(trainer, 1));
	*loss = forward_out(tutti_param_data(trainer, 1), n);
	TRY(tutti_forward_end(trainer, 1));
	TRY(tutti_backward_begin(trainer, 1));
	backward_out(tutti_param_data(trainer, 1), tutti_param_grad(trainer, 1), n);
	TRY(tutti_backward_end(trainer, 1));
	TRY(tutti_backward_begin(trainer, 0));
	backward_in(tutti_param_grad(trainer, 0), n);
	TRY(tutti_backward_end(trainer, 0));
	TRY(tutti_step(trainer, &sgd, 1, NULL));
	TRY(tutti_means(trainer, loss, &items, loss, 1));
	return TUTTI_OK;
}

/* A new trainer takes the place of *trainer, which is NULL on a rank that was started again. It
 * begins at the last step that any rank has finished. */
static tutti_status renew(tutti_trainer **trainer, tutti_comm *comm, int64_t *begin)
{
	tutti_trainer *next = NULL;
	tutti_status status = describe(&next, comm);

	if (status == TUTTI_OK)
		status = tutti_trainer_continue(next, *trainer, begin);
	tutti_trainer_destroy(status == TUTTI_OK ? *trainer : next);
	if (status == TUTTI_OK)
		*trainer = next;
	return status;
}

/* dies: the last rank is killed at step 220 of a training that began at step 0. */
static tutti_status train(tutti_trainer **trainer, tutti_comm *comm, int dies)
{
	int rank = tutti_rank(comm), size = tutti_size(comm);
	int first = BATCH * rank / size, last = BATCH * (rank + 1) / size;
	int64_t begin;
	double loss;

	init();
	TRY(renew(trainer, comm, &begin));
	if (begin == 0)
		TRY(tutti_load(*trainer, "checkpoints", &begin));
	begin = begin < 0 ? 0 : begin; /* -1: there is no checkpoint */
	if (rank == 0)
		printf("begins at step %d\n", (int)begin);
	for (int step = (int)begin; step < STEPS; step++) {
		if (dies && begin == 0 && step == 220 && rank == size - 1)
			raise(SIGKILL);
		load(step * BATCH + first, last - first);
		TRY(learn(*trainer, last - first, &loss));
		if (rank == 0 && step % 100 == 99)
			printf("step %3d  loss %.3f\n", step + 1, loss);
		if (step % 100 == 99)
			TRY(tutti_save(*trainer, "checkpoints", step + 1));
	}
	return tutti_save_wait(*trainer);
}

/* Another rank has died, was silent, or has heard of it first. */
static int is_others_failure(tutti_status status)
{
	return status == TUTTI_ERR_PEER || status == TUTTI_ERR_TIMEOUT ||
	       status == TUTTI_ERR_ABORTED;
}

static int work(int argc, char **argv)
{
	tutti_comm *comm;
	tutti_trainer *trainer = NULL;
	tutti_status status;

	setvbuf(stdout, NULL, _IOLBF, 0); /* a line is written before the rank can be ended */
	MUST(tutti_init(&comm, NULL));
	int size = tutti_size(comm), dies = argc > 1 && strcmp(argv[1], "die") == 0;
	while (is_others_failure(status = train(&trainer, comm, dies))) {
		MUST(tutti_recover(&comm, size));
		printf("rank %d of %d goes on\n", tutti_rank(comm), tutti_size(comm));
	}
	MUST(status);
	tutti_trainer_destroy(trainer);
	tutti_comm_destroy(comm);
	return 0;
}

int main(int argc, char **argv)
{
	return tutti_main(argc, argv, work); /* with --ranks N: N of them */
}
