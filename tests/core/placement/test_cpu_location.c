/* Would break: ranks that share no memory do not learn where the others run, or take other threads
 * for them; they stay on one CPU, or ask the kernel in every call. */
#include "collectives/comm/join.h"
#include "core/placement/cpu_spread.h"

#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "tests/unit.h"

#define RANKS 4
#define MS    1000000u

/* What this thread is told: a CPU that it moves from and to without moving. */
static int here, there, moves;
static uint64_t now_ns;

int sched_getcpu(void)
{
	return here;
}

int sched_getaffinity(pid_t pid, size_t bytes, cpu_set_t *set)
{
	(void)pid;
	memset(set, 0, bytes);
	CPU_SET((size_t)here, set);
	CPU_SET((size_t)there, set);
	return 0;
}

int sched_setaffinity(pid_t pid, size_t bytes, const cpu_set_t *set)
{
	(void)pid;
	(void)bytes;
	if (CPU_ISSET((size_t)here, set))
		return 0;
	moves++;
	there = here;
	for (here = 0; !CPU_ISSET((size_t)here, set);)
		here++;
	return 0;
}

int clock_gettime(clockid_t clock, struct timespec *t)
{
	uint64_t ns = clock == CLOCK_THREAD_CPUTIME_ID ? now_ns / 4 : now_ns;

	t->tv_sec = (time_t)(ns / 1000000000u);
	t->tv_nsec = (long)(ns % 1000000000u);
	return 0;
}

/* Really. Returns a CPU that this thread may use and is bound to from here on. */
static int bind_to_one(void)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	assert_true(syscall(SYS_sched_getaffinity, 0, sizeof set, &set) > 0);
	int cpu = 0;
	while (!CPU_ISSET((size_t)cpu, &set))
		cpu++;
	CPU_ZERO(&set);
	CPU_SET((size_t)cpu, &set);
	assert_int_equal(syscall(SYS_sched_setaffinity, 0, sizeof set, &set), 0);
	return cpu;
}

/* Threads that are on that CPU, and wait. */
static struct parked {
	pthread_t thread;
	struct cpu_location at;
} parked[RANKS - 1];
static pthread_barrier_t all_there, may_go;

static void *park(void *arg)
{
	struct parked *p = arg;

	p->at = cpu_location_here();
	pthread_barrier_wait(&all_there);
	pthread_barrier_wait(&may_go);
	return NULL;
}

static int set_up(void **state)
{
	here = bind_to_one(); /* the threads inherit it */
	there = here + 1;
	moves = 0;
	now_ns = 5000u * MS;
	pthread_barrier_init(&all_there, NULL, RANKS);
	pthread_barrier_init(&may_go, NULL, RANKS);
	for (int i = 0; i < RANKS - 1; i++)
		pthread_create(&parked[i].thread, NULL, park, &parked[i]);
	pthread_barrier_wait(&all_there);
	return 0;
}

static int tear_down(void **state)
{
	pthread_barrier_wait(&may_go);
	for (int i = 0; i < RANKS - 1; i++)
		pthread_join(parked[i].thread, NULL);
	return 0;
}

static void test_cpu(void **state)
{
	static const char *const names[] = {"plain", ") 7 (a) b", ""};
	struct cpu_location none = parked[0].at;

	for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
		prctl(PR_SET_NAME, names[i]);
		struct cpu_location mine = cpu_location_here();
		assert_int_equal(cpu_location_now(&mine), here + 1);
	}
	for (int i = 0; i < RANKS - 1; i++)
		assert_int_equal(cpu_location_now(&parked[i].at), here + 1);
	none.thread = -1;
	assert_int_equal(cpu_location_now(&none), 0);
}

static struct cpu_location near_ranks[RANKS];

static struct spread filled(void)
{
	struct spread s = {0};

	for (int i = 0; i < RANKS - 1; i++)
		near_ranks[i] = parked[i].at;
	near_ranks[RANKS - 1] = cpu_location_here();
	spread_near(&s, near_ranks, RANKS, RANKS - 1);
	return s;
}

static void look(struct spread *s, uint64_t after_ms)
{
	now_ns += after_ms * MS;
	spread_look(s);
}

static void test_moves(void **state)
{
	struct spread s = filled();
	int before = here;

	for (int i = 0; i < 3 && !moves; i++)
		look(&s, 5);
	assert_int_equal(moves, 1);
	assert_int_not_equal(here, before);
}

/* The last rank of a CPU moves and no other, and no thread that the others do not know. */
static void test_stays(void **state)
{
	struct spread s = filled();

	near_ranks[0] = near_ranks[RANKS - 1];
	near_ranks[RANKS - 1] = parked[0].at;
	spread_near(&s, near_ranks, RANKS, 0);
	for (int i = 0; i < 10; i++)
		look(&s, 5);
	s = filled();
	near_ranks[RANKS - 1] = parked[0].at;
	spread_near(&s, near_ranks, RANKS, RANKS - 1);
	for (int i = 0; i < 10; i++)
		look(&s, 5);
	assert_int_equal(moves, 0);
}

static void test_pace(void **state)
{
	struct spread s = {0};
	int looks = 0;

	near_ranks[0] = cpu_location_here();
	spread_near(&s, near_ranks, 1, 0);
	for (int ms = 0; ms < 1000; ms++) {
		uint64_t before = s.looked_ns;
		look(&s, 1);
		looks += s.looked_ns != before;
	}
	assert_in_range(looks, 15, 25);
	s.cpu++; /* as if it had been moved */
	look(&s, 100);
	uint64_t before = s.looked_ns;
	look(&s, 5);
	assert_int_not_equal(s.looked_ns, before);
}

static struct member members[RANKS];

/* How many ranks rank 1 finds near itself. */
static int near(const struct tutti_comm *like)
{
	struct tutti_comm comm = *like;

	/* There is no transport here: this fails, later. */
	assert_int_equal(comm_meet(&comm, members), TUTTI_ERR_UNSUPPORTED);
	free(comm.reach.routes);
	return comm.place.ranks_near_count;
}

static void test_when(void **state)
{
	struct tutti_comm comm = {.rank = 1,
				  .size = RANKS,
				  .place.ranks_on_host = RANKS,
				  .settings.env = {.spread = 1}};

	for (int r = 0; r < RANKS; r++)
		members[r].cpu_location = (struct cpu_location){77, 100 + r, 100 + r};
	assert_int_equal(near(&comm), RANKS);
	comm.place.ranks_on_host++; /* ranks that are not of this communicator */
	assert_int_equal(near(&comm), 0);
	comm.place.ranks_on_host--;
	comm.settings.env.spread = 0;
	assert_int_equal(near(&comm), 0);
	comm.settings.env.spread = 1;
	members[2].cpu_location.processes++; /* a container of its own */
	assert_int_equal(near(&comm), 0);
	members[2].cpu_location = members[3].cpu_location; /* tutti_init_all */
	assert_int_equal(near(&comm), 0);
	members[2].host_id[0] = 'x'; /* another node */
	comm.place.ranks_on_host = RANKS - 1;
	assert_int_equal(near(&comm), RANKS - 1);
}

#define near_test(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		near_test(test_cpu),  near_test(test_moves),       near_test(test_stays),
		near_test(test_pace), cmocka_unit_test(test_when),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
