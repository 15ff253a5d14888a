/* slow: 12 s
 * What would break: tutti_spawn's ranks find each other, the first failure ends all with its
 * message and its exit code, misuse is refused, and of the program's own nothing is changed.
 * Signals from outside and what is printed are test_spawn_programs.sh's and
 * test_spawn_terminal.sh's. */
#include "tests/limit.h"
#include "tests/collectives/spawn/open_files.h"

#include <tutti/tutti.h>

#include <errno.h>
#include <fcntl.h>
#include <regex.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/unit.h"

#define LIMIT_S 120
#define RANKS   8

/* What ranks leave for the test. */
static struct shared {
	atomic_int number[RANKS];
	char text[RANKS][200];
} * shared;

static void assert_said(const char *pattern)
{
	regex_t regex;

	assert_int_equal(regcomp(&regex, pattern, REG_EXTENDED | REG_NOSUB), 0);
	if (regexec(&regex, tutti_comm_error(NULL), 0, NULL, 0) != 0)
		fail_msg("'%s' is not like '%s'", tutti_comm_error(NULL), pattern);
	regfree(&regex);
}

static void assert_no_child(void)
{
	assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
	assert_int_equal(errno, ECHILD);
}

static void sleep_for_ever(void)
{
	for (;;)
		pause();
}

static int sum_ranks(int rank, void *arg)
{
	int size = *(const int *)arg, sum = rank + 1;
	tutti_comm *comm;

	if (tutti_init(&comm, NULL) != TUTTI_OK)
		return 1;
	if (tutti_rank(comm) != rank || tutti_size(comm) != size ||
	    tutti_all_reduce(&sum, &sum, 1, TUTTI_I32, TUTTI_SUM, comm, NULL) != TUTTI_OK)
		return 2;
	tutti_comm_destroy(comm);
	return sum == size * (size + 1) / 2 ? 0 : 3;
}

static void test_all_reduce(void **state)
{
	static const int sizes[] = {1, 2, 4, 8};

	for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
		int size = sizes[i], before = open_files();

		assert_int_equal(tutti_spawn(sum_ranks, &size, size), TUTTI_OK);
		assert_int_equal(tutti_spawn_exit_code(), 0);
		assert_int_equal(open_files(), before);
		assert_no_child();
	}
}

/* ---- failures */

static int return_three(int rank, void *arg)
{
	(void)arg;
	if (rank == 1)
		return 3;
	sleep_for_ever();
	return 0;
}

static void test_code(void **state)
{
	assert_int_equal(tutti_spawn(return_three, NULL, 3), TUTTI_ERR_PEER);
	assert_said("^rank 1 \\(pid [0-9]+\\) exited with code 3; the job was ended$");
	assert_int_equal(tutti_spawn_exit_code(), 3);
	assert_no_child();
}

static int return_arg(int rank, void *arg)
{
	(void)rank;
	return *(const int *)arg;
}

/* What is not 0 is never taken for 0. */
static void test_codes(void **state)
{
	static const int codes[][2] = {{256, 1}, {-1, 255}, {255, 255}, {257, 1}, {-256, 1}};

	for (size_t i = 0; i < sizeof codes / sizeof *codes; i++) {
		int code = codes[i][0];

		assert_int_equal(tutti_spawn(return_arg, &code, 1), TUTTI_ERR_PEER);
		assert_int_equal(tutti_spawn_exit_code(), codes[i][1]);
		assert_said("^rank 0 \\(pid [0-9]+\\) exited with code [0-9]+$");
	}
}

/* Rank 2 of 4 is killed while the ranks make call after call. */
static int killed_between_calls(int rank, void *arg)
{
	tutti_status status = TUTTI_OK;
	tutti_comm *comm;

	(void)arg;
	if (tutti_init(&comm, NULL) != TUTTI_OK)
		return 1;
	for (int call = 0; status == TUTTI_OK; call++) {
		int one = 1;

		if (rank == 2 && call == 100)
			kill(getpid(), SIGKILL);
		status = tutti_all_reduce(&one, &one, 1, TUTTI_I32, TUTTI_SUM, comm, NULL);
	}
	tutti_comm_destroy(comm);
	sleep_for_ever(); /* the others do not make the exit code */
	return 0;
}

static void test_kill(void **state)
{
	assert_int_equal(tutti_spawn(killed_between_calls, NULL, 4), TUTTI_ERR_PEER);
	assert_said("^rank 2 \\(pid [0-9]+\\) was killed by signal 9 \\(Killed\\); the job was "
		    "ended$");
	assert_int_equal(tutti_spawn_exit_code(), 128 + SIGKILL);
	assert_no_child();
}

/* The others have time to say what the failure means for them. */
static int last_words(int rank, void *arg)
{
	sigset_t term;
	int got;

	(void)arg;
	if (rank == 0)
		return 4;
	sigemptyset(&term);
	sigaddset(&term, SIGTERM);
	sigprocmask(SIG_BLOCK, &term, NULL);
	atomic_store(&shared->number[rank], 1); /* before SIGTERM has come */
	sigwait(&term, &got);
	atomic_store(&shared->number[rank], 1 + got);
	return 0;
}

static void test_last_words(void **state)
{
	memset(shared, 0, sizeof *shared);
	assert_int_equal(tutti_spawn(last_words, NULL, 3), TUTTI_ERR_PEER);
	assert_int_equal(tutti_spawn_exit_code(), 4);
	for (int r = 1; r < 3; r++)
		assert_int_equal(atomic_load(&shared->number[r]), 1 + SIGTERM);
}

static int fail_by_rank(int rank, void *arg)
{
	(void)arg;
	return rank == 0 ? 5 : 6;
}

static void test_two_fail(void **state)
{
	char pattern[80];

	assert_int_equal(tutti_spawn(fail_by_rank, NULL, 2), TUTTI_ERR_PEER);
	assert_in_range(tutti_spawn_exit_code(), 5, 6);
	snprintf(pattern, sizeof pattern, "^rank %d .* exited with code %d; the job was ended$",
		 tutti_spawn_exit_code() - 5, tutti_spawn_exit_code());
	assert_said(pattern);
	assert_no_child();
}

/* One that does not hear SIGTERM, and one that is stopped. */
static int hang(int rank, void *arg)
{
	(void)arg;
	if (rank == 1) {
		while (!atomic_load(&shared->number[0]) || !atomic_load(&shared->number[2]))
			usleep(1000);
		return 7;
	}
	if (rank == 0)
		signal(SIGTERM, SIG_IGN);
	atomic_store(&shared->number[rank], 1);
	if (rank == 2)
		raise(SIGSTOP);
	sleep_for_ever();
	return 0;
}

static void test_hang(void **state)
{
	memset(shared, 0, sizeof *shared);
	assert_int_equal(tutti_spawn(hang, NULL, 3), TUTTI_ERR_PEER);
	assert_said("^rank 1 \\(pid [0-9]+\\) exited with code 7; the job was ended$");
	assert_int_equal(tutti_spawn_exit_code(), 7);
	assert_no_child();
}

/* ---- misuse */

static int nested(int rank, void *arg)
{
	int two = 2;
	tutti_comm *comm;

	(void)arg;
	if (tutti_spawn(sum_ranks, &two, 2) != TUTTI_OK)
		return 1;
	if (tutti_init(&comm, NULL) != TUTTI_OK)
		return 2;
	if (tutti_spawn(sum_ranks, &two, 2) != TUTTI_ERR_INVALID || tutti_rank(comm) != rank)
		return 3;
	if (tutti_barrier(comm, NULL) != TUTTI_OK)
		return 4;
	tutti_comm_destroy(comm);
	return 0;
}

static int spawn_in_fork(void)
{
	int one = 1, code = 0;
	pid_t pid = fork();

	if (pid == 0)
		_exit(tutti_spawn(sum_ranks, &one, 1) == TUTTI_ERR_INVALID ? 0 : 1);
	return waitpid(pid, &code, 0) == pid ? code : -1;
}

static void test_misuse(void **state)
{
	tutti_config alone = {.world_size = 1};
	int one = 1;
	tutti_comm *comm;

	assert_int_equal(tutti_spawn(NULL, NULL, 1), TUTTI_ERR_INVALID);
	assert_said("fn is NULL");
	assert_int_equal(tutti_spawn(sum_ranks, &one, 0), TUTTI_ERR_INVALID);
	assert_int_equal(tutti_spawn(sum_ranks, &one, -3), TUTTI_ERR_INVALID);
	assert_said("nprocs is -3: it is from 1 to 4096");
	assert_int_equal(tutti_spawn(sum_ranks, &one, 10000), TUTTI_ERR_INVALID);
	assert_int_equal(tutti_spawn_exit_code(), 1);
	assert_int_equal(tutti_init(&comm, &alone), TUTTI_OK);
	assert_int_equal(tutti_spawn(sum_ranks, &one, 1), TUTTI_ERR_INVALID);
	assert_said("has 1 communicator, which");
	assert_int_equal(spawn_in_fork(), 0);
	tutti_comm_destroy(comm);
	assert_int_equal(tutti_spawn(sum_ranks, &one, 1), TUTTI_OK);
	assert_int_equal(tutti_spawn(nested, NULL, 2), TUTTI_OK);
}

/* ---- the ranks' environment */

static int note_environment(int rank, void *arg)
{
	static const char *const names[] = {"RANK",       "WORLD_SIZE",  "LOCAL_RANK",
					    "NODE_RANK",  "MASTER_ADDR", "LOCAL_WORLD_SIZE",
					    "GROUP_RANK", "MASTER_PORT", "TUTTI_SECRET"};
	char *text = shared->text[rank];
	size_t used = 0;

	(void)arg;
	for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
		const char *value = getenv(names[i]);

		used += (size_t)snprintf(text + used, sizeof shared->text[rank] - used, "%s%s",
					 i ? " " : "", value ? value : "none");
	}
	return getenv("TUTTI_RESTARTED") || !getenv("OMP_NUM_THREADS") ? 1 : 0;
}

static void read_meeting(char *port, char *secret)
{
	setenv("TUTTI_RESTARTED", "1", 1);
	assert_int_equal(tutti_spawn(note_environment, NULL, 2), TUTTI_OK);
	unsetenv("TUTTI_RESTARTED");
	assert_int_equal(sscanf(shared->text[1], "1 2 1 0 127.0.0.1 2 0 %19s %99s", port, secret),
			 2);
	assert_true(strncmp(shared->text[0], "0 2 0 0 127.0.0.1 2 0 ", 22) == 0);
	assert_string_equal(strstr(shared->text[0], port), strstr(shared->text[1], port));
	assert_null(getenv("RANK"));
}

/* Two jobs, one after the other, have nothing in common, unless the user has a secret. */
static void test_environment(void **state)
{
	char port[2][20], secret[2][100];

	read_meeting(port[0], secret[0]);
	read_meeting(port[1], secret[1]);
	assert_int_equal(strlen(secret[0]), 64);
	assert_string_not_equal(secret[0], secret[1]);
	assert_string_not_equal(port[0], port[1]);
	setenv("TUTTI_SECRET", "mine", 1);
	read_meeting(port[0], secret[0]);
	unsetenv("TUTTI_SECRET");
	assert_string_equal(secret[0], "mine");
}

/* While the first job's ranks live, its port is no other job's. */
static int spawn_again(int rank, void *arg)
{
	const char *port = getenv("MASTER_PORT");
	char own[20];

	(void)arg;
	snprintf(own, sizeof own, " %s ", port);
	if (rank != 0)
		return 0;
	if (tutti_spawn(note_environment, NULL, 2) != TUTTI_OK)
		return 1;
	return strstr(shared->text[0], own) ? 2 : 0;
}

static void test_ports(void **state)
{
	assert_int_equal(tutti_spawn(spawn_again, NULL, 2), TUTTI_OK);
}

/* ---- what is the program's */

struct other {
	pid_t pid;
	int end[2];
};

/* Ends when the ranks run, and they end when it has. */
static int await_other(int rank, void *arg)
{
	struct other *other = arg;
	char byte;

	if (rank == 0 && write(other->end[1], "x", 1) != 1)
		return 1;
	while (kill(other->pid, 0) == 0 && !atomic_load(&shared->number[0]))
		usleep(1000);
	return read(STDIN_FILENO, &byte, 0) == 0 ? 0 : 2;
}

static void test_other_child(void **state)
{
	struct other other;
	int code;

	memset(shared, 0, sizeof *shared);
	assert_int_equal(pipe(other.end), 0);
	other.pid = fork();
	if (other.pid == 0) {
		char byte;

		if (read(other.end[0], &byte, 1) == 1)
			atomic_store(&shared->number[0], 1);
		_exit(42);
	}
	assert_int_equal(tutti_spawn(await_other, &other, 2), TUTTI_OK);
	assert_int_equal(waitpid(other.pid, &code, 0), other.pid);
	assert_int_equal(WEXITSTATUS(code), 42);
	close(other.end[0]);
	close(other.end[1]);
}

static int open_one(int rank, void *arg)
{
	(void)rank, (void)arg;
	return open("/dev/null", O_RDONLY | O_CLOEXEC) > STDERR_FILENO ? 0 : 1;
}

/* What a rank opens does not become its stdin, and the program's stays closed. */
static void test_closed_stdin(void **state)
{
	int kept = fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);

	close(STDIN_FILENO);
	tutti_status status = tutti_spawn(open_one, NULL, 2);
	bool is_closed = fcntl(STDIN_FILENO, F_GETFD) < 0;
	if (kept >= 0)
		dup2(kept, STDIN_FILENO);
	close(kept);
	assert_int_equal(status, TUTTI_OK);
	assert_true(is_closed);
}

static void test_children_ignored(void **state)
{
	struct sigaction action;
	int code = 9;

	signal(SIGCHLD, SIG_IGN);
	assert_int_equal(tutti_spawn(return_arg, &code, 2), TUTTI_ERR_PEER);
	assert_int_equal(tutti_spawn_exit_code(), 9);
	sigaction(SIGCHLD, NULL, &action);
	assert_ptr_equal(action.sa_handler, SIG_IGN);
	signal(SIGCHLD, SIG_DFL);
}

static void take_any(int number)
{
	int error = errno;

	(void)number;
	while (waitpid(-1, NULL, WNOHANG) > 0)
		continue;
	errno = error;
}

/* Its handler runs before poll returns. */
static void test_children_taken(void **state)
{
	int code = 0;

	signal(SIGCHLD, take_any);
	assert_int_equal(tutti_spawn(return_arg, &code, 2), TUTTI_ERR_SYSTEM);
	signal(SIGCHLD, SIG_DFL);
	assert_said("^rank [01] \\(pid [0-9]+\\) has ended, but another wait of this program took "
		    "its exit code; the job was ended: wait for children by their numbers");
	assert_int_equal(tutti_spawn_exit_code(), 1);
	assert_no_child();
}

static atomic_int interrupts;

static void count_interrupt(int number)
{
	(void)number;
	atomic_fetch_add(&interrupts, 1);
}

/* A child that interrupts each wait of this process, again and again. */
static pid_t interrupt_often(void)
{
	pid_t parent = getpid(), pid = fork();

	while (pid == 0 && getppid() == parent && kill(parent, SIGUSR1) == 0)
		usleep(300);
	if (pid == 0)
		_exit(0);
	return pid;
}

static void test_interrupts(void **state)
{
	struct sigaction action = {.sa_handler = count_interrupt};
	int size = 4;
	pid_t pid;

	sigaction(SIGUSR1, &action, NULL);
	pid = interrupt_often();
	while (atomic_load(&interrupts) < 20)
		assert_int_equal(tutti_spawn(sum_ranks, &size, size), TUTTI_OK);
	kill(pid, SIGKILL);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
}

/* What is in stdio's memory when the ranks are forked is written once, and what ranks leave there,
 * too. */
static int print(int rank, void *arg)
{
	fprintf(arg, "%d", rank);
	return 0;
}

static void test_output(void **state)
{
	char text[20] = "";
	int ends[2];
	FILE *file;

	assert_int_equal(pipe(ends), 0);
	file = fdopen(ends[1], "w");
	fputs("begin", file);
	assert_int_equal(tutti_spawn(print, file, 1), TUTTI_OK);
	fputs("end", file);
	fclose(file);
	assert_int_equal(read(ends[0], text, sizeof text - 1), 9);
	assert_string_equal(text, "begin0end");
	close(ends[0]);
}

static int count_files(int rank, void *arg)
{
	int before = *(const int *)arg;

	atomic_store(&shared->number[rank], open_files() - before);
	return 0;
}

/* A rank has the parent's descriptors, and none of tutti_spawn's. */
static void test_descriptors(void **state)
{
	int before = open_files();

	assert_int_equal(tutti_spawn(count_files, &before, RANKS), TUTTI_OK);
	for (int r = 0; r < RANKS; r++)
		assert_int_equal(atomic_load(&shared->number[r]), 0);
	assert_int_equal(open_files(), before);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_all_reduce),     cmocka_unit_test(test_code),
		cmocka_unit_test(test_codes),          cmocka_unit_test(test_kill),
		cmocka_unit_test(test_last_words),     cmocka_unit_test(test_two_fail),
		cmocka_unit_test(test_hang),           cmocka_unit_test(test_misuse),
		cmocka_unit_test(test_environment),    cmocka_unit_test(test_ports),
		cmocka_unit_test(test_other_child),    cmocka_unit_test(test_children_ignored),
		cmocka_unit_test(test_children_taken), cmocka_unit_test(test_interrupts),
		cmocka_unit_test(test_closed_stdin),   cmocka_unit_test(test_output),
		cmocka_unit_test(test_descriptors),
	};

	test_limit(LIMIT_S);
	unsetenv("TUTTI_SECRET");
	unsetenv("TUTTI_SECRET_FILE");
	shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
		      0);
	return shared == MAP_FAILED ? 1 : cmocka_run_group_tests(tests, NULL, NULL);
}
