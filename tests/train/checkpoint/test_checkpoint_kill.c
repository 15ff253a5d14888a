/* no_tsan: its ranks are processes: nothing is seen of what they share */
/* What would break: ranks that die at any moment of a save. The old checkpoint or the new one is
 * found whole, and the next save removes what is left. */
#include "tests/train/saved.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tests/limit.h"
#include "tests/unit.h"

enum { ROUNDS = 50, RANKS = 3, GRACE_MS = 30000 };

static char dir[64];

/* Saves step after step, some of them twice, and reports each commit. Never returns. */
static void save_for_ever(int64_t step, int out)
{
	for (;; step++) {
		struct saving saving = {.dir = dir,
					.step = step - step % 3 / 2,
					.ranks = RANKS,
					.piece_bytes = 4096};
		if (saved_write(&saving) != TUTTI_OK) {
			fprintf(stderr, "%s\n", tutti_comm_error(NULL));
			_exit(1);
		}
		if (write(out, &saving.step, sizeof saving.step) != sizeof saving.step)
			_exit(2);
	}
}

/* The newest step that the child has reported, once it has reported so many; or -1. */
static int64_t listen(int in, int words)
{
	int64_t step = -1;

	for (int i = 0; i < words; i++) {
		struct pollfd ready = {.fd = in, .events = POLLIN};
		assert_int_equal(poll(&ready, 1, (int)test_limit_stretched(GRACE_MS)), 1);
		assert_int_equal(read(in, &step, sizeof step), sizeof step);
	}
	return step;
}

static int64_t listen_to_the_end(int in, int64_t step)
{
	int64_t said;

	while (read(in, &said, sizeof said) == sizeof said)
		step = said;
	return step;
}

/* Kills a child that saves, a random time after some of its saves. Returns the newest step it has
 * reported. */
static int64_t kill_one(int64_t first_step, unsigned *seed)
{
	int pipes[2], how;
	struct timespec moment = {.tv_nsec = rand_r(seed) % 3000000};

	assert_int_equal(pipe2(pipes, O_CLOEXEC), 0);
	pid_t child = fork();
	assert_true(child >= 0);
	if (child == 0) {
		close(pipes[0]);
		save_for_ever(first_step, pipes[1]);
	}
	close(pipes[1]);
	int64_t step = listen(pipes[0], rand_r(seed) % 3);
	nanosleep(&moment, NULL);
	assert_int_equal(kill(child, SIGKILL), 0);
	assert_int_equal(waitpid(child, &how, 0), child);
	assert_true(WIFSIGNALED(how) && WTERMSIG(how) == SIGKILL);
	step = listen_to_the_end(pipes[0], step);
	close(pipes[0]);
	return step;
}

static void remove_all_before(int64_t step)
{
	struct checkpoint_name *names;
	size_t count;

	assert_int_equal(checkpoint_names(&names, &count, dir), TUTTI_OK);
	for (size_t i = 0; i < count; i++) {
		char name[CHECKPOINT_NAME_BYTES], path[200];
		checkpoint_name_print(name, names[i]);
		snprintf(path, sizeof path, "%s/%s", dir, name);
		if (names[i].step < step)
			checkpoint_remove(path);
	}
	free(names);
}

static void killed(void **state)
{
	unsigned seed = (unsigned)time(NULL) ^ (unsigned)getpid();
	int unfinished = 0;
	int64_t newest = 0;
	struct saving first = {.dir = dir, .ranks = RANKS};

	print_message("seed %u\n", seed);
	saved_folder(dir);
	assert_int_equal(saved_write(&first), TUTTI_OK);
	for (int round = 0; round < ROUNDS; round++) {
		struct checkpoint_found found;
		int64_t said = kill_one(newest + 1, &seed), step;
		bool is_right;
		unfinished += saved_count(dir, ".step_") > 0;
		assert_int_equal(checkpoint_dir_find(&found, dir), TUTTI_OK);
		if (found.passed_over)
			fail_msg("round %d: %s", round, found.message);
		assert_true(found.step >= said && found.step >= newest);
		assert_int_equal(saved_read(found.path, 2, &step, &is_right), TUTTI_OK);
		assert_true(is_right && step == found.step);
		newest = found.step;
		remove_all_before(newest);
		/* At most the leftovers of one child: each removes those before it. */
		assert_true(saved_count(dir, ".step_") <= 2);
	}
	print_message("%d of %d were killed in the middle of a save\n", unfinished, ROUNDS);
	first.step = newest + 1;
	assert_int_equal(saved_write(&first), TUTTI_OK);
	assert_int_equal(saved_count(dir, ".step_"), 0);
	saved_remove(dir);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(killed),
	};
	if (jansson_needed() != TUTTI_OK)
		return saved_refusal();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
