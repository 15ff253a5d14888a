/* What would break: loading a whole checkpoint with numbers that no trainer saves, such as a step
 * of wild pointers or infinite gradients; and loading optimizer state that differs between ranks.
 */
#include "tests/train/ranks.h"
#include "tests/train/saved.h"
#include "tests/train/toy.h"

#include "train/base/base.h"
#include "train/checkpoint/safetensors.h"
#include "train/state/trainer_state.h"

#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/unit.h"

enum { RANKS = 2, SAMPLES = 8 };

struct forgery {
	const char *kind, *name; /* the tensor */
	const void *bytes;       /* its new bytes; NULL: it is removed */
	size_t size;
	const char *words; /* part of tutti_load's message */
};

static void forge_bytes(const char *path, int ranks, struct checkpoint_tensor *tensor,
			const struct forgery *forgery)
{
	struct checkpoint_piece *piece = &tensor->pieces[0];
	char name[CHECKPOINT_FILE_BYTES], key[CHECKPOINT_KEY_BYTES], part[DISK_PATH_BYTES];
	struct safetensors file;
	uint64_t bytes;
	int fd;

	checkpoint_file_name(name, piece->rank, ranks);
	checkpoint_key(key, tensor, piece->first);
	CHECK(disk_path(part, "%s/%s", path, name) == TUTTI_OK);
	CHECK(disk_open(&fd, &bytes, part) == TUTTI_OK);
	CHECK(safetensors_read(&file, fd, bytes, part) == TUTTI_OK);
	close(fd);
	const struct safetensor *place = safetensors_find(&file, key);
	CHECK(place && place->end - place->begin == forgery->size);
	fd = open(part, O_RDWR | O_CLOEXEC);
	CHECK(disk_write(fd, part, forgery->bytes, forgery->size, file.data_at + place->begin) ==
	      TUTTI_OK);
	close(fd);
	safetensors_finish(&file);
	piece->crc32c = tutti_crc32c(0, forgery->bytes, forgery->size);
}

static void write_index(const char *path, const struct checkpoint_index *index)
{
	char commit[128], *text, index_path[DISK_PATH_BYTES], commit_path[DISK_PATH_BYTES];
	size_t bytes;

	CHECK(disk_path(index_path, "%s/index.json", path) == TUTTI_OK);
	CHECK(disk_path(commit_path, "%s/COMMIT", path) == TUTTI_OK);
	CHECK(checkpoint_index_print(index, &text, &bytes) == TUTTI_OK);
	checkpoint_commit_text(commit, text, bytes);
	CHECK(disk_write_all(index_path, text, bytes) == TUTTI_OK);
	CHECK(disk_write_all(commit_path, commit, strlen(commit)) == TUTTI_OK);
	free(text);
}

/* Changes the newest checkpoint, and corrects all sums. */
static void forge(const struct forgery *forgery)
{
	struct checkpoint_found found;
	struct checkpoint_index index;

	CHECK(checkpoint_dir_find(&found, saved_dir) == TUTTI_OK && found.path[0]);
	CHECK(checkpoint_dir_read(&index, found.path) == TUTTI_OK);
	struct checkpoint_tensor *tensor =
		checkpoint_index_find(&index, forgery->kind, forgery->name);
	CHECK(tensor && tensor->piece_count == 1);
	if (forgery->bytes)
		forge_bytes(found.path, index.world_size, tensor, forgery);
	else
		strcpy(tensor->name, "forgotten");
	write_index(found.path, &index);
	checkpoint_index_finish(&index);
}

/* The load fails before anything is changed: the trainer continues. */
static void load(tutti_comm *comm, void *arg)
{
	const struct forgery *forgery = arg;
	const tutti_train_config config = {
		.strategy = TUTTI_FSDP, .loss_scale = -1, .seed = 7, .deterministic = 1};
	struct toy toy;
	float before[TOY_MAX], after[TOY_MAX];
	int64_t step = 5;

	toy_make(&toy, comm, &config);
	CHECK(toy_step(&toy, 0, SAMPLES) == TUTTI_OK);
	CHECK(tutti_save(toy.trainer, saved_dir, 1) == TUTTI_OK);
	CHECK(tutti_save_wait(toy.trainer) == TUTTI_OK);
	CHECK(toy_step(&toy, 1, SAMPLES) == TUTTI_OK);
	CHECK(tutti_param_read(toy.trainer, 3, 0, TOY_MAX, before) == TUTTI_OK);
	if (toy.rank == 0)
		forge(forgery);
	CHECK(tutti_barrier(comm, NULL) == TUTTI_OK);
	if (!forgery->words) {
		CHECK(tutti_load(toy.trainer, saved_dir, &step) == TUTTI_OK && step == 1);
	} else {
		CHECK_ERROR(tutti_load(toy.trainer, saved_dir, &step), TUTTI_ERR_INVALID,
			    forgery->words);
		CHECK(step == 5 && tutti_grad_scale(toy.trainer) == 65536);
		CHECK(tutti_param_read(toy.trainer, 3, 0, TOY_MAX, after) == TUTTI_OK);
		CHECK(memcmp(before, after, sizeof before) == 0);
	}
	CHECK(toy_step(&toy, 2, SAMPLES) == TUTTI_OK);
	toy_destroy(&toy);
}

#define OPTIMIZER(value) "optimizer", "param.2", &(const int32_t){value}, sizeof(int32_t)
#define COUNTS(...)      "trainer", "counts", (const int64_t[2]){__VA_ARGS__}, 2 * sizeof(int64_t)
#define SCALE(...)       "trainer", "scale", (const double[4]){__VA_ARGS__}, 4 * sizeof(double)

static void numbers(void **state)
{
	static const char file[] = "in part-00000-of-00002.safetensors is ";
	const struct forgery forgeries[] = {
		{OPTIMIZER(TUTTI_ADAMW), NULL}, /* only the number is wrong */
		{OPTIMIZER(99), "is damaged: 'param.2' (optimizer) in "},
		{OPTIMIZER(99), ".safetensors is 99, not a kind of optimizer, or -1"},
		{OPTIMIZER(INT32_MAX), "is 2147483647, not a kind"},
		{OPTIMIZER(2), "is 2, not a kind"},
		{OPTIMIZER(-2), "is -2, not a kind"},
		{"optimizer", "param.2", NULL, 0, "the optimizer of 'param.2' is not in it"},
		{COUNTS(-1, 1), "'counts' (trainer) in"},
		{COUNTS(1, -1), "is -1, not a number of updates"},
		{SCALE(65536, 1, 1, 0), NULL},
		{SCALE(0, 1, 1, 0), file},
		{SCALE(0, 1, 1, 0), "is 0, not a finite and positive loss scale"},
		{SCALE(-65536, 1, 1, 0), "is -65536, not a finite"},
		{SCALE((double)NAN, 1, 1, 0), "nan, not a finite and positive loss scale"},
		{SCALE((double)INFINITY, 1, 1, 0), "is inf, not"},
		{SCALE(1e300, 1, 1, 0), "not a finite and positive loss scale"},
		{SCALE(1e-300, 1, 1, 0), "not a finite and positive loss scale"},
		{SCALE(65536, -1, 1, 0), "is -1, not a number of good steps"},
		{SCALE(65536, 1e10, 1, 0), "is 10000000000, not a number of good steps"},
		{SCALE(65536, (double)NAN, 1, 0), "not a number of good steps"},
		{SCALE(65536, 1, 0, 1), "is 0, not a finite and positive divisor"},
		{SCALE(65536, 1, (double)NAN, 1), "not a finite and positive divisor"},
		{SCALE(65536, 1, 1e300, 1), "not a finite and positive divisor"},
		{SCALE(1e38, 1, 1e-38, 1), "not a finite and positive loss scale over its"},
	};

	for (size_t i = 0; i < sizeof forgeries / sizeof *forgeries; i++) {
		struct forgery forgery = forgeries[i];
		if (ranks_as_threads(RANKS, load, &forgery) != 0)
			fail_msg("forgery %zu: '%s'", i, forgery.words ? forgery.words : "");
	}
}

static float of_rank_0[2][TOY_PARAMS][TOY_MAX]; /* m and v */

static void compare_moments(const struct toy *toy, bool are_same)
{
	int differ = 0;

	CHECK(toy->trainer->piece_count == TOY_PARAMS - 1); /* one has no elements */
	for (int i = 0; i < toy->trainer->piece_count; i++) {
		const struct piece *piece = &toy->trainer->pieces[i];
		size_t bytes = toy_count(piece->param) * sizeof(float);
		CHECK(piece->count == toy_count(piece->param) && piece->m && piece->v);
		differ += memcmp(piece->m, of_rank_0[0][piece->param], bytes) != 0;
		differ += memcmp(piece->v, of_rank_0[1][piece->param], bytes) != 0;
	}
	CHECK(are_same == (differ == 0));
}

static void save_own_moments(tutti_comm *comm, void *arg)
{
	const tutti_train_config config = {.strategy = TUTTI_LOCAL_SGD,
					   .local_sgd_steps = 2,
					   .local_sgd_state = *(int *)arg,
					   .seed = 7};
	struct toy toy;
	int64_t step;

	toy_make(&toy, comm, &config);
	CHECK(toy_step(&toy, 0, SAMPLES) == TUTTI_OK);
	CHECK(toy_step(&toy, 1, SAMPLES) == TUTTI_OK);
	for (int i = 0; i < toy.trainer->piece_count && toy.rank == 0; i++) {
		const struct piece *piece = &toy.trainer->pieces[i];
		memcpy(of_rank_0[0][piece->param], piece->m, piece->count * sizeof(float));
		memcpy(of_rank_0[1][piece->param], piece->v, piece->count * sizeof(float));
	}
	CHECK(tutti_barrier(comm, NULL) == TUTTI_OK);
	compare_moments(&toy, config.local_sgd_state || toy.rank == 0);
	CHECK(tutti_save(toy.trainer, saved_dir, 2) == TUTTI_OK);
	CHECK(tutti_save_wait(toy.trainer) == TUTTI_OK);
	CHECK(toy_step(&toy, 2, SAMPLES) == TUTTI_OK);
	CHECK(tutti_load(toy.trainer, saved_dir, &step) == TUTTI_OK && step == 2);
	compare_moments(&toy, true);
	toy_destroy(&toy);
}

static void own_moments(void **state)
{
	for (int is_averaged = 0; is_averaged < 2; is_averaged++)
		assert_int_equal(ranks_as_threads(3, save_own_moments, &is_averaged), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(numbers, saved_setup, saved_teardown),
		cmocka_unit_test_setup_teardown(own_moments, saved_setup, saved_teardown),
	};
	if (jansson_needed() != TUTTI_OK)
		return saved_refusal();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
