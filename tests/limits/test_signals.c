/* Breaks when a signal that interrupts a system call is taken for a failure: a whole job, with a
 * signal every few hundred microseconds whose handler does not ask for calls to be restarted. */
#include "core/clock.h"
#include "tests/limits/ranks.h"

#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "tests/unit.h"

#define EVERY_NS 300000

/* Shared with the ranks: how many signals each has had. */
static volatile long *signals;
static int this_rank;

static void count(int number)
{
	(void)number;
	signals[this_rank]++;
}

/* To this thread, which makes the calls: the library's own take no signals. */
static void interrupt_all_the_time(int rank, void *arg)
{
	struct sigaction action = {.sa_handler = count}; /* no SA_RESTART */
	struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR1};
	struct itimerspec often = {{0, EVERY_NS}, {0, EVERY_NS}};
	timer_t timer;

	(void)arg;
	this_rank = rank;
	sigaction(SIGUSR1, &action, NULL);
	if (timer_create(CLOCK_MONOTONIC, &event, &timer) != 0 ||
	    timer_settime(timer, 0, &often, NULL) != 0)
		_exit(1);
}

static void run(struct scene scene, const char *what)
{
	const struct outcome *outcomes;

	scene.prepare = interrupt_all_the_time;
	scene.timeout_ms = 40000;
	for (int i = 0; i < 3; i++) {
		outcomes = ranks_run(&scene);
		ranks_expect_decent(outcomes, scene.size, what);
		for (int r = 0; r < scene.size; r++) {
			if (outcomes[r].job.where)
				fail_msg("%s: rank %d: %s: %s", what, r, outcomes[r].job.where,
					 outcomes[r].job.error);
			assert_true(signals[r] > 10);
		}
	}
}

static void nobody_notices(void **state)
{
	run((struct scene){.size = 3, .window = true}, "window");
	run((struct scene){.size = 2, .transports = "tcp"}, "tcp");
	run((struct scene){.size = 3, .transports = "shm"}, "shm");
}

int main(void)
{
	static const struct CMUnitTest tests[] = {cmocka_unit_test(nobody_notices)};

	signals = mmap(NULL, RANKS_MOST * sizeof *signals, PROT_READ | PROT_WRITE,
		       MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
