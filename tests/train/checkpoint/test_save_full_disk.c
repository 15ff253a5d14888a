/* What would break: a rank whose disk is full, and whose others wait for it, go on as if there were
 * a checkpoint, or do not learn which rank it was. All ranks return the same error; where the file
 * system takes room, tutti_save itself does. The ranks train on, and the next save works. */
#include "tests/train/ranks.h"
#include "tests/train/saved.h"
#include "tests/train/toy.h"

#include "train/checkpoint/safetensors.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "tests/unit.h"

enum { RANKS = 3, FULL_RANK = 1, SAMPLES = 6 };

/* The file system of FULL_RANK's file. */
enum disk { GOOD, FULL, FULL_AT_WRITE };
static atomic_int disk;

static bool is_full(int fd, enum disk when)
{
	char link[64], path[4096], name[32];
	ssize_t bytes;

	snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
	snprintf(name, sizeof name, "/part-%05d-", FULL_RANK);
	bytes = readlink(link, path, sizeof path - 1);
	if (bytes < 0 || atomic_load(&disk) != (int)when)
		return false;
	path[bytes] = '\0';
	return strstr(path, name) != NULL;
}

int __real_fallocate(int fd, int mode, off_t at, off_t bytes);
int __wrap_fallocate(int fd, int mode, off_t at, off_t bytes);
ssize_t __real_pwrite(int fd, const void *data, size_t bytes, off_t at);
ssize_t __wrap_pwrite(int fd, const void *data, size_t bytes, off_t at);

int __wrap_fallocate(int fd, int mode, off_t at, off_t bytes)
{
	if (is_full(fd, FULL_AT_WRITE))
		errno = EOPNOTSUPP;
	else if (is_full(fd, FULL))
		errno = ENOSPC;
	else
		return __real_fallocate(fd, mode, at, bytes);
	return -1;
}

/* The header goes first, and still fits. */
ssize_t __wrap_pwrite(int fd, const void *data, size_t bytes, off_t at)
{
	if (at == 0 || !is_full(fd, FULL_AT_WRITE))
		return __real_pwrite(fd, data, bytes, at);
	errno = ENOSPC;
	return -1;
}

static void set_disk(tutti_comm *comm, enum disk state)
{
	CHECK(tutti_barrier(comm, NULL) == TUTTI_OK);
	if (tutti_rank(comm) == 0)
		atomic_store(&disk, (int)state);
	CHECK(tutti_barrier(comm, NULL) == TUTTI_OK);
}

/* The last error says what happened, and the others say to which rank. */
static void check_words(tutti_comm *comm)
{
	char start[32], file[32];
	const char *error = tutti_comm_error(NULL);

	snprintf(start, sizeof start, "On rank %d: ", FULL_RANK);
	snprintf(file, sizeof file, "/part-%05d-of-%05d", FULL_RANK, RANKS);
	CHECK(strstr(error, file) != NULL);
	CHECK(strstr(error, "failed: No space left on device (errno 28): on host '") != NULL);
	CHECK(strstr(error, "' this disk is full: make room there, or choose another folder.") !=
	      NULL);
	if (tutti_rank(comm) != FULL_RANK)
		CHECK(strncmp(error, start, strlen(start)) == 0);
}

static void save_with_a_full_disk(tutti_comm *comm, void *arg)
{
	const tutti_train_config config = {.seed = 7, .strategy = *(const tutti_strategy *)arg};
	struct toy toy;
	int64_t found = -1;

	toy_make(&toy, comm, &config);
	CHECK(toy_step(&toy, 0, SAMPLES) == TUTTI_OK);
	set_disk(comm, FULL);
	CHECK_ERROR(tutti_save(toy.trainer, saved_dir, 1), TUTTI_ERR_SYSTEM, "Taking room in '");
	check_words(comm);
	set_disk(comm, FULL_AT_WRITE);
	/* It is written beside the training: the error may be there before tutti_save returns. */
	tutti_status status = tutti_save(toy.trainer, saved_dir, 1);
	if (status == TUTTI_OK)
		status = tutti_save_wait(toy.trainer);
	CHECK_ERROR(status, TUTTI_ERR_SYSTEM, "Writing '");
	check_words(comm);
	set_disk(comm, GOOD);
	CHECK(saved_count(saved_dir, "step_") == 0 && saved_count(saved_dir, ".step_") == 0);
	CHECK(toy_step(&toy, 1, SAMPLES) == TUTTI_OK);
	CHECK(tutti_save(toy.trainer, saved_dir, 2) == TUTTI_OK);
	CHECK(tutti_save_wait(toy.trainer) == TUTTI_OK);
	CHECK(tutti_load(toy.trainer, saved_dir, &found) == TUTTI_OK && found == 2);
	toy_destroy(&toy);
}

static void with(tutti_strategy strategy)
{
	assert_int_equal(ranks_as_threads(RANKS, save_with_a_full_disk, &strategy), 0);
}

static void ddp(void **state)
{
	with(TUTTI_DDP);
}

static void fsdp(void **state)
{
	with(TUTTI_FSDP);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(ddp, saved_setup, saved_teardown),
		cmocka_unit_test_setup_teardown(fsdp, saved_setup, saved_teardown),
	};
	if (jansson_needed() != TUTTI_OK)
		return saved_refusal();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
