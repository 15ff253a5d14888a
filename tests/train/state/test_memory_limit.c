/* What would break: a memory_limit that leaves something out, refuses what fits, or is checked
 * after memory was taken. For every strategy one byte less than tutti_memory_estimate fails on all
 * ranks, with the sum, and the estimate itself is enough to train. */
#include "tests/train/design.h"
#include "tests/train/ranks.h"
#include "tests/train/toy.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "tests/unit.h"

static _Thread_local size_t taken; /* by this rank */

tutti_status __real_tutti_mem_alloc(void **ptr, size_t bytes, tutti_comm *comm);
tutti_status __wrap_tutti_mem_alloc(void **ptr, size_t bytes, tutti_comm *comm);

tutti_status __wrap_tutti_mem_alloc(void **ptr, size_t bytes, tutti_comm *comm)
{
	taken += bytes;
	return __real_tutti_mem_alloc(ptr, bytes, comm);
}

#define BF16 .param_dtype = TUTTI_BF16

static const struct {
	const char *name;
	tutti_train_config config;
	int ranks;
} cases[] = {
	{"ddp", {.strategy = TUTTI_DDP}, 2},
	{"zero1", {.strategy = TUTTI_ZERO1}, 2},
	{"zero1", {.strategy = TUTTI_ZERO1}, 4},
	{"zero1 of whole tensors", {.strategy = TUTTI_ZERO1, .whole_tensors = 1}, 2},
	{"zero1 of bf16", {.strategy = TUTTI_ZERO1, BF16}, 2},
	{"zero2", {.strategy = TUTTI_ZERO2, .bucket_bytes = 1}, 2},
	{"zero2", {.strategy = TUTTI_ZERO2, .bucket_bytes = 1}, 4},
	{"zero2 of bf16", {.strategy = TUTTI_ZERO2, BF16, .reduce_dtype = TUTTI_BF16}, 4},
	{"zero2 in order", {.strategy = TUTTI_ZERO2, .deterministic = 1}, 2},
	{"fsdp", {.strategy = TUTTI_FSDP}, 2},
	{"fsdp", {.strategy = TUTTI_FSDP}, 4},
	{"fsdp far ahead", {.strategy = TUTTI_FSDP, .prefetch_units = 3}, 4},
	{"fsdp of bf16", {.strategy = TUTTI_FSDP, BF16}, 2},
	{"fsdp, sums of bf16", {.strategy = TUTTI_FSDP, BF16, .reduce_dtype = TUTTI_BF16}, 4},
	{"hsdp", {.strategy = TUTTI_HSDP, .shard_size = 2}, 2},
	{"hsdp", {.strategy = TUTTI_HSDP, .shard_size = 2}, 4},
	{"hsdp of bf16", {.strategy = TUTTI_HSDP, .shard_size = 2, BF16}, 4},
	{"local sgd", {.strategy = TUTTI_LOCAL_SGD, .local_sgd_steps = 1}, 2},
	{"local sgd of bf16", {.strategy = TUTTI_LOCAL_SGD, .local_sgd_steps = 1, BF16}, 4},
};
enum { CASES = sizeof cases / sizeof *cases };

static size_t sum_of(const tutti_train_stats *stats)
{
	return stats->param_bytes + stats->grad_bytes + stats->optimizer_bytes +
	       stats->gathered_peak_bytes;
}

/* 2,608; the next call uses another buffer. */
static const char *with_commas(size_t number)
{
	static _Thread_local char texts[8][32];
	static _Thread_local int next;
	char *text = texts[next++ % 8];

	if (number >= 1000000)
		snprintf(text, 32, "%zu,%03zu,%03zu", number / 1000000, number / 1000 % 1000,
			 number % 1000);
	else if (number >= 1000)
		snprintf(text, 32, "%zu,%03zu", number / 1000, number % 1000);
	else
		snprintf(text, 32, "%zu", number);
	return text;
}

static void message_of(const tutti_train_stats *e, size_t limit, char text[320])
{
	snprintf(text, 320,
		 "needs %s B: %s parameters + %s gradients + %s optimizer + %s of whole units "
		 "and gradients; memory_limit is %s B.",
		 with_commas(sum_of(e)), with_commas(e->param_bytes), with_commas(e->grad_bytes),
		 with_commas(e->optimizer_bytes), with_commas(e->gathered_peak_bytes),
		 with_commas(limit));
}

/* Fails before anything is taken. Every rank says what the rank with most needs, although a rank
 * with smaller shards would have had room. The communicator still works afterwards. */
static void is_refused(tutti_model *model, tutti_comm *comm, const tutti_train_config *config,
		       const tutti_train_stats *estimate)
{
	tutti_trainer *trainer = NULL;
	char message[320];

	message_of(estimate, config->memory_limit, message);
	taken = 0;
	CHECK_ERROR(tutti_trainer_create(&trainer, model, comm, config), TUTTI_ERR_MEMORY, message);
	CHECK(!trainer && taken == 0);
	CHECK(tutti_barrier(comm, NULL) == TUTTI_OK);
}

static void limited(tutti_comm *comm, void *arg)
{
	tutti_train_config config = *(const tutti_train_config *)arg;
	tutti_train_stats estimate;
	struct toy toy;

	toy_register(&toy, comm, 0);
	CHECK(tutti_memory_estimate(toy.model, toy.size, &config, &estimate) == TUTTI_OK);
	CHECK(estimate.param_bytes > 0 && estimate.grad_bytes > 0 && estimate.optimizer_bytes > 0);
	config.memory_limit = sum_of(&estimate) - 1;
	is_refused(toy.model, comm, &config, &estimate);
	config.memory_limit = sum_of(&estimate);
	toy_train(&toy, comm, &config);
	CHECK(taken > 0);
	for (int step = 0; step < 2; step++) {
		toy_micro_batch(&toy, TUTTI_PASS_EVAL, step, 8);
		CHECK(toy_step(&toy, step, 8) == TUTTI_OK);
	}
	toy_destroy(&toy);
}

static void test_strategies(void **state)
{
	for (int i = 0; i < CASES; i++)
		if (ranks_as_threads(cases[i].ranks, limited, (void *)&cases[i].config) != 0)
			fail_msg("%s on %d ranks", cases[i].name, cases[i].ranks);
}

/* 4 TiB of parameters: allocating first would fail with another message. */
static void too_large(tutti_comm *comm, void *arg)
{
	const struct design design = design_equal(4, (int64_t)1 << 38, 0);
	tutti_train_config config = *(const tutti_train_config *)arg;
	tutti_trainer *trainer = NULL;
	tutti_model *model = design_build(&design);

	config.memory_limit = (size_t)1 << 30;
	taken = 0;
	CHECK_ERROR(tutti_trainer_create(&trainer, model, comm, &config), TUTTI_ERR_MEMORY,
		    "memory_limit is 1,073,741,824 B.");
	CHECK(taken == 0);
	tutti_model_destroy(model);
}

static void test_too_large(void **state)
{
	for (tutti_strategy s = TUTTI_DDP; s <= TUTTI_LOCAL_SGD; s++)
		for (int is_16_bits = 0; is_16_bits < 2; is_16_bits++) {
			tutti_train_config config = {
				.strategy = s, .shard_size = 2, .local_sgd_steps = 1};
			config.param_dtype = is_16_bits ? TUTTI_BF16 : TUTTI_F32;
			assert_int_equal(ranks_as_threads(2, too_large, &config), 0);
		}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_strategies),
		cmocka_unit_test(test_too_large),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
