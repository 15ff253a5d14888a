/* What would break: DataParallel or Mirrored that learns otherwise than DDP: another division of a
 * batch, a gradient that is lost or counted twice, replicas that compute with old parameters. */
#include "tests/limit.h"
#include "tests/train/data_parallel/network.h"
#include "tests/train/ranks.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "tests/unit.h"

/* Items of each step's batch: also those that no number of replicas divides, and fewer than
 * replicas. */
static const int batches[] = {64, 33, 7, 3, 2, 1, 5, 48, 64, 13, 64, 31};
enum { BATCHES = sizeof batches / sizeof *batches, STEPS = 5 * BATCHES, RANKS_MAX = 4 };

enum way { DDP, GATHERED, SHARED, MIRRORED, WAYS };
static const char *const names[] = {"DDP", "DataParallel", "DataParallel, share_params",
				    "Mirrored"};

static const tutti_optimizer adamw = {.kind = TUTTI_ADAMW,
				      .lr = 0.02f,
				      .beta1 = 0.9f,
				      .beta2 = 0.99f,
				      .eps = 1e-8f,
				      .weight_decay = 0.01f};

struct result {
	double losses[STEPS];
	float values[NET_COUNT];
};

/* A training run; results are where all processes see them. */
struct run {
	tutti_train_config train;
	struct result *result;
};

static void train_ddp(tutti_comm *comm, void *arg)
{
	const struct run *run = arg;
	struct network network = {.is_bf16 = run->train.param_dtype == TUTTI_BF16};
	struct net_batch batch;
	tutti_trainer *trainer;
	tutti_model *model = net_model();
	int rank = tutti_rank(comm), size = tutti_size(comm);

	CHECK(tutti_trainer_create(&trainer, model, comm, &run->train) == TUTTI_OK);
	tutti_model_destroy(model);
	CHECK(net_init(trainer, 0, NULL) == TUTTI_OK);
	for (int step = 0; step < STEPS; step++) {
		int items = batches[step % BATCHES];
		const int part[2] = {items * rank / size, items * (rank + 1) / size};
		net_batch(&batch, step, items);
		double mean = net_ddp_step(trainer, &network, &batch, part, &adamw);
		if (rank == 0)
			run->result->losses[step] = mean;
	}
	CHECK(net_read(trainer, rank, run->result->values) == TUTTI_OK);
	tutti_trainer_destroy(trainer);
}

static tutti_status read_values(tutti_trainer *trainer, int replica, void *arg)
{
	const struct run *run = arg;

	CHECK(tutti_check_replicas(trainer) == TUTTI_OK);
	return net_read(trainer, replica, run->result->values);
}

static void train_replicas(const struct run *run, enum way way, int n)
{
	struct run own = *run;
	static struct network network; /* of all replicas */
	static struct net_batch batch;
	struct net_replicas replicas;
	tutti_data_parallel_config c = net_config(&network);

	network = (struct network){.is_bf16 = run->train.param_dtype == TUTTI_BF16};
	c.train = &run->train;
	c.share_params = way == SHARED;
	net_start(&replicas, way == MIRRORED, n, &c);
	assert_int_equal(tutti_data_parallel_run(replicas.dp, net_init, NULL), TUTTI_OK);
	for (int step = 0; step < STEPS; step++) {
		tutti_data_parallel_info info;
		int items = batches[step % BATCHES];
		net_batch(&batch, step, items);
		tutti_data_parallel_batch b = {
			.inputs = batch.inputs, .targets = batch.targets, .items = (size_t)items};
		if (tutti_data_parallel_step(replicas.dp, &b, &adamw, 1, &info) != TUTTI_OK)
			fail_msg("%s", tutti_comm_error(NULL));
		assert_int_equal(info.step.items, items);
		run->result->losses[step] = info.loss;
	}
	assert_int_equal(tutti_data_parallel_run(replicas.dp, read_values, &own), TUTTI_OK);
	net_stop(&replicas);
}

static void train(struct run *run, enum way way, int n)
{
	if (way != DDP)
		train_replicas(run, way, n);
	else if (n == 1)
		assert_int_equal(ranks_as_threads(1, train_ddp, run), 0);
	else
		assert_int_equal(ranks_as_processes(n, train_ddp, run), 0);
}

/* slack: of losses at another number of ranks, relative. Sums of f32 that are added in another
 * order are rounded otherwise, and that grows over the steps. A parameter of BF16 that is rounded
 * to its other neighbour differs by 2^-8. */
static const struct {
	tutti_train_config train;
	double slack;
} configs[] = {
	{{.deterministic = 1, .seed = 1}, 1e-5},
	{{.deterministic = 1, .max_grad_norm = 0.5f, .loss_scale = 1024}, 1e-5},
	{{.deterministic = 1, .param_dtype = TUTTI_BF16, .loss_scale = -1}, 0.03},
};
enum { CONFIGS = sizeof configs / sizeof *configs };

static void check_close(const struct result *found, const struct result *alone, double slack,
			const char *what)
{
	for (int step = 0; step < STEPS; step++)
		if (!(fabs(found->losses[step] - alone->losses[step]) <=
		      slack * alone->losses[step]))
			fail_msg("%s: step %d has a loss of %.9g, one rank %.9g", what, step,
				 found->losses[step], alone->losses[step]);
}

/* The same bits as DDP on as many ranks: each replica adds up the same items in the same order, and
 * the sum over replicas is the communicator's tree in both. Of DataParallel the reported loss is
 * one sum over all items, in f64. */
static void check_same(const struct result *found, const struct result *ddp, enum way way,
		       const char *what)
{
	if (memcmp(found->values, ddp->values, sizeof ddp->values) != 0)
		fail_msg("%s: parameters have other bits than with DDP", what);
	for (int step = 0; step < STEPS; step++) {
		double slack = way == MIRRORED ? 0 : 1e-14 * ddp->losses[step];
		if (!(fabs(found->losses[step] - ddp->losses[step]) <= slack))
			fail_msg("%s: step %d has a loss of %.17g, DDP %.17g", what, step,
				 found->losses[step], ddp->losses[step]);
	}
}

static const int sizes[] = {1, 2, 4};
enum { SIZES = sizeof sizes / sizeof *sizes };

/* ddp: one result for each number of ranks. */
static void compare_ways(int config, const struct result *ddp)
{
	struct result found;

	for (int i = 0; i < SIZES; i++)
		for (enum way way = GATHERED; way < WAYS; way++) {
			char what[64];
			snprintf(what, sizeof what, "%s, %d replicas", names[way], sizes[i]);
			train(&(struct run){configs[config].train, &found}, way, sizes[i]);
			check_close(&found, &ddp[0], configs[config].slack, what);
			check_same(&found, &ddp[i], way, what);
		}
}

static void test_same_losses(void **state)
{
	const size_t bytes = CONFIGS * SIZES * sizeof(struct result);
	struct result *ddp =
		mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	assert_true(ddp != MAP_FAILED);
	/* Processes before threads. */
	for (int i = SIZES - 1; i >= 0; i--)
		for (int c = 0; c < CONFIGS; c++)
			train(&(struct run){configs[c].train, &ddp[c * SIZES + i]}, DDP, sizes[i]);
	for (int c = 0; c < CONFIGS; c++) {
		const struct result *alone = &ddp[c * SIZES];
		assert_true(alone->losses[STEPS - 2] < alone->losses[0] / 2);
		compare_ways(c, alone);
	}
	munmap(ddp, bytes);
}

/* ---- gradients that forward adds ---- */

static tutti_status forward_adds(tutti_replica *r)
{
	float *grad = tutti_replica_grad(r, 0);

	*grad += (float)r->items;
	memset(r->outputs, 0, r->items * sizeof(float));
	return TUTTI_OK;
}

static tutti_status no_loss(tutti_replica *r)
{
	r->loss = 0;
	memset(r->output_grads, 0, r->items * sizeof(float));
	return TUTTI_OK;
}

static tutti_status no_backward(tutti_replica *r)
{
	return TUTTI_OK;
}

static tutti_status read_one(tutti_trainer *trainer, int replica, void *arg)
{
	return replica == 0 ? tutti_param_read(trainer, 0, 0, 1, arg) : TUTTI_OK;
}

static float one_step(int n, int is_mirrored)
{
	const tutti_optimizer sgd = {.kind = TUTTI_SGD, .lr = 0.5f};
	const tutti_data_parallel_batch batch = {.items = 7};
	const int64_t shape = 1;
	tutti_data_parallel_config config = {.forward = forward_adds,
					     .loss = no_loss,
					     .backward = no_backward,
					     .output_count = 1};
	struct net_replicas replicas;
	float value;

	CHECK(tutti_model_create(&config.model) == TUTTI_OK);
	tutti_model_param(config.model, tutti_model_unit(config.model, "u"), "p", 1, &shape, 0);
	net_start(&replicas, is_mirrored, n, &config);
	CHECK(tutti_data_parallel_step(replicas.dp, &batch, &sgd, 1, NULL) == TUTTI_OK);
	CHECK(tutti_data_parallel_run(replicas.dp, read_one, &value) == TUTTI_OK);
	net_stop(&replicas);
	return value;
}

/* The mean over the items is 1, wherever they are. */
static void forward_may_add_to_gradients(void **state)
{
	for (int n = 1; n <= RANKS_MAX; n++)
		for (int is_mirrored = 0; is_mirrored < 2; is_mirrored++)
			assert_float_equal(one_step(n, is_mirrored), -0.5f, 1e-6);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_same_losses),
		cmocka_unit_test(forward_may_add_to_gradients),
	};

	test_limit(300);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
