/* What would break: ranks that continue after others have died, or with new ones, from another
 * step, other optimizer state or another loss scale, or with values that differ between them.
 *
 * No rank dies here: each rank's earlier trainer had a communicator of its own and the same
 * samples, and stopped at a given step. Gradients are small integers, so the result must have the
 * bits of one rank that trains without interruption. */
#include "tests/train/ranks.h"
#include "tests/train/toy.h"
#include "tests/whole.h"
#include "train/checkpoint/safetensors.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit.h"

enum { RANKS = 4, SAMPLES = 8, SKIPPED = 1, STEPS = 6, NO_TRAINER = -1 };

struct scene {
	tutti_train_config config;
	int ranks, finished[RANKS]; /* steps of each rank's earlier trainer, or NO_TRAINER */
	int most;
	float values[TOY_PARAMS][TOY_MAX]; /* at the end, rank 0's */
};

/* Steps [first, last). One of them has an infinity, so that the loss scale and the count of updates
 * differ from what the count of steps suggests. */
static void train(struct toy *toy, int first, int last)
{
	toy->infinite_batch = SKIPPED;
	for (int number = first; number < last; number++) {
		tutti_step_info info;
		toy_micro_batch(toy, TUTTI_PASS_LAST, number, SAMPLES);
		CHECK(tutti_step(toy->trainer, &toy_adamw, 1, &info) == TUTTI_OK);
		CHECK(info.skipped == (number == SKIPPED));
		CHECK(info.loss_scale == (number <= SKIPPED ? 65536 : 32768));
	}
}

static void undisturbed(tutti_comm *comm, void *arg)
{
	struct scene *scene = arg;
	struct toy toy;

	toy_make(&toy, comm, &scene->config);
	train(&toy, 0, STEPS);
	toy_read(toy.trainer, scene->values);
	toy_destroy(&toy);
}

/* A trainer with first values of its own, which must be replaced. */
static void start_again(struct toy *toy, tutti_comm *comm, const tutti_train_config *config)
{
	toy_make(toy, comm, config);
	for (int p = 0; p < TOY_PARAMS; p++)
		CHECK(tutti_param_init_constant(toy->trainer, p, (float)toy->rank) == TUTTI_OK);
}

/* Forward sees the values of the rank that had finished most steps. */
static void check_seen(const struct scene *scene, const struct toy *before, const struct toy *after,
		       tutti_comm *comm)
{
	size_t width = scene->config.param_dtype == TUTTI_F32 ? sizeof(float) : sizeof(uint16_t);
	int root = 0;

	while (scene->finished[root] != scene->most)
		root++;
	for (int p = 0; p < TOY_PARAMS; p++) {
		size_t bytes = toy_count(p) * width;
		char seen[TOY_MAX * sizeof(float)] = {0};
		if (after->rank == root)
			memcpy(seen, tutti_param_data(before->trainer, p), bytes);
		CHECK(tutti_broadcast(seen, seen, bytes, TUTTI_U8, root, comm, NULL) == TUTTI_OK);
		CHECK(memcmp(seen, tutti_param_data(after->trainer, p), bytes) == 0);
	}
}

/* A trainer that has continued can be continued from. */
static void once_more(tutti_comm *comm, const struct scene *scene, const struct toy *before)
{
	struct toy toy;
	int64_t steps = -7;

	start_again(&toy, comm, &scene->config);
	CHECK(tutti_trainer_continue(toy.trainer, before->trainer, &steps) == TUTTI_OK);
	CHECK(steps == STEPS);
	toy_destroy(&toy);
}

static void go_on(tutti_comm *comm, void *arg)
{
	struct scene *scene = arg;
	int rank = tutti_rank(comm), finished = scene->finished[rank];
	tutti_comm *own, *copy;
	struct toy before = {0}, after;
	int64_t steps = -7;

	CHECK(tutti_comm_split(comm, rank, 0, NULL, &own) == TUTTI_OK);
	if (finished != NO_TRAINER) {
		toy_make(&before, own, &scene->config);
		train(&before, 0, finished);
	}
	CHECK(tutti_comm_dup(comm, &copy) == TUTTI_OK);
	start_again(&after, copy, &scene->config);
	CHECK(tutti_trainer_continue(after.trainer, before.trainer, &steps) == TUTTI_OK);
	CHECK(steps == scene->most);
	check_seen(scene, &before, &after, comm);
	toy_destroy(&before); /* nothing of it is used any more */
	tutti_comm_destroy(own);
	CHECK(tutti_check_replicas(after.trainer) == TUTTI_OK);
	CHECK(tutti_grad_scale(after.trainer) == (scene->most > SKIPPED ? 32768 : 65536));
	train(&after, scene->most, STEPS);
	CHECK(tutti_check_replicas(after.trainer) == TUTTI_OK);
	toy_keep(&after, scene->values);
	once_more(comm, scene, &after);
	toy_destroy(&after);
	tutti_comm_destroy(copy);
}

static const struct scene scenes[] = {
	{.ranks = 2, .finished = {3, 4}, .most = 4},
	{.ranks = 3, .finished = {3, 4, 3}, .most = 4},
	{.ranks = 3, .finished = {NO_TRAINER, 3, 3}, .most = 3},
	{.ranks = 4, .finished = {2, 2, NO_TRAINER, 1}, .most = 2},
	{.ranks = 2, .finished = {STEPS, STEPS - 1}, .most = STEPS},
	{.ranks = 1, .finished = {5}, .most = 5},
	{.ranks = 2, .finished = {1, NO_TRAINER}, .most = 1},
};

static void goes_on(tutti_train_config config)
{
	static struct scene calm;

	config.seed = 7;
	config.loss_scale = -1;
	config.deterministic = 1;
	config.max_grad_norm = 2;
	calm = (struct scene){.config = config};
	assert_int_equal(ranks_as_threads(1, undisturbed, &calm), 0);
	for (size_t s = 0; s < sizeof scenes / sizeof *scenes; s++) {
		struct scene scene = scenes[s];
		scene.config = config;
		assert_int_equal(ranks_as_threads(scene.ranks, go_on, &scene), 0);
		if (memcmp(scene.values, calm.values, sizeof calm.values) != 0)
			fail_msg("scene %zu: other values than without any of this", s);
	}
}

static void test_f32(void **state)
{
	goes_on((tutti_train_config){.param_dtype = TUTTI_F32});
}

/* Rounding is keyed by the count of updates; the rounded values are copied with the master copy. */
static void test_of_16_bits(void **state)
{
	goes_on((tutti_train_config){.param_dtype = TUTTI_BF16, .stochastic_rounding = 1});
	goes_on((tutti_train_config){.param_dtype = TUTTI_F16});
}

static void from_nothing(tutti_comm *comm, void *arg)
{
	float first[TOY_PARAMS][TOY_MAX], then[TOY_PARAMS][TOY_MAX];
	struct toy toy;
	int64_t steps = -7;

	toy_make(&toy, comm, NULL);
	toy_read(toy.trainer, first);
	CHECK(tutti_trainer_continue(toy.trainer, NULL, &steps) == TUTTI_OK);
	CHECK(steps == 0);
	toy_read(toy.trainer, then);
	CHECK(memcmp(first, then, sizeof then) == 0);
	CHECK_ERROR(tutti_trainer_continue(toy.trainer, toy.trainer, &steps), TUTTI_ERR_INVALID,
		    "an earlier trainer that is not the new one");
	CHECK_ERROR(tutti_trainer_continue(NULL, NULL, &steps), TUTTI_ERR_INVALID,
		    "tutti_trainer_continue");
	toy_destroy(&toy);
}

/* Rank 1's earlier trainer has another type. All ranks fail, and nothing changes. */
static void refused(tutti_comm *comm, void *arg)
{
	const tutti_train_config narrow = {.param_dtype =
						   tutti_rank(comm) == 1 ? TUTTI_BF16 : TUTTI_F32};
	float first[TOY_PARAMS][TOY_MAX], then[TOY_PARAMS][TOY_MAX];
	struct toy other, toy;
	int64_t steps = -7;
	tutti_comm *own;

	CHECK(tutti_comm_split(comm, tutti_rank(comm), 0, NULL, &own) == TUTTI_OK);
	toy_make(&other, own, &narrow);
	toy_make(&toy, comm, NULL);
	toy_read(toy.trainer, first);
	CHECK_ERROR(tutti_trainer_continue(toy.trainer, other.trainer, &steps), TUTTI_ERR_INVALID,
		    tutti_rank(comm) == 1 ? "different models" : "On rank 1: ");
	CHECK(steps == -7);
	toy_read(toy.trainer, then);
	CHECK(memcmp(first, then, sizeof then) == 0);
	toy_destroy(&toy);
	toy_destroy(&other);
	tutti_comm_destroy(own);
}

/* ---- parts on other ranks ----------------------------------------------------------------- */

enum { LAST_SAVED = 2, FINISHED = 4 };

/* Some ranks lose their earlier trainers, as if they had died. */
struct loss {
	tutti_train_config before, after;
	int ranks, lost[RANKS]; /* 1: this rank */
	const char *dir;        /* checkpoints, or NULL */
	int64_t steps;          /* from which they go on, or -1: an error */
	const char *says;       /* its message, or of the checkpoint */
	float values[TOY_PARAMS][TOY_MAX];
};

/* To the end, and with a checkpoint on the way. */
static void train_and_save(struct toy *toy, const struct loss *loss)
{
	train(toy, 0, LAST_SAVED);
	if (loss->dir) {
		CHECK(tutti_save(toy->trainer, loss->dir, LAST_SAVED) == TUTTI_OK);
		CHECK(tutti_save_wait(toy->trainer) == TUTTI_OK);
	}
	train(toy, LAST_SAVED, FINISHED);
}

static void lose(tutti_comm *comm, void *arg)
{
	struct loss *loss = arg;
	float values[TOY_PARAMS][TOY_MAX];
	tutti_comm *copy;
	struct toy before, after;
	int64_t steps = -7;

	toy_make(&before, comm, &loss->before);
	train_and_save(&before, loss);
	if (loss->lost[before.rank]) {
		toy_destroy(&before);
		before.trainer = NULL;
		before.model = NULL;
	}
	CHECK(tutti_comm_dup(comm, &copy) == TUTTI_OK);
	start_again(&after, copy, &loss->after);
	tutti_status status = tutti_trainer_continue(after.trainer, before.trainer, &steps);
	if (loss->says)
		CHECK_MESSAGE(loss->says);
	toy_destroy(&before);
	CHECK(steps == (loss->steps < 0 ? -7 : loss->steps));
	CHECK(status == (loss->steps < 0 ? TUTTI_ERR_UNSUPPORTED : TUTTI_OK));
	if (status == TUTTI_OK) {
		train(&after, (int)steps, STEPS);
		toy_read(after.trainer, values);
		if (after.rank == 0)
			memcpy(loss->values, values, sizeof values);
	}
	toy_destroy(&after);
	tutti_comm_destroy(copy);
}

static tutti_train_config sharded(tutti_strategy strategy, int shadow)
{
	return (tutti_train_config){.strategy = strategy,
				    .seed = 7,
				    .loss_scale = -1,
				    .deterministic = 1,
				    .max_grad_norm = 2,
				    .shard_size = strategy == TUTTI_HSDP ? 2 : 0,
				    .shadow = shadow};
}

static void check_loss(struct loss loss)
{
	struct scene calm = {.config = sharded(TUTTI_DDP, 0)};

	assert_int_equal(ranks_as_threads(1, undisturbed, &calm), 0);
	assert_int_equal(ranks_as_threads(loss.ranks, lose, &loss), 0);
	if (loss.steps >= 0 && memcmp(loss.values, calm.values, sizeof calm.values) != 0)
		fail_msg("strategy %d, then %d, on %d ranks: other values",
			 (int)loss.before.strategy, (int)loss.after.strategy, loss.ranks);
}

/* Whatever the strategies are, before and after. */
static void test_other_strategies(void **state)
{
	for (tutti_strategy from = TUTTI_DDP; from <= TUTTI_HSDP; from++)
		for (tutti_strategy to = TUTTI_DDP; to <= TUTTI_HSDP; to++) {
			if ((from + to) % (unsigned)whole_or(1, 1, 5) != 0)
				continue;
			check_loss((struct loss){.before = sharded(from, 0),
						 .after = sharded(to, 1),
						 .ranks = 4,
						 .steps = FINISHED});
		}
}

/* Ranks 0 and 2 die at once: each has its shadow, or its replica. */
static void test_two_apart(void **state)
{
	for (tutti_strategy s = TUTTI_DDP; s <= TUTTI_FSDP; s++)
		check_loss((struct loss){.before = sharded(s, 1),
					 .after = sharded(s, 1),
					 .ranks = 4,
					 .lost = {1, 0, 1},
					 .steps = FINISHED});
	check_loss((struct loss){.before = sharded(TUTTI_HSDP, 0),
				 .after = sharded(TUTTI_HSDP, 0),
				 .ranks = 4,
				 .lost = {1, 0, 0, 1},
				 .steps = FINISHED});
}

/* Ranks 0 and 1 are neighbours: rank 0's part died with its shadow. Without a checkpoint this is
 * said; with one they go on from there. The same without shadows. */
static void test_no_copy_left(void **state)
{
	const int lost[][RANKS] = {{1, 1}, {0, 1}};
	char folder[] = "/tmp/tutti_continue_XXXXXX", command[64];

	assert_non_null(mkdtemp(folder));
	for (int shadow = 0; shadow < 2; shadow++)
		for (tutti_strategy s = TUTTI_ZERO1; s <= TUTTI_FSDP; s++) {
			struct loss loss = {.before = sharded(s, shadow),
					    .after = sharded(s, shadow),
					    .ranks = 3,
					    .steps = -1,
					    .says = "the ranks that had it died, or left, and "
						    "none has saved"};
			memcpy(loss.lost, lost[!shadow], sizeof loss.lost);
			check_loss(loss);
			if (jansson_needed() != TUTTI_OK)
				continue; /* a build without checkpoints */
			loss.dir = folder;
			loss.steps = LAST_SAVED;
			loss.says = "continued from the checkpoint of step 2 in";
			check_loss(loss);
		}
	snprintf(command, sizeof command, "rm -r %s", folder);
	assert_int_equal(system(command), 0);
}

static void rejects(tutti_comm *comm, void *arg)
{
	const tutti_train_config config = sharded(TUTTI_ZERO1, 1), wrong = {.shadow = 2};
	struct toy toy;
	tutti_trainer *none = NULL;

	toy_register(&toy, comm, 0);
	CHECK_ERROR(tutti_trainer_create(&none, toy.model, comm, &wrong), TUTTI_ERR_INVALID,
		    "shadow is 2");
	toy_train(&toy, comm, &config);
	CHECK(tutti_micro_batch(toy.trainer, TUTTI_PASS_LAST, 1, NULL) == TUTTI_OK);
	CHECK_ERROR(tutti_grads_finish(toy.trainer, NULL), TUTTI_ERR_INVALID,
		    "a shadow makes the updates of tutti_step only");
	toy_destroy(&toy);
}

static size_t held(const tutti_train_stats *stats)
{
	return stats->param_bytes + stats->grad_bytes + stats->optimizer_bytes;
}

/* A shadow is as large as the estimate says, and costs a rank its part of the gradients a step. */
static void costs(tutti_comm *comm, void *arg)
{
	tutti_train_config config = *(const tutti_train_config *)arg;
	uint64_t sent[2];
	double most[2];

	for (config.shadow = 0; config.shadow < 2; config.shadow++) {
		tutti_train_stats stats, estimate;
		struct toy toy;
		toy_register(&toy, comm, 0);
		CHECK(tutti_memory_estimate(toy.model, toy.size, &config, &estimate) == TUTTI_OK);
		toy_train(&toy, comm, &config);
		train(&toy, 0, 1);
		CHECK(tutti_trainer_stats(toy.trainer, &stats) == TUTTI_OK);
		toy_destroy(&toy);
		sent[config.shadow] = stats.sent_grad_bytes;
		most[config.shadow] = (double)held(&stats);
		CHECK(tutti_all_reduce(&most[config.shadow], &most[config.shadow], 1, TUTTI_F64,
				       TUTTI_MAX, comm, NULL) == TUTTI_OK);
		CHECK((size_t)most[config.shadow] == held(&estimate));
	}
	double more = (double)(sent[1] - sent[0]), elements = 0;
	for (int p = 0; p < TOY_PARAMS; p++)
		elements += (double)toy_count(p);
	CHECK(tutti_all_reduce(&more, &more, 1, TUTTI_F64, TUTTI_SUM, comm, NULL) == TUTTI_OK);
	CHECK(more == 4 * elements);
	CHECK(most[1] > most[0]);
}

static void test_costs(void **state)
{
	for (tutti_strategy s = TUTTI_ZERO1; s <= TUTTI_FSDP; s++)
		for (int is_narrow = 0; is_narrow < 2; is_narrow++) {
			tutti_train_config config = sharded(s, 0);
			config.param_dtype = is_narrow ? TUTTI_BF16 : TUTTI_F32;
			assert_int_equal(ranks_as_threads(3, costs, &config), 0);
		}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_f32),
		cmocka_unit_test(test_of_16_bits),
		RANKS_TEST(from_nothing, 1, 3),
		RANKS_TEST(refused, 2, 3),
		cmocka_unit_test(test_other_strategies),
		cmocka_unit_test(test_two_apart),
		cmocka_unit_test(test_no_copy_left),
		cmocka_unit_test(test_costs),
		RANKS_TEST(rejects, 2, 2),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
