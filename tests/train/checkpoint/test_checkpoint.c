/* no_tsan: other tests of the trainer run the same code with fewer models */
/* What would break: loading a checkpoint at another number of ranks, saving a step again, and
 * damaged files. */
#include "tests/train/saved.h"

#include "train/base/base.h"
#include "train/checkpoint/safetensors.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <fcntl.h>
#include <unistd.h>

#include "tests/unit.h"

static void assert_fails(tutti_status got, tutti_status status, const char *text)
{
	if (got != status || !strstr(tutti_comm_error(NULL), text))
		fail_msg("got '%s' and '%s'; expected '%s' and '%s'", tutti_status_string(got),
			 tutti_comm_error(NULL), tutti_status_string(status), text);
}

static void save(int64_t step, int ranks)
{
	struct saving saving = {.dir = saved_dir, .step = step, .ranks = ranks};
	assert_int_equal(saved_write(&saving), TUTTI_OK);
}

static void assert_found(int64_t step, int passed_over)
{
	struct checkpoint_found found;
	int64_t read_step;
	bool is_right;

	assert_int_equal(checkpoint_dir_find(&found, saved_dir), TUTTI_OK);
	assert_int_equal(found.step, step);
	assert_int_equal(found.passed_over, passed_over);
	assert_int_equal(saved_read(found.path, 1, &read_step, &is_right), TUTTI_OK);
	assert_true(is_right && read_step == step);
}

static void path_of(char path[200], const char *name)
{
	snprintf(path, 200, "%s/%s", saved_dir, name);
}

static off_t size_of(const char *path)
{
	struct stat about;
	assert_int_equal(stat(path, &about), 0);
	return about.st_size;
}

static void read_at_all_sizes(const struct saving *saving)
{
	const int sizes[] = {1, 2, 3, 8};
	struct checkpoint_found found;

	assert_int_equal(saved_write(saving), TUTTI_OK);
	assert_int_equal(checkpoint_dir_find(&found, saved_dir), TUTTI_OK);
	for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
		int64_t step;
		bool is_right;
		assert_int_equal(saved_read(found.path, sizes[i], &step, &is_right), TUTTI_OK);
		assert_true(is_right && step == saving->step);
	}
}

/* A checkpoint's own folder is found, however its name ends, and no other one in its place. */
static void a_folder_that_is_a_checkpoint(void **state)
{
	struct checkpoint_found found;
	char path[200];

	save(10, 2);
	save(20, 2);
	path_of(path, "step_00000010");
	assert_int_equal(checkpoint_dir_find(&found, path), TUTTI_OK);
	assert_int_equal(found.step, 10);
	assert_true(found.is_dir);
	path_of(path, "step_00000010//");
	assert_int_equal(checkpoint_dir_find(&found, path), TUTTI_OK);
	assert_int_equal(found.step, 10);
	path_of(path, "step_00000010/COMMIT");
	assert_int_equal(unlink(path), 0);
	path_of(path, "step_00000010");
	assert_int_equal(checkpoint_dir_find(&found, path), TUTTI_ERR_SYSTEM);
	assert_found(20, 0);
	/* A folder of checkpoints may have such a name. */
	path_of(path, "step_00000007");
	assert_int_equal(mkdir(path, 0700), 0);
	assert_int_equal(checkpoint_dir_find(&found, path), TUTTI_OK);
	assert_int_equal(found.step, -1);
}

static void ranks_differ(void **state)
{
	int fds = saved_fds();

	read_at_all_sizes(&(struct saving){.dir = saved_dir, .step = 0, .ranks = 4});
	read_at_all_sizes(&(struct saving){.dir = saved_dir, .step = 1, .ranks = 1});
	/* More ranks than some tensors have elements, and pieces of one element or of no whole
	 * number of them. */
	read_at_all_sizes(&(struct saving){
		.dir = saved_dir, .step = INT64_C(5000000000), .ranks = 11, .piece_bytes = 1003});
	read_at_all_sizes(&(struct saving){.dir = saved_dir,
					   .step = INT64_C(5000000001),
					   .ranks = 2,
					   .piece_bytes = 1,
					   .portion = 5});
	assert_int_equal(saved_fds(), fds);
}

/* Any range, also of pieces whose sums are already checked. */
static void ranges(void **state)
{
	enum { T = 7, COUNT = 5000 };
	struct checkpoint_found found;
	struct checkpoint *checkpoint;
	static char got[8 * COUNT], expected[8 * COUNT];
	unsigned seed = (unsigned)getpid();

	print_message("seed %u\n", seed);
	assert_int_equal(saved_write(&(struct saving){
				 .dir = saved_dir, .step = 3, .ranks = 4, .piece_bytes = 4096}),
			 TUTTI_OK);
	assert_int_equal(checkpoint_dir_find(&found, saved_dir), TUTTI_OK);
	assert_int_equal(checkpoint_open(&checkpoint, found.path), TUTTI_OK);
	const struct checkpoint_tensor *tensor = checkpoint_index_find(
		checkpoint_index_of(checkpoint), saved_tensors[T].kind, saved_tensors[T].name);
	for (int i = 0; i < 300; i++) {
		uint64_t first = (uint64_t)rand_r(&seed) % (COUNT + 1);
		uint64_t count = (uint64_t)rand_r(&seed) % (COUNT - first + 1);
		assert_int_equal(checkpoint_read(checkpoint, tensor, first, count, got), TUTTI_OK);
		saved_fill(expected, 3, T, 8 * first, 8 * (first + count));
		assert_memory_equal(got, expected, 8 * count);
	}
	assert_fails(checkpoint_read(checkpoint, tensor, 4999, 2, got), TUTTI_ERR_INVALID,
		     "Elements 4999 to 5001 of 'größe.日本' (v) cannot be read: it has 5000 in '");
	assert_null(checkpoint_index_find(checkpoint_index_of(checkpoint), "v", "nothing"));
	assert_null(
		checkpoint_index_find(checkpoint_index_of(checkpoint), "m", saved_tensors[T].name));
	checkpoint_close(checkpoint);
}

static void none(void **state)
{
	struct checkpoint_found found;
	char path[200];

	assert_int_equal(checkpoint_dir_find(&found, saved_dir), TUTTI_OK);
	assert_true(!found.path[0] && found.step == -1 && found.passed_over == 0);
	path_of(path, "nowhere");
	assert_int_equal(checkpoint_dir_find(&found, path), TUTTI_OK);
	assert_int_equal(found.path[0], 0);
	path_of(path, "step_00000300.bak"); /* the user's own, not a name of ours */
	assert_int_equal(mkdir(path, 0777), 0);
	path_of(path, "step_300");
	assert_int_equal(mkdir(path, 0777), 0);
	assert_int_equal(checkpoint_dir_find(&found, saved_dir), TUTTI_OK);
	assert_int_equal(found.path[0], 0);
	save(7, 2);
	assert_found(7, 0);
}

static void newest(void **state)
{
	save(100, 2);
	save(99999999, 1);
	save(100000000, 1); /* one digit more */
	save(20, 1);
	assert_found(100000000, 0);
	assert_int_equal(saved_count(saved_dir, "step_"), 4);
	assert_int_equal(saved_count(saved_dir, "."),
			 2); /* . and .., no temporary folder and no lock */
}

/* The same step again: the new checkpoint is found, and the old one removed. */
static void again(void **state)
{
	char path[200];

	save(5, 3);
	for (int i = 1; i <= 12; i++)
		save(5, 1 + i % 2);
	assert_found(5, 0);
	assert_int_equal(saved_count(saved_dir, "step_"), 1);
	path_of(path, "step_00000005.12");
	assert_int_equal(access(path, F_OK), 0);
}

static void cut(const char *name, off_t bytes)
{
	char path[200];

	path_of(path, name);
	assert_int_equal(truncate(path, bytes), 0);
}

static void truncated(void **state)
{
	struct checkpoint_found found;
	char path[200];

	save(1, 2);
	save(2, 2);
	save(3, 2);
	save(4, 2);
	save(5, 2);
	path_of(path, "step_00000005/part-00001-of-00002.safetensors");
	cut("step_00000005/part-00001-of-00002.safetensors", size_of(path) - 1);
	cut("step_00000004/index.json", 1000);
	cut("step_00000003/COMMIT", 0);
	path_of(path, "step_00000002/part-00000-of-00002.safetensors");
	assert_int_equal(unlink(path), 0);
	assert_int_equal(checkpoint_dir_find(&found, saved_dir), TUTTI_OK);
	assert_non_null(
		strstr(found.message, "step_00000005/part-00001-of-00002.safetensors' has "));
	assert_found(1, 4);
	path_of(path, "step_00000001/COMMIT");
	assert_int_equal(unlink(path), 0);
	assert_fails(checkpoint_dir_find(&found, saved_dir), TUTTI_ERR_INVALID,
		     "All 5 checkpoints below '");
	save(2, 2); /* a damaged one does not disturb */
	assert_found(2, 3);
}

/* Flips one bit of the byte at at. Returns the result of reading, which never gives a wrong value.
 */
static void flip(const char *path, off_t at)
{
	char byte;
	int fd = open(path, O_RDWR);

	assert_int_equal(pread(fd, &byte, 1, at), 1);
	byte = (char)(byte ^ 1 << at % 8);
	assert_int_equal(pwrite(fd, &byte, 1, at), 1);
	close(fd);
}

static void flip_all(const char *name, off_t step, const char *words)
{
	char path[200], folder[200];

	path_of(folder, "step_00000009");
	path_of(path, name);
	for (off_t at = 0, end = size_of(path); at < end; at += step) {
		int64_t read_step;
		bool is_right;
		flip(path, at);
		tutti_status status = saved_read(folder, 2, &read_step, &is_right);
		assert_fails(status, TUTTI_ERR_INVALID, words);
		flip(path, at);
	}
}

static void flipped(void **state)
{
	assert_int_equal(saved_write(&(struct saving){
				 .dir = saved_dir, .step = 9, .ranks = 2, .piece_bytes = 8192}),
			 TUTTI_OK);
	assert_found(9, 0);
	flip_all("step_00000009/COMMIT", 1, "does not match");
	flip_all("step_00000009/index.json", 37, "does not match");
	flip_all("step_00000009/part-00001-of-00002.safetensors", 211, "");
	assert_found(9, 0); /* all flipped back */
}

static void flipped_words(void **state)
{
	char path[200], folder[200];
	int64_t step;
	bool is_right;

	save(9, 2);
	path_of(folder, "step_00000009");
	path_of(path, "step_00000009/part-00001-of-00002.safetensors");
	flip(path, size_of(path) - 1); /* types of one byte are the last ones */
	assert_fails(saved_read(folder, 1, &step, &is_right), TUTTI_ERR_INVALID,
		     "Elements 6 to 13 of 'sampler' (state.0), which rank 1 wrote to '");
	flip(path, size_of(path) - 1);
	flip(path, 11);
	assert_fails(saved_read(folder, 1, &step, &is_right), TUTTI_ERR_INVALID,
		     "part-00001-of-00002.safetensors");
}

/* A copied or renamed folder would give a wrong step. */
static void renamed(void **state)
{
	struct checkpoint_found found;
	char from[200], to[200];

	save(1, 2);
	save(2, 2);
	path_of(from, "step_00000002");
	path_of(to, "step_00000003");
	assert_int_equal(rename(from, to), 0);
	assert_found(1, 1);
	assert_int_equal(checkpoint_dir_find(&found, saved_dir), TUTTI_OK);
	assert_non_null(strstr(found.message, "/step_00000003/index.json' is of step 2"));
	path_of(from, "step_00000001");
	saved_remove(from);
	assert_fails(checkpoint_dir_find(&found, saved_dir), TUTTI_ERR_INVALID, "' is of step 2");
}

static void holes(void **state)
{
	struct checkpoint_found found;

	save(1, 3);
	assert_fails(saved_write(&(struct saving){
			     .dir = saved_dir, .step = 2, .ranks = 3, .missing_rank = 2}),
		     TUTTI_ERR_INVALID, "No rank has saved elements ");
	assert_int_equal(saved_count(saved_dir, "."), 2);
	assert_int_equal(checkpoint_dir_find(&found, saved_dir), TUTTI_OK);
	assert_true(found.step == 1 && found.passed_over == 0);
}

static void add_ranges(struct checkpoint_index *index, int rank, uint64_t first, uint64_t count,
		       int64_t dimension)
{
	struct checkpoint_tensor like = {.kind = "param",
					 .name = "w",
					 .ndim = 1,
					 .shape = {dimension},
					 .count = (uint64_t)dimension};
	struct checkpoint_tensor *tensor = checkpoint_index_grow(index, &like);

	assert_non_null(tensor);
	index->step = 1;
	index->world_size = 2;
	index->files = calloc(1, sizeof *index->files);
	index->files[index->file_count++].rank = rank;
	assert_int_equal(checkpoint_piece_add(tensor, (struct checkpoint_piece){.first = first,
										.count = count,
										.rank = rank}),
			 TUTTI_OK);
	assert_int_equal(checkpoint_index_sort(index), TUTTI_OK);
}

static void differing_ranks(void **state)
{
	const struct {
		uint64_t first, count;
		int64_t dimension;
		int rank;
		tutti_status status;
		const char *words;
	} second[] = {
		{5, 5, 10, 1, TUTTI_OK, ""},
		{4, 6, 10, 1, TUTTI_ERR_INVALID,
		 "Element 4 of 'w' (param) is saved twice, by rank 0 and by rank 1."},
		{6, 4, 10, 1, TUTTI_ERR_INVALID,
		 "No rank has saved elements 5 to 6 of 'w' (param)."},
		{5, 4, 10, 1, TUTTI_ERR_INVALID, "No rank has saved elements 9 to 10 of 'w'"},
		{5, 5, 11, 1, TUTTI_ERR_MISMATCH, "not have the same type and shape on all ranks"},
		{5, 5, 10, 0, TUTTI_ERR_INVALID, "no file of rank 1, of 2 ranks"},
	};

	for (size_t i = 0; i < sizeof second / sizeof *second; i++) {
		struct checkpoint_index all = {0}, a = {0}, b = {0};
		add_ranges(&a, 0, 0, 5, 10);
		add_ranges(&b, second[i].rank, second[i].first, second[i].count,
			   second[i].dimension);
		assert_int_equal(checkpoint_index_add(&all, &a), TUTTI_OK);
		tutti_status status = checkpoint_index_add(&all, &b);
		if (status == TUTTI_OK)
			status = checkpoint_index_join(&all);
		if (status == TUTTI_OK)
			status = checkpoint_index_check(&all);
		assert_fails(status, second[i].status, second[i].words);
		checkpoint_index_finish(&all);
	}
}

static void leave(const char *name, const char *file)
{
	char path[200];

	path_of(path, name);
	if (file) {
		assert_int_equal(mkdir(path, 0777), 0);
		snprintf(path + strlen(path), 100, "/%s", file);
	}
	close(open(path, O_CREAT | O_RDWR, 0666));
}

static void leftovers(void **state)
{
	struct checkpoint_dir living;
	char path[200];

	leave(".step_00000001.tmp-00000000000000aa", "part-00000-of-00001.safetensors");
	leave(".step_00000001.tmp-00000000000000aa.lock", NULL);
	leave(".step_00000001.tmp-00000000000000bb.lock",
	      NULL); /* the job died before it had a folder */
	leave(".step_00000001.tmp-00000000000000cc", "COMMIT");
	/* The user's own. */
	leave(".step_00000001.tmp-00000000000000a", "a");
	leave(".step_1.tmp-mine", "a");
	leave(".step_.tmp-00000000000000aa", "a");
	leave("step_00000001.tmp-00000000000000aa", "a");
	assert_int_equal(checkpoint_dir_make(&living, saved_dir, 2), TUTTI_OK);
	path_of(path, living.temporary);
	assert_int_equal(saved_count(saved_dir, ".step_"), 3 + 2);
	/* A checkpoint that is being written stays, also while other jobs save. */
	save(2, 1);
	assert_int_equal(access(path, F_OK), 0);
	assert_int_equal(saved_count(saved_dir, ".step_"), 3 + 2);
	assert_found(2, 0);
	checkpoint_dir_finish(&living);
	assert_int_equal(saved_count(saved_dir, ".step_"), 3);
	checkpoint_dir_finish(&living);
	path_of(path, "step_00000001.tmp-00000000000000aa");
	assert_int_equal(access(path, F_OK), 0);
}

static void link_to(const char *target, const char *name)
{
	char path[200];

	path_of(path, name);
	assert_int_equal(symlink(target, path), 0);
}

static bool is_there(const char *name)
{
	struct stat about;
	char path[200];

	path_of(path, name);
	return lstat(path, &about) == 0;
}

/* A link with a name of ours, such as a checkpoint on another disk: the link is removed, its target
 * stays. */
static void links(void **state)
{
	save(7, 2);
	char from[200], to[200];
	path_of(from, "step_00000007");
	path_of(to, "archive");
	assert_int_equal(rename(from, to), 0);
	link_to("archive", "step_00000007");
	leave("precious", "COMMIT");
	link_to("precious", ".step_00000001.tmp-0123456789abcdef");
	assert_found(7, 0); /* links are read through */
	save(7, 2);
	assert_found(7, 0);
	assert_true(is_there("step_00000007.1"));
	assert_false(is_there("step_00000007"));
	assert_int_equal(saved_count(to, "part-"), 2);
	assert_true(is_there("archive/index.json") && is_there("archive/COMMIT"));
	assert_true(is_there("precious/COMMIT"));
	assert_false(is_there(".step_00000001.tmp-0123456789abcdef"));
}

/* Files that no save has written stay, with their folder. */
static void foreign_files(void **state)
{
	static const char *const users[] = {"notes.txt", "part-00000-of-00002.safetensors.bak",
					    "part-0-of-2.safetensors", "index.json~", ".COMMIT"};
	char path[200], name[100];

	save(7, 2);
	leave(".step_00000001.tmp-00000000000000aa", "notes.txt");
	leave("precious", "a");
	link_to("../precious", "step_00000007/part-00002-of-00003.safetensors");
	for (size_t i = 0; i < sizeof users / sizeof *users; i++) {
		snprintf(name, sizeof name, "step_00000007/%s", users[i]);
		leave(name, NULL);
	}
	save(7, 2);
	assert_found(7, 0);
	path_of(path, "step_00000007");
	assert_int_equal(saved_count(path, ""), 2 + sizeof users / sizeof *users);
	for (size_t i = 0; i < sizeof users / sizeof *users; i++) {
		snprintf(name, sizeof name, "step_00000007/%s", users[i]);
		assert_true(is_there(name));
	}
	assert_true(is_there("precious/a"));
	assert_true(is_there(".step_00000001.tmp-00000000000000aa/notes.txt"));
	/* A file of the user's with a checkpoint's name is not a checkpoint. */
	path_of(path, "step_00000008");
	leave("step_00000008", NULL);
	save(8, 1);
	assert_true(is_there("step_00000008") && is_there("step_00000008.1"));
	assert_found(8, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(a_folder_that_is_a_checkpoint, saved_setup,
						saved_teardown),
		cmocka_unit_test_setup_teardown(ranks_differ, saved_setup, saved_teardown),
		cmocka_unit_test_setup_teardown(ranges, saved_setup, saved_teardown),
		cmocka_unit_test_setup_teardown(none, saved_setup, saved_teardown),
		cmocka_unit_test_setup_teardown(newest, saved_setup, saved_teardown),
		cmocka_unit_test_setup_teardown(again, saved_setup, saved_teardown),
		cmocka_unit_test_setup_teardown(truncated, saved_setup, saved_teardown),
		cmocka_unit_test_setup_teardown(flipped, saved_setup, saved_teardown),
		cmocka_unit_test_setup_teardown(flipped_words, saved_setup, saved_teardown),
		cmocka_unit_test_setup_teardown(renamed, saved_setup, saved_teardown),
		cmocka_unit_test_setup_teardown(holes, saved_setup, saved_teardown),
		cmocka_unit_test(differing_ranks),
		cmocka_unit_test_setup_teardown(leftovers, saved_setup, saved_teardown),
		cmocka_unit_test_setup_teardown(links, saved_setup, saved_teardown),
		cmocka_unit_test_setup_teardown(foreign_files, saved_setup, saved_teardown),
	};
	if (jansson_needed() != TUTTI_OK)
		return saved_refusal();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
