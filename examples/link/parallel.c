/* An ordinary trainer for one process: a small network learns z = sin(3x) cos(2y). parallel.c is
 * the same program for any number of processes; diff serial.c parallel.c shows what that takes. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tutti/tutti.h>

#define MUST(call)                                                                                 \
	((call) == TUTTI_OK ? (void)0 : (fprintf(stderr, "%s\n", tutti_comm_error(NULL)), exit(1)))
enum { HIDDEN = 32, BATCH = 64, STEPS = 400 };

struct network {
	float in[HIDDEN][2], in_bias[HIDDEN], out[HIDDEN], out_bias;
};

struct sample {
	float x, y, z;
};

static struct network net, grad;
static struct sample batch[BATCH];

/* The same number for the same seed and index, in [-1, 1]. */
static float uniform(unsigned seed, unsigned index)
{
	unsigned hash = seed * 2654435761u + index;

	hash = (hash ^ (hash >> 16)) * 2246822519u;
	hash = (hash ^ (hash >> 13)) * 3266489917u;
	return (float)((hash ^ (hash >> 16)) >> 8) / 8388608.0f - 1;
}

static void init(void)
{
	for (unsigned h = 0; h < HIDDEN; h++) {
		net.in[h][0] = 2 * uniform(1, h);
		net.in[h][1] = 2 * uniform(2, h);
		net.in_bias[h] = uniform(3, h);
		net.out[h] = 0.3f * uniform(4, h);
	}
}

/* Samples first .. first + n - 1 of an endless data set. */
static void load(int first, int n)
{
	for (int i = 0; i < n; i++) {
		struct sample *s = &batch[i];
		s->x = uniform(5, (unsigned)(first + i));
		s->y = uniform(6, (unsigned)(first + i));
		s->z = sinf(3 * s->x) * cosf(2 * s->y);
	}
}

/* One sample's error; adds weight times its gradient. */
static float learn(const struct sample *s, float weight)
{
	float hidden[HIDDEN], z = net.out_bias;

	for (int h = 0; h < HIDDEN; h++) {
		hidden[h] = tanhf(net.in[h][0] * s->x + net.in[h][1] * s->y + net.in_bias[h]);
		z += net.out[h] * hidden[h];
	}
	float error = z - s->z, dz = 2 * error * weight;
	grad.out_bias += dz;
	for (int h = 0; h < HIDDEN; h++) {
		float dh = dz * net.out[h] * (1 - hidden[h] * hidden[h]);
		grad.out[h] += dz * hidden[h];
		grad.in[h][0] += dh * s->x;
		grad.in[h][1] += dh * s->y;
		grad.in_bias[h] += dh;
	}
	return error * error;
}

/* Adds n samples of a batch to its mean gradient, and returns their part of its mean loss. */
static float forward_backward(int n)
{
	float loss = 0;

	memset(&grad, 0, sizeof grad);
	for (int i = 0; i < n; i++)
		loss += learn(&batch[i], 1.0f / BATCH);
	return loss / BATCH;
}

static void update(float rate)
{
	float *x = (float *)&net, *dx = (float *)&grad;

	for (size_t i = 0; i < sizeof net / sizeof *x; i++)
		x[i] -= rate * dx[i];
}

int main(void)
{
	tutti_comm *comm = NULL;
	MUST(tutti_init(&comm, NULL));
	int rank = tutti_rank(comm), size = tutti_size(comm);
	int first = BATCH * rank / size, last = BATCH * (rank + 1) / size;

	init();
	for (int step = 0; step < STEPS; step++) {
		load(step * BATCH + first, last - first);
		float loss = forward_backward(last - first);
		MUST(tutti_all_reduce(&grad, &grad, sizeof grad / sizeof(float), TUTTI_F32,
				      TUTTI_SUM, comm, NULL));
		MUST(tutti_all_reduce(&loss, &loss, 1, TUTTI_F32, TUTTI_SUM, comm, NULL));
		update(0.1f);
		if (rank == 0 && (step % 25 == 0 || step == STEPS - 1))
			printf("step %3d  loss %.6f\n", step, (double)loss);
	}
	tutti_comm_destroy(comm);
	return 0;
}
