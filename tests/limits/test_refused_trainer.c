/* Breaks when memory that is refused to one rank while it makes a trainer, trains, or saves crashes
 * it, leaks, or leaves the other ranks waiting. The ranks are threads; some of their requests are
 * refused in turn, with LIMITS_ALL=1 every one. */
#include "core/clock.h"
#include "tests/limit.h"
#include "tests/limits/job.h"
#include "tests/limits/shim.h"

#include <tutti/train.h>

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/unit.h"

enum { RANKS = 2, TIMEOUT_MS = 86400000, SAMPLES = 12, UNITS = 3, STEPS = 2 };

struct rank {
	tutti_comm *comm;
	tutti_strategy strategy;
	pthread_barrier_t *made; /* no rank leaves the communicator before all have come back */
	const char *where;       /* what failed; NULL: nothing */
	tutti_status status;
	char error[512];
};

static uint64_t seed;
static char folder[] = "/tmp/tutti_refused_XXXXXX"; /* checkpoints */

static bool is_well(struct rank *rank, const char *where, tutti_status status)
{
	if (status == TUTTI_OK)
		return true;
	if (!rank->where) {
		rank->where = where;
		rank->status = status;
		snprintf(rank->error, sizeof rank->error, "%s", tutti_comm_error(NULL));
	}
	return false;
}

static bool describe(struct rank *rank, tutti_model **model)
{
	static const char *const names[UNITS] = {"a", "b", "c"};
	const int64_t shape[2] = {9, 7};

	if (!is_well(rank, "model", tutti_model_create(model)))
		return false;
	for (int u = 0; u < UNITS; u++)
		if (tutti_model_unit(*model, names[u]) < 0 ||
		    tutti_model_param(*model, u, names[u], 2, shape, 0) < 0)
			return is_well(rank, "register", TUTTI_ERR_MEMORY);
	return true;
}

static bool step(struct rank *rank, tutti_trainer *t)
{
	const tutti_optimizer adamw = {
		.kind = TUTTI_ADAMW, .lr = 0.1f, .beta1 = 0.9f, .eps = 1e-8f};

	if (!is_well(rank, "micro-batch", tutti_micro_batch(t, TUTTI_PASS_LAST, 1, NULL)))
		return false;
	for (int u = 0; u < UNITS; u++)
		if (!is_well(rank, "forward", tutti_forward_begin(t, u)) ||
		    !is_well(rank, "forward's end", tutti_forward_end(t, u)))
			return false;
	for (int u = UNITS - 1; u >= 0; u--)
		if (!is_well(rank, "backward", tutti_backward_begin(t, u)) ||
		    !is_well(rank, "backward's end", tutti_backward_end(t, u)))
			return false;
	return is_well(rank, "step", tutti_step(t, &adamw, 1, NULL));
}

/* A build without jansson saves nothing. */
static bool save(struct rank *rank, tutti_trainer *trainer)
{
	int64_t found;
	tutti_status status = tutti_save(trainer, folder, STEPS);

	return status == TUTTI_ERR_UNSUPPORTED ||
	       (is_well(rank, "save", status) &&
		is_well(rank, "save's end", tutti_save_wait(trainer)) &&
		is_well(rank, "load", tutti_load(trainer, folder, &found)));
}

static bool train(struct rank *rank, tutti_trainer *trainer)
{
	for (int i = 0; i < STEPS; i++)
		if (!step(rank, trainer))
			return false;
	return save(rank, trainer);
}

/* A rank that has no model leaves, so that the others need not wait for it; who has one stays until
 * all of them know what became of their trainers. */
static void *use(void *arg)
{
	struct rank *rank = arg;
	const tutti_train_config config = {.strategy = rank->strategy, .param_dtype = TUTTI_BF16};
	tutti_model *model = NULL;
	tutti_trainer *trainer = NULL;

	if (describe(rank, &model)) {
		bool is_made = is_well(rank, "trainer",
				       tutti_trainer_create(&trainer, model, rank->comm, &config));
		pthread_barrier_wait(rank->made);
		if (is_made)
			train(rank, trainer);
		tutti_trainer_destroy(trainer);
		tutti_comm_destroy(rank->comm);
	} else {
		tutti_comm_destroy(rank->comm);
		pthread_barrier_wait(rank->made);
	}
	tutti_model_destroy(model);
	return NULL;
}

/* One of them says what was lacking; and nobody trains on alone. */
static void judge(const struct rank *ranks, bool was_refused, const char *what)
{
	bool is_said = false, has_failed = false;

	for (int r = 0; r < RANKS; r++) {
		const struct rank *rank = &ranks[r];
		has_failed |= rank->where != NULL;
		is_said |= rank->where && (strstr(rank->error, "memory") != NULL ||
					   strstr(rank->error, "Cannot allocate") != NULL);
		if (rank->where && rank->status == TUTTI_ERR_TIMEOUT)
			fail_msg("%s: rank %d's %s: %s; rank %d's %s: %s", what, r, rank->where,
				 rank->error, 1 - r, ranks[1 - r].where ? ranks[1 - r].where : "-",
				 ranks[1 - r].error);
	}
	if (has_failed && !was_refused)
		fail_msg("%s: failed by itself: %s: %s%s", what, ranks[0].error, ranks[1].error,
			 ranks[0].where ? "" : " (rank 1)");
	if (has_failed && !is_said)
		fail_msg("%s: nobody says what was lacking: '%s', '%s'", what, ranks[0].error,
			 ranks[1].error);
}

/* number -1: nothing is refused. Returns whether anything was. */
static bool try(tutti_strategy strategy, long number, long *requests)
{
	const tutti_config config = {.timeout_ms = TIMEOUT_MS};
	tutti_comm *comms[RANKS];
	struct rank ranks[RANKS] = {{0}};
	pthread_t threads[RANKS];
	pthread_barrier_t made;
	char what[100];

	snprintf(what, sizeof what, "strategy %d, request %ld for memory", (int)strategy, number);
	test_limit(60);
	pthread_barrier_init(&made, NULL, RANKS);
	assert_int_equal(tutti_init_all(comms, RANKS, &config), TUTTI_OK);
	long before = shim_calls(SHIM_MEMORY), blocks = shim_blocks();
	if (number >= 0)
		shim_fail(SHIM_MEMORY, number, false);
	for (int r = 0; r < RANKS; r++) {
		ranks[r] = (struct rank){.comm = comms[r], .strategy = strategy, .made = &made};
		assert_int_equal(__real_pthread_create(&threads[r], NULL, use, &ranks[r]), 0);
	}
	for (int r = 0; r < RANKS; r++)
		pthread_join(threads[r], NULL);
	bool was_refused = shim_stop();
	*requests = shim_calls(SHIM_MEMORY) - before;
	pthread_barrier_destroy(&made);
	test_limit(0);
	judge(ranks, was_refused && number >= 0, what);
	if (shim_blocks() > blocks)
		fail_msg("%s: %ld blocks are left of %ld", what, shim_blocks(), blocks);
	return was_refused;
}

static void refuse_in_turn(tutti_strategy strategy)
{
	long requests, unused, refused = 0;

	try(strategy, -1, &requests);
	long stride = getenv("LIMITS_ALL") ? 1 : requests / SAMPLES + 1;
	for (long i = getenv("LIMITS_ALL") ? 0 : (long)(seed % (uint64_t)stride); i < requests;
	     i += stride)
		refused += try(strategy, i, &unused);
	print_message("strategy %d: of %ld requests for memory %ld were refused\n", (int)strategy,
		      requests, refused);
	assert_true(refused > 0);
}

static void of_ddp(void **state)
{
	refuse_in_turn(TUTTI_DDP);
}

static void of_zero2(void **state)
{
	refuse_in_turn(TUTTI_ZERO2);
}

static void of_fsdp(void **state)
{
	refuse_in_turn(TUTTI_FSDP);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(of_ddp),
		cmocka_unit_test(of_zero2),
		cmocka_unit_test(of_fsdp),
	};

	seed = getenv("TEST_SEED") ? strtoull(getenv("TEST_SEED"), NULL, 0) : clock_now_ns();
	printf("TEST_SEED=%" PRIu64 "\n", seed);
	if (!mkdtemp(folder))
		return 1;
	int failed = cmocka_run_group_tests(tests, NULL, NULL);
	char command[64];
	snprintf(command, sizeof command, "rm -rf %s", folder);
	return system(command) != 0 ? 1 : failed;
}
