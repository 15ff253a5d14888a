/* A program that starts ranks of itself: spawn_main WHAT N. Its ranks do what the test asks, and it
 * ends as tuttirun would, with tutti_spawn's message on stderr. */
#include <tutti/tutti.h>

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void never(void)
{
	fputs("an exit handler of the parent's has run\n", stderr);
}

/* Output that is still in memory when the rank ends. */
static int say(int rank, void *arg)
{
	(void)arg;
	printf("rank %d\n", rank);
	return 0;
}

static int copy(int rank, void *arg)
{
	char line[200];

	(void)arg;
	while (fgets(line, sizeof line, stdin))
		printf("[%d] %s", rank, line);
	return 0;
}

/* The end of the test's pipe shows that no rank is left. */
static void say_ready(int rank)
{
	char line[40];
	int n = snprintf(line, sizeof line, "ready %d %d\n", rank, (int)getpid());

	if (write(STDERR_FILENO, line, (size_t)n) != n)
		_exit(9);
}

static int stay(int rank, void *arg)
{
	(void)arg;
	say_ready(rank);
	for (;;)
		pause();
	return 0;
}

/* Ends well after the first signal, and says how many have come. */
static int end_well(int rank, void *arg)
{
	static const int ends[] = {SIGINT, SIGTERM, SIGHUP};
	struct timespec now = {0, 0};
	sigset_t set;
	int got, n = 1;

	(void)arg;
	sigemptyset(&set);
	for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
		sigaddset(&set, ends[i]);
	sigprocmask(SIG_BLOCK, &set, NULL);
	say_ready(rank);
	sigwait(&set, &got);
	while (sigtimedwait(&set, NULL, &now) > 0)
		n++;
	printf("rank %d: signal %d, %d\n", rank, got, n);
	return 0;
}

static int ignore(int rank, void *arg)
{
	signal(SIGINT, SIG_IGN);
	signal(SIGTERM, SIG_IGN);
	return stay(rank, arg);
}

static int fill(int rank, void *arg)
{
	(void)arg;
	for (int i = 0; i < 10000 && rank == 1; i++)
		puts("some output");
	return 0;
}

/* Output that the rank itself cannot write, and does not look at. */
static int flush(int rank, void *arg)
{
	(void)arg;
	if (rank == 1 && puts("some output") > 0)
		fflush(stdout);
	return 0;
}

/* Asks for the exit handlers. */
static int leave(int rank, void *arg)
{
	(void)arg;
	printf("rank %d\n", rank);
	exit(0);
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		int (*fn)(int rank, void *arg);
	} all[] = {{"say", say},       {"copy", copy}, {"stay", stay},   {"end_well", end_well},
		   {"ignore", ignore}, {"fill", fill}, {"flush", flush}, {"leave", leave}};
	tutti_status status = TUTTI_ERR_INVALID;
	char line[200];

	printf("%s begins\n", argc == 3 ? argv[1] : "usage: spawn_main WHAT N");
	if (argc == 3 && strcmp(argv[1], "copy") == 0 && fgets(line, sizeof line, stdin))
		printf("[parent] %s", line); /* and stdio has read ahead */
	if (argc == 3 && getenv("SPAWN_MAIN_ATEXIT"))
		atexit(never);
	for (size_t i = 0; argc == 3 && i < sizeof all / sizeof *all; i++)
		if (strcmp(argv[1], all[i].name) == 0)
			status = tutti_spawn(all[i].fn, NULL, atoi(argv[2]));
	printf("%s\n", tutti_status_string(status));
	if (status != TUTTI_OK)
		fprintf(stderr, "%s\n", tutti_comm_error(NULL));
	if (fflush(stdout) != 0)
		return 3;
	_exit(tutti_spawn_exit_code());
}
