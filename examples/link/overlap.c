/* serial.c's network with the training layer: its memory stays where it is, and each layer's
 * gradients travel while the next layer's are computed. Any number of processes; --zero1 shards the
 * optimizer's state, which no line below sees. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tutti/train.h>

#define MUST(call)                                                                                 \
	((call) == TUTTI_OK ? (void)0 : (fprintf(stderr, "%s\n", tutti_comm_error(NULL)), exit(1)))
enum { HIDDEN = 32, BATCH = 64, STEPS = 400, HIDDEN_LAYER = 0, OUT_LAYER = 1 };

struct network {
	float in[HIDDEN][2], in_bias[HIDDEN], out[HIDDEN], out_bias;
};

struct sample {
	float x, y, z, hidden[HIDDEN], dz;
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

static double forward(int n)
{
	double loss = 0;

	for (int i = 0; i < n; i++) {
		struct sample *s = &batch[i];
		float z = net.out_bias;
		for (int h = 0; h < HIDDEN; h++) {
			s->hidden[h] =
				tanhf(net.in[h][0] * s->x + net.in[h][1] * s->y + net.in_bias[h]);
			z += net.out[h] * s->hidden[h];
		}
		loss += (double)((z - s->z) * (z - s->z));
		s->dz = 2 * (z - s->z);
	}
	return loss;
}

/* Gradients are sums over samples: the trainer divides them by the samples of all processes. */
static void backward_out(int n)
{
	for (int i = 0; i < n; i++) {
		grad.out_bias += batch[i].dz;
		for (int h = 0; h < HIDDEN; h++)
			grad.out[h] += batch[i].dz * batch[i].hidden[h];
	}
}

static void backward_hidden(int n)
{
	for (int i = 0; i < n; i++) {
		const struct sample *s = &batch[i];
		for (int h = 0; h < HIDDEN; h++) {
			float dh = s->dz * net.out[h] * (1 - s->hidden[h] * s->hidden[h]);
			grad.in[h][0] += dh * s->x;
			grad.in[h][1] += dh * s->y;
			grad.in_bias[h] += dh;
		}
	}
}

static int layer(tutti_model *model, const char *name)
{
	int unit = tutti_model_unit(model, name);
	MUST(unit < 0 ? TUTTI_ERR_INVALID : TUTTI_OK);
	return unit;
}

static void values(tutti_model *model, int unit, const char *name, int64_t count, float *data,
		   float *gradient)
{
	int param = tutti_model_param_extern(model, unit, name, 1, &count, TUTTI_F32, data,
					     gradient, 0);
	MUST(param < 0 ? TUTTI_ERR_INVALID : TUTTI_OK);
}

/* Where the network's memory is, layer by layer. */
static tutti_trainer *describe(tutti_comm *comm, tutti_strategy strategy)
{
	/* A bucket for each layer: this network is far smaller than the usual bucket. */
	const tutti_train_config config = {.strategy = strategy, .bucket_bytes = 1};
	tutti_model *model;
	tutti_trainer *trainer;

	MUST(tutti_model_create(&model));
	int hidden = layer(model, "hidden"), out = layer(model, "out");
	values(model, hidden, "in", 2 * HIDDEN, &net.in[0][0], &grad.in[0][0]);
	values(model, hidden, "in_bias", HIDDEN, net.in_bias, grad.in_bias);
	values(model, out, "out", HIDDEN, net.out, grad.out);
	values(model, out, "out_bias", 1, &net.out_bias, &grad.out_bias);
	MUST(tutti_trainer_create(&trainer, model, comm, &config));
	tutti_model_destroy(model);
	return trainer;
}

static void pass(tutti_trainer *trainer, int unit, void (*compute)(int), int n)
{
	MUST(tutti_backward_begin(trainer, unit));
	compute(n);
	MUST(tutti_backward_end(trainer, unit)); /* the layer's gradients are on their way */
}

static double learn(tutti_trainer *trainer, int n)
{
	MUST(tutti_micro_batch(trainer, TUTTI_PASS_LAST, n, NULL));
	for (int unit = HIDDEN_LAYER; unit <= OUT_LAYER; unit++) {
		MUST(tutti_forward_begin(trainer, unit));
		MUST(tutti_forward_end(trainer, unit));
	}
	double loss = forward(n);
	pass(trainer, OUT_LAYER, backward_out, n);
	pass(trainer, HIDDEN_LAYER, backward_hidden, n);
	MUST(tutti_step(trainer, &(tutti_optimizer){.kind = TUTTI_SGD, .lr = 0.1f}, 1, NULL));
	return loss;
}

static int work(int argc, char **argv)
{
	int shards = argc > 1 && strcmp(argv[1], "--zero1") == 0;
	tutti_comm *comm = NULL;

	MUST(tutti_init(&comm, NULL));
	int rank = tutti_rank(comm), size = tutti_size(comm);
	int first = BATCH * rank / size, last = BATCH * (rank + 1) / size;

	init();
	tutti_trainer *trainer = describe(comm, shards ? TUTTI_ZERO1 : TUTTI_DDP);
	for (int step = 0; step < STEPS; step++) {
		load(step * BATCH + first, last - first);
		double items = last - first, loss = learn(trainer, last - first);
		MUST(tutti_means(trainer, &loss, &items, &loss, 1));
		if (rank == 0 && (step % 25 == 0 || step == STEPS - 1))
			printf("step %3d  loss %.6f\n", step, loss);
	}
	tutti_trainer_destroy(trainer);
	tutti_comm_destroy(comm);
	return 0;
}

int main(int argc, char **argv)
{
	return tutti_main(argc, argv, work); /* with --ranks N: N of them */
}
