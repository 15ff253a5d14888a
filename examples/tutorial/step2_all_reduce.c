/* Step 2 of docs/tutorial.md: the ranks share each batch, and add their gradients. */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tutti/tutti.h>

#define MUST(call)                                                                                 \
	((call) == TUTTI_OK ? (void)0 : (fprintf(stderr, "%s\n", tutti_comm_error(NULL)), exit(1)))
enum { HIDDEN = 32, BATCH = 64, STEPS = 400, IN = 3 * HIDDEN, OUT = HIDDEN + 1 };

static float params[IN + OUT], grads[IN + OUT];
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

/* One step over n samples: returns the sum of all ranks' losses. */
static double learn(tutti_comm *comm, int n)
{
	memset(grads, 0, sizeof grads);
	forward_in(params, n);
	double loss = forward_out(params + IN, n);
	backward_out(params + IN, grads + IN, n);
	backward_in(grads, n);
	MUST(tutti_all_reduce(grads, grads, IN + OUT, TUTTI_F32, TUTTI_SUM, comm, NULL));
	MUST(tutti_all_reduce(&loss, &loss, 1, TUTTI_F64, TUTTI_SUM, comm, NULL));
	for (int i = 0; i < IN + OUT; i++)
		params[i] -= 0.1f / BATCH * grads[i];
	return loss;
}

static int work(int argc, char **argv)
{
	tutti_comm *comm;

	(void)argc, (void)argv;
	MUST(tutti_init(&comm, NULL));
	int rank = tutti_rank(comm), size = tutti_size(comm);
	int first = BATCH * rank / size, last = BATCH * (rank + 1) / size;

	init();
	for (int step = 0; step < STEPS; step++) {
		load(step * BATCH + first, last - first);
		double loss = learn(comm, last - first);
		if (rank == 0 && step % 100 == 99)
			printf("step %3d  loss %.3f\n", step + 1, loss / BATCH);
	}
	tutti_comm_destroy(comm);
	return 0;
}

int main(int argc, char **argv)
{
	return tutti_main(argc, argv, work); /* with --ranks N: N of them */
}
