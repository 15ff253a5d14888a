/* What would break: tuttirun does not hear all of many ranks that tell it something at once, so
 * that
 * --progress counts too few; or it does not know which rank that was. */
#include "launch/words.h"

#include "core/join/rendezvous.h"
#include "tests/limit.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/unit.h"

/* How many words wait at a socket, at most. */
static int waiting_words(void)
{
	FILE *file = fopen("/proc/sys/net/unix/max_dgram_qlen", "re");
	int n = 0;

	assert_non_null(file);
	assert_int_equal(fscanf(file, "%d", &n), 1);
	fclose(file);
	return n;
}

static char state_of(pid_t process)
{
	char path[40], state = '?';
	FILE *file;

	snprintf(path, sizeof path, "/proc/%d/stat", (int)process);
	file = fopen(path, "re");
	assert_non_null(file);
	assert_int_equal(fscanf(file, "%*d (%*[^)]) %c", &state), 1);
	fclose(file);
	return state;
}

static void more_words_than_wait(void **state)
{
	struct words words = words_open();
	int count = waiting_words() + 10, how;
	struct word_from from;
	pid_t child;

	(void)state;
	assert_true(words.fd >= 0);
	setenv("TUTTIRUN_SOCKET", words.name, 1);
	setenv("RANK", "17", 1);
	child = fork();
	if (child == 0) {
		for (int i = 0; i < count; i++)
			rendezvous_tell_launcher(LAUNCHER_JOINED);
		_exit(0);
	}
	while (state_of(child) == 'R')
		continue; /* until it waits, or has ended */
	for (int i = 0; i < count; i++) {
		struct pollfd poll_fd = {.fd = words.fd, .events = POLLIN};

		if (poll(&poll_fd, 1, 20000) != 1)
			fail_msg("%d words of %d have come", i, count);
		assert_int_equal(words_next(&words, &from), LAUNCHER_JOINED);
		assert_int_equal(from.process, child);
		assert_int_equal(from.rank, 17);
	}
	assert_int_equal(words_next(&words, &from), 0);
	assert_int_equal(waitpid(child, &how, 0), child);
	assert_int_equal(how, 0);
	close(words.fd);
}

/* A program may join without a launcher's RANK, or with one of its own. */
static void without_a_rank(void **state)
{
	static const char *const values[] = {"", "x", "-3", "3x", "99999999999999999999999999"};
	struct words words = words_open();
	struct word_from from;

	(void)state;
	setenv("TUTTIRUN_SOCKET", words.name, 1);
	for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
		setenv("RANK", values[i], 1);
		rendezvous_tell_launcher(LAUNCHER_GROWS);
		assert_int_equal(words_next(&words, &from), LAUNCHER_GROWS);
		assert_int_equal(from.rank, -1);
	}
	unsetenv("RANK");
	rendezvous_tell_launcher(LAUNCHER_WAITS);
	assert_int_equal(words_next(&words, &from), LAUNCHER_WAITS);
	assert_int_equal(from.rank, -1);
	assert_int_equal(from.process, getpid());
	close(words.fd);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(without_a_rank),
		cmocka_unit_test(more_words_than_wait),
	};

	test_limit(60);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
