/* Ends a test that hangs, as alarm() does, but beside busy processes later: so long a time counts as
 * one second as it takes to get a second's computing, as the load of the machine has it. */
#ifndef TESTS_LIMIT_H
#define TESTS_LIMIT_H

#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <time.h>
#include <unistd.h>

#ifndef TEST_LIMIT_LOAD
#define TEST_LIMIT_LOAD "/proc/loadavg"
#endif

static struct {
	long begun, seconds;
	_Atomic long cores; /* any thread */
} test_limit_now;

static inline long test_limit_clock(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (long)t.tv_sec;
}

/* Processes that want a core, of the last minute; 0 where that is not known. For a signal handler. */
static inline long test_limit_load(void)
{
	char text[32] = "";
	long load = 0;
	int fd = open(TEST_LIMIT_LOAD, O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		return 0;
	if (read(fd, text, sizeof text - 1) > 0)
		for (const char *c = text; *c >= '0' && *c <= '9'; c++)
			load = 10 * load + (*c - '0');
	close(fd);
	return load;
}

static inline long test_limit_cores(void)
{
	long cores = test_limit_now.cores;

	if (cores > 0)
		return cores;
	cores = sysconf(_SC_NPROCESSORS_ONLN);
	cores = cores > 0 ? cores : 1;
	test_limit_now.cores = cores;
	return cores;
}

/* How long that takes here now, of which it takes so long on a quiet machine. For a signal handler. */
static inline long test_limit_stretched(long time)
{
	long cores = test_limit_cores(), load = test_limit_load();

	return time * (load > cores ? load : cores) / cores;
}

/* False, and the alarm is set again: there is time left. For a signal handler. */
static inline bool test_limit_is_over(void)
{
	long most = test_limit_stretched(test_limit_now.seconds);
	long left = test_limit_now.begun + most - test_limit_clock();

	if (left > 0)
		alarm((unsigned)left);
	return left <= 0;
}

static inline void test_limit_look(int signal_number)
{
	if (!test_limit_is_over())
		return;
	signal(signal_number, SIG_DFL);
	raise(signal_number);
}

/* For this process alone; its children begin without. 0 ends it. */
static inline void test_limit(unsigned seconds)
{
	struct sigaction action = {.sa_handler = test_limit_look, .sa_flags = SA_RESTART};

	test_limit_cores();
	test_limit_now.begun = test_limit_clock();
	test_limit_now.seconds = (long)seconds;
	sigaction(SIGALRM, &action, NULL);
	alarm(seconds);
}

#endif
