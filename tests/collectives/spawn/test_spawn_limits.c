/* What would break: ranks of tutti_spawn share the cores as those of tuttirun, and where not all
 * ranks can be started, none is left. */
#include "core/status.h"
#include "core/wait.h"
#include "core/rank/claims.h"
#include "tests/collectives/spawn/open_files.h"

#include <tutti/tutti.h>

#include <errno.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include "tests/own_network.h"

#define LIMIT_S 60

/* ---- cores */

static cpu_set_t *affinity; /* the ranks', then the program's: shared */

static bool has_siblings(void)
{
	char text[64] = "";
	FILE *file = fopen("/sys/devices/system/cpu/cpu0/topology/thread_siblings_list", "re");

	if (file && !fgets(text, sizeof text, file))
		text[0] = '\0';
	if (file)
		fclose(file);
	return !file || strpbrk(text, ",-");
}

static int note_cores(int rank, void *arg)
{
	int cores = *(const int *)arg;
	const char *threads = getenv("OMP_NUM_THREADS");

	if (sched_getaffinity(0, sizeof *affinity, &affinity[rank]) != 0 || !threads)
		return 1;
	return atoi(threads) == cores && wait_cores() == CPU_COUNT(&affinity[rank]) ? 0 : 2;
}

/* In a network of its own no other job has claimed a core. */
static void share_cores(void)
{
	int all = wait_cores(), half = all / 2;
	cpu_set_t both, again;

	OWN_NETWORK_NEED(tutti_spawn(note_cores, &half, 2) == TUTTI_OK);
	CPU_AND(&both, &affinity[0], &affinity[1]);
	OWN_NETWORK_NEED(CPU_COUNT(&both) == 0 && CPU_COUNT(&affinity[0]) == half);
	CPU_OR(&both, &affinity[0], &affinity[1]);
	OWN_NETWORK_NEED(CPU_EQUAL(&both, &affinity[2]));
	OWN_NETWORK_NEED(sched_getaffinity(0, sizeof again, &again) == 0);
	OWN_NETWORK_NEED(CPU_EQUAL(&again, &affinity[2]));
	/* Another job has a core: none is bound. */
	for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
		if (CPU_ISSET((size_t)cpu, &again))
			claim_cpu(cpu);
	OWN_NETWORK_NEED(tutti_spawn(note_cores, &half, 2) == TUTTI_OK);
	OWN_NETWORK_NEED(CPU_EQUAL(&affinity[0], &again) && CPU_EQUAL(&affinity[1], &again));
}

/* Whole cores, as many for each. */
static void test_cores(void **state)
{
	int cpus;

	unsetenv("OMP_NUM_THREADS");
	sched_getaffinity(0, sizeof *affinity, &affinity[2]);
	cpus = CPU_COUNT(&affinity[2]);
	if (cpus % (has_siblings() ? 4 : 2) != 0)
		skip_because("two ranks cannot have as many cores each");
	own_network_case(29500, 1001, share_cores);
}

/* ---- not all can be started */

static int sleep_rank(int rank, void *arg)
{
	(void)rank;
	(void)arg;
	for (;;)
		pause();
	return 0;
}

static void test_too_few_files(void **state)
{
	struct rlimit old, few;

	getrlimit(RLIMIT_NOFILE, &old);
	few = old;
	few.rlim_cur = (rlim_t)open_files() + 6;
	setrlimit(RLIMIT_NOFILE, &few);
	assert_int_equal(tutti_spawn(sleep_rank, NULL, 64), TUTTI_ERR_SYSTEM);
	setrlimit(RLIMIT_NOFILE, &old);
	assert_non_null(strstr(tutti_comm_error(NULL), "cannot be watched: Too many open files"));
	assert_non_null(strstr(tutti_comm_error(NULL), "raise `ulimit -n`"));
	assert_int_equal(tutti_spawn_exit_code(), 1);
	assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
}

/* Root has no such limit. */
static int spawn_as_nobody(void)
{
	struct rlimit few = {4, 4};

	if (geteuid() == 0 && setresuid(54321, 54321, 54321) != 0)
		return 1;
	if (setrlimit(RLIMIT_NPROC, &few) != 0)
		return 2;
	if (tutti_spawn(sleep_rank, NULL, 64) != TUTTI_ERR_SYSTEM)
		return 3;
	if (!strstr(tutti_comm_error(NULL), " of 64 cannot be started: Resource temporarily"))
		return 4;
	return waitpid(-1, NULL, WNOHANG) == -1 && errno == ECHILD ? 0 : 5;
}

static void test_too_few_processes(void **state)
{
	pid_t pid = fork();
	int code;

	if (pid == 0)
		_exit(spawn_as_nobody());
	assert_int_equal(waitpid(pid, &code, 0), pid);
	assert_int_equal(code, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_cores),
		cmocka_unit_test(test_too_few_files),
		cmocka_unit_test(test_too_few_processes),
	};

	test_limit(LIMIT_S);
	affinity = mmap(NULL, 3 * sizeof *affinity, PROT_READ | PROT_WRITE,
			MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	return affinity == MAP_FAILED ? 1 : cmocka_run_group_tests(tests, NULL, NULL);
}
