/* Several replicas in each of several processes, as of MultiWorkerMirroredStrategy: every replica
 * is a rank with a thread and a copy of a small network, which learns z = sin(3x) cos(2y). Each
 * takes its part of the batch, and one all_reduce keeps all copies equal.
 *
 *     mirrored [--local-ranks T] [--ranks P] [--steps N]
 *
 * T replicas in this process, one of those that TF_CONFIG, tuttirun or another launcher has
 * started; P starts so many processes without a launcher. Programs with the same P * T print the
 * same. */
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tutti/tutti.h>

#define MUST(call)                                                                                 \
	((call) == TUTTI_OK ? (void)0 : (fprintf(stderr, "%s\n", tutti_comm_error(NULL)), exit(1)))
enum { HIDDEN = 32, BATCH = 96, REPLICAS_MOST = 64 };

struct network {
	float in[HIDDEN][2], in_bias[HIDDEN], out[HIDDEN], out_bias, loss; /* of a gradient: loss */
};
#define PARAMETERS (sizeof(struct network) / sizeof(float) - 1)

struct replica {
	tutti_comm *comm;
	pthread_t thread;
	int steps;
	struct network net, grad;
};

struct options {
	int local_ranks, steps;
};

/* The same number for the same seed and index, in [-1, 1]. */
static float mirrored_uniform(unsigned seed, unsigned index)
{
	unsigned hash = seed * 2654435761u + index;

	hash = (hash ^ (hash >> 16)) * 2246822519u;
	hash = (hash ^ (hash >> 13)) * 3266489917u;
	return (float)((hash ^ (hash >> 16)) >> 8) / 8388608.0f - 1;
}

static void mirrored_begin(struct network *net)
{
	for (unsigned h = 0; h < HIDDEN; h++) {
		net->in[h][0] = 2 * mirrored_uniform(1, h);
		net->in[h][1] = 2 * mirrored_uniform(2, h);
		net->in_bias[h] = mirrored_uniform(3, h);
		net->out[h] = 0.3f * mirrored_uniform(4, h);
	}
}

/* Adds a sample's part of the mean gradient and of the mean loss. */
static void mirrored_learn(const struct network *net, struct network *grad, unsigned sample)
{
	float x = mirrored_uniform(5, sample), y = mirrored_uniform(6, sample), z = net->out_bias,
	      hidden[HIDDEN];

	for (int h = 0; h < HIDDEN; h++) {
		hidden[h] = tanhf(net->in[h][0] * x + net->in[h][1] * y + net->in_bias[h]);
		z += net->out[h] * hidden[h];
	}
	float error = z - sinf(3 * x) * cosf(2 * y), dz = 2 * error / BATCH;
	grad->loss += error * error / BATCH;
	grad->out_bias += dz;
	for (int h = 0; h < HIDDEN; h++) {
		float dh = dz * net->out[h] * (1 - hidden[h] * hidden[h]);
		grad->out[h] += dz * hidden[h];
		grad->in[h][0] += dh * x;
		grad->in[h][1] += dh * y;
		grad->in_bias[h] += dh;
	}
}

/* This replica's part of the batch, then the mean of all replicas' parts, on each of them. */
static void mirrored_train_step(struct replica *r, int number)
{
	int rank = tutti_rank(r->comm), size = tutti_size(r->comm);
	float *net = (float *)&r->net, *grad = (float *)&r->grad;

	memset(&r->grad, 0, sizeof r->grad);
	for (int i = BATCH * rank / size; i < BATCH * (rank + 1) / size; i++)
		mirrored_learn(&r->net, &r->grad, (unsigned)(number * BATCH + i));
	MUST(tutti_all_reduce(grad, grad, PARAMETERS + 1, TUTTI_F32, TUTTI_SUM, r->comm, NULL));
	for (size_t i = 0; i < PARAMETERS; i++)
		net[i] -= 0.1f * grad[i];
}

/* Mirrored: a sum of all copies' bits tells when one is another. */
static void check_equal(struct replica *r)
{
	uint32_t mine = tutti_crc32c(0, &r->net, PARAMETERS * sizeof(float)), least, most;

	MUST(tutti_all_reduce(&mine, &least, 1, TUTTI_U32, TUTTI_MIN, r->comm, NULL));
	MUST(tutti_all_reduce(&mine, &most, 1, TUTTI_U32, TUTTI_MAX, r->comm, NULL));
	if (least == most)
		return;
	fprintf(stderr, "rank %d: the replicas differ\n", tutti_rank(r->comm));
	exit(1);
}

static void *mirrored_train(void *arg)
{
	struct replica *r = arg;
	int is_first = tutti_rank(r->comm) == 0;

	mirrored_begin(&r->net);
	if (is_first)
		printf("%d replicas in sync\n", tutti_size(r->comm));
	for (int i = 0; i < r->steps; i++) {
		mirrored_train_step(r, i);
		if (is_first && (i % 50 == 0 || i == r->steps - 1))
			printf("step %3d  loss %.6f\n", i, (double)r->grad.loss);
	}
	check_equal(r);
	tutti_comm_destroy(r->comm);
	return NULL;
}

static int mirrored_read_options(struct options *o, int argc, char **argv)
{
	const char *said = getenv("TUTTI_LOCAL_RANKS"); /* tuttirun --local-ranks */

	*o = (struct options){.local_ranks = said ? atoi(said) : 2, .steps = 400};
	for (int i = 1; i + 1 < argc; i += 2) {
		if (strcmp(argv[i], "--local-ranks") == 0)
			o->local_ranks = atoi(argv[i + 1]);
		else if (strcmp(argv[i], "--steps") == 0)
			o->steps = atoi(argv[i + 1]);
		else
			return 0;
	}
	return argc % 2 == 1 && o->local_ranks >= 1 && o->local_ranks <= REPLICAS_MOST &&
	       o->steps >= 1;
}

/* All replicas of this process. deterministic: the same bits in whichever processes they are. */
static int mirrored_run(const struct options *o)
{
	tutti_config config = {.local_ranks = o->local_ranks, .deterministic = 1};
	tutti_comm *comms[REPLICAS_MOST];
	struct replica *replicas = calloc((size_t)o->local_ranks, sizeof *replicas);

	if (!replicas)
		return 1;
	MUST(tutti_init_all(comms, o->local_ranks, &config));
	for (int i = 0; i < o->local_ranks; i++) {
		replicas[i].comm = comms[i];
		replicas[i].steps = o->steps;
		if (pthread_create(&replicas[i].thread, NULL, mirrored_train, &replicas[i]) != 0)
			return 1;
	}
	for (int i = 0; i < o->local_ranks; i++)
		pthread_join(replicas[i].thread, NULL);
	free(replicas);
	return fflush(stdout) != 0;
}

static int mirrored_process(int argc, char **argv)
{
	struct options options;

	setvbuf(stdout, NULL, _IOLBF, 0); /* to be read while it runs, through a pipe, too */
	if (mirrored_read_options(&options, argc, argv))
		return mirrored_run(&options);
	fprintf(stderr, "mirrored [--local-ranks 1..%d] [--ranks P] [--steps N]\n", REPLICAS_MOST);
	return 2;
}

int main(int argc, char **argv)
{
	return tutti_main(argc, argv, mirrored_process);
}
