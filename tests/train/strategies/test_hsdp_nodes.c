/* no_tsan: its ranks are processes: nothing is seen of what they share */
/* What would break: HSDP over several machines. A node's ranks are a shard group, replicas are on
 * different nodes, and the result has DDP's bits. Nodes that cannot be shard groups fail on all
 * ranks alike. */
#include "tests/train/ranks.h"
#include "tests/train/stack.h"

#include "train/state/trainer_state.h"

#include <stdlib.h>
#include <string.h>

#include "tests/unit.h"

enum { STEPS = 3, MICRO_BATCHES = 2, WEIGHT = 1002, BIAS = 6 };

static const int two_of_two[] = {0, 0, 1, 1}, two_of_four[] = {0, 0, 0, 0, 1, 1, 1, 1};

struct values {
	float all[STACK_PARAMS][WEIGHT];
};

static tutti_train_config config_of(tutti_strategy strategy, int shard_size)
{
	return (tutti_train_config){.strategy = strategy,
				    .shard_size = shard_size,
				    .deterministic = 1,
				    .max_grad_norm = 0.5f};
}

/* The shard group is the node, and replicas are one of each. */
static void check_groups(const tutti_trainer *trainer, tutti_comm *comm)
{
	int nodes = tutti_num_nodes(comm);

	CHECK(tutti_size(trainer->homes[0].gather) == tutti_local_size(comm));
	CHECK(tutti_size(trainer->homes[0].reduce) == tutti_local_size(comm));
	CHECK(tutti_num_nodes(trainer->homes[0].gather) == 1 &&
	      tutti_num_nodes(trainer->homes[0].reduce) == 1);
	CHECK(tutti_size(trainer->homes[0].replicas) == nodes);
	CHECK(tutti_num_nodes(trainer->homes[0].replicas) == nodes);
}

static void train(tutti_comm *comm, const tutti_train_config *config, struct values *values)
{
	struct stack stack = {
		.weight = WEIGHT, .bias = BIAS, .salt = 1 + (unsigned)tutti_rank(comm)};
	tutti_trainer *trainer = stack_create(&stack, comm, config);

	memset(values, 0, sizeof *values);
	if (!trainer)
		return;
	if (config->strategy == TUTTI_HSDP && config->shard_size == 0)
		check_groups(trainer, comm);
	for (int step = 0; step < STEPS; step++)
		stack_step(trainer, &stack, MICRO_BATCHES);
	CHECK(tutti_check_replicas(trainer) == TUTTI_OK);
	for (int p = 0; p < STACK_PARAMS; p++)
		CHECK(tutti_param_read(trainer, p, 0, p % 2 == 0 ? WEIGHT : BIAS, values->all[p]) ==
		      TUTTI_OK);
	tutti_trainer_destroy(trainer);
}

static void same_bits(tutti_comm *comm, void *arg)
{
	const tutti_train_config ddp = config_of(TUTTI_DDP, 0), hsdp = config_of(TUTTI_HSDP, 0);
	struct values *both = malloc(2 * sizeof *both);

	CHECK(tutti_num_nodes(comm) == 2 && tutti_local_size(comm) == *(const int *)arg);
	train(comm, &ddp, &both[0]);
	train(comm, &hsdp, &both[1]);
	CHECK(both[0].all[0][0] != 1 && both[0].all[STACK_PARAMS - 1][0] != 1); /* it did train */
	CHECK(memcmp(&both[0], &both[1], sizeof *both) == 0);
	free(both);
}

static void nodes_of_two(void **state)
{
	int local = 2;

	assert_int_equal(ranks_on_nodes(4, two_of_two, same_bits, &local), 0);
}

static void nodes_of_four(void **state)
{
	int local = 4;

	assert_int_equal(ranks_on_nodes(8, two_of_four, same_bits, &local), 0);
}

static void refused(tutti_comm *comm, void *arg)
{
	const tutti_train_config config = config_of(TUTTI_HSDP, 0);
	struct stack stack = {.weight = WEIGHT, .bias = BIAS};
	tutti_trainer *trainer;
	tutti_model *model = stack_register(&stack);

	CHECK_ERROR(tutti_trainer_create(&trainer, model, comm, &config), TUTTI_ERR_INVALID, arg);
	tutti_model_destroy(model);
	CHECK(tutti_barrier(comm, NULL) == TUTTI_OK); /* no rank is left in a collective */
}

static void uneven(void **state)
{
	const struct {
		int ranks, nodes[6];
		const char *message;
	} places[] = {
		{4, {0, 0, 0, 1}, "but nodes have from 1 to 3 ranks: set shard_size"},
		{3, {0, 1, 1}, "but nodes have from 1 to 2 ranks: set shard_size"},
		{6, {0, 0, 1, 1, 1, 1}, "but nodes have from 2 to 4 ranks: set shard_size"},
		{4, {0, 1, 0, 1}, "but a node's ranks are not in a row: start ranks node by node"},
		{4, {0, 1, 1, 0}, "but a node's ranks are not in a row: start ranks node by node"},
	};

	for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
		char message[100];
		strcpy(message, places[i].message);
		assert_int_equal(ranks_on_nodes(places[i].ranks, places[i].nodes, refused, message),
				 0);
	}
}

/* Ranks in turn over nodes, with groups of two by shard_size. */
static void of_two(tutti_comm *comm, void *arg)
{
	const tutti_train_config ddp = config_of(TUTTI_DDP, 0), hsdp = config_of(TUTTI_HSDP, 2);
	struct values *both = malloc(2 * sizeof *both);

	train(comm, &ddp, &both[0]);
	train(comm, &hsdp, &both[1]);
	CHECK(memcmp(&both[0], &both[1], sizeof *both) == 0);
	free(both);
}

static void in_turn(void **state)
{
	const int nodes[] = {0, 1, 0, 1};

	assert_int_equal(ranks_on_nodes(4, nodes, of_two, NULL), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(nodes_of_two),
		cmocka_unit_test(nodes_of_four),
		cmocka_unit_test(uneven),
		cmocka_unit_test(in_turn),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
