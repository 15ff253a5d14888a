/* What would break: contexts of several trainers that mix, and concurrent steps that lose an
 * update. Random programs of two threads on each rank, beside a plain twin. Gradients are small
 * integers and the rate is a power of two, so sums are exact in any order. */
#include "core/clock.h"
#include "tests/random.h"
#include "tests/train/remote/remote_world.h"
#include "tests/whole.h"

#include "tests/unit.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { RANKS_MOST = 5, THREADS = 2, OPEN_MOST = 3 };

/* What the trainers of all ranks have stepped with: atomics of one process. */
struct totals {
	uint64_t seed;
	int rounds;
	long value[RANKS_MOST][WORLD_PARAMS];
};

struct open_context {
	uint64_t number;
	long sums[RANKS_MOST][WORLD_PARAMS];
	bool has_sums[RANKS_MOST];
};

struct trainer {
	struct world *world;
	struct totals *totals;
	int none; /* a parameter of this rank without values */
	uint64_t random;
	struct open_context open[OPEN_MOST];
	int num_open;
	pthread_t thread;
};

static void begin(struct trainer *t)
{
	struct open_context *open = &t->open[t->num_open++];

	*open = (struct open_context){0};
	CHECK(tutti_rpc_context_begin(t->world->rpc, &open->number) == TUTTI_OK);
}

static struct open_context *any_open(struct trainer *t)
{
	struct open_context *open = &t->open[random_below(&t->random, (uint64_t)t->num_open)];

	tutti_rpc_context_set(open->number);
	return open;
}

static void add(struct trainer *t)
{
	struct open_context *open = any_open(t);
	struct path path = {.param = (int32_t)random_below(&t->random, WORLD_PARAMS),
			    .length = (int32_t)random_below(&t->random, PATH_MOST) + 1};
	long value = (long)random_below(&t->random, 9) - 4;

	path.value = (float)value;
	for (int i = 0; i < path.length; i++) {
		path.ranks[i] = (int32_t)random_below(&t->random, (uint64_t)t->world->size);
		open->sums[path.ranks[i]][path.param] += value;
		open->has_sums[path.ranks[i]] = true;
	}
	CHECK(world_add(t->world, &path) == TUTTI_OK);
	CHECK(tutti_rpc_context_add(t->world->rpc, t->none, NULL, 0) == TUTTI_OK);
	CHECK(tutti_rpc_context_grad(t->world->rpc, open->number, t->none, NULL, 0) == TUTTI_OK);
}

static void look(struct trainer *t)
{
	const struct open_context *open = any_open(t);
	int rank = (int)random_below(&t->random, (uint64_t)t->world->size);
	int param = (int)random_below(&t->random, WORLD_PARAMS);
	float grad[WORLD_COUNT];

	if (!open->has_sums[rank])
		return;
	CHECK(world_grad(t->world, rank, open->number, param, grad) == TUTTI_OK);
	for (int i = 0; i < WORLD_COUNT; i++)
		CHECK(grad[i] == (float)(open->sums[rank][param] * (i + 1)));
}

/* The parameter without values, and others, under one lock. */
static void hold(struct trainer *t)
{
	const int numbers[] = {t->none, t->world->params[0]};

	CHECK(tutti_rpc_param_lock(t->world->rpc, numbers, 2, 0) == TUTTI_OK);
	CHECK(tutti_rpc_param_unlock(t->world->rpc, numbers, 2) == TUTTI_OK);
}

static void step(struct trainer *t)
{
	const tutti_optimizer sgd = {.kind = TUTTI_SGD, .lr = 0.25f};
	const tutti_rpc_step_config config = {.groups = &sgd, .num_groups = 1};
	const struct open_context *open = any_open(t);

	CHECK(tutti_rpc_context_step(t->world->rpc, open->number, &config, NULL) == TUTTI_OK);
	for (int rank = 0; rank < t->world->size; rank++)
		for (int p = 0; p < WORLD_PARAMS; p++)
			__atomic_fetch_add(&t->totals->value[rank][p], open->sums[rank][p],
					   __ATOMIC_SEQ_CST);
}

static void end(struct trainer *t)
{
	struct open_context *open = any_open(t);

	CHECK(tutti_rpc_context_end(t->world->rpc, open->number, 0) == TUTTI_OK);
	*open = t->open[--t->num_open];
}

static void *trainer_main(void *arg)
{
	struct trainer *t = arg;

	for (int round = 0; round < t->totals->rounds; round++) {
		uint64_t choice = random_below(&t->random, 10);
		if (t->num_open == 0 || (choice == 0 && t->num_open < OPEN_MOST))
			begin(t);
		else if (choice < 5)
			add(t);
		else if (choice < 6)
			look(t);
		else if (choice < 7)
			hold(t);
		else if (choice < 9)
			step(t);
		else
			end(t);
	}
	while (t->num_open > 0)
		end(t);
	return NULL;
}

static void run(tutti_comm *comm, void *arg)
{
	struct totals *totals = arg;
	const tutti_rpc_param none = {.name = "none"};
	struct trainer trainers[THREADS];
	struct world world;
	int number = -1;

	world_open(&world, comm);
	CHECK(tutti_rpc_param_add(world.rpc, &none, &number) == TUTTI_OK);
	for (int i = 0; i < THREADS; i++) {
		trainers[i] = (struct trainer){.world = &world,
					       .totals = totals,
					       .none = number,
					       .random = totals->seed +
							 (uint64_t)(world.rank * THREADS + i)};
		CHECK(pthread_create(&trainers[i].thread, NULL, trainer_main, &trainers[i]) == 0);
	}
	for (int i = 0; i < THREADS; i++)
		pthread_join(trainers[i].thread, NULL);
	CHECK(tutti_barrier(comm, NULL) == TUTTI_OK);
	CHECK(remote_context_count(world.rpc) == 0);
	for (int p = 0; p < WORLD_PARAMS; p++)
		for (int i = 0; i < WORLD_COUNT; i++)
			CHECK(world.values[p][i] ==
			      -0.25f * (float)(totals->value[world.rank][p] * (i + 1)));
	world_close(&world);
}

static void test_random_programs(void **state)
{
	const char *given = getenv("TEST_SEED");
	uint64_t seed = given ? strtoull(given, NULL, 0) : clock_now_ns();
	int programs = given ? 1 : whole_or(10, 5, 3);

	for (int i = 0; i < programs; i++) {
		struct totals totals = {.seed = seed, .rounds = whole_or(80, 40, 30)};
		int size = 1 + (int)(seed % RANKS_MOST);
		print_message("TEST_SEED=%llu\n", (unsigned long long)seed);
		assert_int_equal(ranks_as_threads(size, run, &totals), 0);
		seed++;
	}
}

/* A context of nothing but a parameter without values. */
static void of_no_values(tutti_comm *comm, void *arg)
{
	const tutti_optimizer adamw = {.kind = TUTTI_ADAMW, .lr = 1, .eps = 1};
	const tutti_rpc_step_config config = {
		.groups = &adamw, .num_groups = 1, .max_grad_norm = 1};
	const tutti_rpc_param none = {.name = "none"};
	struct world world;
	tutti_step_info info;
	int number;

	world_open(&world, comm);
	CHECK(tutti_rpc_param_add(world.rpc, &none, &number) == TUTTI_OK);
	uint64_t context = 0;
	CHECK(tutti_rpc_context_begin(world.rpc, &context) == TUTTI_OK);
	for (int i = 0; i < 2; i++)
		CHECK(tutti_rpc_context_add(world.rpc, number, NULL, 0) == TUTTI_OK);
	CHECK(tutti_rpc_context_step(world.rpc, context, &config, &info) == TUTTI_OK);
	CHECK(info.grad_norm == 0 && !info.skipped);
	CHECK(tutti_rpc_param_remove(world.rpc, number) == TUTTI_OK);
	CHECK(tutti_rpc_context_end(world.rpc, context, 0) == TUTTI_OK);
	world_close(&world);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_random_programs),
					   RANKS_TEST(of_no_values, 2, 2)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
