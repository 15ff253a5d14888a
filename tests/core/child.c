/* Cases that run in a child process of their own. */
#include "tests/core/child.h"

#include "tests/limit.h"

#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

#include "tests/unit.h"

void child_must(bool is_so, const char *what)
{
	if (is_so)
		return;
	fprintf(stderr, "not so: %s (%s)\n", what, tutti_comm_error(NULL));
	_exit(3);
}

void child_init(tutti_comm **comms)
{
	tutti_config config = {.timeout_ms = CHILD_TIMEOUT_MS};

	MUST(tutti_init_all(comms, 2, &config) == TUTTI_OK);
}

int child_run(void (*scenario)(void), char *said, size_t bytes)
{
	int ends[2], state;
	size_t n = 0;

	assert_return_code(pipe(ends), 0);
	pid_t pid = fork();
	assert_return_code(pid, 0);
	if (pid == 0) {
		test_limit(60);
		dup2(ends[1], STDERR_FILENO);
		close(ends[0]);
		close(ends[1]);
		scenario();
		_exit(0); /* what is left allocated is no leak of the test */
	}
	close(ends[1]);
	for (ssize_t got; n < bytes - 1 && (got = read(ends[0], said + n, bytes - 1 - n)) > 0;)
		n += (size_t)got;
	said[n] = '\0';
	close(ends[0]);
	assert_int_equal(waitpid(pid, &state, 0), pid);
	return WIFEXITED(state) ? WEXITSTATUS(state) : -WTERMSIG(state);
}

void child_expect_end(void (*scenario)(void), int end, const char *notice)
{
	char said[4096];
	int got = child_run(scenario, said, sizeof said);

	if (got == end && strstr(said, notice))
		return;
	fail_msg("ended with %d instead of %d, and said '%s' instead of '%s'", got, end, said,
		 notice);
}
