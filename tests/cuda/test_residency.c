/* slow: 20 s */
/* Kernels of which a GPU does not hold all at once would wait for each other for ever: a program of
 * two orders, and random programs of many communicators, streams and orders of waiting, on GPUs
 * with few multiprocessors. The driver, too, ends a process whose kernels might do so. SEED repeats
 * one. */
#include "crossed_orders.h"
#include "gpu_ranks.h"

#include "cuda/residency.h"
#include "tests/limit.h"
#include "tests/ports.h"
#include "tests/random.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/unit.h"

#define ROUNDS 20

static void set_number(const char *name, int number)
{
	char text[16];

	snprintf(text, sizeof text, "%d", number);
	setenv(name, text, 1);
}

/* The rank that body runs as is a thread's; all of them are to return 0. */
static int run_process(const struct crossed_machine *m, int process, crossed_body *body)
{
	set_number("RANK", process);
	set_number("WORLD_SIZE", m->processes);
	if (!gpu_open())
		return 77;
	gpu_use(m->first_device[process]);
	return crossed_run(m, process, body);
}

static void run_machine(const struct crossed_machine *m, crossed_body *body)
{
	static int runs;
	pid_t pids[CROSSED_PROCESSES];
	int failed = 0;

	set_number("FAKE_CUDA_SMS", m->multiprocessors);
	set_number("FAKE_CUDA_DEVICES", m->devices);
	set_number("FAKE_CUDA_MPS", m->has_mps);
	set_number("MASTER_PORT", test_ports() + runs++);
	setenv("MASTER_ADDR", "127.0.0.1", 1);
	for (int p = 0; p < m->processes; p++) {
		pids[p] = fork();
		assert_true(pids[p] >= 0);
		if (pids[p] == 0) {
			test_limit(100);
			_exit(run_process(m, p, body));
		}
	}
	for (int p = 0; p < m->processes; p++) {
		int status;
		assert_int_equal(waitpid(pids[p], &status, 0), pids[p]);
		failed = status ? status : failed;
	}
	if (WIFEXITED(failed) && WEXITSTATUS(failed) == 77)
		skip();
	if (failed)
		fail_msg("seed %llu: %d processes of %d ranks, %d GPUs of %d multiprocessors",
			 (unsigned long long)m->seed, m->processes, m->locals, m->devices,
			 m->multiprocessors);
}

/* Rank 0 begins a long call on one communicator, and rank 1 makes it only when a short one on
 * another has ended: that one needs a place beside the first on rank 0's GPU. */
static void test_crossed(void **state)
{
	struct crossed_machine m = {
		.processes = 1, .locals = 2, .devices = 2, .multiprocessors = 8, .ways = *state};

	run_machine(&m, crossed_pair);
}

static uint64_t seed_of_all(void)
{
	const char *text = getenv("SEED");

	return text ? strtoull(text, NULL, 10) : 20261129;
}

static struct crossed_machine draw_machine(uint64_t seed)
{
	static const int multiprocessors[] = {1, 2, 3, 4, 6, 8, 12, 16};
	struct crossed_machine m = {.seed = seed};
	uint64_t random = seed;

	m.processes = 1 + (int)random_below(&random, CROSSED_PROCESSES);
	m.locals = 1 + (int)random_below(&random, CROSSED_RANKS / CROSSED_PROCESSES);
	/* Of their own, or of each process; or shared by processes, which then take turns. */
	m.devices = random_below(&random, 2)   ? m.processes * m.locals
		    : random_below(&random, 2) ? m.processes
					       : 1 + (int)random_below(&random, 3);
	m.multiprocessors = multiprocessors[random_below(&random, 8)];
	m.has_mps = random_below(&random, 16) == 0;
	for (int p = 0; p < m.processes; p++)
		m.first_device[p] = p * m.devices / m.processes;
	return m;
}

static void test_random_programs(void **state)
{
	uint64_t seed = seed_of_all();

	printf("SEED=%llu\n", (unsigned long long)seed);
	for (uint64_t i = 0; i < ROUNDS; i++) {
		struct crossed_machine m = draw_machine(seed + i);
		m.ways = *state;
		run_machine(&m, crossed_program);
	}
}

/* Else the programs have shown nothing. */
static void test_ways(void **state)
{
	const struct crossed_ways *ways = *state;

	printf("communicators by kernels: %u, by turns: %u\n", ways->kernels, ways->turns);
	assert_true(ways->kernels > 0 && ways->turns > 0);
}

/* Of an H200's 132 multiprocessors 116 may be taken, but by no more than 112 kernels. */
static void test_shares(void **state)
{
	assert_int_equal(cuda_residency_share(112, 112, 1), 64);
	assert_int_equal(cuda_residency_share(112, 48, 1), 24);
	assert_int_equal(cuda_residency_share(112, 112, 8), 9);
	assert_int_equal(cuda_residency_share(112, 8, 8), 1);
	assert_int_equal(cuda_residency_share(112, 7, 8), 0);
	assert_int_equal(cuda_residency_share(7, 7, 1), 4);
	assert_int_equal(cuda_residency_share(7, 2, 1), 1);
	assert_int_equal(cuda_residency_share(1, 1, 1), 1);
	assert_int_equal(cuda_residency_share(1, 0, 1), 0);
}

static int open_ways(void **state)
{
	*state = mmap(NULL, sizeof(struct crossed_ways), PROT_READ | PROT_WRITE,
		      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	gpu_ranks_together();
	return *state == MAP_FAILED;
}

static int close_ways(void **state)
{
	gpu_ranks_apart();
	return munmap(*state, sizeof(struct crossed_ways));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_shares),
		cmocka_unit_test(test_crossed),
		cmocka_unit_test(test_random_programs),
		cmocka_unit_test(test_ways),
	};

	if (!gpu_is_emulated()) {
		puts("this test makes GPUs of few multiprocessors, which the emulated driver has");
		return 77;
	}
	return cmocka_run_group_tests(tests, open_ways, close_ways);
}
