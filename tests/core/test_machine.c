/* Would break: a rank that is stopped could not be told from one that computes or sleeps, or one
 * that has ended would be taken for another process with its number, or an exec go unnoticed. */
#include "core/machine.h"

#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/unit.h"

static pid_t start(void)
{
	pid_t pid = fork();
	assert_true(pid >= 0);
	if (pid == 0)
		for (;;)
			pause();
	return pid;
}

static void test_states(void **state)
{
	pid_t pid = start();
	int fd = (int)syscall(SYS_pidfd_open, pid, 0), status;
	siginfo_t info;

	assert_true(fd >= 0);
	assert_int_equal(process_of(fd), pid);
	assert_false(process_is_stopped(pid));
	assert_false(process_has_ended(pid));
	kill(pid, SIGSTOP);
	assert_int_equal(waitpid(pid, &status, WUNTRACED), pid);
	assert_true(WIFSTOPPED(status));
	assert_true(process_is_stopped(pid));
	assert_false(process_has_ended(pid));
	kill(pid, SIGCONT);
	assert_int_equal(waitpid(pid, &status, WCONTINUED), pid);
	assert_false(process_is_stopped(pid));
	kill(pid, SIGKILL);
	assert_int_equal(waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT), 0);
	assert_true(process_has_ended(pid)); /* a zombie */
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(process_has_ended(pid));
	assert_int_equal(process_of(fd), 0);
	assert_false(process_is_stopped(pid));
	close(fd);
}

/* Forked: the same program; after exec another one, whose address the kernel draws. */
static void test_programs(void **state)
{
	uint64_t own = process_look(getpid()).program;
	pid_t pid = start(), other;
	int ends[2];
	char byte;

	assert_true(own != 0);
	assert_true(process_look(pid).program == own);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	assert_true(process_look(pid).program == 0);
	assert_int_equal(pipe(ends), 0);
	other = fork();
	assert_true(other >= 0);
	if (other == 0) {
		dup2(ends[1], STDOUT_FILENO);
		execlp("sh", "sh", "-c", "echo; exec sleep 100", (char *)NULL);
		_exit(2);
	}
	assert_int_equal(read(ends[0], &byte, 1), 1);
	assert_true(process_look(other).program != own);
	kill(other, SIGKILL);
	waitpid(other, NULL, 0);
	close(ends[0]);
	close(ends[1]);
}

static void test_nobody(void **state)
{
	assert_int_equal(process_of(-1), 0);
	assert_int_equal(process_of(0), 0); /* no pidfd */
	assert_false(process_is_stopped(0));
	assert_false(process_is_stopped(-1));
	assert_false(process_is_stopped(getpid()));
	assert_false(process_has_ended(getpid()));
	assert_false(process_has_ended(0));
	assert_false(process_has_ended(-1));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_states),
		cmocka_unit_test(test_programs),
		cmocka_unit_test(test_nobody),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
