/* no_tsan: what is offloaded belongs to one rank, and no other thread sees it */
/* What would break: optimizer state in offload_dir's files that stays in memory, which memory_limit
 * does not count. The kernel reports how much of the mapped files is in memory. */
#include "tests/train/ranks.h"
#include "tests/train/saved.h"
#include "tests/train/toy.h"

#include "train/checkpoint/safetensors.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "tests/unit.h"

/* 8 MiB of state in f32 each: a master copy and two moments; and room for what one portion leaves.
 */
enum { ELEMENTS = 1 << 21, RANKS = 2, MOST_KIB = 1024 };

static char dir[64];

/* Of the files' mappings in this process, so of all ranks. */
static long resident_kib(void)
{
	char line[512];
	bool is_state = false;
	long sum = 0, kib;
	FILE *maps = fopen("/proc/self/smaps", "r");

	CHECK(maps != NULL);
	while (maps && fgets(line, sizeof line, maps)) {
		if (strchr(line, '-') && strchr(line, ':') && strstr(line, " r"))
			is_state = strstr(line, "/tutti_state_") != NULL;
		else if (is_state && sscanf(line, "Rss: %ld kB", &kib) == 1)
			sum += kib;
	}
	if (maps)
		fclose(maps);
	return sum;
}

static void expect_none(tutti_comm *comm, const char *after)
{
	CHECK(tutti_barrier(comm, NULL) == TUTTI_OK);
	long kib = resident_kib();
	if (kib > MOST_KIB) {
		fprintf(stderr, "after %s %ld KiB of state are in memory\n", after, kib);
		CHECK(kib <= MOST_KIB);
	}
	CHECK(tutti_barrier(comm, NULL) == TUTTI_OK);
}

static void fill_grad(tutti_trainer *t)
{
	char *grad;

	CHECK(tutti_micro_batch(t, TUTTI_PASS_LAST, 1, NULL) == TUTTI_OK);
	CHECK(unit_forward(t, 0) == TUTTI_OK);
	CHECK(tutti_backward_begin(t, 0) == TUTTI_OK);
	CHECK((grad = tutti_param_grad(t, 0)) != NULL);
	for (size_t i = 0; grad && i < ELEMENTS; i++)
		((float *)(void *)grad)[i] = (float)(i % 7) - 3;
	CHECK(tutti_backward_end(t, 0) == TUTTI_OK);
}

/* An update of the caller's own reads and writes the files itself. */
static void update(tutti_trainer *t)
{
	tutti_shard shard;

	fill_grad(t);
	CHECK(tutti_grads_finish(t, NULL) == TUTTI_OK);
	CHECK(tutti_param_shard(t, 0, &shard) == TUTTI_OK);
	for (size_t i = 0; i < shard.count; i++)
		shard.values[i] += 0.5f;
	CHECK(tutti_params_updated(t) == TUTTI_OK);
}

static void offloaded(tutti_comm *comm, void *arg)
{
	static const int64_t count = ELEMENTS;
	float *values = malloc(ELEMENTS * sizeof *values);
	tutti_model *model;
	tutti_trainer *t;
	int64_t step;

	CHECK(tutti_model_create(&model) == TUTTI_OK && tutti_model_unit(model, "unit") == 0);
	CHECK(tutti_model_param(model, 0, "w", 1, &count, 0) == 0);
	CHECK(tutti_trainer_create(&t, model, comm, arg) == TUTTI_OK);
	expect_none(comm, "tutti_trainer_create");
	CHECK(tutti_param_init_normal(t, 0, 0, 1) == TUTTI_OK);
	expect_none(comm, "tutti_param_init_normal");
	fill_grad(t);
	CHECK(tutti_step(t, &toy_adamw, 1, NULL) == TUTTI_OK);
	expect_none(comm, "tutti_step");
	CHECK(tutti_check_replicas(t) == TUTTI_OK);
	expect_none(comm, "tutti_check_replicas");
	CHECK(tutti_param_read(t, 0, 0, ELEMENTS, values) == TUTTI_OK);
	expect_none(comm, "tutti_param_read");
	CHECK(tutti_param_write(t, 0, 0, ELEMENTS, values) == TUTTI_OK);
	expect_none(comm, "tutti_param_write");
	update(t);
	expect_none(comm, "tutti_params_updated");
	if (jansson_needed() == TUTTI_OK) {
		CHECK(tutti_save(t, dir, 2) == TUTTI_OK && tutti_save_wait(t) == TUTTI_OK);
		expect_none(comm, "tutti_save");
		CHECK(tutti_load(t, dir, &step) == TUTTI_OK && step == 2);
		expect_none(comm, "tutti_load");
	}
	tutti_trainer_destroy(t);
	tutti_model_destroy(model);
	free(values);
}

static void test_files_leave(void **state)
{
	static const tutti_strategy strategies[] = {TUTTI_DDP, TUTTI_ZERO1, TUTTI_FSDP,
						    TUTTI_LOCAL_SGD};

	for (size_t s = 0; s < sizeof strategies / sizeof *strategies; s++) {
		tutti_train_config config = {.strategy = strategies[s],
					     .param_dtype = TUTTI_BF16,
					     .grad_dtype = TUTTI_F32,
					     .local_sgd_steps = 1,
					     .local_sgd_state = 1,
					     .offload_optimizer = 1,
					     .offload_dir = dir};
		saved_folder(dir);
		assert_int_equal(ranks_as_threads(RANKS, offloaded, &config), 0);
		saved_remove(dir);
	}
}

/* Frozen parameters have no state in offload_dir's files: saving and loading them must not let go
 * of other pages. */
enum { FROZEN = 1 << 18, NEAR = 4 << 20 };

static size_t count_other(const void *memory, size_t bytes, int value)
{
	const unsigned char *at = memory;
	size_t count = 0;

	for (size_t i = 0; i < bytes; i++)
		count += at[i] != value;
	return count;
}

static void frozen_on_disk(tutti_comm *comm, void *arg)
{
	static const int64_t few = 8, many = FROZEN;
	float *read = malloc(FROZEN * sizeof *read);
	tutti_model *model;
	tutti_trainer *t;
	const float one = 1;
	int64_t step;

	CHECK(tutti_model_create(&model) == TUTTI_OK);
	CHECK(tutti_model_unit(model, "unit") == 0);
	CHECK(tutti_model_param(model, 0, "w", 1, &few, 0) == 0);
	CHECK(tutti_model_param(model, 0, "frozen", 1, &many, TUTTI_PARAM_FROZEN) == 1);
	CHECK(tutti_trainer_create(&t, model, comm, arg) == TUTTI_OK);
	CHECK(tutti_param_init_constant(t, 1, 1) == TUTTI_OK);
	/* The files are mapped next, below this. */
	void *near = mmap(NULL, NEAR, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	memset(near, 77, NEAR);
	CHECK(tutti_micro_batch(t, TUTTI_PASS_LAST, 1, NULL) == TUTTI_OK);
	CHECK(unit_forward(t, 0) == TUTTI_OK);
	CHECK(unit_backward(t, 0) == TUTTI_OK);
	CHECK(tutti_step(t, &toy_adamw, 1, NULL) == TUTTI_OK);
	if (jansson_needed() == TUTTI_OK) {
		CHECK(tutti_save(t, dir, 1) == TUTTI_OK && tutti_save_wait(t) == TUTTI_OK);
		CHECK(count_other(near, NEAR, 77) == 0);
		CHECK(tutti_load(t, dir, &step) == TUTTI_OK && step == 1);
	}
	CHECK(tutti_param_write(t, 1, 0, 1, &one) == TUTTI_OK);
	CHECK(count_other(near, NEAR, 77) == 0);
	CHECK(tutti_param_read(t, 1, 0, FROZEN, read) == TUTTI_OK);
	for (size_t i = 0; i < FROZEN; i++)
		if (read[i] != 1) {
			CHECK(read[i] == 1);
			break;
		}
	munmap(near, NEAR);
	tutti_trainer_destroy(t);
	tutti_model_destroy(model);
	free(read);
}

static void test_frozen(void **state)
{
	tutti_train_config config = {.strategy = TUTTI_ZERO1, .offload_dir = dir};

	saved_folder(dir);
	assert_int_equal(ranks_as_threads(1, frozen_on_disk, &config), 0);
	saved_remove(dir);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_files_leave),
		cmocka_unit_test(test_frozen),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
