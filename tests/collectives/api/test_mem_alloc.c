/* no_asan: it limits addresses */
/* no_tsan: its ranks are processes, which TSan sees nothing of */
/* Would break: what tutti_mem_alloc returns, on which ranks, and what stays healthy, depends on how
 * the ranks are connected; or a rank is told of a call that nobody made. */
#include "tests/collectives/rank_processes.h"

#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "tests/unit.h"

#define ODD   2 /* the rank that differs */
#define BYTES (64u << 20)

static void check(tutti_comm *comm, bool is_right, const char *what)
{
	if (is_right)
		return;
	fprintf(stderr, "rank %d: not %s: %s\n", tutti_rank(comm), what, tutti_comm_error(comm));
	_exit(2);
}

static tutti_status sum(tutti_comm *comm)
{
	float x = 1;

	return tutti_all_reduce(&x, &x, 1, TUTTI_F32, TUTTI_SUM, comm, NULL);
}

/* From now on this process maps little more. */
static void limit_memory(void)
{
	unsigned long pages = 0;
	FILE *file = fopen("/proc/self/statm", "r");

	if (!file || fscanf(file, "%lu", &pages) != 1)
		_exit(2);
	fclose(file);
	rlim_t bytes = (rlim_t)pages * (rlim_t)sysconf(_SC_PAGESIZE) + BYTES / 2;
	setrlimit(RLIMIT_AS, &(struct rlimit){bytes, RLIM_INFINITY});
}

static void one_lacks_memory(tutti_comm *comm)
{
	void *memory = comm, *before = comm;

	check(comm, sum(comm) == TUTTI_OK, "well before");
	if (tutti_rank(comm) == ODD)
		limit_memory();
	check(comm, tutti_mem_alloc(&memory, BYTES, comm) == TUTTI_ERR_MEMORY, "MEMORY");
	check(comm, memory == before, "untouched");
	check(comm, strstr(tutti_comm_error(NULL), "rank 2 has failed") != NULL, "rank 2 named");
	check(comm, sum(comm) == TUTTI_OK, "well afterwards");
	check(comm, tutti_mem_alloc(&memory, 4096, comm) == TUTTI_OK, "given less");
	check(comm, tutti_mem_free(memory) == TUTTI_OK, "freed");
	processes_report(comm, TUTTI_OK);
}

static void one_wants_more(tutti_comm *comm)
{
	size_t bytes = tutti_rank(comm) == ODD ? 8192 : 4096;
	void *memory;

	check(comm, tutti_mem_alloc(&memory, bytes, comm) == TUTTI_ERR_MISMATCH, "a MISMATCH");
	check(comm, sum(comm) == TUTTI_ERR_MISMATCH, "failed");
	processes_report(comm, TUTTI_OK);
}

/* What the ranks hear of is the calls that they made. */
static void one_calls_another(tutti_comm *comm)
{
	tutti_status status;
	void *memory;

	check(comm, sum(comm) == TUTTI_OK, "well before");
	status = tutti_rank(comm) == ODD ? tutti_barrier(comm, NULL)
					 : tutti_mem_alloc(&memory, 4096, comm);
	check(comm, status == TUTTI_ERR_MISMATCH, "a MISMATCH");
	check(comm, strstr(tutti_comm_error(comm), "mem_alloc(") != NULL, "told of mem_alloc");
	check(comm, strstr(tutti_comm_error(comm), "barrier(") != NULL, "told of the barrier");
	processes_report(comm, TUTTI_OK);
}

static void in_a_group(tutti_comm *comm)
{
	void *memory;

	tutti_group_begin();
	check(comm, tutti_mem_alloc(&memory, 4096, comm) == TUTTI_ERR_INVALID, "INVALID");
	tutti_group_end(NULL);
	check(comm, sum(comm) == TUTTI_OK, "well afterwards");
	processes_report(comm, TUTTI_OK);
}

/* A call that never began, and whose work is one that was used before, has made no memory. */
static void one_never_begins(tutti_comm *comm)
{
	enum { LONG_MS = 500 };
	tutti_work *first, *second;
	tutti_call call = {.work = &first};
	void *memory, *more;

	check(comm, tutti_barrier(comm, &call) == TUTTI_OK, "submitted");
	check(comm, tutti_mem_alloc(&memory, 4096, comm) == TUTTI_OK, "given");
	check(comm, tutti_work_wait(&first, 0) == TUTTI_OK, "over");
	if (tutti_rank(comm) == ODD) {
		processes_wait(&shared->here[0], PROCESSES - 1);
	} else {
		call = (tutti_call){.work = &second, .timeout_ms = LONG_MS};
		check(comm, tutti_barrier(comm, &call) == TUTTI_OK, "submitted again");
		check(comm, tutti_mem_alloc(&more, 4096, comm) != TUTTI_OK, "failed");
		check(comm, tutti_work_wait(&second, 0) != TUTTI_OK, "failed, too");
		atomic_fetch_add(&shared->here[0], 1);
	}
	memset(memory, 1, 4096);
	check(comm, tutti_mem_free(memory) == TUTTI_OK, "still there");
	processes_report(comm, TUTTI_OK);
}

static void on_all_ways(void (*body)(tutti_comm *))
{
	for (int w = 0; w < way_count; w++)
		processes_run(&ways[w], NULL, body, NULL, 0);
}

static void test_memory(void **state)
{
	on_all_ways(one_lacks_memory);
}

static void test_sizes(void **state)
{
	on_all_ways(one_wants_more);
}

static void test_another_call(void **state)
{
	on_all_ways(one_calls_another);
}

static void test_group(void **state)
{
	on_all_ways(in_a_group);
}

static void test_never_begun(void **state)
{
	on_all_ways(one_never_begins);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_memory), cmocka_unit_test(test_sizes),
		cmocka_unit_test(test_another_call), cmocka_unit_test(test_group),
		cmocka_unit_test(test_never_begun)};

	return processes_open() ? cmocka_run_group_tests(tests, NULL, NULL) : 1;
}
