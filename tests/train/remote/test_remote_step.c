/* What would break: a step that updates otherwise than one of a program without ranks, a norm that
 * depends on where parameters are, an error after which some ranks have updated, and a step that is
 * not whole beside readers and additions. */
#include "rpc/extension.h"
#include "tests/random.h"
#include "tests/train/plain_update.h"
#include "tests/train/remote/remote_world.h"

#include "tests/unit.h"

#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <string.h>

enum { SIZES = 3, STEPS = 6 };
static const int sizes[SIZES] = {1, 2, 4};

static const tutti_optimizer sgd = {.kind = TUTTI_SGD, .lr = 0.25f};

static uint64_t begin(struct world *world)
{
	uint64_t context;

	CHECK(tutti_rpc_context_begin(world->rpc, &context) == TUTTI_OK);
	return context;
}

static void add_on(struct world *world, int rank, int param, float value)
{
	const struct path path = {.param = param, .length = 1, .value = value, .ranks = {rank}};

	CHECK(world_add(world, &path) == TUTTI_OK);
}

static tutti_status step_with(struct world *world, uint64_t context, const tutti_optimizer *o,
			      float limit, tutti_step_info *info)
{
	const tutti_rpc_step_config config = {.groups = o, .num_groups = 1, .max_grad_norm = limit};

	return tutti_rpc_context_step(world->rpc, context, &config, info);
}

static void check_value(struct world *world, int rank, int param, float first)
{
	float value[WORLD_COUNT];

	world_value(world, rank, param, value);
	for (int i = 0; i < WORLD_COUNT; i++)
		CHECK(value[i] == first * (float)(i + 1));
}

/* ---- the twin: the same in f64, in one loop ----------------------------------------------- */
struct twin {
	struct plain at[16][WORLD_COUNT];
};

static double twin_norm(const float *grads, int n, double items)
{
	double sum = 0;

	for (int p = 0; p < n; p++)
		for (int i = 0; i < WORLD_COUNT; i++)
			sum += pow((double)grads[p] * (i + 1), 2);
	return sqrt(sum) / items;
}

static void twin_step(struct twin *twin, const tutti_optimizer *o, const float *grads, int n,
		      double scale, int number)
{
	for (int p = 0; p < n; p++)
		for (int i = 0; i < WORLD_COUNT; i++)
			plain_update(&twin->at[p][i], (double)grads[p] * (i + 1) * scale, o,
				     number - 1);
}

static void check_twin(struct world *world, const struct twin *twin)
{
	for (int p = 0; p < WORLD_PARAMS * world->size; p++) {
		float value[WORLD_COUNT];
		world_value(world, p % world->size, p / world->size, value);
		for (int i = 0; i < WORLD_COUNT; i++)
			CHECK(fabs((double)value[i] - twin->at[p][i].value) <=
			      1e-5 * (1e-2 + fabs(twin->at[p][i].value)));
	}
}

/* Every second step is clipped. */
static void trains_like_twin(tutti_comm *comm, void *arg)
{
	const tutti_optimizer *o = arg;
	struct twin twin = {0};
	struct world world;
	float grads[16];
	uint64_t random = 7;
	tutti_step_info info;

	world_open(&world, comm);
	int n = WORLD_PARAMS * world.size;
	for (int step = 1; world.rank == 0 && step <= STEPS; step++) {
		uint64_t context = begin(&world);
		for (int p = 0; p < n; p++) {
			grads[p] = (float)random_below(&random, 1000) / 500 - 1;
			add_on(&world, p % world.size, p / world.size, grads[p]);
		}
		double norm = twin_norm(grads, n, 4), limit = step % 2 ? 0 : norm / 3;
		const tutti_rpc_step_config config = {
			.groups = o, .num_groups = 1, .items = 4, .max_grad_norm = (float)limit};
		CHECK(tutti_rpc_context_step(world.rpc, context, &config, &info) == TUTTI_OK);
		CHECK(fabs((double)info.grad_norm - norm) < 1e-5 * norm && !info.skipped);
		CHECK(info.items == 4 && info.loss_scale == 1);
		twin_step(&twin, o, grads, n, step % 2 ? 0.25 : 0.25 / 3, step);
		CHECK(tutti_rpc_context_end(world.rpc, context, 0) == TUTTI_OK);
		check_twin(&world, &twin);
	}
	world_close(&world);
}

/* The same gradients on any number of ranks. */
static void norm_of_any_ranks(tutti_comm *comm, void *arg)
{
	float *norms = arg;
	struct world world;
	tutti_step_info info;

	world_open(&world, comm);
	if (world.rank == 0) {
		uint64_t context = begin(&world);
		for (int p = 0; p < WORLD_PARAMS; p++)
			add_on(&world, p % world.size, p, 0.1f * (float)(p + 1) / 3);
		CHECK(step_with(&world, context, &sgd, 0, &info) == TUTTI_OK);
		CHECK(tutti_rpc_context_end(world.rpc, context, 0) == TUTTI_OK);
		norms[world.size] = info.grad_norm;
	}
	world_close(&world);
}

static void no_rank_updates(tutti_comm *comm, void *arg)
{
	const tutti_optimizer adamw = {
		.kind = TUTTI_ADAMW, .lr = 1, .beta1 = 0.9f, .beta2 = 0.99f, .eps = 1e-8f};
	struct world world;
	tutti_step_info info;
	char text[64];

	world_open(&world, comm);
	if (world.rank == 0) {
		int last = world.size - 1;
		uint64_t context = begin(&world);
		add_on(&world, last, 0, 4);
		CHECK(step_with(&world, context, &sgd, 0, &info) == TUTTI_OK);
		CHECK(tutti_rpc_context_end(world.rpc, context, 0) == TUTTI_OK);
		/* The other kind, on the last rank alone. */
		context = begin(&world);
		for (int rank = 0; rank < world.size; rank++)
			add_on(&world, rank, rank == last ? 0 : 1, 1);
		snprintf(text, sizeof text, "parameter 'w0' of rank %d was trained with TUTTI_SGD",
			 last);
		CHECK_ERROR(step_with(&world, context, &adamw, 0, &info), TUTTI_ERR_INVALID, text);
		CHECK_ERROR(step_with(&world, context, &adamw, 0, &info), TUTTI_ERR_INVALID,
			    "no rank has updated");
		CHECK(tutti_rpc_context_end(world.rpc, context, 0) == TUTTI_OK);
		/* A gradient that is not finite, on the last rank alone. */
		context = begin(&world);
		for (int rank = 0; rank < world.size; rank++)
			add_on(&world, rank, 1, rank == last ? INFINITY : 1);
		CHECK(step_with(&world, context, &sgd, 1, &info) == TUTTI_OK && info.skipped == 1);
		snprintf(text, sizeof text, "parameter 'w1' of rank %d", last);
		CHECK_MESSAGE(text);
		CHECK(tutti_rpc_context_end(world.rpc, context, 0) == TUTTI_OK);
		for (int rank = 0; rank < world.size; rank++) {
			check_value(&world, rank, 1, 0);
			check_value(&world, rank, 0, rank == last ? -1 : 0);
		}
	}
	world_close(&world);
}

static void bad_steps(tutti_comm *comm, void *arg)
{
	tutti_optimizer bad = sgd;
	struct world world;
	tutti_step_info info;

	world_open(&world, comm);
	uint64_t context = begin(&world);
	CHECK_ERROR(tutti_rpc_context_step(world.rpc, context, NULL, NULL), TUTTI_ERR_INVALID,
		    "config is NULL");
	CHECK_ERROR(step_with(&world, context, NULL, 0, NULL), TUTTI_ERR_INVALID,
		    "needs at least one group");
	CHECK_ERROR(step_with(&world, context, &sgd, -1, NULL), TUTTI_ERR_INVALID, "at least 0");
	bad.lr = -1;
	CHECK_ERROR(step_with(&world, context, &bad, 0, NULL), TUTTI_ERR_INVALID,
		    "learning rate -1");
	CHECK_ERROR(step_with(&world, 77, &sgd, 0, NULL), TUTTI_ERR_INVALID,
		    "there is no context 4d");
	CHECK(step_with(&world, context, &sgd, 0, &info) == TUTTI_OK && info.grad_norm == 0);
	CHECK(tutti_rpc_context_end(world.rpc, context, 0) == TUTTI_OK);
	world_close(&world);
}

static void groups_and_removed(tutti_comm *comm, void *arg)
{
	struct world world;
	float values[2] = {0}, grad[2] = {1, 1};
	int number;

	world_open(&world, comm);
	const tutti_rpc_param param = {.name = "x", .values = values, .count = 2, .group = 3};
	CHECK(tutti_rpc_param_add(world.rpc, &param, &number) == TUTTI_OK);
	uint64_t context = begin(&world);
	CHECK(tutti_rpc_context_add(world.rpc, number, grad, 2) == TUTTI_OK);
	CHECK_ERROR(step_with(&world, context, &sgd, 0, NULL), TUTTI_ERR_INVALID,
		    "is of group 3, but 1 groups");
	CHECK_ERROR(tutti_rpc_context_add(world.rpc, number, grad, 2), TUTTI_ERR_INVALID,
		    "is in a step, or one has failed");
	CHECK(tutti_rpc_param_remove(world.rpc, number) == TUTTI_OK);
	CHECK_ERROR(step_with(&world, context, &sgd, 0, NULL), TUTTI_ERR_INVALID, "was removed");
	CHECK(tutti_rpc_context_end(world.rpc, context, 0) == TUTTI_OK);
	CHECK(values[0] == 0 && values[1] == 0);
	world_close(&world);
}

/* ---- what a step costs -------------------------------------------------------------------- */
/* Calls of contexts, of all ranks of this process; atomic, __atomic_* */
static int joins, measures, updates, ends;

static void count_call(const char *name)
{
	static const char *const names[] = {"tutti.context.join", "tutti.context.measure",
					    "tutti.context.update", "tutti.context.end"};
	int *const counts[] = {&joins, &measures, &updates, &ends};

	for (int i = 0; i < 4; i++)
		if (strcmp(name, names[i]) == 0)
			__atomic_fetch_add(counts[i], 1, __ATOMIC_SEQ_CST);
}

tutti_status __real_tutti_rpc_call(tutti_rpc *rpc, int rank, const char *name,
				   const tutti_rpc_piece *pieces, int num_pieces,
				   tutti_rpc_answer *answer, const tutti_rpc_options *options);
tutti_status __wrap_tutti_rpc_call(tutti_rpc *rpc, int rank, const char *name,
				   const tutti_rpc_piece *pieces, int num_pieces,
				   tutti_rpc_answer *answer, const tutti_rpc_options *options);
tutti_status __real_tutti_rpc_call_async(tutti_rpc *rpc, int rank, const char *name,
					 const tutti_rpc_piece *pieces, int num_pieces,
					 tutti_rpc_answer *answer, const tutti_rpc_options *options,
					 tutti_rpc_future **future);
tutti_status __wrap_tutti_rpc_call_async(tutti_rpc *rpc, int rank, const char *name,
					 const tutti_rpc_piece *pieces, int num_pieces,
					 tutti_rpc_answer *answer, const tutti_rpc_options *options,
					 tutti_rpc_future **future);

tutti_status __wrap_tutti_rpc_call(tutti_rpc *rpc, int rank, const char *name,
				   const tutti_rpc_piece *pieces, int num_pieces,
				   tutti_rpc_answer *answer, const tutti_rpc_options *options)
{
	count_call(name);
	return __real_tutti_rpc_call(rpc, rank, name, pieces, num_pieces, answer, options);
}

tutti_status __wrap_tutti_rpc_call_async(tutti_rpc *rpc, int rank, const char *name,
					 const tutti_rpc_piece *pieces, int num_pieces,
					 tutti_rpc_answer *answer, const tutti_rpc_options *options,
					 tutti_rpc_future **future)
{
	count_call(name);
	return __real_tutti_rpc_call_async(rpc, rank, name, pieces, num_pieces, answer, options,
					   future);
}

/* Of p participants beside the beginner each is called once for its first addition, however many
 * follow, twice for a step, and once for the end. */
static void costs(tutti_comm *comm, void *arg)
{
	struct world world;

	world_open(&world, comm);
	if (world.rank == 0) {
		int others = world.size - 1;
		joins = measures = updates = ends = 0;
		uint64_t context = begin(&world);
		for (int i = 0; i < 3; i++)
			for (int rank = 0; rank < world.size; rank++)
				add_on(&world, rank, i, 1);
		CHECK(joins == others && measures == 0);
		CHECK(step_with(&world, context, &sgd, 1, NULL) == TUTTI_OK);
		CHECK(measures == others && updates == others);
		CHECK(tutti_rpc_context_end(world.rpc, context, 0) == TUTTI_OK);
		CHECK(joins == others && measures == others && updates == others && ends == others);
	}
	world_close(&world);
}

/* ---- a step that waits for a reader ------------------------------------------------------- */
struct stepper {
	struct world *world;
	uint64_t context;
	pthread_t thread;
	tutti_status status;
};

static void *stepper_main(void *arg)
{
	struct stepper *stepper = arg;

	stepper->status = step_with(stepper->world, stepper->context, &sgd, 0, NULL);
	return NULL;
}

/* Adds zeros until a step has begun. */
static void await_step(struct world *world, uint64_t context)
{
	const float zeros[WORLD_COUNT] = {0};
	tutti_status status = TUTTI_OK;

	tutti_rpc_context_set(context);
	while (status == TUTTI_OK) {
		status = tutti_rpc_context_add(world->rpc, world->params[0], zeros, WORLD_COUNT);
		sched_yield();
	}
	CHECK_ERROR(status, TUTTI_ERR_INVALID, "is in a step");
}

/* Rank 0's reader keeps the step out of w0 and, since a step takes all at once, out of w1. */
static void waits_for_readers(tutti_comm *comm, void *arg)
{
	struct world world;

	world_open(&world, comm);
	if (world.rank == 0) {
		struct stepper stepper = {.world = &world, .context = begin(&world)};
		add_on(&world, 0, 0, 1);
		add_on(&world, 0, 1, 1);
		CHECK(tutti_rpc_param_lock(world.rpc, world.params, 1, 0) == TUTTI_OK);
		CHECK(pthread_create(&stepper.thread, NULL, stepper_main, &stepper) == 0);
		await_step(&world, stepper.context);
		CHECK_ERROR(tutti_rpc_context_end(world.rpc, stepper.context, 0), TUTTI_ERR_INVALID,
			    "another thread steps or ends");
		CHECK(world.values[0][0] == 0);
		CHECK(tutti_rpc_param_unlock(world.rpc, world.params, 1) == TUTTI_OK);
		pthread_join(stepper.thread, NULL);
		CHECK(stepper.status == TUTTI_OK);
		check_value(&world, 0, 0, -0.25f);
		check_value(&world, 0, 1, -0.25f);
		CHECK(tutti_rpc_context_end(world.rpc, stepper.context, 0) == TUTTI_OK);
	}
	world_close(&world);
}

/* The beginner has updated its own parameters, and waits for other ranks' alone. */
static void await_own_update(struct world *world)
{
	struct remote *remote = rpc_extension_data(world->rpc);
	bool has_updated = false;

	while (!has_updated) {
		CHECK(tutti_rpc_param_lock(world->rpc, world->params, 1, 0) == TUTTI_OK);
		has_updated = world->values[0][0] != 0;
		CHECK(tutti_rpc_param_unlock(world->rpc, world->params, 1) == TUTTI_OK);
		pthread_mutex_lock(&remote->lock);
		has_updated = has_updated && remote->contexts->users == 1; /* the step itself */
		pthread_mutex_unlock(&remote->lock);
		sched_yield();
	}
}

/* The last rank's reader holds up the step, which the beginner has made already. */
static void ends_on_all_ranks(tutti_comm *comm, void *arg)
{
	struct stepper stepper;
	struct world world;

	world_open(&world, comm);
	int last = world.size - 1;
	if (world.rank == last)
		CHECK(tutti_rpc_param_lock(world.rpc, world.params, 1, 0) == TUTTI_OK);
	CHECK(tutti_barrier(comm, NULL) == TUTTI_OK);
	if (world.rank == 0) {
		const float ones[WORLD_COUNT] = {1};
		const struct path new_rank = {.param = 1, .length = 1, .value = 1, .ranks = {1}};
		stepper = (struct stepper){.world = &world, .context = begin(&world)};
		add_on(&world, 0, 0, 1);
		add_on(&world, last, 0, 1);
		CHECK(pthread_create(&stepper.thread, NULL, stepper_main, &stepper) == 0);
		await_own_update(&world);
		CHECK_ERROR(tutti_rpc_context_add(world.rpc, world.params[1], ones, WORLD_COUNT),
			    TUTTI_ERR_INVALID, "is in a step");
		CHECK_ERROR(world_add(&world, &new_rank), TUTTI_ERR_INVALID, "is in a step");
	}
	CHECK(tutti_barrier(comm, NULL) == TUTTI_OK);
	if (world.rank == last)
		CHECK(tutti_rpc_param_unlock(world.rpc, world.params, 1) == TUTTI_OK);
	if (world.rank == 0) {
		pthread_join(stepper.thread, NULL);
		CHECK(stepper.status == TUTTI_OK);
		check_value(&world, 0, 0, -0.25f);
		check_value(&world, last, 0, -0.25f);
		add_on(&world, 1, 1, 1); /* for the next step */
		CHECK(tutti_rpc_context_end(world.rpc, stepper.context, 0) == TUTTI_OK);
	}
	world_close(&world);
}

/* A reader that does not let go: the ranks that have updated are said. arg: the step has the rpc's
 * timeout, also for what the beginner itself has locked. */
static void reader_stays(tutti_comm *comm, void *arg)
{
	static const char *const said[] = {[1] = "have updated: none;",
					   [2] = "have updated: 0;",
					   [4] = "have updated: 0, 1, 2;"};
	struct world world;

	world_open_for(&world, comm, arg ? *(int *)arg : 0);
	if (world.rank == world.size - 1)
		CHECK(tutti_rpc_param_lock(world.rpc, world.params, 1, 0) == TUTTI_OK);
	CHECK(tutti_barrier(comm, NULL) == TUTTI_OK);
	if (world.rank == 0) {
		const tutti_rpc_step_config config = {
			.groups = &sgd, .num_groups = 1, .timeout_ms = arg ? 0 : 200};
		uint64_t context = begin(&world);
		for (int rank = 0; rank < world.size; rank++)
			add_on(&world, rank, 0, 1);
		CHECK_ERROR(tutti_rpc_context_step(world.rpc, context, &config, NULL),
			    TUTTI_ERR_TIMEOUT, said[world.size]);
		CHECK(tutti_rpc_context_end(world.rpc, context, 0) == TUTTI_OK);
	}
	CHECK(tutti_barrier(comm, NULL) == TUTTI_OK);
	if (world.rank == world.size - 1)
		CHECK(tutti_rpc_param_unlock(world.rpc, world.params, 1) == TUTTI_OK);
	world_close(&world);
}

/* ---- steps of several contexts at once ----------------------------------------------------- */
enum { TRAINERS = 4, TRAINER_STEPS = 20, LARGE = 100000 };

struct hogwild {
	struct world *world;
	int param;
	const float *ones;
	pthread_t thread;
};

static void *hogwild_main(void *arg)
{
	const struct hogwild *h = arg;
	tutti_rpc *rpc = h->world->rpc;

	for (int i = 0; i < TRAINER_STEPS; i++) {
		uint64_t context = begin(h->world);
		CHECK(tutti_rpc_context_add(rpc, h->param, h->ones, LARGE) == TUTTI_OK);
		CHECK(step_with(h->world, context, &sgd, 0, NULL) == TUTTI_OK);
		CHECK(tutti_rpc_context_end(rpc, context, 0) == TUTTI_OK);
	}
	return NULL;
}

/* An update that is not whole is lost for some elements: two threads have read the same value. */
static void no_update_is_lost(tutti_comm *comm, void *arg)
{
	static float values[LARGE], ones[LARGE];
	struct hogwild trainers[TRAINERS];
	struct world world;
	int param;

	world_open(&world, comm);
	for (int i = 0; i < LARGE; i++)
		ones[i] = 1;
	const tutti_rpc_param large = {.name = "large", .values = values, .count = LARGE};
	CHECK(tutti_rpc_param_add(world.rpc, &large, &param) == TUTTI_OK);
	for (int i = 0; i < TRAINERS; i++) {
		trainers[i] = (struct hogwild){.world = &world, .param = param, .ones = ones};
		CHECK(pthread_create(&trainers[i].thread, NULL, hogwild_main, &trainers[i]) == 0);
	}
	for (int i = 0; i < TRAINERS; i++)
		pthread_join(trainers[i].thread, NULL);
	int lost = 0;
	for (int i = 0; i < LARGE; i++)
		lost += values[i] != -0.25f * TRAINERS * TRAINER_STEPS;
	CHECK(lost == 0);
	world_close(&world);
}

static void on_ranks(rank_fn fn, void *arg)
{
	for (int i = 0; i < SIZES; i++)
		assert_int_equal(ranks_as_threads(sizes[i], fn, arg), 0);
}

static void test_adamw_is_the_twins(void **state)
{
	tutti_optimizer o = {.kind = TUTTI_ADAMW,
			     .lr = 0.01f,
			     .beta1 = 0.9f,
			     .beta2 = 0.999f,
			     .eps = 1e-8f,
			     .weight_decay = 0.1f};

	on_ranks(trains_like_twin, &o);
}

static void test_sgd_is_the_twins(void **state)
{
	tutti_optimizer o = {
		.kind = TUTTI_SGD, .lr = 0.01f, .momentum = 0.9f, .weight_decay = 0.1f};

	assert_int_equal(ranks_as_processes(4, trains_like_twin, &o), 0);
	on_ranks(trains_like_twin, &o);
}

static void test_norm_does_not_depend_on_ranks(void **state)
{
	float norms[5] = {0};

	on_ranks(norm_of_any_ranks, norms);
	assert_true(norms[1] > 0);
	assert_memory_equal(&norms[2], &norms[1], sizeof *norms);
	assert_memory_equal(&norms[4], &norms[1], sizeof *norms);
}

static void test_steps_wait_for_readers(void **state)
{
	int timeout_ms = 1000;

	on_ranks(waits_for_readers, NULL);
	on_ranks(reader_stays, NULL);
	assert_int_equal(ranks_as_threads(2, ends_on_all_ranks, NULL), 0);
	assert_int_equal(ranks_as_threads(4, ends_on_all_ranks, NULL), 0);
	assert_int_equal(ranks_as_threads(1, reader_stays, &timeout_ms), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_sgd_is_the_twins), /* forks */
		cmocka_unit_test(test_adamw_is_the_twins),
		cmocka_unit_test(test_norm_does_not_depend_on_ranks),
		RANKS_TEST(no_rank_updates, 1, 4),
		RANKS_TEST(bad_steps, 1, 4),
		RANKS_TEST(groups_and_removed, 1, 4),
		RANKS_TEST(costs, 1, 4),
		RANKS_TEST(no_update_is_lost, 1, 1),
		cmocka_unit_test(test_steps_wait_for_readers),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
