/* What would break: saves on disks that are full, slow, gone or not allowed. The error has the
 * file's name and errno, nothing is left behind, and older checkpoints stay as they were. */
#include "tests/train/saved.h"

#include "train/base/base.h"
#include "train/checkpoint/checkpoint_writer.h"

#include "tests/own_folder.h"
#include "tests/threads.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/unit.h"

static int threads_at_rest; /* while nothing is saved */

static atomic_bool is_stuck; /* the disk: writes do not return */
static atomic_int stuck;

ssize_t __real_pwrite(int fd, const void *data, size_t bytes, off_t at);
ssize_t __wrap_pwrite(int fd, const void *data, size_t bytes, off_t at);

ssize_t __wrap_pwrite(int fd, const void *data, size_t bytes, off_t at)
{
	if (atomic_load(&is_stuck))
		atomic_fetch_add(&stuck, 1);
	while (atomic_load(&is_stuck))
		poll(NULL, 0, 1);
	return __real_pwrite(fd, data, bytes, at);
}

static bool says(const char *text)
{
	bool it_does = strstr(tutti_comm_error(NULL), text) != NULL;
	if (!it_does)
		fprintf(stderr, "'%s' is not in '%s'\n", text, tutti_comm_error(NULL));
	return it_does;
}

static int new_file(char path[200])
{
	int fd;

	snprintf(path, 200, "%s/file", saved_dir);
	assert_int_equal(disk_create(&fd, path), TUTTI_OK);
	return fd;
}

/* More bytes than the slots have, in uneven portions, at two offsets in turn. */
static void bytes_arrive(void **state)
{
	enum { HALF = 7 * STAGING_SLOT_BYTES / 2 };
	char *values = malloc(2 * HALF), *got = malloc(2 * HALF), path[200];
	uint32_t sums[2] = {0, 0};
	uint64_t size;
	struct staging *staging;
	int threads = threads_alive(), fds = saved_fds(), fd = new_file(path);

	saved_fill(values, 1, 0, 0, 2 * HALF);
	assert_int_equal(staging_create(&staging, fd, path, 0, 60000), TUTTI_OK);
	for (size_t at = 0, n; at < HALF; at += n) {
		n = at % 3 ? 100001 : STAGING_SLOT_BYTES + 1;
		if (n > HALF - at)
			n = HALF - at;
		for (int half = 0; half < 2; half++) {
			char *copy = malloc(n); /* overwritten when the call returns */
			memcpy(copy, values + half * HALF + at, n);
			assert_int_equal(staging_write(staging, (uint64_t)half * HALF + at,
						       &sums[half], copy, n),
					 TUTTI_OK);
			memset(copy, 0, n);
			free(copy);
		}
	}
	assert_int_equal(staging_finish(staging), TUTTI_OK);
	assert_int_equal(threads_alive(), threads);
	assert_int_equal(saved_fds(), fds);
	assert_int_equal(staging_finish(staging), TUTTI_OK);
	staging_destroy(staging);
	assert_int_equal(disk_open(&fd, &size, path), TUTTI_OK);
	assert_true(size == 2 * HALF);
	assert_int_equal(disk_read(fd, path, got, 2 * HALF, 0), TUTTI_OK);
	assert_memory_equal(got, values, 2 * HALF);
	assert_int_equal(sums[0], tutti_crc32c(0, values, HALF));
	assert_int_equal(sums[1], tutti_crc32c(0, values + HALF, HALF));
	close(fd);
	free(values);
	free(got);
}

/* After the file is given up only the write in progress is finished. */
static void dropped(void **state)
{
	char path[200], *values = calloc(1, STAGING_SLOT_BYTES);
	struct staging *staging;
	uint32_t sum = 0;
	int threads = threads_alive(), fds = saved_fds(), fd = new_file(path);

	assert_int_equal(staging_create(&staging, fd, path, 0, 60000), TUTTI_OK);
	for (int i = 0; i < 5; i++)
		assert_int_equal(staging_write(staging, 0, &sum, values, STAGING_SLOT_BYTES),
				 TUTTI_OK);
	staging_destroy(staging);
	staging_destroy(NULL);
	assert_int_equal(threads_alive(), threads);
	assert_int_equal(saved_fds(), fds);
	free(values);
}

/* With a timeout of 0 a slow disk is reported at once. The write continues, so that does no harm.
 */
static void slow_disk(void **state)
{
	char path[200], *values = calloc(1, STAGING_SLOT_BYTES);
	struct staging *staging;
	uint32_t sum = 0;
	int threads = threads_alive(), fd = new_file(path);
	tutti_status status = TUTTI_OK;

	assert_int_equal(staging_create(&staging, fd, path, 0, 0), TUTTI_OK);
	while (status == TUTTI_OK)
		status = staging_write(staging, 0, &sum, values, STAGING_SLOT_BYTES);
	assert_int_equal(status, TUTTI_ERR_TIMEOUT);
	assert_true(says("No part of '"));
	assert_true(says("/file' was written for 0 ms: the disk or the file system's server does "
			 "not answer."));
	while ((status = staging_finish(staging)) == TUTTI_ERR_TIMEOUT)
		continue;
	assert_int_equal(status, TUTTI_OK);
	assert_int_equal(threads_alive(), threads);
	staging_destroy(staging);
	free(values);
}

/* The next call, and all later ones, return the thread's error. */
static void not_writable(void **state)
{
	char path[200];
	struct staging *staging;
	uint32_t sum = 0;
	int fd = new_file(path);

	close(fd);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	assert_int_equal(staging_create(&staging, fd, path, 0, 60000), TUTTI_OK);
	assert_int_equal(staging_write(staging, 0, &sum, "abc", 3), TUTTI_OK);
	assert_int_equal(staging_finish(staging), TUTTI_ERR_SYSTEM);
	assert_true(says("/file' failed: Bad file descriptor (errno 9)."));
	assert_int_equal(staging_finish(staging), TUTTI_ERR_SYSTEM);
	assert_int_equal(staging_write(staging, 0, &sum, "abc", 3), TUTTI_ERR_SYSTEM);
	staging_destroy(staging);
}

/* Runs in a child, because limits and mounts stay. what returns 0 for success, 77 to skip. */
static void in_child(int (*what)(void))
{
	int how;
	pid_t child = fork();

	assert_true(child >= 0);
	if (child == 0) {
		int result = what();
		if (result && result != 77)
			fprintf(stderr, "the child ended with %d: %s\n", result,
				tutti_comm_error(NULL));
		fflush(NULL);
		_exit(result);
	}
	assert_int_equal(waitpid(child, &how, 0), child);
	if (WIFEXITED(how) && WEXITSTATUS(how) == 77)
		skip();
	assert_true(WIFEXITED(how) && WEXITSTATUS(how) == 0);
}

/* The save failed with this message, and the checkpoint before it is found. */
static int failed_well(tutti_status got, const char *words, int64_t whole_step)
{
	struct checkpoint_found found;
	int64_t step;
	bool is_right;

	if (got != TUTTI_ERR_SYSTEM || !says(words))
		return 1;
	if (checkpoint_dir_find(&found, saved_dir) != TUTTI_OK || found.step != whole_step ||
	    found.passed_over)
		return 2;
	if (saved_read(found.path, 2, &step, &is_right) != TUTTI_OK || !is_right)
		return 3;
	return saved_count(saved_dir, ".step_") == 0 && threads_alive() == threads_at_rest ? 0 : 4;
}

static tutti_status save(int64_t step)
{
	struct saving saving = {.dir = saved_dir, .step = step, .ranks = 2, .portion = 10000};
	return saved_write(&saving);
}

/* A checkpoint has 50 KB; not many of them fit. */
static int on_a_small_disk(void)
{
	tutti_status status = TUTTI_OK;
	int64_t step = 0;

	if (!own_mounts() || !own_folder(saved_dir, "size=256k")) {
		puts(OWN_MOUNTS_WHY);
		return 77;
	}
	int fds = saved_fds();
	while (status == TUTTI_OK && step < 1000)
		status = save(++step);
	int result =
		failed_well(status, "' failed: No space left on device (errno 28): ", step - 1);
	return result || saved_fds() == fds ? result : 6;
}

static void full_disk(void **state)
{
	in_child(on_a_small_disk);
}

/* SIGXFSZ, which ends a process, does not reach a program that saves. */
static int with_short_files(void)
{
	struct rlimit limit = {20000, 20000};

	if (save(1) != TUTTI_OK || setrlimit(RLIMIT_FSIZE, &limit) != 0)
		return 5;
	return failed_well(save(2), "' failed: File too large (errno 27): `ulimit -f`", 1);
}

static void large_file(void **state)
{
	in_child(with_short_files);
}

static int with_few_descriptors(void)
{
	int result = 0;

	if (save(1) != TUTTI_OK)
		return 5;
	/* Each descriptor may be the one too many. */
	for (rlim_t most = (rlim_t)saved_fds() - 1; result == 0; most++) {
		struct rlimit limit = {most, 4096};
		setrlimit(RLIMIT_NOFILE, &limit);
		tutti_status status = save(2);
		bool has_words = status == TUTTI_OK || says("(errno 24)");
		limit.rlim_cur = 4096;
		setrlimit(RLIMIT_NOFILE, &limit);
		if (status == TUTTI_OK)
			return 0;
		if (!has_words)
			return 6;
		checkpoint_sweep(saved_dir); /* what could not be removed without a descriptor */
		result = failed_well(status, "", 1);
	}
	return result;
}

static void few_descriptors(void **state)
{
	in_child(with_few_descriptors);
}

static void no_folder(void **state)
{
	char path[200];
	struct saving saving = {.dir = path, .step = 1, .ranks = 1};

	/* The last part of a path is made, its parent is not. */
	snprintf(path, sizeof path, "%s/new", saved_dir);
	assert_int_equal(saved_write(&saving), TUTTI_OK);
	snprintf(path, sizeof path, "%s/nowhere/new", saved_dir);
	assert_int_equal(saved_write(&saving), TUTTI_ERR_SYSTEM);
	assert_true(says("Making the folder '"));
	assert_true(says("/nowhere/new' failed: No such file or directory (errno 2)."));
	snprintf(path, sizeof path, "%s/new/step_00000001/COMMIT", saved_dir);
	assert_int_equal(saved_write(&saving), TUTTI_ERR_SYSTEM);
	assert_true(says("Not a directory (errno 20)"));
	saving.step = -1;
	assert_int_equal(saved_write(&saving), TUTTI_ERR_INVALID);
}

/* As a user without all rights. */
static int as_nobody(void)
{
	if (geteuid() == 0 && setresuid(65534, 65534, 65534) != 0)
		return 77;
	return save(1) == TUTTI_ERR_SYSTEM && says("Permission denied (errno 13).") ? 0 : 1;
}

static void not_allowed(void **state)
{
	assert_int_equal(chmod(saved_dir, 0555), 0);
	in_child(as_nobody);
	assert_int_equal(chmod(saved_dir, 0755), 0);
}

/* Rank 1's machine has another disk at that path. */
static void not_shared(void **state)
{
	struct checkpoint_part part = {.dir = saved_dir,
				       .temporary = ".step_00000001.tmp-00000000000000aa",
				       .step = 1,
				       .rank = 1,
				       .world_size = 2};
	struct checkpoint_writer *save;
	int threads = threads_alive(), fds = saved_fds();

	assert_int_equal(checkpoint_writer_create(&save, &part, NULL, 0), TUTTI_ERR_SYSTEM);
	assert_true(says("Rank 1 cannot find the folder of '"));
	assert_int_equal(threads_alive(), threads);
	assert_int_equal(saved_fds(), fds);
}

/* The caller's own mistakes. */
static void wrong_values(void **state)
{
	struct checkpoint_range range = {
		.tensor = {.kind = "param", .name = "w", .ndim = 1, .shape = {10}}, .count = 10};
	struct checkpoint_part part = {.dir = saved_dir, .temporary = ".", .world_size = 1};
	struct checkpoint_writer *save;
	float values[11] = {0};
	char *text;
	size_t bytes;

	assert_int_equal(checkpoint_writer_create(&save, &part, &range, 1), TUTTI_OK);
	assert_int_equal(checkpoint_writer_values(save, 1, values, 4), TUTTI_ERR_INVALID);
	assert_int_equal(checkpoint_writer_values(save, 0, values, 44), TUTTI_ERR_INVALID);
	assert_int_equal(checkpoint_writer_values(save, 0, values, 36), TUTTI_OK);
	assert_int_equal(checkpoint_writer_finish(save, &text, &bytes), TUTTI_ERR_INVALID);
	assert_true(says("Only 36 of 40 bytes of 'w' (param) were handed over"));
	checkpoint_writer_destroy(save);
	assert_int_equal(saved_count(saved_dir, "part-"), 0);
	range.first = 1;
	assert_int_equal(checkpoint_writer_create(&save, &part, &range, 1), TUTTI_ERR_INVALID);
	assert_true(says("Elements 1 to 11 of 'w' (param) cannot be saved: it has 10."));
	range.first = 0;
	strcpy(range.tensor.name, "\xff");
	assert_int_equal(checkpoint_writer_create(&save, &part, &range, 1), TUTTI_ERR_INVALID);
	assert_true(says("is not UTF-8"));
	strcpy(range.tensor.kind, "a/b");
	assert_int_equal(checkpoint_writer_create(&save, &part, &range, 1), TUTTI_ERR_INVALID);
	assert_true(says("The kind 'a/b' of a saved tensor"));
}

/* On a file system that answers no more nothing else is tried, and the caller's error stays. */
static void dead_disk(void **state)
{
	struct checkpoint_range range = {
		.tensor = {.kind = "param", .name = "w", .ndim = 1, .shape = {10}}, .count = 10};
	struct checkpoint_part part = {
		.dir = saved_dir, .temporary = ".", .world_size = 1, .timeout_ms = 1};
	struct checkpoint_writer *save;
	float values[10] = {0};
	int threads = threads_alive();
	char *text;
	size_t bytes;

	assert_int_equal(checkpoint_writer_create(&save, &part, &range, 1), TUTTI_OK);
	atomic_store(&is_stuck, true);
	assert_int_equal(checkpoint_writer_values(save, 0, values, sizeof values), TUTTI_OK);
	while (atomic_load(&stuck) == 0)
		poll(NULL, 0, 1);
	assert_int_equal(checkpoint_writer_finish(save, &text, &bytes), TUTTI_ERR_TIMEOUT);
	tutti_set_error(TUTTI_ERR_PEER, "the caller's own error");
	assert_false(checkpoint_writer_destroy(save));
	assert_true(says("the caller's own error"));
	assert_int_equal(saved_count(saved_dir, "part-"), 1);
	atomic_store(&is_stuck, false);
	while (threads_alive() > threads) /* it uses what destroy has left */
		poll(NULL, 0, 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(bytes_arrive, saved_setup, saved_teardown),
		cmocka_unit_test_setup_teardown(dropped, saved_setup, saved_teardown),
		cmocka_unit_test_setup_teardown(slow_disk, saved_setup, saved_teardown),
		cmocka_unit_test_setup_teardown(not_writable, saved_setup, saved_teardown),
		cmocka_unit_test_setup_teardown(full_disk, saved_setup, saved_teardown),
		cmocka_unit_test_setup_teardown(large_file, saved_setup, saved_teardown),
		cmocka_unit_test_setup_teardown(few_descriptors, saved_setup, saved_teardown),
		cmocka_unit_test_setup_teardown(no_folder, saved_setup, saved_teardown),
		cmocka_unit_test_setup_teardown(not_allowed, saved_setup, saved_teardown),
		cmocka_unit_test_setup_teardown(not_shared, saved_setup, saved_teardown),
		cmocka_unit_test_setup_teardown(wrong_values, saved_setup, saved_teardown),
		cmocka_unit_test_setup_teardown(dead_disk, saved_setup, saved_teardown),
	};
	if (jansson_needed() != TUTTI_OK)
		return saved_refusal();
	threads_at_rest = threads_alone();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
