/* Would break: ranks stay where they came to be, all on one core; or they move
 * where other programs run, and stay there; or a rank's affinity is not what its program made it.
 * CPUs and time are made up. */
#include "window_team.h"

#include "collectives/comm/join.h"
#include "collectives/window/window_internal.h"

#include <sched.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "tests/unit.h"

#define RANKS 4
#define MS    1000000u

static int here, moves;
static uint64_t now_ns, used_ns;
static cpu_set_t cpuset,
	mask; /* what the system lets this process have; what the thread asked for */

/* The C library's. */
int sched_getcpu(void)
{
	return here;
}

int sched_getaffinity(pid_t pid, size_t bytes, cpu_set_t *set)
{
	assert_int_equal(pid, 0);
	assert_int_equal(bytes, sizeof mask);
	CPU_AND(set, &mask, &cpuset);
	return 0;
}

int sched_setaffinity(pid_t pid, size_t bytes, const cpu_set_t *set)
{
	assert_int_equal(pid, 0);
	assert_int_equal(bytes, sizeof mask);
	cpu_set_t usable;

	CPU_AND(&usable, set, &cpuset);
	if (CPU_COUNT(&usable) == 0)
		return -1;
	mask = *set;
	if (CPU_ISSET((size_t)here, &usable))
		return 0;
	for (here = 0; !CPU_ISSET((size_t)here, &usable);)
		here++;
	moves++;
	return 0;
}

int clock_gettime(clockid_t clock, struct timespec *t)
{
	uint64_t ns = clock == CLOCK_THREAD_CPUTIME_ID ? used_ns : now_ns;

	t->tv_sec = (time_t)(ns / 1000000000u);
	t->tv_nsec = (long)(ns % 1000000000u);
	return 0;
}

static struct window *windows[RANKS];

static int set_up(void **state)
{
	struct team team = {.size = RANKS, .is_oversubscribed = true};

	now_ns = used_ns = 5000u * MS;
	memset(&mask, 0xff, sizeof mask);
	CPU_ZERO(&cpuset);
	CPU_SET(4, &cpuset);
	CPU_SET(7, &cpuset);
	team_open(&team, windows);
	for (int rank = 0; rank < RANKS; rank++)
		atomic_store(&windows[rank]->area->cpu, 4 + 1);
	moves = 0;
	return 0;
}

static int tear_down(void **state)
{
	team_close(windows, RANKS);
	return 0;
}

static int cpu_of(int rank)
{
	return atomic_load(&windows[rank]->area->cpu) - 1;
}

/* As it says in its waits where it is. */
static void look(int rank)
{
	spread_look(&windows[rank]->spread);
	atomic_store(&windows[rank]->area->cpu, here + 1);
}

/* Rank waits for so long, and has the CPU for so many hundredths of the time. It looks before and
 * after. */
static void wait_for(int rank, uint64_t ms, uint64_t share)
{
	cpu_set_t allowed = mask;

	here = cpu_of(rank);
	look(rank);
	now_ns += ms * MS;
	used_ns += ms * MS / 100 * share;
	look(rank);
	assert_memory_equal(&allowed, &mask, sizeof mask);
}

static void test_spread(void **state)
{
	for (int rank = 0; rank < 3; rank++)
		wait_for(rank, 20, 25);
	assert_int_equal(moves, 0);
	wait_for(3, 20, 25);
	assert_int_equal(cpu_of(3), 7);
	wait_for(1, 20, 33);
	assert_int_equal(moves, 1);
	wait_for(2, 20, 33);
	assert_int_equal(cpu_of(2), 7);
	for (int round = 0; round < 10; round++)
		for (int rank = 0; rank < RANKS; rank++)
			wait_for(rank, 20, 50);
	assert_int_equal(moves, 2);
}

/* One look tells nothing of a CPU, nor do two that are close together, nor where a rank has not
 * said. */
static void test_not_at_once(void **state)
{
	here = 4;
	look(3);
	now_ns += MS;
	look(3);
	atomic_store(&windows[1]->area->cpu, 0);
	wait_for(3, 100, 25);
	assert_int_equal(moves, 0);
	atomic_store(&windows[1]->area->cpu, 4 + 1);
	wait_for(3, 100, 25);
	assert_int_equal(moves, 1);
}

static void test_mask(void **state)
{
	CPU_CLR(7, &mask);
	wait_for(3, 20, 25);
	wait_for(3, 20, 25);
	assert_int_equal(moves, 0);
}

/* Its program has bound it to some CPUs of several, and means it: also when there come more. */
static void test_bound(void **state)
{
	CPU_SET(2, &cpuset);
	mask = cpuset;
	CPU_CLR(2, &mask);
	wait_for(3, 20, 25);
	assert_int_equal(cpu_of(3), 7);
	assert_int_equal(moves, 1);
}

/* On trial elsewhere, it is bound to where it is: it does not go back, not even for a moment. */
static void test_bound_on_trial(void **state)
{
	wait_for(3, 20, 25);
	assert_int_equal(cpu_of(3), 7);
	CPU_CLR(4, &mask);
	wait_for(3, 20, 10);
	assert_int_equal(cpu_of(3), 7);
	assert_int_equal(moves, 1);
}

/* Another program has the new CPU: back, and a second's rest, then two. */
static void test_taken(void **state)
{
	for (int trial = 0; trial < 2; trial++) {
		wait_for(3, 20, 25);
		assert_int_equal(moves, 2 * trial + 1);
		assert_int_equal(cpu_of(3), 7);
		wait_for(3, 20, 10);
		assert_int_equal(cpu_of(3), 4);
		assert_int_equal(moves, 2 * trial + 2);
		for (int i = 0; i < (trial ? 19 : 9); i++)
			wait_for(3, 100, 25);
		assert_int_equal(moves, 2 * trial + 2);
		now_ns += 300 * MS;
	}
	wait_for(3, 20, 25);
	assert_int_equal(moves, 5);
}

/* Both CPUs have another program each. */
static void test_shared(void **state)
{
	wait_for(3, 20, 12);
	wait_for(3, 20, 50);
	assert_int_equal(cpu_of(3), 7);
	assert_int_equal(moves, 1);
}

static void test_taken_back(void **state)
{
	wait_for(3, 20, 25);
	assert_int_equal(moves, 1);
	atomic_store(&windows[3]->area->cpu, 4 + 1);
	wait_for(3, 50, 25);
	wait_for(3, 50, 25);
	assert_int_equal(moves, 1);
	now_ns += 1000 * MS;
	wait_for(3, 20, 25);
	assert_int_equal(moves, 2);
}

/* Not in a part of the ranks, which does not see where the others are; and only where it is wanted.
 */
static void test_when(void **state)
{
	struct tutti_comm comm = {
		.size = RANKS, .place.ranks_on_host = RANKS, .settings.env = {.spread = 1}};

	assert_true(windows[0]->spread.is_on);
	assert_true(comm_window_config(&comm).spreads);
	comm.place.ranks_on_host++;
	assert_false(comm_window_config(&comm).spreads);
	comm.place.ranks_on_host--;
	comm.settings.env.spread = 0;
	assert_false(comm_window_config(&comm).spreads);
}

static int set_up_few(void **state)
{
	struct team team = {.size = RANKS, .has_cores = true};

	now_ns = used_ns = 5000u * MS;
	memset(&mask, 0xff, sizeof mask);
	CPU_ZERO(&cpuset);
	for (size_t cpu = 4; cpu < 4 + RANKS; cpu++)
		CPU_SET(cpu, &cpuset);
	team_open(&team, windows);
	moves = 0;
	return 0;
}

/* As many ranks as cores. */
static void test_few(void **state)
{
	assert_true(windows[0]->spread.is_on);
	for (int rank = 0; rank < RANKS; rank++)
		atomic_store(&windows[rank]->area->cpu, 4 + 1);
	for (int rank = RANKS; rank-- > 1;) {
		wait_for(rank, 20, 25);
		assert_int_equal(moves, RANKS - rank);
	}
	wait_for(0, 20, 99);
	assert_int_equal(moves, RANKS - 1);
	for (int rank = 0; rank < RANKS; rank++)
		for (int other = 0; other < rank; other++)
			assert_int_not_equal(cpu_of(rank), cpu_of(other));
}

/* Such ranks say it nowhere else. */
static void test_says(void **state)
{
	here = 6;
	spread_look(&windows[2]->spread);
	assert_int_equal(cpu_of(2), 6);
}

#define spread_test(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		spread_test(test_spread),
		spread_test(test_not_at_once),
		spread_test(test_mask),
		spread_test(test_bound),
		spread_test(test_bound_on_trial),
		spread_test(test_taken),
		cmocka_unit_test_setup_teardown(test_few, set_up_few, tear_down),
		cmocka_unit_test_setup_teardown(test_says, set_up_few, tear_down),
		spread_test(test_shared),
		spread_test(test_taken_back),
		spread_test(test_when),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
