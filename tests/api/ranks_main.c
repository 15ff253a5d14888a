/* ranks -n N [-t SECONDS] [-2] [-m M] [-k] [-r R] [-d MS] [-e NAME=VALUE]... program
 * [argument]...
 *
 * Runs a program as the N ranks of a job on this machine, with the variables that launchers set,
 * and ends with 0 when all of them do. Otherwise it shows what they wrote; at the deadline, and
 * when one has failed, it ends the others. -m: the ranks, cut in M runs of the
 * same length (the last may be shorter), count as M machines; -2 is -m 2. -k: a rank that is killed
 * has ended well, if not all are. -r: it is started again, R times in all, with TUTTI_RESTARTED,
 * and some must be. -d: TUTTI_TIMEOUT_MS, on a loaded machine more.
 */
#include "../limit.h"
#include "../ports.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define RANKS_MOST  64
#define OUTPUT_MOST 20000 /* bytes kept of each rank */
#define GRACE_MS    3000  /* from one rank's failure to the others' end */

struct rank {
	pid_t pid;
	int fd, code; /* code -1: still running */
	size_t used;
	char output[OUTPUT_MOST];
};

static struct rank ranks[RANKS_MOST];
static int n = 1, seconds = 110, machines = 1, killed_is_fine, restarts;
static int meeting_port, restarted;
static char **program;

static long long now_ms(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (long long)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static void die(const char *what)
{
	fprintf(stderr, "ranks: %s: %s\n", what, strerror(errno));
	exit(2);
}

static void set_number(const char *name, int value)
{
	char text[16];
	snprintf(text, sizeof text, "%d", value);
	setenv(name, text, 1);
}

/* What a launcher tells rank i. */
static void set_environment(int i)
{
	int most = (n + machines - 1) / machines, first = i / most * most;
	char host[32];

	set_number("RANK", i);
	set_number("WORLD_SIZE", n);
	set_number("LOCAL_RANK", i - first);
	set_number("LOCAL_WORLD_SIZE", n - first < most ? n - first : most);
	setenv("MASTER_ADDR", "127.0.0.1", 1);
	set_number("MASTER_PORT", meeting_port);
	setenv("TUTTI_SECRET", "not much of a secret", 0);
	if (restarted)
		set_number("TUTTI_RESTARTED", restarted);
	snprintf(host, sizeof host, "machine %d", i / most);
	if (machines > 1)
		setenv("TUTTI_HOST_ID", host, 1);
}

static void start(int i)
{
	int ends[2];

	if (pipe2(ends, O_CLOEXEC) != 0)
		die("pipe");
	pid_t pid = fork();
	if (pid < 0)
		die("fork");
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		set_environment(i);
		dup2(ends[1], STDOUT_FILENO);
		dup2(ends[1], STDERR_FILENO);
		execv(program[0], program);
		die(program[0]);
	}
	close(ends[1]);
	ranks[i].pid = pid;
	ranks[i].fd = ends[0];
	ranks[i].code = -1;
}

/* Keeps the beginning of what a rank writes: the rest is usually a consequence. */
static void take_output(struct rank *rank)
{
	char text[4096];
	ssize_t got = read(rank->fd, text, sizeof text);

	if (got <= 0) {
		close(rank->fd);
		rank->fd = -1;
		return;
	}
	size_t room = OUTPUT_MOST - rank->used, bytes = (size_t)got < room ? (size_t)got : room;
	memcpy(rank->output + rank->used, text, bytes);
	rank->used += bytes;
}

static void poll_outputs(int timeout_ms)
{
	struct pollfd fds[RANKS_MOST];
	for (int i = 0; i < n; i++)
		fds[i] = (struct pollfd){.fd = ranks[i].fd, .events = POLLIN};
	if (poll(fds, (nfds_t)n, timeout_ms) <= 0)
		return;
	for (int i = 0; i < n; i++)
		if (fds[i].revents)
			take_output(&ranks[i]);
}

static void start_again(int i)
{
	while (ranks[i].fd >= 0)
		take_output(&ranks[i]);
	restarted++;
	start(i);
}

/* Returns how many still run; *failed when any has ended badly. */
static int reap(int *failed)
{
	int running = 0, killed = 0, status;
	for (int i = 0; i < n; i++) {
		if (ranks[i].code < 0 && waitpid(ranks[i].pid, &status, WNOHANG) == ranks[i].pid)
			ranks[i].code =
				WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
		bool is_killed = ranks[i].code == 128 + SIGKILL;
		if (is_killed && restarted < restarts) {
			start_again(i);
			is_killed = false;
		}
		running += ranks[i].code < 0;
		killed += is_killed;
		*failed |= ranks[i].code > 0 && !(is_killed && killed_is_fine);
	}
	*failed |= killed == n;
	return running;
}

static void show(int late)
{
	for (int i = 0; i < n; i++) {
		printf("---- rank %d of %d: %s %d%s\n%.*s", i, n, "exit code", ranks[i].code,
		       late && ranks[i].code == 128 + SIGKILL ? " (ended by ranks)" : "",
		       (int)ranks[i].used, ranks[i].output);
	}
}

static int run(void)
{
	long long begun = now_ms(), deadline = begun + seconds * 1000LL;
	int failed = 0, was_failed = 0, late = 0, may_restart = restarts > 0;

	while (reap(&failed) > 0) {
		if (failed && !was_failed && now_ms() + GRACE_MS < deadline)
			deadline = now_ms() + GRACE_MS;
		was_failed = failed;
		if (now_ms() > deadline && !failed)
			deadline = begun + test_limit_stretched(seconds) * 1000LL;
		if (now_ms() > deadline) {
			late = 1;
			restarts = 0;
			for (int i = 0; i < n; i++)
				if (ranks[i].code < 0)
					kill(ranks[i].pid, SIGKILL);
		}
		poll_outputs(50);
	}
	for (int i = 0; i < n; i++)
		while (ranks[i].fd >= 0)
			take_output(&ranks[i]);
	if (failed || late)
		show(late);
	if (late && !was_failed)
		printf("---- ended after %d s\n", seconds);
	if (may_restart && restarted == 0) {
		printf("---- no rank was killed\n");
		return 1;
	}
	return failed || late;
}

int main(int argc, char **argv)
{
	int option;
	while ((option = getopt(argc, argv, "+n:t:2m:kr:d:e:")) != -1) {
		if (option == 'n')
			n = atoi(optarg);
		else if (option == 't')
			seconds = atoi(optarg);
		else if (option == '2')
			machines = 2;
		else if (option == 'm')
			machines = atoi(optarg);
		else if (option == 'k')
			killed_is_fine = 1;
		else if (option == 'r')
			restarts = atoi(optarg);
		else if (option == 'd')
			set_number("TUTTI_TIMEOUT_MS", (int)test_limit_stretched(atoi(optarg)));
		else if (option != 'e' || putenv(optarg) != 0)
			return 2;
	}
	if (n < 1 || n > RANKS_MOST || machines < 1 || optind == argc) {
		fprintf(stderr, "ranks -n N [-t seconds] [-2] [-m M] [-k] [-r R] [-d MS] "
				"[-e NAME=VALUE]... program "
				"[argument]...\n");
		return 2;
	}
	meeting_port = test_ports();
	program = argv + optind;
	for (int i = 0; i < n; i++)
		start(i);
	return run();
}
